"""The two kinds of timer: a request's deadline, and a queue that holds its parts until a time."""

from __future__ import annotations

from heapq import heapify, heappop, heappush

from headway.core.ids import RequestId
from headway.core.lazy import SLACK
from headway.core.pool import Pool
from headway.core.queue import KeyQueue
from headway.core.requests import Request
from headway.core.units import NEVER, Instant


class Deadlines:
    """Deadlines of the requests in `requests`; one that has an outcome is not in there any more."""

    __slots__ = ("_heap", "_requests")

    def __init__(self, requests: dict[RequestId, Request]) -> None:
        self._requests = requests
        self._heap: list[tuple[Instant, RequestId]] = []

    def add(self, request: Request) -> None:
        if request.deadline == NEVER:
            return
        heap, requests = self._heap, self._requests
        heappush(heap, (request.deadline, request.id))
        if len(heap) > 2 * len(requests) + SLACK:
            self._heap = [entry for entry in heap if entry[1] in requests]
            heapify(self._heap)

    def first(self) -> Instant:
        """NEVER when there is none."""
        heap, requests = self._heap, self._requests
        while heap and heap[0][1] not in requests:
            heappop(heap)
        return heap[0][0] if heap else NEVER

    def expired(self, now: Instant) -> Request | None:
        """The next request whose deadline has come."""
        heap = self._heap
        if not heap or heap[0][0] > now:
            return None
        return self._requests[self._heap[0][1]] if self.first() <= now else None


class QueueTimers:
    """At most one timer per queue: the earliest moment at which it may have a reason to let go."""

    __slots__ = ("_heap", "_pushes")

    def __init__(self) -> None:
        self._heap: list[tuple[Instant, int, Pool, KeyQueue]] = []
        self._pushes = 0

    def arm(self, pool: Pool, queue: KeyQueue, now: Instant) -> None:
        """A queue that is due already needs none: it waits for a worker, not for a time."""
        at = pool.wake_at(queue)
        if now < at < queue.timer:
            queue.timer = at
            self._pushes += 1
            heappush(self._heap, (at, self._pushes, pool, queue))

    def first(self) -> Instant:
        """NEVER when there is none."""
        heap = self._heap
        while heap and heap[0][3].timer != heap[0][0]:
            heappop(heap)  # it was armed anew, for an earlier time
        return heap[0][0] if heap else NEVER

    def fired(self, now: Instant) -> tuple[Pool, KeyQueue] | None:
        """The next queue whose time has come."""
        if not self._heap or self._heap[0][0] > now or self.first() > now:
            return None
        _, _, pool, queue = heappop(self._heap)
        queue.timer = NEVER
        return pool, queue
