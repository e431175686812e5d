"""What becomes of parts whose execution came to nothing: who is tried again, with whom, and who is given up.

    its worker was killed from outside, or it had not begun    again, where it was: nothing speaks against it
    it had not begun, and its worker does not answer            likewise, and without waiting for that worker
    its worker died of something                                alone, one such part at a time, on one worker
    its batch raised, or took more memory than there is         with half of those that were with it

Who fails alone has nobody to share the blame with: at once where the model raised, after `max_attempts` deaths of a
worker else. Executions in company count for nothing, as another may have been the cause. Of n parts one of which
makes every batch raise, halving finds it with 2 ceil(log2 n) executions more; one that kills its worker costs at most
`max_attempts` workers more, and everybody else is answered.

Inference reads only, so that running a part twice does no harm; where a model declares otherwise (`idempotent`), what
has begun is never begun again.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.effects import QuarantineRequest, Remedy, RetryParts, WithdrawBatch
from headway.core.events import BatchFailed
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from headway.core.policy import Style
from headway.core.pool import Pool
from headway.core.requests import GONE, RUNNING, QueuedPart
from headway.core.rooms import retry_after
from headway.core.settling import give_back, leave
from headway.core.state import State
from headway.core.units import Duration
from headway.core.workers import RunningBatch, RunningSequence, Worker

HOPELESS_STREAK = 16
"""So many batches of a version that fail one after the other, none without a fault, are not the fault of a part."""


def after_loss(state: State, pool: Pool, batch: RunningBatch, loss: Loss, cause: str) -> None:
    """The worker that had the batch is gone."""
    parts = _open(state, batch.members)
    if not batch.waits and loss.blames:
        for part in parts:
            part.spoiled += batch.predicted
    if batch.waits and pool.policy.idempotent:
        _again(state, pool, parts, cause)
    elif not pool.policy.idempotent:
        _give_up(state, parts, Outcome.MAY_HAVE_RUN, f"{cause}; run twice, this model would do twice what it does")
    elif not batch.apart and not pool.budget.affords(state.now):
        _lost(state, pool, parts, f"{cause}, and too many batches of {pool.version} were tried again of late")
    elif not loss.blames:
        _again(state, pool, parts, cause)
    elif len(batch.members) == 1:
        for part in parts:
            _after_death_alone(state, pool, part, cause)
    else:
        _apart(state, pool, [[part] for part in parts], Remedy.ALONE, cause)


def take_back(state: State, worker: Worker, cause: str) -> None:
    """Nobody knows when the worker will begin with what is only staged behind what it runs. If it wakes up and does
    begin, before it has heard of this, the answer is late; where running twice does harm nothing is ever staged."""
    pool = worker.pool
    if not pool.policy.idempotent:
        return  # it became so a moment ago
    for batch in [batch for batch in worker.batches.values() if batch.waits]:
        del worker.batches[batch.id]
        state.effects.append(WithdrawBatch(worker.id, batch.id, cause))
        give_back(batch, pool)
        _back(state, pool, _open(state, batch.members), Remedy.AGAIN, cause, None)
        leave(batch, pool)


def after_failure(state: State, pool: Pool, batch: RunningBatch, event: BatchFailed) -> None:
    """The batch raised, or was too large for the memory there is, and its worker lives on."""
    outcome, detail = event.outcome, event.detail
    too_large = outcome is Outcome.OUT_OF_MEMORY
    if not too_large:
        pool.failed_in_a_row += 1
    parts, company = _open(state, batch.members), len(batch.members) > 1
    if company:
        for part in parts:
            part.spoiled += event.duration
    if company and pool.policy.idempotent and (too_large or pool.failed_in_a_row < HOPELESS_STREAK):
        middle = (len(parts) + 1) // 2
        halves = [half for half in (parts[:middle], parts[middle:]) if half]
        _apart(state, pool, halves, Remedy.HALVES, detail, outcome)
    elif batch.apart and parts and not company and outcome is Outcome.MODEL_ERROR:
        _is_the_cause(state, pool, parts[0], f"{detail}; it made every batch fail that it was in, and alone")
    else:
        _give_up(state, parts, outcome, detail)


def sequence_after_loss(state: State, pool: Pool, running: RunningSequence, loss: Loss, cause: str) -> None:
    """Its engine is gone. It begins again if the client has seen nothing of it yet."""
    part = running.part
    request = part.request
    if not _open(state, [part]):
        return
    if not pool.policy.idempotent:
        _give_up(state, [part], Outcome.MAY_HAVE_RUN, cause)
    elif request.emitted:
        _lost(state, pool, [part], f"{cause} after {request.emitted} results")
    elif loss.blames and request.attempt - request.moved >= pool.policy.max_attempts:
        _lost(state, pool, [part], f"{cause}, {request.attempt - request.moved} times")
    elif not pool.budget.affords(state.now):
        _lost(state, pool, [part], f"{cause}, and too many of {pool.version} were tried again of late")
    else:
        _again(state, pool, [part], cause)


def _open(state: State, parts: Iterable[QueuedPart]) -> list[QueuedPart]:
    """Those whose request still waits for them."""
    return [part for part in parts if part.state is RUNNING and part.request.id in state.requests]


def _after_death_alone(state: State, pool: Pool, part: QueuedPart, cause: str) -> None:
    part.deaths += 1
    if part.deaths < pool.policy.max_attempts:
        _apart(state, pool, [[part]], Remedy.ALONE, cause)
        return
    state.effects.append(QuarantineRequest(pool.version, part.request.id))
    _is_the_cause(state, pool, part, f"{cause}, {part.deaths} times while it ran nothing but this request")


def _is_the_cause(state: State, pool: Pool, part: QueuedPart, detail: str) -> None:
    """Its tenant pays for all that it spoiled, which nobody was charged for."""
    account, service = pool.fair.accounts[part.request.tenant], part.spoiled * max(1, pool.policy.cores)
    pool.device.correct(account, service)
    account.tally.received += service
    pool.fair.clock.tallies.unsettled += service
    _give_up(state, [part], Outcome.POISON_REQUEST, detail)


def _again(state: State, pool: Pool, parts: list[QueuedPart], cause: str) -> None:
    """Where they were: in their old places, before all that came later."""
    _wait(state, pool, parts, Remedy.AGAIN, cause, None, Outcome.WORKER_LOST)


def _apart(
    state: State,
    pool: Pool,
    groups: list[list[QueuedPart]],
    how: Remedy,
    cause: str,
    otherwise: Outcome = Outcome.WORKER_LOST,
) -> None:
    """Each group runs by itself."""
    for group in groups:
        state.groups += 1
        number = state.groups if how is Remedy.HALVES else -state.groups
        _wait(state, pool, group, how, cause, number, otherwise)


def _wait(
    state: State,
    pool: Pool,
    parts: list[QueuedPart],
    how: Remedy,
    cause: str,
    apart: int | None,
    otherwise: Outcome,
) -> None:
    """apart: the group that they run in from now on; None: as before.  otherwise: of those that have no time left."""
    late = [part for part in parts if pool.is_hopeless(part, state.now)]
    _give_up(state, late, otherwise, f"{cause}, and there is no time left to try again")
    _back(state, pool, parts, how, cause, apart)


def _back(state: State, pool: Pool, parts: list[QueuedPart], how: Remedy, cause: str, apart: int | None) -> None:
    """They wait, in their old places."""
    back = []
    for old in parts:
        if old.state is not RUNNING:
            continue  # it was hopeless, or another part of its request was
        back.append(waits_again(state, pool, old, apart).ref)
    if back:
        state.effects.append(RetryParts(pool.version, tuple(back), how, cause))


def waits_again(state: State, pool: Pool, old: QueuedPart, apart: int | None = None) -> QueuedPart:
    """In its old place."""
    part = old.again(old.apart if apart is None else apart)
    old.state = GONE
    old.request.parts[old.index] = part
    queue = pool.push(part)
    state.timers.arm(pool, queue, state.now)
    return part


def _lost(state: State, pool: Pool, parts: Iterable[QueuedPart], detail: str) -> None:
    after = retry_after(pool, state.now) if pool.policy.style is Style.BATCH else 0
    _give_up(state, parts, Outcome.WORKER_LOST, detail, after)


def _give_up(
    state: State, parts: Iterable[QueuedPart], outcome: Outcome, detail: str, retry_after: Duration = 0
) -> None:
    for part in parts:
        if part.request.id in state.requests:
            state.resolve(part.request, outcome, detail, retry_after)
