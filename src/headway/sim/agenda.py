"""What will happen when, in virtual time."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import TypeAlias

from headway.core.units import NEVER, Instant

Action: TypeAlias = Callable[[], None]


class Agenda:
    """Actions ordered by time, and among equal times by the order in which they were entered."""

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, int, Action]] = []
        self._entered = 0

    def __len__(self) -> int:
        return len(self._heap)

    def at(self, when: Instant, action: Action) -> None:
        self._entered += 1
        heappush(self._heap, (when, self._entered, action))

    def next(self) -> Instant:
        return self._heap[0][0] if self._heap else NEVER

    def run_due(self, now: Instant) -> None:
        """Run everything due by `now`, including what those actions add for `now`."""
        heap = self._heap
        while heap and heap[0][0] <= now:
            heappop(heap)[2]()
