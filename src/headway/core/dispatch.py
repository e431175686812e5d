"""The decision: as long as a worker is free and something has a reason to leave, it leaves."""

from __future__ import annotations

from headway.core import engines
from headway.core.batching import form_batch
from headway.core.device import Device
from headway.core.effects import AdmitSequence, DispatchBatch, Reason
from headway.core.fairness import split
from headway.core.forming import Forming, Setting
from headway.core.ids import PartRef
from headway.core.leaving import why
from headway.core.outcomes import Outcome
from headway.core.placing import tokens_of
from headway.core.policy import Style
from headway.core.pool import Pool
from headway.core.queue import KeyQueue, TenantQueue
from headway.core.requests import RUNNING, QueuedPart
from headway.core.state import State
from headway.core.units import SECOND, Duration, Instant, seconds
from headway.core.workers import RunningBatch, RunningSequence, Worker

RETRY_NO_WORKER: Duration = seconds(10)
"""Somebody has to mend something first."""


def decide(state: State, device: Device, now: Instant) -> None:
    for pool in device.pools.values():
        if pool.waiting and not pool.placement.has_worker:
            state.refuse_waiting(pool, Outcome.NO_WORKER, *_why_nobody(pool, now))
    while (turn := device.next_turn(now)) is not None:
        pool, worker, queue = turn
        leader = queue.turns.first()
        assert leader is not None
        tenant = pool.promoted(queue, now) or leader
        queue = tenant.queue
        head = tenant.urgent.first()
        assert head is not None
        start = now if worker.has_room else max(now, worker.ends_at)
        if pool.waiting > 1 and pool.is_hopeless(head, start):
            # for the sake of the others that wait; the last one is tried all the same on an idle worker: nobody
            # loses by it, and an estimate that had become too high is corrected by what it really takes
            state.resolve(head.request, Outcome.DEADLINE_UNMEETABLE, _has_less_left(pool, head, start))
            continue
        if pool.policy.style is Style.SEQUENCE:
            _admit(state, pool, worker, queue, tenant, head)
        else:
            pool.fair.served(leader.account)  # who is promoted moves no time on: it may be ahead of who waits
            _dispatch(state, pool, worker, queue, tenant, start)
    for pool in device.pools.values():
        engines.recall(state, pool)


def _has_less_left(pool: Pool, head: QueuedPart, start: Instant) -> str:
    least, left = pool.cost.lower(head.rows, head.length), max(0, head.request.deadline - start)
    return f"it would take {least / SECOND:.3g} s at least once it runs, and has {left / SECOND:.3g} s left by then"


def _dispatch(state: State, pool: Pool, worker: Worker, queue: KeyQueue, tenant: TenantQueue, start: Instant) -> None:
    """start: when the worker will begin with it; later than now for a batch that is staged."""
    now, placement = state.now, pool.placement
    before = pool.reason(queue, now)
    waiting, workers = pool.device.crowd(pool)
    counted = pool.fair.counted(tenant.account, waiting)
    latest_end = pool.device.latest_end(pool, queue, now)
    setting = Setting(pool.policy, pool.cost, waiting, counted, workers, latest_end, start)
    batch = form_batch(queue, tenant, setting)
    predicted = pool.cost.median(batch.rows, batch.length)
    service = predicted * max(1, pool.policy.cores)
    accounts = [owner.account for owner in batch.owners]
    paying = [index for index, pays in enumerate(batch.pays) if pays]
    charges = split([batch.members[i] for i in paying], [accounts[i] for i in paying], pool.cost, service)
    pool.fair.clock.gave(service)
    pool.budget.dispatches(now)
    state.next_batch = number = state.next_batch + 1
    staged = bool(worker.batches) and not worker.has_room
    running = RunningBatch(number, queue.key, batch.members, batch.rows, batch.length, now, predicted, charges, staged)
    running.is_probe = batch.is_probe
    worker.batches[number] = running
    if not staged:
        placement.began(worker, running, pool.cost, now)
    pool.taken(batch.members, accounts)
    for part in batch.members:
        part.request.begun = True
    refs = [PartRef(part.request.id, part.index) for part in batch.members]
    reason = _reason(state, pool, batch, before, now)
    state.effects.append(DispatchBatch(worker.id, number, queue.key, tuple(refs), reason))
    placement.refresh(worker)
    _after(state, pool, queue, now)


def _reason(state: State, pool: Pool, batch: Forming, before: Reason | None, now: Instant) -> Reason:
    """before: why the key's queue had something to let go; its members may not be the ones that gave it."""
    if before is Reason.RETRY:
        return before
    policy = pool.policy
    reason = why(
        policy,
        filled=batch.is_full,
        latest_start=batch.deadline - pool.cost.upper(batch.rows, batch.length) - policy.deadline_margin,
        oldest=batch.oldest,
        delay=pool.max_queue_delay,
        draining=pool.draining,
        pressure=state.pressure,
        now=now,
    )
    reason = reason or before
    assert reason is not None
    return reason


def _admit(state: State, pool: Pool, worker: Worker, queue: KeyQueue, tenant: TenantQueue, head: QueuedPart) -> None:
    request, engine = head.request, worker.engine
    if engine is not None and (why_not := engine.never(tokens_of(head))):
        state.resolve(request, Outcome.TOO_LARGE, why_not)
        return
    account = tenant.account
    pool.fair.served(account)
    head.state = RUNNING
    request.begun = True
    queue.left((head,), (tenant,))
    pool.taken((head,), (account,))
    request.attempt += 1
    running = worker.sequences[request.id] = RunningSequence(head, request.attempt, account)
    counter = engines.hand_over(worker, engine, running) if engine is not None else 0
    state.effects.append(AdmitSequence(worker.id, request.id, request.attempt, queue.key, counter, request.paid))
    pool.placement.refresh(worker)
    _after(state, pool, queue, state.now)


def _after(state: State, pool: Pool, queue: KeyQueue, now: Instant) -> None:
    pool.tidy(queue)
    state.timers.arm(pool, queue, now)


def _why_nobody(pool: Pool, now: Instant) -> tuple[str, Duration]:
    """And when somebody may be there again."""
    device = pool.device
    if device.trouble:
        return f"{device.name}, which {pool.version} runs on, is lost: {device.trouble}", max(
            SECOND, device.tried_at - now
        )
    return f"nothing runs {pool.version}, and nothing is starting", RETRY_NO_WORKER
