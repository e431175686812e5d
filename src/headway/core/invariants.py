"""What must always hold between two calls of `handle`, recomputed from scratch."""

from __future__ import annotations

from collections import Counter

from headway.core.device import Device
from headway.core.errors import InvariantViolation
from headway.core.patience import leaves_at
from headway.core.placing import engines_of, pick
from headway.core.pool import Pool
from headway.core.requests import GONE, RUNNING, WAITING, Request
from headway.core.room import Room
from headway.core.shares import units
from headway.core.state import State
from headway.core.units import NEVER, Instant
from headway.core.workers import Worker, WorkerState


def check(state: State) -> None:
    """Raises InvariantViolation with the story of the first thing that is wrong."""
    _requests(state)
    for pool in state.pools.values():
        _workers(state, pool)
        _queues(state, pool)
        _sums(state, pool)
    for device in state.devices.values():
        _accounts(device)
        _pending(device)
        _cores(device)
        _nothing_is_stuck(state, device)
    _require(
        state.bytes == sum(r.bytes for r in state.requests.values()),
        f"{state.bytes} bytes are counted, the requests hold {sum(r.bytes for r in state.requests.values())}",
    )
    held: list[tuple[Request, tuple[int, ...]]] = [(r, (r.bytes,)) for r in state.requests.values()]
    _room("bytes", state.room, held)
    _require(not state.touched, f"devices {list(state.touched)} were touched, and nothing was decided")


def _requests(state: State) -> None:
    for request in state.requests.values():
        waiting = sum(part.state is WAITING for part in request.parts)
        running = sum(part.state is RUNNING for part in request.parts)
        _require(waiting == request.waiting, f"request {request.id}: {waiting} parts wait, {request.waiting} counted")
        _require(
            request.unfinished == waiting + running > 0,
            f"request {request.id}: {request.unfinished} unfinished, {waiting} wait and {running} run",
        )
        shared = sum(part.bytes for part in request.parts)
        _require(shared <= request.bytes, f"request {request.id} of {request.bytes} bytes: its parts have {shared}")
        _require(request.deadline > state.now, f"request {request.id} outlived its deadline {request.deadline}")
    first = min((r.deadline for r in state.requests.values()), default=NEVER)
    _require(state.deadlines.first() == first, f"the first deadline is {first}, its timer {state.deadlines.first()}")


def _workers(state: State, pool: Pool) -> None:
    for worker in pool.placement.workers.values():
        story = f"worker {worker.id} of {pool.version} ({worker.state.value})"
        _require(state.workers.get(worker.id) is worker, f"{story} is not among all workers")
        _require(worker.state not in (WorkerState.STOPPED, WorkerState.LOST), f"{story} should be forgotten")
        _require(
            worker.has_room == (worker.id in pool.placement.free), f"{story}: room {worker.has_room}, index disagrees"
        )
        _engine(worker, story)
        for batch in worker.batches.values():
            keys = {part.request.key for part in batch.members}
            _require(keys == {batch.key}, f"batch {batch.id} of {story} holds keys {keys}")
            rows = sum(part.rows for part in batch.members)
            _require(rows == batch.rows, f"batch {batch.id} of {story}: {rows} rows, {batch.rows} counted")
            for part in batch.members:
                _require(part.state in (RUNNING, GONE), f"batch {batch.id} of {story}: {part.ref} is {part.state}")


def _engine(worker: Worker, story: str) -> None:
    """Each order that it may not have heard of is counted on top of its report, exactly once."""
    engine = worker.engine
    if engine is None:
        return
    _require(engine.heard <= engine.orders, f"{story} has heard of {engine.heard} orders, of {engine.orders} given")
    for id, running in worker.sequences.items():
        unheard = running.order > engine.heard
        _require(not unheard or id in engine.waiting, f"{story} has not heard of {id}, and it is not counted")
        _require(not running.reserved or id in engine.waiting, f"{story} has begun with {id}, and it is charged ahead")
    for id, running in engine.waiting.items():
        _require(worker.sequences.get(id) is running, f"{id} waits in {story}, which does not have it")


