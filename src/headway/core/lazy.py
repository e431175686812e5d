"""Two priority queues that do without removal from the middle.

Both keep dead entries until they surface, and compact themselves when more than half is dead, so
that memory stays in proportion to what is alive and every operation is O(log n) amortised.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from heapq import heapify, heappop, heappush, heapreplace
from typing import Any, Generic, Protocol, TypeVar

from headway.core.requests import WAITING, QueuedPart
from headway.core.units import Instant

SLACK = 64
"""Dead entries that are never worth a compaction."""


class PartHeap:
    """Waiting parts by an instant (ties: arrival). A part that stops waiting is dead at once."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, int, QueuedPart]] = []

    def __len__(self) -> int:
        """Entries, the dead included."""
        return len(self._heap)

    def push(self, at: Instant, part: QueuedPart, alive: int) -> None:
        """alive: how many of the entries are waiting, the new one included."""
        heap = self._heap
        heappush(heap, (at, part.seq, part))
        if len(heap) > 2 * alive + SLACK:
            self._heap = [entry for entry in heap if entry[2].state is WAITING]
            heapify(self._heap)

    def put_back(self, at: Instant, part: QueuedPart) -> None:
        """A part that was taken for a batch waits after all."""
        if not self._heap or self._heap[0][2] is not part:
            heappush(self._heap, (at, part.seq, part))

    def first(self) -> QueuedPart | None:
        """The waiting part with the smallest instant."""
        heap = self._heap
        while heap:
            part = heap[0][2]
            if part.state is WAITING:
                return part
            heappop(heap)
        return None

    def drop_first(self) -> None:
        """It goes on waiting, and is of no more interest here."""
        heappop(self._heap)

    def first_at(self) -> Instant | None:
        return self._heap[0][0] if self.first() is not None else None


class Ranked(Protocol):
    """An item of an agenda. entry: the agenda's own; None = not in it."""

    entry: tuple[Any, ...] | None


R = TypeVar("R", bound=Ranked)


class Agenda(Generic[R]):
    """Items in order of a priority that drifts.

    `priority(item)` is a tuple that ends in something unique, or None when the item does not
    belong here now. It may grow unnoticed: entries are checked when they surface. Whenever it may
    have become smaller (or not None), `update` must be called.
    """

    __slots__ = ("_heap", "_priority", "_pushes", "_size")

    def __init__(self, priority: Callable[[R], tuple[Any, ...] | None]) -> None:
        self._priority = priority
        self._heap: list[tuple[tuple[Any, ...], int, R]] = []
        self._size = 0
        self._pushes = 0  # an item may be in the heap twice with equal tuples, one of them dead

    def update(self, item: R) -> None:
        entry = self._priority(item)
        if entry is None:
            if item.entry is not None:
                self._size -= 1
                item.entry = None
            return
        if item.entry is None:
            self._size += 1
        elif item.entry == entry:
            return
        item.entry = entry
        self._pushes += 1
        heappush(self._heap, (entry, self._pushes, item))
        if len(self._heap) > 2 * self._size + SLACK:
            self._heap = [slot for slot in self._heap if slot[2].entry is slot[0]]
            heapify(self._heap)

    def first(self) -> R | None:
        heap = self._heap
        while heap:
            entry, _, item = heap[0]
            if item.entry is not entry:
                heappop(heap)
                continue
            actual = self._priority(item)
            if actual == entry:
                return item
            item.entry = actual
            if actual is None:
                self._size -= 1
                heappop(heap)
            else:
                self._pushes += 1
                heapreplace(heap, (actual, self._pushes, item))
        return None

    def remove(self, item: R) -> None:
        """Out of it until the next `update`."""
        if item.entry is not None:
            item.entry = None
            self._size -= 1

    def items(self) -> Iterator[R]:
        """Whatever is in it, in no particular order (for checks)."""
        return (item for entry, _, item in self._heap if item.entry is entry)
