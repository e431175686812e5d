"""The batcher that most servers have, as a peer to measure against: when a worker is free, the first 32
rows that wait leave together, in order of arrival, padded to the longest of them.

It stands in for headway's scheduler behind the same events and effects, so that HTTP, tokenising,
padding, the channel and the worker are the very same in both. It has no deadlines, bounds or tenants:
what it lacks only makes it faster. `headway serve` with this in the scheduler's place:

    python benchmarks/peers/first_come.py serve CONFIG
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any

from headway.core.effects import DispatchBatch, Effect, Reason, ResolveRequest
from headway.core.events import (
    BatchCompleted,
    BatchFailed,
    DrainStarted,
    Event,
    RequestArrived,
    RequestCancelled,
    WorkerLost,
    WorkerReady,
    WorkerStopped,
)
from headway.core.ids import BatchKey, PartRef, RequestId, WorkerId
from headway.core.outcomes import Outcome
from headway.core.units import NEVER, Instant

ROWS = 32


class FirstCome:
    """waiting: (request, part, rows) in order of arrival.  unfinished: request -> parts without an answer."""

    def __init__(self) -> None:
        self.waiting: dict[BatchKey, deque[tuple[RequestId, int, int]]] = {}
        self.unfinished: dict[RequestId, int] = {}
        self.free: dict[WorkerId, None] = {}
        self.running: dict[WorkerId, tuple[PartRef, ...]] = {}
        self.draining = False
        self.batches = 0
        self._apply: dict[type, Any] = {
            RequestArrived: self._arrived,
            RequestCancelled: lambda event, effects: self._resolve(event.request, Outcome.CANCELLED, effects),
            BatchCompleted: self._completed,
            BatchFailed: self._failed,
            WorkerReady: lambda event, effects: self.free.setdefault(event.worker),
            WorkerLost: self._gone,
            WorkerStopped: self._gone,
            DrainStarted: self._drain,
        }

    # -- what the runtime asks of a scheduler ------------------------------------------------------

    def handle(self, events: Iterable[Event], now: Instant) -> list[Effect]:
        effects: list[Effect] = []
        for event in events:
            apply = self._apply.get(type(event))
            if apply is not None:
                apply(event, effects)
        while self.free and (dispatch := self._next_batch()) is not None:
            effects.append(dispatch)
        return effects

    def next_wakeup(self) -> Instant:
        return NEVER

    def snapshot(self) -> dict[str, Any]:
        return {}

    def is_idle(self) -> bool:
        return not self.unfinished and not self.running

    def check(self) -> None:
        pass

    def views(self) -> list[Any]:
        return []

    # -- its whole rule ----------------------------------------------------------------------------

    def _next_batch(self) -> DispatchBatch | None:
        for key, queue in self.waiting.items():
            members, rows = [], 0
            while queue and rows + queue[0][2] <= ROWS:
                request, part, part_rows = queue.popleft()
                if request in self.unfinished:
                    members.append(PartRef(request, part))
                    rows += part_rows
            if members:
                worker = next(iter(self.free))
                del self.free[worker]
                self.batches += 1
                self.running[worker] = tuple(members)
                return DispatchBatch(worker, self.batches, key, tuple(members), Reason.IDLE)
        return None

    # -- events ------------------------------------------------------------------------------------

    def _arrived(self, event: RequestArrived, effects: list[Effect]) -> None:
        if self.draining:
            effects.append(ResolveRequest(event.request, Outcome.DRAINING))
            return
        self.unfinished[event.request] = len(event.parts)
        queue = self.waiting.setdefault(event.key, deque())
        queue.extend((event.request, index, part.rows) for index, part in enumerate(event.parts))

    def _completed(self, event: BatchCompleted, effects: list[Effect]) -> None:
        self.free[event.worker] = None
        members = self.running.pop(event.worker)
        for failure in event.failures:
            self._resolve(members[failure.position].request, failure.outcome, effects)
        for member in members:
            if member.request in self.unfinished:
                self.unfinished[member.request] -= 1
                if not self.unfinished[member.request]:
                    self._resolve(member.request, Outcome.COMPLETED, effects)

    def _failed(self, event: BatchFailed, effects: list[Effect]) -> None:
        self.free[event.worker] = None
        for member in self.running.pop(event.worker):
            self._resolve(member.request, event.outcome, effects)

    def _gone(self, event: WorkerLost | WorkerStopped, effects: list[Effect]) -> None:
        self.free.pop(event.worker, None)
        for member in self.running.pop(event.worker, ()):
            self._resolve(member.request, Outcome.WORKER_LOST, effects)

    def _drain(self, event: DrainStarted, effects: list[Effect]) -> None:
        self.draining = True

    def _resolve(self, request: RequestId, outcome: Outcome, effects: list[Effect]) -> None:
        if self.unfinished.pop(request, None) is not None:
            effects.append(ResolveRequest(request, outcome))


def main() -> None:
    import headway.core.scheduler

    headway.core.scheduler.Scheduler = FirstCome  # type: ignore[assignment,misc]
    # Imported after the exchange, so that whoever asks for the scheduler by name is given this one.
    from headway.cli.main import main as headway_main

    headway_main()


if __name__ == "__main__":
    main()