def _pending(device: Device) -> None:
    """What accounts are charged in advance is what runs, or is owed to engines."""
    pending: Counter[str] = Counter()
    for worker in (worker for pool in device.pools.values() for worker in pool.placement.workers.values()):
        for account, amount in (charge for batch in worker.batches.values() for charge in batch.charges):
            pending[account.tenant] += amount
        for running in worker.sequences.values():
            pending[running.account.tenant] += running.reserved
        if worker.engine is not None:
            for tenant, (account, amount) in worker.engine.owed.items():
                pending[tenant] += amount if device.fair.accounts.get(tenant) is account else 0
    counted = {a.tenant: a.pending for a in device.fair.accounts.values() if a.pending}
    expected = {tenant: amount for tenant, amount in pending.items() if amount}
    _require(counted == expected, f"{device.name}: charged in advance {expected}, counted {counted}")


def _queues(state: State, pool: Pool) -> None:
    for key, queue in pool.keys.items():
        waiting = queue.waiting()
        story = f"queue {key}"
        _require(len(waiting) == queue.count, f"{story}: {len(waiting)} wait, {queue.count} counted")
        _require(sum(p.rows for p in waiting) == queue.rows, f"{story}: rows do not add up")
        _require(sum(p.rows * p.length for p in waiting) == queue.tokens, f"{story}: tokens do not add up")
        _require(sum(p.bytes for p in waiting) == queue.bytes, f"{story}: bytes do not add up")
        counts = Counter(part.request.tenant for part in waiting)
        _require(
            counts == {name: tenant.count for name, tenant in queue.tenants.items()},
            f"{story}: tenants do not add up",
        )
        for part in waiting:
            alive = state.requests.get(part.request.id) is part.request
            _require(alive, f"{story}: {part.ref} waits, but its request has its outcome")
        wake = pool.wake_at(queue)
        if state.now < wake < NEVER and pool.reason(queue, state.now) is None:
            _require(queue.timer <= wake, f"{story} is due at {wake}, its timer is set for {queue.timer}")


def _sums(state: State, pool: Pool) -> None:
    waiting = [part for queue in pool.keys.values() for part in queue.waiting()]
    _require(len(waiting) == pool.waiting, f"{pool.version}: {len(waiting)} parts wait, {pool.waiting} counted")
    _require(sum(p.rows for p in waiting) == pool.rows, f"{pool.version}: rows do not add up")
    _require(sum(p.rows * p.length for p in waiting) == pool.tokens, f"{pool.version}: tokens do not add up")
    _require(sum(p.work for p in waiting) == pool.work_waiting, f"{pool.version}: work does not add up")
    requests = {part.request.id for part in waiting}
    _require(len(requests) == pool.queued, f"{pool.version}: {len(requests)} requests wait, {pool.queued} counted")
    mine = [part for r in state.requests.values() if r.pool is pool for part in r.parts if part.state is WAITING]
    _require(
        len(mine) == pool.waiting, f"{pool.version}: requests have {len(mine)} waiting parts, {pool.waiting} counted"
    )

    rows = [(r, sum(p.rows for p in r.parts if p.state is WAITING)) for r in state.requests.values() if r.pool is pool]
    _room(str(pool.version), pool.room, [(request, (1, count)) for request, count in rows if count])


def _room(name: str, room: Room, held: list[tuple[Request, tuple[int, ...]]]) -> None:
    """held: who has something in it, and how much."""
    used: dict[str, list[int]] = {}
    counts: Counter[tuple[str, int]] = Counter()
    for request, amount in held:
        of_tenant = used.setdefault(request.tenant, [0] * len(amount))
        of_tenant[:] = [have + more for have, more in zip(of_tenant, amount, strict=True)]
        counts[request.tenant, request.doubling] += 1
    shown = {holding.tenant: holding.used for holding in room.holdings.values()}
    _require(used == shown, f"room of {name}: tenants hold {used}, counted {shown}")
    totals = [sum(amounts) for amounts in zip(*used.values(), strict=True)] or [0] * len(room.used)
    _require(totals == room.used, f"room of {name}: {totals} is used, counted {room.used}")
    lengths = {(h.tenant, length): count for h in room.holdings.values() for length, count in h.counts.items()}
    _require(dict(counts) == lengths, f"room of {name}: by length {dict(counts)}, counted {lengths}")
    weights = sum(holding.weight for holding in room.holdings.values())
    _require(weights == room.weights, f"room of {name}: weights add up to {weights}, counted {room.weights}")


