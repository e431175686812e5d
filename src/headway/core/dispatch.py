"""The decision: as long as a worker is free and something has a reason to leave, it leaves."""

from __future__ import annotations

from headway.core.batching import Forming, form_batch
from headway.core.effects import AdmitSequence, DispatchBatch, Reason
from headway.core.fairness import split
from headway.core.ids import PartRef
from headway.core.leaving import why
from headway.core.outcomes import Outcome
from headway.core.policy import Style
from headway.core.pool import Pool
from headway.core.queue import KeyQueue, TenantQueue
from headway.core.requests import RUNNING, QueuedPart
from headway.core.state import State
from headway.core.units import Duration, Instant, seconds
from headway.core.workers import RunningBatch, RunningSequence, Worker

RETRY_NO_WORKER: Duration = seconds(10)
"""Somebody has to mend something first."""


def decide(state: State, pool: Pool, now: Instant) -> None:
    if pool.waiting and not pool.has_worker:
        _refuse_all(state, pool)
        return
    while pool.free:
        queue = pool.agenda.first()
        if queue is None:
            return
        tenant = queue.turns.first()
        assert tenant is not None
        head = tenant.urgent.first()
        assert head is not None
        if _is_hopeless(pool, head, now):
            detail = f"it would take about {pool.cost.median(head.rows, head.length) / 1e9:.3g} s, and has less left"
            state.resolve(head.request, Outcome.DEADLINE_UNMEETABLE, detail)
            continue
        worker = next(iter(pool.free.values()))  # longest free first
        if pool.policy.style is Style.SEQUENCE:
            _admit(state, pool, worker, queue, tenant, head)
        else:
            _dispatch(state, pool, worker, queue, tenant, now)


def _is_hopeless(pool: Pool, head: QueuedPart, now: Instant) -> bool:
    """Even at the lower quantile it would be late, and others need the worker more.

    The last one that waits is tried all the same: nobody loses by it, and an estimate that had become
    too high is corrected by what it really takes.
    """
    return pool.waiting > 1 and now + pool.cost.lower(head.rows, head.length) > head.request.deadline


def _dispatch(state: State, pool: Pool, worker: Worker, queue: KeyQueue, tenant: TenantQueue, now: Instant) -> None:
    pool.fair.served(tenant.account)
    before = pool.reason(queue, now)
    batch = form_batch(queue, tenant, pool.policy, pool.cost, pool.waiting, pool.latest_end(queue), now)
    predicted = pool.cost.median(batch.rows, batch.length)
    charges = split(batch.members, [owner.account for owner in batch.owners], pool.cost, predicted)
    state.next_batch = number = state.next_batch + 1
    worker.batches[number] = RunningBatch(
        number, queue.key, batch.members, batch.rows, batch.length, now, predicted, charges
    )
    pool.taken(batch.members)
    refs = [PartRef(part.request.id, part.index) for part in batch.members]
    reason = _reason(state, pool, batch, before, now)
    state.effects.append(DispatchBatch(worker.id, number, queue.key, tuple(refs), reason))
    pool.refresh(worker)
    _after(state, pool, queue, now)


def _reason(state: State, pool: Pool, batch: Forming, before: Reason | None, now: Instant) -> Reason:
    """before: why the key's queue had something to let go; its members may not be the ones that gave it."""
    policy = pool.policy
    reason = why(
        policy,
        filled=batch.is_full,
        latest_start=batch.deadline - pool.cost.upper(batch.rows, batch.length) - policy.deadline_margin,
        oldest=batch.oldest,
        draining=pool.draining,
        pressure=state.pressure,
        now=now,
    )
    reason = reason or before
    assert reason is not None
    return reason


def _admit(state: State, pool: Pool, worker: Worker, queue: KeyQueue, tenant: TenantQueue, head: QueuedPart) -> None:
    request = head.request
    account = tenant.account
    pool.fair.served(account)
    head.state = RUNNING
    queue.left((head,), (tenant,))
    pool.taken((head,))
    request.attempt += 1
    worker.sequences[request.id] = RunningSequence(head, request.attempt, account)
    state.effects.append(AdmitSequence(worker.id, request.id, request.attempt, queue.key))
    pool.refresh(worker)
    _after(state, pool, queue, state.now)


def _after(state: State, pool: Pool, queue: KeyQueue, now: Instant) -> None:
    pool.tidy(queue)
    state.timers.arm(pool, queue, now)


def _refuse_all(state: State, pool: Pool) -> None:
    waiting = [part for queue in pool.keys.values() for part in queue.waiting()]
    waiting.sort(key=lambda part: part.seq)
    for request in dict.fromkeys(part.request for part in waiting):
        detail = f"nothing runs {pool.version}, and nothing is starting"
        state.resolve(request, Outcome.NO_WORKER, detail, RETRY_NO_WORKER)
