"""What passes between the core and engines: what is handed over, what they report, what is taken back."""

from __future__ import annotations

from headway.core.effects import TakeBack, UpdateCounters
from headway.core.engine import Engine
from headway.core.events import EngineReported, Served
from headway.core.placing import engines_of
from headway.core.policy import Style
from headway.core.pool import Pool
from headway.core.requests import RUNNING
from headway.core.state import State
from headway.core.units import Instant
from headway.core.workers import RunningSequence, Worker


def hand_over(worker: Worker, engine: Engine, running: RunningSequence) -> int:
    """The engine is about to be told of it; its tenant is charged in advance for what of the prompt is to be computed.
    Returns the tenant's counter as the engine is to see it."""
    request, account = running.part.request, running.account
    engine.orders += 1
    running.order = engine.orders
    fresh = running.part.length - max(request.paid, engine.held(request.prefix))
    if fresh > 0:
        running.reserved = account.reserve(worker.pool.cost.median(1, fresh))
    engine.waiting[request.id] = running
    engine.will_hold(request.prefix)
    return account.counter - engine.in_advance(account)


# -- what it reports ---------------------------------------------------------------------------


def reported(state: State, event: EngineReported, now: Instant) -> None:
    worker = state.workers.get(event.worker)
    engine = None if worker is None else worker.engine
    if worker is None or engine is None or event.number <= engine.report:
        return  # of one that was given up, or told twice
    engine.report, engine.heard = event.number, min(max(engine.heard, event.heard), engine.orders)
    engine.slots, engine.blocks, engine.prefilling = event.sequences, event.kv_blocks, event.prefilling
    _who_waits(worker, engine, event)
    for hash in event.forgot:
        engine.prefixes.pop(hash, None)
    _charge(worker.pool, engine, event.served)
    counters = tuple([(served.tenant, _shown(worker.pool, engine, served)) for served in event.served])
    state.effects.append(UpdateCounters(worker.id, event.number, counters))
    worker.pool.placement.refresh(worker)
    state.touch(worker.pool)


def _who_waits(worker: Worker, engine: Engine, event: EngineReported) -> None:
    """By the report; and what it had not heard of then."""
    before, engine.waiting = engine.waiting, {}
    for request, attempt in event.waiting:
        running = worker.sequences.get(request)
        if running is not None and running.attempt == attempt:
            engine.waiting[request] = running
    for request, running in before.items():
        if running.order > engine.heard:
            engine.waiting[request] = running
        elif request not in engine.waiting:
            release(worker, running)
            running.begun = True
    for running in worker.sequences.values():
        if 0 < running.recalled <= engine.heard:
            running.recalled = 0  # it had begun: it stays


def release(worker: Worker, running: RunningSequence) -> None:
    """What was charged in advance for it is due no more: by now the engine tells of it."""
    if running.reserved:
        worker.pool.device.release(running.account, running.reserved)
        running.reserved = 0


def _charge(pool: Pool, engine: Engine, all_served: tuple[Served, ...]) -> None:
    fair, device, clock = pool.fair, pool.device, pool.fair.clock
    before, engine.owed = engine.owed, {}
    for served in all_served:
        if served.service:
            fair.charge(served.tenant, served.service)
            clock.tallies.streamed(served.service, clock.weights)
        account = fair.accounts.get(served.tenant)
        if account is not None and served.owed:
            engine.owed[served.tenant] = (account, account.reserve(served.owed))
    for account, amount in before.values():
        device.release(account, amount)


def _shown(pool: Pool, engine: Engine, served: Served) -> int:
    """The tenant's counter, without what this engine knows better itself."""
    account = pool.fair.accounts.get(served.tenant)
    return pool.fair.virtual_time if account is None else account.counter - engine.in_advance(account)


def left(worker: Worker, running: RunningSequence) -> None:
    """The engine has it no more."""
    if worker.engine is not None:
        worker.engine.waiting.pop(running.part.request.id, None)
        release(worker, running)


def dissolve(worker: Worker) -> None:
    """It is gone. Whose prompt it had begun with pays for none of it again."""
    engine = worker.engine
    if engine is None:
        return
    for running in worker.sequences.values():
        release(worker, running)
        if running.begun:
            running.part.request.paid = running.part.length
    for account, amount in engine.owed.values():
        worker.pool.device.release(account, amount)
    worker.engine = None


# -- who is taken back -------------------------------------------------------------------------


def recall(state: State, pool: Pool) -> None:
    """What waits in an engine that has no room for it, while another has and nothing waits here that could have it,
    is taken back to be handed to that one. One at a time: what room there is then is known then."""
    if pool.waiting or pool.policy.style is not Style.SEQUENCE or len(pool.placement.workers) < 2:
        return
    held = [(worker, worker.engine) for worker in pool.placement.workers.values() if worker.engine is not None]
    if any(running.recalled for worker, _ in held for running in worker.sequences.values()):
        return
    for worker, engine in held:
        for running in _recallable(state, engine):
            others = [other for other, another in engines_of(pool) if other is not worker and _fits(another, running)]
            if others:
                engine.orders += 1
                running.recalled = engine.orders
                request = running.part.request
                state.effects.append(TakeBack(worker.id, request.id, running.attempt))
                return


def _recallable(state: State, engine: Engine) -> list[RunningSequence]:
    """What it has said waits there, and has no room for beside what came before; in order of arrival."""
    slots, blocks = engine.slots, engine.blocks
    recallable = []
    for running in sorted(engine.waiting.values(), key=_seq):
        slots -= 1
        blocks -= engine.blocks_of(running.tokens)
        known = running.order <= engine.heard and running.part.state is RUNNING
        if known and (slots < 0 or blocks < 0) and running.part.request.id in state.requests:
            recallable.append(running)
    return recallable


def _seq(running: RunningSequence) -> int:
    return running.part.seq


def _fits(engine: Engine, running: RunningSequence) -> bool:
    return not engine.never(running.tokens) and engine.holds(running.tokens)