def _accounts(device: Device) -> None:
    active: Counter[str] = Counter()
    for pool in device.pools.values():
        active.update(part.request.tenant for queue in pool.keys.values() for part in queue.waiting())
        for worker in pool.placement.workers.values():
            active.update(part.request.tenant for batch in worker.batches.values() for part in batch.members)
            active.update(running.account.tenant for running in worker.sequences.values())
    waiting: Counter[str] = Counter()
    work: Counter[str] = Counter()
    for pool in device.pools.values():
        for part in (part for queue in pool.keys.values() for part in queue.waiting()):
            waiting[part.request.tenant] += 1
            work[part.request.tenant] += part.work
    counted = {a.tenant: (a.waiting, a.work) for a in device.fair.accounts.values() if a.waiting}
    expected = {tenant: (count, work[tenant]) for tenant, count in waiting.items()}
    _require(counted == expected, f"{device.name}: (parts, work) wait {expected}, counted {counted}")
    _tallies(device)
    known = {a.tenant: a.active for a in device.fair.accounts.values() if a.active}
    _require(dict(active) == known, f"{device.name}: tenants are active {dict(active)}, counted {known}")


def _tallies(device: Device) -> None:
    """Those that wait are counted once, where their tenant is."""
    fair = device.fair
    expected: Counter[str] = Counter()
    for account in fair.accounts.values():
        if account.waiting:
            expected[fair.tenancy.label(account.tenant)] += units(account.weight)
    counted = {name: tally.weight for name, tally in fair.clock.tallies.by_tenant.items() if tally.weight}
    _require(dict(expected) == counted, f"{device.name}: weights wait {dict(expected)}, tallied {counted}")
    _require(
        fair.clock.weights == expected.total(), f"{device.name}: {expected.total()} wait, {fair.clock.weights} counted"
    )


def _cores(device: Device) -> None:
    busy = [w for pool in device.pools.values() for w in pool.placement.workers.values() if w.batches]
    used = sum(device.need(worker.pool) for worker in busy if not worker.is_suspected)
    _require(used == device.in_use, f"{device.name}: {used} cores are in use, {device.in_use} counted")


def _nothing_is_stuck(state: State, device: Device) -> None:
    """Work conservation: nothing with a reason to leave stays beside a worker with room, unless for a while,
    or for cores that somebody's turn has come to: maybe one whose batch is to be staged."""
    waits = state.now < device.wake < NEVER
    ready = [pool for pool in device.pools.values() if _could_leave(state, pool)]
    if all(device.has_cores_for(pool, now=state.now) for pool in ready) and not _stages_first(device, ready, state.now):
        for pool in ready:
            story = f"{pool.version} should leave, and workers {list(pool.placement.free)} have room"
            _require(waits, story)
            ceiling = min(queue.oldest() for queue in pool.keys.values()) + pool.max_queue_delay
            _require(device.wake <= ceiling, f"{story}: it waits until {device.wake}, longer than {ceiling}")
    for pool in device.pools.values():
        served = pool.placement.has_worker or not pool.waiting
        _require(served, f"{pool.version}: {pool.waiting} parts wait for a version that nobody runs")


def _stages_first(device: Device, ready: list[Pool], now: Instant) -> bool:
    """Whether it is the turn of a version all of whose workers are busy, for a batch that waits for cores too."""
    others = [queue.entry for pool in ready if (queue := pool.agenda.first()) is not None and queue.entry is not None]
    for pool in device.pools.values():
        worker, queue = pool.placement.next_free(now), pool.agenda.first()
        if not pool.waiting or pool.placement.free or worker is None or queue is None or queue.entry is None:
            continue
        due = worker.stage_at <= now <= worker.overdue_at and leaves_at(pool, queue, worker, now) <= now
        if due and not device.has_cores_for(pool, now=now, after=worker) and all(queue.entry < e for e in others):
            return True
    return False


def _could_leave(state: State, pool: Pool) -> bool:
    reasons = (pool.reason(queue, state.now) for queue in pool.keys.values())
    if engines_of(pool) and pick(pool, state.now) is None:
        return False  # no engine takes the one whose turn it is, and nobody passes it
    return bool(pool.placement.free) and any(reason is not None for reason in reasons)


def _require(holds: bool, story: str) -> None:
    if not holds:
        raise InvariantViolation(story)
