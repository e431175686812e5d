"""Waiting parts of one tenant and key by length, so that a batch can look outward from its head.

Lengths fall into buckets that grow with them, 16 to each doubling (the scheme of HDR histograms):
exact below 32, within 6 % above, and at most a few hundred however long the longest is. Nothing is
sorted at dispatch.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from heapq import heapify, heappop, heappush
from typing import TypeAlias

from headway.core.lazy import SLACK
from headway.core.requests import WAITING, QueuedPart

Entry: TypeAlias = tuple[int, int, QueuedPart]
"""(due, seq, part)"""


def bucket_of(length: int) -> int:
    """Monotone in length; lengths of one bucket differ by at most 1/16."""
    if length < 32:
        return length
    shift = length.bit_length() - 5
    return (shift << 4) + (length >> shift)


class LengthIndex:
    """Buckets of waiting parts, each in order of urgency (due, then arrival)."""

    __slots__ = ("_buckets", "_entries", "_order")

    def __init__(self) -> None:
        self._buckets: dict[int, list[Entry]] = {}
        self._order: list[int] = []
        self._entries = 0

    def push(self, part: QueuedPart, alive: int) -> None:
        """alive: how many of the entries are waiting, the new one included."""
        number = bucket_of(part.length)
        bucket = self._buckets.get(number)
        if bucket is None:
            self._buckets[number] = [(part.due, part.seq, part)]
            insort(self._order, number)
        else:
            heappush(bucket, (part.due, part.seq, part))
        self._entries += 1
        if self._entries > 2 * alive + SLACK:
            self._compact()

    def put_back(self, part: QueuedPart) -> None:
        """A part that was taken for a batch waits after all. Of several, the last one taken comes first."""
        number = bucket_of(part.length)
        bucket = self._buckets.get(number)
        if bucket is None:
            self._buckets[number] = [(part.due, part.seq, part)]
            insort(self._order, number)
        elif bucket[0][2] is part:
            return  # nobody has looked behind it since
        else:
            heappush(bucket, (part.due, part.seq, part))
        self._entries += 1

    def shorter(self, length: int) -> QueuedPart | None:
        """The longest waiting part not longer than `length` (to the bucket); of equals the most urgent."""
        at = bisect_left(self._order, bucket_of(length) + 1) - 1
        while at >= 0:
            part = self._first(self._order[at])
            if part is not None:
                return part
            at -= 1  # the bucket was empty and is gone; those below it have not moved
        return None

    def longer(self, length: int) -> QueuedPart | None:
        """The shortest waiting part in a bucket above that of `length`; of equals the most urgent."""
        at = bisect_left(self._order, bucket_of(length) + 1)
        while at < len(self._order):
            part = self._first(self._order[at])
            if part is not None:
                return part  # an empty bucket goes, and the next one moves to its place
        return None

    def _first(self, number: int) -> QueuedPart | None:
        """The most urgent waiting part of a bucket; a bucket with none is dropped."""
        bucket = self._buckets[number]
        while bucket:
            part = bucket[0][2]
            if part.state is WAITING:
                return part
            heappop(bucket)
            self._entries -= 1
        del self._buckets[number]
        del self._order[bisect_left(self._order, number)]
        return None

    def _compact(self) -> None:
        self._entries = 0
        for number in list(self._order):
            bucket = [entry for entry in self._buckets[number] if entry[2].state is WAITING]
            if bucket:
                heapify(bucket)
                self._buckets[number] = bucket
                self._entries += len(bucket)
            else:
                del self._buckets[number]
        self._order = sorted(self._buckets)
