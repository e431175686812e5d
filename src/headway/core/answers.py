"""What workers answer. Anything that does not match what the ledger says is late, and ignored."""

from __future__ import annotations

from headway.core.cost import CostModel
from headway.core.effects import ClearWorker, DeliverTokens, ReportCircuit, ReportMemoryCap
from headway.core.engines import dissolve, left
from headway.core.events import (
    BatchCompleted,
    BatchFailed,
    SequenceFailed,
    SequenceFinished,
    SequenceReturned,
    TokensEmitted,
)
from headway.core.ids import BatchId, RequestId, WorkerId
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from headway.core.pool import Pool
from headway.core.requests import DONE, RUNNING
from headway.core.retry import after_failure, after_loss, sequence_after_loss, waits_again
from headway.core.settling import give_back, leave, settle
from headway.core.state import State
from headway.core.units import Instant
from headway.core.workers import RunningBatch, RunningSequence, Worker


def batch_completed(state: State, event: BatchCompleted, now: Instant) -> None:
    worker, batch = _take_batch(state, event.worker, event.batch)
    if worker is None or batch is None:
        return  # a late answer from a worker we already gave up on, or the second of two
    pool = worker.pool
    _lives(state, pool)
    _observe(worker, batch, event.duration, now)
    settle(worker, batch, event.duration)
    pool.rate.add(len(batch.members), now)
    if len(event.failures) < len(batch.members):
        pool.failed_in_a_row = 0
    for failure in event.failures:
        request = batch.members[failure.position].request
        if request.id in state.requests:
            state.resolve(request, failure.outcome, failure.detail)
    for part in batch.members:
        if part.state is RUNNING:
            part.state = DONE
            request = part.request
            request.unfinished -= 1
            if request.unfinished == 0:
                state.resolve(request, Outcome.COMPLETED)
        pool.fair.leave(pool.fair.accounts[part.request.tenant])
    if pool.linger is not None and pool.linger.is_over(now):
        pool.linger.adapt()
        pool.renew_delay()
        state.reconsider(pool)
    _tells_of_suspects(state, batch, pool)
    if pool.memory.tokens and pool.memory.went_well(pool.rules.max_batch_tokens):
        pool.cap_memory()
        state.effects.append(ReportMemoryCap(pool.version, pool.memory.tokens))
        state.reconsider(pool)
    state.touch(pool)


def batch_failed(state: State, event: BatchFailed, now: Instant) -> None:
    worker, batch = _take_batch(state, event.worker, event.batch)
    if worker is None or batch is None:
        return
    pool = worker.pool
    _lives(state, pool)
    pool.placement.ended(worker, batch, 0, pool.cost, now)
    _probe_failed(batch, pool.cost)
    if len(batch.members) > 1:
        give_back(batch, pool)  # who is tried again pays then, and for the others' fault nobody but them
    else:
        settle(worker, batch, event.duration)
    if event.outcome is Outcome.OUT_OF_MEMORY:
        _learn_memory(state, pool, batch)
    after_failure(state, pool, batch, event)
    leave(batch, pool)
    _tells_of_suspects(state, batch, pool)
    state.touch(pool)


def worker_gone(state: State, worker: Worker, loss: Loss, detail: str, now: Instant) -> None:
    """Whatever it had is unanswered, and nobody is charged for it."""
    pool = worker.pool
    pool.placement.retire(worker)
    del state.workers[worker.id]
    batches, worker.batches = worker.batches, {}
    dissolve(worker)
    sequences, worker.sequences = worker.sequences, {}
    for batch in batches.values():
        give_back(batch, pool)
        _probe_failed(batch, pool.cost)
        after_loss(state, pool, batch, loss, detail)
        leave(batch, pool)
        _tells_of_suspects(state, batch, pool)
    for running in sequences.values():
        sequence_after_loss(state, pool, running, loss, detail)
        pool.fair.leave(running.account)
    if loss is Loss.OUT_OF_MEMORY:
        for batch in batches.values():
            if not batch.waits:
                _learn_memory(state, pool, batch)
    if loss.blames:
        _dies(state, pool, detail, now)
    state.touch(pool)


def tokens_emitted(state: State, event: TokensEmitted, now: Instant) -> None:
    running = _sequence(state, event.worker, event.request, event.attempt)
    if running is None:
        return
    running.account.charge(event.service)
    running.account.tally.received += event.service
    clock = running.part.request.pool.fair.clock
    clock.tallies.streamed(event.service, clock.weights)
    request = running.part.request
    if request.id not in state.requests or event.first != request.emitted:
        return  # given up meanwhile, or told twice
    request.emitted += event.count
    state.effects.append(DeliverTokens(request.id, event.attempt, event.first, event.count))


