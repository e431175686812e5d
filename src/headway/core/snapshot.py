"""The scheduler's state as JSON values, and back.

Only what means something is kept; heaps and indexes are built again. That this is enough to go on
with the very same decisions is what makes a recorded trace replayable from its first line.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from headway.core.cost import CostModel
from headway.core.ids import BatchKey, Capacity, VersionId
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.pool import Pool
from headway.core.requests import PartState, QueuedPart, Request
from headway.core.state import State
from headway.core.workers import RunningBatch, RunningSequence, Worker, WorkerState

FORMAT = 1


def take(state: State) -> dict[str, Any]:
    held = dict(state.requests)
    for worker in state.workers.values():  # those given up whose answer is still to come
        held.update((part.request.id, part.request) for b in worker.batches.values() for part in b.members)
        held.update((id, running.part.request) for id, running in worker.sequences.items())
    return {
        "format": FORMAT,
        "now": state.now,
        "seq": state.seq,
        "next_batch": state.next_batch,
        "draining": state.draining,
        "pressure": state.pressure,
        "policy": asdict(state.policy),
        "requests": [_request(request, open=id in state.requests) for id, request in held.items()],
        "workers": list(state.workers),
        "pools": [_pool(pool) for pool in state.pools.values()],
    }


def restore(state: State, saved: dict[str, Any]) -> None:
    """Into a fresh state. Raises ValueError for another format."""
    if saved.get("format") != FORMAT:
        raise ValueError(f"snapshot of format {saved.get('format')!r}; this version reads {FORMAT}")
    state.now, state.seq, state.next_batch = saved["now"], saved["seq"], saved["next_batch"]
    state.draining, state.pressure = saved["draining"], saved["pressure"]
    policy = saved["policy"]
    weights = tuple((tenant, weight) for tenant, weight in policy["weights"])
    state.policy = ServerPolicy(policy["max_queued_bytes"], tuple(policy["patience"]), weights)
    state.weights.update(weights)
    for entry in saved["pools"]:
        _restore_pool(state, entry)
    requests = {entry["id"]: _restore_request(state, entry) for entry in saved["requests"]}
    for entry in saved["pools"]:
        _restore_workers(state, entry, requests)
    state.workers.update({id: state.workers.pop(id) for id in saved["workers"]})  # in the old order
    _requeue(state, [part for request in requests.values() for part in request.parts])
    for pool in state.pools.values():
        pool.fair.restored()


def _request(request: Request, open: bool) -> dict[str, Any]:
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
        "emitted": request.emitted,
        "parts": [[p.rows, p.length, p.due, p.latest_start, p.seq, p.state.value] for p in request.parts],
    }


def _restore_request(state: State, saved: dict[str, Any]) -> Request:
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
    request.attempt, request.emitted = saved["attempt"], saved["emitted"]
    for index, (rows, length, due, latest_start, seq, part_state) in enumerate(saved["parts"]):
        part = QueuedPart(request, index, rows, length, due, latest_start, seq)
        part.state = PartState(part_state)
        request.parts.append(part)
        request.unfinished += part.state in (PartState.WAITING, PartState.RUNNING)
    if saved["open"]:
        state.requests[request.id] = request
        state.bytes += request.bytes
        state.deadlines.add(request)
    return request


def _pool(pool: Pool) -> dict[str, Any]:
    policy = asdict(pool.policy)
    return {
        "version": list(pool.version),
        "policy": {**policy, "style": pool.policy.style.value},
        "draining": pool.draining,
        "cost": pool.cost.snapshot(),
        "fair": pool.fair.snapshot(),
        "rate": pool.rate.snapshot(),
        "workers": [_worker(worker) for worker in pool.workers.values()],
        "free": list(pool.free),
    }


def _restore_pool(state: State, saved: dict[str, Any]) -> None:
    policy = BatchPolicy(**{**saved["policy"], "style": Style(saved["policy"]["style"])})
    version = VersionId(*saved["version"])
    pool = Pool(version, len(state.pools), policy, state.weights)
    pool.now = state.now
    pool.draining, pool.pressure = saved["draining"], state.pressure
    pool.cost = CostModel.restore(saved["cost"])
    pool.fair.restore(saved["fair"])
    pool.rate.restore(saved["rate"])
    state.pools[version] = pool


def _worker(worker: Worker) -> dict[str, Any]:
    return {
        "id": worker.id,
        "state": worker.state.value,
        "capacity": list(worker.capacity),
        "batches": [
            {
                "id": batch.id,
                "key": list(batch.key),
                "members": [list(part.ref) for part in batch.members],
                "length": batch.length,
                "started": batch.started,
                "predicted": batch.predicted,
                "charges": [[account.tenant, amount] for account, amount in batch.charges],
            }
            for batch in worker.batches.values()
        ],
        "sequences": [
            [*running.part.ref, running.attempt, running.account.tenant] for running in worker.sequences.values()
        ],
    }


def _restore_workers(state: State, saved: dict[str, Any], requests: dict[int, Request]) -> None:
    pool = state.pools[VersionId(*saved["version"])]
    accounts = pool.fair.accounts
    for entry in saved["workers"]:
        worker = Worker(entry["id"], pool)
        worker.state = WorkerState(entry["state"])
        worker.capacity = Capacity(*entry["capacity"])
        state.workers[worker.id] = pool.workers[worker.id] = worker
        for batch in entry["batches"]:
            members = [requests[id].parts[index] for id, index in batch["members"]]
            worker.batches[batch["id"]] = RunningBatch(
                batch["id"],
                BatchKey(*batch["key"]),
                members,
                sum(part.rows for part in members),
                batch["length"],
                batch["started"],
                batch["predicted"],
                [(accounts[tenant], amount) for tenant, amount in batch["charges"]],
            )
            for part in members:
                pool.fair.enter(accounts[part.request.tenant])
        for id, index, attempt, tenant in entry["sequences"]:
            worker.sequences[id] = RunningSequence(requests[id].parts[index], attempt, accounts[tenant])
            pool.fair.enter(accounts[tenant])
    for id in saved["free"]:
        pool.refresh(pool.workers[id])


def _requeue(state: State, parts: list[QueuedPart]) -> None:
    waiting = [part for part in parts if part.state is PartState.WAITING]
    for part in sorted(waiting, key=lambda part: part.seq):
        pool = part.request.pool
        queue = pool.put_back(part, pool.fair.accounts[part.request.tenant])
        state.timers.arm(pool, queue, state.now)
