"""The scheduler: a state machine that is told things and answers with what is to be done.

    effects = scheduler.handle(events, now)

Inside, always: apply all events, expire, decide once. It reads no clock, does no I/O and draws no
random number, so that the same object runs live, in the simulator, in property tests and in replay.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headway.core import admission, answers, engines, fleet, snapshot
from headway.core.device import Device
from headway.core.dispatch import decide
from headway.core.effects import Effect
from headway.core.errors import InvariantViolation
from headway.core.events import (
    BatchCompleted,
    BatchFailed,
    CapacityChanged,
    ContentQuarantined,
    DeviceLost,
    DeviceRecovered,
    DrainStarted,
    EngineReported,
    Event,
    MemoryPressureChanged,
    QuarantineLifted,
    ReliefReported,
    ReplyWritten,
    RequestArrived,
    RequestCancelled,
    RequestSatisfied,
    SequenceFailed,
    SequenceFinished,
    SequenceReturned,
    ServerConfigured,
    TokensEmitted,
    VersionConfigured,
    VersionDrained,
    WorkerDraining,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
    WorkerStopped,
)
from headway.core.invariants import check
from headway.core.outcomes import Outcome
from headway.core.starvation import judge
from headway.core.state import State
from headway.core.units import Instant
from headway.core.views import VersionView, view
from headway.core.watch import look


def _cancelled(state: State, event: RequestCancelled, now: Instant) -> None:
    request = state.requests.get(event.request)
    if request is not None:
        state.resolve(request, Outcome.CANCELLED)


def _satisfied(state: State, event: RequestSatisfied, now: Instant) -> None:
    request = state.requests.get(event.request)
    if request is not None:
        state.resolve(request, Outcome.COMPLETED)


def _reply_written(state: State, event: ReplyWritten, now: Instant) -> None:
    """What the SLO must leave room for. Nothing is decided by it before the window ends."""
    pool = None if event.version is None else state.pools.get(event.version)
    if pool is not None and pool.linger is not None:
        pool.linger.spent_outside(event.overhead)


def _relief_reported(state: State, event: ReliefReported, now: Instant) -> None:
    """Its worker has events of its own."""


_APPLY: dict[type, Callable[[State, Any, Instant], None]] = {
    RequestArrived: admission.arrived,
    RequestCancelled: _cancelled,
    RequestSatisfied: _satisfied,
    ReplyWritten: _reply_written,
    BatchCompleted: answers.batch_completed,
    BatchFailed: answers.batch_failed,
    TokensEmitted: answers.tokens_emitted,
    SequenceFinished: answers.sequence_finished,
    SequenceFailed: answers.sequence_failed,
    SequenceReturned: answers.sequence_returned,
    EngineReported: engines.reported,
    WorkerStarting: fleet.worker_starting,
    WorkerReady: fleet.worker_ready,
    WorkerDraining: fleet.worker_draining,
    WorkerStopped: fleet.worker_stopped,
    WorkerLost: fleet.worker_lost,
    ReliefReported: _relief_reported,
    DeviceLost: fleet.device_lost,
    DeviceRecovered: fleet.device_recovered,
    CapacityChanged: fleet.capacity_changed,
    ServerConfigured: fleet.server_configured,
    VersionConfigured: fleet.version_configured,
    VersionDrained: fleet.version_drained,
    DrainStarted: fleet.drain_started,
    MemoryPressureChanged: fleet.memory_pressure_changed,
    ContentQuarantined: fleet.content_quarantined,
    QuarantineLifted: fleet.quarantine_lifted,
}


class Scheduler:
    """The one door: state changes in `handle` and nowhere else."""

    def __init__(self) -> None:
        self._state = State()

    def handle(self, events: Iterable[Event], now: Instant) -> list[Effect]:
        """Apply all events, expire what is due, decide once.

        now: must not go back. Raises InvariantViolation on a bug, ours or the driver's; the
        scheduler is of no further use then.
        """
        state = self._state
        if now < state.now:
            raise InvariantViolation(f"time went back from {state.now} to {now}")
        state.now = now
        effects: list[Effect] = []
        state.effects = effects
        for pool in state.pools.values():
            pool.now = now
        for device in state.devices.values():
            if device.wake <= now:
                state.touched[device.name] = device
        for event in events:
            _APPLY[type(event)](state, event, now)
        self._expire(now)
        for pool in state.pools.values():
            if pool.placement.watch_at <= now:
                look(state, pool, now)
        for device in state.devices.values():
            clock = device.fair.clock
            if device.fair.starving or clock.next_judgement() <= now:
                judge(state, device, now)
            if clock.tallies.next_span <= now:
                clock.tallies.mark(now)
        touched = state.touched
        if touched:
            for device in sorted(touched.values(), key=_number) if len(touched) > 1 else list(touched.values()):
                decide(state, device, now)
            state.touched = {}  # who is given up at its turn touches the device whose turn it is
        return effects

    def next_wakeup(self) -> Instant:
        """When `handle` must be called even if nothing happens. NEVER: not at all."""
        state = self._state
        wake = min(state.deadlines.first(), state.timers.first())
        for device in state.devices.values():
            wake = min(wake, device.wake, device.fair.clock.next_judgement())
        for pool in state.pools.values():
            wake = min(wake, pool.placement.watch_at)
        return wake

    def is_idle(self) -> bool:
        """No request without an outcome, and nothing runs."""
        state = self._state
        return not state.requests and not any(w.batches or w.sequences for w in state.workers.values())

    def check(self) -> None:
        """Raises InvariantViolation unless the state is consistent. O(everything); not for the hot path."""
        check(self._state)

    def views(self) -> list[VersionView]:
        """Per version: its state, what waits and runs. For metrics and readiness."""
        return [view(pool) for pool in self._state.pools.values()]

    def snapshot(self) -> dict[str, Any]:
        """The whole state as JSON values."""
        return snapshot.take(self._state)

    @classmethod
    def restore(cls, state: dict[str, Any]) -> Scheduler:
        """A scheduler that goes on exactly as the one that the snapshot was taken of would have."""
        scheduler = cls()
        snapshot.restore(scheduler._state, state)
        return scheduler

    def _expire(self, now: Instant) -> None:
        state = self._state
        while (request := state.deadlines.expired(now)) is not None:
            state.resolve(request, Outcome.DEADLINE_EXCEEDED, "its deadline has passed")
        while (fired := state.timers.fired(now)) is not None:
            pool, queue = fired
            pool.agenda.update(queue)
            state.timers.arm(pool, queue, now)
            state.touch(pool)


def _number(device: Device) -> int:
    return device.number