def sequence_finished(state: State, event: SequenceFinished, now: Instant) -> None:
    running = _take_sequence(state, event.worker, event.request, event.attempt)
    if running is None:
        return
    request, part = running.part.request, running.part
    request.pool.rate.add(1, now)
    if part.state is RUNNING:
        part.state = DONE
        request.unfinished -= 1
        state.resolve(request, Outcome.COMPLETED)
    request.pool.fair.leave(running.account)


def sequence_failed(state: State, event: SequenceFailed, now: Instant) -> None:
    running = _take_sequence(state, event.worker, event.request, event.attempt)
    if running is None:
        return
    request = running.part.request
    if request.id in state.requests:
        state.resolve(request, event.outcome, event.detail)
    request.pool.fair.leave(running.account)


def sequence_returned(state: State, event: SequenceReturned, now: Instant) -> None:
    running = _take_sequence(state, event.worker, event.request, event.attempt)
    if running is None:
        return
    request, part = running.part.request, running.part
    if part.state is RUNNING:
        request.moved += 1
        request.paid = event.paid
        waits_again(state, request.pool, part)
    request.pool.fair.leave(running.account)


def _take_batch(state: State, worker_id: WorkerId, number: BatchId) -> tuple[Worker | None, RunningBatch | None]:
    worker = state.workers.get(worker_id)
    if worker is None:
        return None, None
    batch = worker.batches.pop(number, None)
    if batch is not None and worker.is_suspected:
        state.effects.append(ClearWorker(worker.id))  # what it holds next is watched anew
    return worker, batch


def _sequence(state: State, worker_id: WorkerId, request: RequestId, attempt: int) -> RunningSequence | None:
    worker = state.workers.get(worker_id)
    running = worker.sequences.get(request) if worker is not None else None
    return running if running is not None and running.attempt == attempt else None


def _take_sequence(state: State, worker_id: WorkerId, request: RequestId, attempt: int) -> RunningSequence | None:
    running = _sequence(state, worker_id, request, attempt)
    if running is not None:
        worker = state.workers[worker_id]
        del worker.sequences[request]
        left(worker, running)
        _lives(state, worker.pool)
        worker.pool.placement.refresh(worker)
        state.touch(worker.pool)
    return running


def _learn_memory(state: State, pool: Pool, batch: RunningBatch) -> None:
    """It was too large. One part alone cannot be made smaller; and of what is halved already something has been
    learned, or one part that is never small enough would have everybody run alone."""
    if len(batch.members) == 1 or batch.apart:
        return
    tokens = batch.rows * batch.length
    pool.memory.lower(tokens)
    pool.cap_memory()
    state.effects.append(ReportMemoryCap(pool.version, pool.memory.tokens, tokens))
    state.reconsider(pool)


def _lives(state: State, pool: Pool) -> None:
    if pool.breaker.lives():
        state.effects.append(ReportCircuit(pool.version, open=False))


def _dies(state: State, pool: Pool, cause: str, now: Instant) -> None:
    """One too many in a row, and whoever waits is told at once."""
    breaker = pool.breaker
    if not breaker.died(now):
        return
    lasts = breaker.until - now
    detail = f"{cause}; the {breaker.deaths}th worker of {pool.version} in a row"
    state.effects.append(ReportCircuit(pool.version, True, lasts, detail))
    state.refuse_waiting(pool, Outcome.CIRCUIT_OPEN, detail, lasts)


def _tells_of_suspects(state: State, batch: RunningBatch, pool: Pool) -> None:
    """The next one may be tried."""
    if batch.is_suspect:
        state.reconsider(pool)


def _observe(worker: Worker, batch: RunningBatch, duration: int, now: Instant) -> None:
    """The cost model learns what the batch would have taken on a worker of pace 1."""
    pool, pace = worker.pool, worker.pace
    cost, policy = pool.cost, pool.policy
    pool.placement.ended(worker, batch, 0 if batch.withdrawn else duration, cost, now)
    if batch.withdrawn:
        return
    if batch.is_probe:
        beyond = int(duration / pace) - batch.predicted
        cost.probes.pay(beyond * (len(batch.members) + worker.pool.waiting // len(worker.pool.placement.workers)))
    cost.observe(batch.rows, batch.length, int(duration / pace))
    if pool.linger is not None:
        pool.linger.ran(batch.rows, batch.length, pace, cost)
    if policy.hold and (policy.max_batch_time or policy.slo):
        pool.reconsider()  # what fills a held batch is a matter of cost


def _probe_failed(batch: RunningBatch, cost: CostModel) -> None:
    if batch.is_probe and not batch.waits:
        cost.probes.failed(batch.rows, batch.length)
