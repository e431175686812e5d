"""Configuration, and the comings and goings of versions and workers."""

from __future__ import annotations

from headway.core.answers import worker_gone
from headway.core.errors import InvariantViolation
from headway.core.events import (
    CapacityChanged,
    ContentQuarantined,
    DeviceLost,
    DeviceRecovered,
    DrainStarted,
    MemoryPressureChanged,
    QuarantineLifted,
    ServerConfigured,
    VersionConfigured,
    VersionDrained,
    WorkerDraining,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
    WorkerStopped,
)
from headway.core.losses import Loss
from headway.core.state import State
from headway.core.units import Instant
from headway.core.workers import Worker, WorkerState


def server_configured(state: State, event: ServerConfigured, now: Instant) -> None:
    state.govern(event.policy)
    for request in state.requests.values():
        state.meter(request)
    limits = dict(event.policy.devices)
    for device in state.devices.values():
        device.cores = limits.get(device.name, 0)
        device.fair.reweigh()
        state.touched[device.name] = device


def version_configured(state: State, event: VersionConfigured, now: Instant) -> None:
    pool = state.pools.get(event.version)
    if pool is None:
        state.open_pool(event.version, event.policy)
        return
    if event.policy.device != pool.policy.device:
        raise InvariantViolation(f"{event.version} moves from device {pool.policy.device!r} to {event.policy.device!r}")
    pool.draining = state.draining  # a version that was drained may be served again
    for queue in pool.reconfigure(event.policy):
        state.timers.arm(pool, queue, now)
    state.touch(pool)


def version_drained(state: State, event: VersionDrained, now: Instant) -> None:
    pool = state.pool_of(event.version, "VersionDrained")
    pool.draining = True
    state.reconsider(pool)


def drain_started(state: State, event: DrainStarted, now: Instant) -> None:
    state.draining = True
    for pool in state.pools.values():
        pool.draining = True
        state.reconsider(pool)


def memory_pressure_changed(state: State, event: MemoryPressureChanged, now: Instant) -> None:
    state.pressure = event.high
    for pool in state.pools.values():
        pool.pressure = event.high
        state.reconsider(pool)


MOST_IN_QUARANTINE = 4096
"""Contents of one version; of more the oldest is let in again."""


def content_quarantined(state: State, event: ContentQuarantined, now: Instant) -> None:
    pool = state.pool_of(event.version, "ContentQuarantined")
    pool.quarantine.pop(event.content, None)
    pool.quarantine[event.content] = now + pool.policy.quarantine
    for content in [content for content, until in pool.quarantine.items() if until <= now]:
        del pool.quarantine[content]
    if len(pool.quarantine) > MOST_IN_QUARANTINE:
        del pool.quarantine[next(iter(pool.quarantine))]


def quarantine_lifted(state: State, event: QuarantineLifted, now: Instant) -> None:
    pool = state.pool_of(event.version, "QuarantineLifted")
    if event.content:
        pool.quarantine.pop(event.content, None)
    else:
        pool.quarantine.clear()


def worker_starting(state: State, event: WorkerStarting, now: Instant) -> None:
    if event.worker in state.workers:
        raise InvariantViolation(f"worker id {event.worker} is used twice")
    pool = state.pool_of(event.version, "WorkerStarting")
    worker = Worker(event.worker, pool)
    state.workers[worker.id] = pool.placement.workers[worker.id] = worker


def worker_ready(state: State, event: WorkerReady, now: Instant) -> None:
    worker = state.workers.get(event.worker)
    if worker is None:
        return  # it was given up while it was starting
    worker.become(WorkerState.READY)
    worker.can_hold(event.capacity)
    pool = worker.pool
    pool.cost.seed(event.measurements)
    if pool.linger is not None:
        pool.linger.expect(max((m.length for m in event.measurements), default=1))
        pool.renew_delay()
    pool.placement.refresh(worker)
    state.reconsider(pool)  # what fills a held batch, and how long it may wait, are matters of cost


def worker_draining(state: State, event: WorkerDraining, now: Instant) -> None:
    worker = state.workers.get(event.worker)
    if worker is None or worker.state is WorkerState.DRAINING:
        return
    worker.become(WorkerState.DRAINING)
    worker.pool.placement.refresh(worker)
    state.touch(worker.pool)


def worker_stopped(state: State, event: WorkerStopped, now: Instant) -> None:
    _gone(state, event.worker, WorkerState.STOPPED, Loss.KILLED, "its worker was stopped", now)


def worker_lost(state: State, event: WorkerLost, now: Instant) -> None:
    detail = f"its worker was lost ({event.cause})" if event.cause else "its worker was lost"
    _gone(state, event.worker, WorkerState.LOST, event.loss, detail, now)


def device_lost(state: State, event: DeviceLost, now: Instant) -> None:
    device = state.devices.get(event.device)
    if device is not None:
        device.trouble, device.tried_at = event.cause, now + event.tried_in


def device_recovered(state: State, event: DeviceRecovered, now: Instant) -> None:
    device = state.devices.get(event.device)
    if device is not None:
        device.trouble, device.tried_at = "", 0


def capacity_changed(state: State, event: CapacityChanged, now: Instant) -> None:
    worker = state.workers.get(event.worker)
    if worker is None:
        return
    worker.can_hold(event.capacity)
    worker.pool.placement.refresh(worker)
    state.touch(worker.pool)


def _gone(state: State, id: int, end: WorkerState, loss: Loss, detail: str, now: Instant) -> None:
    worker = state.workers.get(id)
    if worker is None:
        return  # told twice: by its exit, and by the end of its channel
    worker.become(end)
    worker_gone(state, worker, loss, detail, now)
