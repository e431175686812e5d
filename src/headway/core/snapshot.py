"""The scheduler's state as JSON values, and back.

Only what means something is kept; heaps and indexes are built again. That this is enough to go on
with the very same decisions is what makes a recorded trace replayable from its first line.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from headway.core.cost import CostModel
from headway.core.device import Device
from headway.core.engine import Engine
from headway.core.ids import BatchKey, Capacity, PartRef, RequestId, VersionId
from headway.core.linger import Linger
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.pool import Pool
from headway.core.requests import PartState, QueuedPart, Request
from headway.core.room import doubling
from headway.core.state import State
from headway.core.tenancy import RateLimit, TenantPolicy
from headway.core.workers import RunningBatch, RunningSequence, Worker, WorkerState

FORMAT = 12


def take(state: State) -> dict[str, Any]:
    given_up: dict[RequestId, list[QueuedPart]] = {}  # parts whose answer is still to come
    for worker in state.workers.values():
        running = [part for batch in worker.batches.values() for part in batch.members]
        running += [sequence.part for sequence in worker.sequences.values()]
        for part in running:
            if part.request.id not in state.requests:
                given_up.setdefault(part.request.id, []).append(part)
    return {
        "format": FORMAT,
        "now": state.now,
        "seq": state.seq,
        "next_batch": state.next_batch,
        "groups": state.groups,
        "draining": state.draining,
        "pressure": state.pressure,
        "policy": asdict(state.policy),
        "known": list(state.tenancy.known),
        "meters": state.limits.snapshot(),
        "requests": [
            *(_request(request, request.parts, open=True) for request in state.requests.values()),
            *(_request(parts[0].request, parts, open=False) for parts in given_up.values()),
        ],
        "workers": list(state.workers),
        "devices": [_device(device) for device in state.devices.values()],
        "pools": [_pool(pool) for pool in state.pools.values()],
    }


def restore(state: State, saved: dict[str, Any]) -> None:
    """Into a fresh state. Raises ValueError for another format."""
    if saved.get("format") != FORMAT:
        raise ValueError(f"snapshot of format {saved.get('format')!r}; this version reads {FORMAT}")
    state.now, state.seq, state.next_batch = saved["now"], saved["seq"], saved["next_batch"]
    state.groups = saved["groups"]
    state.draining, state.pressure = saved["draining"], saved["pressure"]
    state.tenancy.known = dict.fromkeys(saved["known"])
    state.govern(_server_policy(saved["policy"]))
    for entry in saved["devices"]:
        _restore_device(state, entry)
    for entry in saved["pools"]:
        _restore_pool(state, entry)
    state.limits.restore(saved["meters"])
    parts: dict[PartRef, QueuedPart] = {}
    for entry in saved["requests"]:
        parts.update((part.ref, part) for part in _restore_request(state, entry))
    for entry in saved["pools"]:
        _restore_workers(state, entry, parts)
    state.workers.update({id: state.workers.pop(id) for id in saved["workers"]})  # in the old order
    _requeue(state, parts.values())
    for device, entry in zip(state.devices.values(), saved["devices"], strict=True):
        device.fair.restored(entry["fair"])


def _server_policy(saved: dict[str, Any]) -> ServerPolicy:
    return ServerPolicy(
        max_queued_bytes=saved["max_queued_bytes"],
        patience=tuple(saved["patience"]),
        tenants=tuple((name, _tenant_policy(policy)) for name, policy in saved["tenants"]),
        others=_tenant_policy(saved["others"]),
        devices=tuple((name, cores) for name, cores in saved["devices"]),
    )


def _tenant_policy(saved: list[Any]) -> TenantPolicy:
    weight, limits, max_queued_requests, slos = saved
    limits = tuple(RateLimit(*limit) for limit in limits)
    return TenantPolicy(weight, limits, max_queued_requests, tuple((model, slo) for model, slo in slos))


def _request(request: Request, parts: list[QueuedPart], open: bool) -> dict[str, Any]:
    """open: without an outcome; else only the parts that still run are kept."""
    return {
        "id": request.id,
        "open": open,
        "tenant": request.tenant,
        "key": list(request.key),
        "bytes": request.bytes,
        "deadline": request.deadline,
        "priority": request.priority,
        "arrived": request.arrived,
        "attempt": request.attempt,
        "begun": request.begun,
        "emitted": request.emitted,
        "foreseen": request.foreseen,
        "moved": [request.moved, request.paid],
        "prefix": [list(entry) for entry in request.prefix],
        "parts": [
            [
                *(p.index, p.rows, p.length, p.bytes, p.due, p.latest_start, p.seq, p.work, p.lane),
                *(p.apart, p.deaths, p.spoiled, p.tight, p.state.value),
            ]
            for p in parts
        ],
    }


def _restore_request(state: State, saved: dict[str, Any]) -> list[QueuedPart]:
    key = BatchKey(*saved["key"])
    request = Request(
        saved["id"],
        saved["tenant"],
        key,
        state.pools[key.version_id],
        saved["bytes"],
        saved["deadline"],
        saved["priority"],
        saved["arrived"],
    )
    request.attempt, request.emitted, request.foreseen = saved["attempt"], saved["emitted"], saved["foreseen"]
    request.begun = saved["begun"]
    request.moved, request.paid = saved["moved"]
    request.prefix = tuple((tokens, hash) for tokens, hash in saved["prefix"])
    parts = []
    for *fields, apart, deaths, spoiled, tight, part_state in saved["parts"]:
        index, rows, length, size, due, latest_start, seq, work, lane = fields
        part = QueuedPart(request, index, rows, length, size, due, latest_start, seq, work, lane)
        part.state, part.tight = PartState(part_state), tight
        part.apart, part.deaths, part.spoiled = apart, deaths, spoiled
        parts.append(part)
        request.unfinished += part.state in (PartState.WAITING, PartState.RUNNING)
    if saved["open"]:
        request.parts = parts
        state.requests[request.id] = request
        request.doubling = doubling(max(part.length for part in parts))
        state.bytes += request.bytes
        state.room.enter(request, (request.bytes,))
        state.meter(request)
        state.deadlines.add(request)
    return parts


def _device(device: Device) -> dict[str, Any]:
    return {
        "name": device.name,
        "cores": device.cores,
        "wake": device.wake,
        "trouble": device.trouble,
        "tried_at": device.tried_at,
        "fair": device.fair.snapshot(),
    }


def _restore_device(state: State, saved: dict[str, Any]) -> None:
    device = Device(saved["name"], len(state.devices), saved["cores"], state.tenancy)
    device.wake, device.trouble, device.tried_at = saved["wake"], saved["trouble"], saved["tried_at"]
    device.fair.restore(saved["fair"])
    state.devices[device.name] = device


def _pool(pool: Pool) -> dict[str, Any]:
    policy = asdict(pool.rules)
    return {
        "version": list(pool.version),
        "policy": {**policy, "style": pool.rules.style.value},
        "draining": pool.draining,
        "cost": pool.cost.snapshot(),
        "rate": pool.rate.snapshot(),
        "budget": pool.budget.snapshot(),
        "memory": pool.memory.snapshot(),
        "breaker": pool.breaker.snapshot(),
        "quarantine": list(pool.quarantine.items()),
        "watch_at": pool.placement.watch_at,
        "failed_in_a_row": pool.failed_in_a_row,
        "outlook": pool.outlook.snapshot(),
        "arrivals": pool.arrivals.snapshot(),
        "linger": None if pool.linger is None else pool.linger.snapshot(),
        "overhead": pool.placement.overhead,
        "lost": dict(pool.room.lost),
        "regained": dict(pool.room.regained),
        "workers": [_worker(worker) for worker in pool.placement.workers.values()],
        "free": list(pool.placement.free),
    }


def _restore_pool(state: State, saved: dict[str, Any]) -> None:
    policy = BatchPolicy(**{**saved["policy"], "style": Style(saved["policy"]["style"])})
    version = VersionId(*saved["version"])
    pool = state.open_pool(version, policy)
    pool.draining = saved["draining"]
    pool.cost = CostModel.restore(saved["cost"])
    pool.rate.restore(saved["rate"])
    pool.budget.restore(saved["budget"])
    pool.memory.restore(saved["memory"])
    pool.cap_memory()
    pool.breaker.restore(saved["breaker"])
    pool.quarantine.update((content, until) for content, until in saved["quarantine"])
    pool.failed_in_a_row = saved["failed_in_a_row"]
    pool.outlook.restore(saved["outlook"])
    pool.arrivals.restore(saved["arrivals"])
    if saved["linger"] is not None:
        pool.linger = Linger.restore(saved["linger"])
        pool.max_queue_delay = pool.linger.ceiling
    pool.placement.overhead = saved["overhead"]
    pool.room.lost.update(saved["lost"])
    pool.room.regained.update(saved["regained"])


def _worker(worker: Worker) -> dict[str, Any]:
    return {
        "id": worker.id,
        "state": worker.state.value,
        "capacity": list(worker.capacity),
        "ends_at": worker.ends_at,
        "stage_at": worker.stage_at,
        "overdue_at": worker.overdue_at,
        "free_at": worker.free_at,
        "watch": [worker.watch_at, worker.patience, worker.is_suspected],
        "pace": worker.pace,
        "batches": [
            {
                "id": batch.id,
                "key": list(batch.key),
                "members": [list(part.ref) for part in batch.members],
                "length": batch.length,
                "started": batch.started,
                "predicted": batch.predicted,
                "staged": batch.staged,
                "waits": batch.waits,
                "withdrawn": batch.withdrawn,
                "is_probe": batch.is_probe,
                "charges": [[account.tenant, amount] for account, amount in batch.charges],
            }
            for batch in worker.batches.values()
        ],
        "sequences": [_sequence(running) for running in worker.sequences.values()],
        "engine": None if worker.engine is None else _engine(worker.engine, worker.pool),
    }


def _sequence(running: RunningSequence) -> list[Any]:
    told = [running.order, running.recalled, running.begun, running.reserved]
    return [*running.part.ref, running.attempt, running.account.tenant, *told]


def _engine(engine: Engine, pool: Pool) -> dict[str, Any]:
    accounts = pool.fair.accounts
    return {
        "orders": [engine.orders, engine.heard, engine.report],
        "free": [engine.slots, engine.blocks, engine.prefilling],
        "waiting": list(engine.waiting),
        "owed": [
            [tenant, amount] for tenant, (account, amount) in engine.owed.items() if accounts.get(tenant) is account
        ],
        "prefixes": list(engine.prefixes),
    }


def _restore_workers(state: State, saved: dict[str, Any], parts: dict[PartRef, QueuedPart]) -> None:
    pool = state.pools[VersionId(*saved["version"])]
    accounts = pool.fair.accounts
    for entry in saved["workers"]:
        worker = Worker(entry["id"], pool)
        worker.state = WorkerState(entry["state"])
        worker.can_hold(Capacity(*entry["capacity"]))
        worker.ends_at, worker.stage_at, worker.overdue_at = entry["ends_at"], entry["stage_at"], entry["overdue_at"]
        worker.free_at, worker.pace = entry["free_at"], entry["pace"]
        worker.watch_at, worker.patience, worker.is_suspected = entry["watch"]
        state.workers[worker.id] = pool.placement.workers[worker.id] = worker
        for batch in entry["batches"]:
            members = [parts[PartRef(*ref)] for ref in batch["members"]]
            running = worker.batches[batch["id"]] = RunningBatch(
                batch["id"],
                BatchKey(*batch["key"]),
                members,
                sum(part.rows for part in members),
                batch["length"],
                batch["started"],
                batch["predicted"],
                [(accounts[tenant], amount) for tenant, amount in batch["charges"]],
                batch["staged"],
            )
            for account, amount in running.charges:
                account.pending += amount
            running.waits, running.withdrawn = batch["waits"], batch["withdrawn"]
            running.is_probe = batch["is_probe"]
            for part in members:
                pool.fair.enter(accounts[part.request.tenant])
        for id, index, attempt, tenant, *told in entry["sequences"]:
            sequence = worker.sequences[id] = RunningSequence(parts[PartRef(id, index)], attempt, accounts[tenant])
            sequence.order, sequence.recalled, sequence.begun, sequence.reserved = told
            sequence.account.pending += sequence.reserved
            pool.fair.enter(accounts[tenant])
        if worker.engine is not None:
            _restore_engine(worker, worker.engine, entry["engine"])
    for id in dict.fromkeys([*saved["free"], *pool.placement.workers]):  # the free ones in their old order
        pool.placement.refresh(pool.placement.workers[id])
    pool.placement.watch_at = saved["watch_at"]


def _restore_engine(worker: Worker, engine: Engine, saved: dict[str, Any]) -> None:
    engine.orders, engine.heard, engine.report = saved["orders"]
    engine.slots, engine.blocks, engine.prefilling = saved["free"]
    engine.waiting = {id: worker.sequences[id] for id in saved["waiting"]}
    engine.prefixes = dict.fromkeys(saved["prefixes"])
    for tenant, amount in saved["owed"]:
        account = worker.pool.fair.accounts[tenant]
        account.pending += amount
        engine.owed[tenant] = (account, amount)


def _requeue(state: State, parts: Iterable[QueuedPart]) -> None:
    waiting = [part for part in parts if part.state is PartState.WAITING]
    for part in sorted(waiting, key=lambda part: part.seq):
        pool = part.request.pool
        pool.put_back(part, pool.fair.accounts[part.request.tenant])
    for pool in state.pools.values():
        for queue in pool.keys.values():
            state.timers.arm(pool, queue, state.now)
