"""How fast work comes, and how fast a pool gets on with it."""

from __future__ import annotations

from headway.core.units import SECOND, Duration, Instant

WINDOW: Duration = SECOND


class RateMeter:
    """Parts finished in this window and the last one: a rate that is at most two windows old."""

    __slots__ = ("_before", "_count", "_first", "_since")

    def __init__(self) -> None:
        self._first: Instant = 0
        """When the first part was finished after a time without any: a rate is known a window later."""
        self._since: Instant = 0
        self._count = 0
        self._before = 0

    def add(self, count: int, now: Instant) -> None:
        self._roll(now)
        if not self._count and not self._before:
            self._first = now
        self._count += count

    def time_for(self, parts: int, now: Instant) -> Duration:
        """How long so many parts will take at the present rate; one second where none is known."""
        self._roll(now)
        span = now - self._since
        done = self._count + self._before * (WINDOW - span) / WINDOW
        if done <= 0 or now - self._first < WINDOW:  # a few in a moment are no rate: the rest of the window is to come
            return SECOND
        return int(parts * WINDOW / done)

    def _roll(self, now: Instant) -> None:
        windows = (now - self._since) // WINDOW
        if windows:
            self._before = self._count if windows == 1 else 0
            self._count = 0
            self._since += windows * WINDOW

    def snapshot(self) -> list[int]:
        return [self._since, self._count, self._before, self._first]

    def restore(self, state: list[int]) -> None:
        self._since, self._count, self._before, self._first = state


class ArrivalRate:
    """The mean gap between arriving parts, over the last few dozen."""

    __slots__ = ("_gap", "_last")

    FOLLOW = 1 / 32

    def __init__(self) -> None:
        self._gap = 0.0
        self._last: Instant = 0

    def add(self, count: int, now: Instant) -> None:
        """count: parts that came together."""
        if self._last:
            share = (now - self._last) / count
            weight = 1 - (1 - self.FOLLOW) ** count
            self._gap = share if self._gap == 0 else self._gap + weight * (share - self._gap)
        self._last = now

    def gap(self, now: Instant) -> Duration:
        """Nanoseconds from one to the next; at least since the last. 0: not known."""
        return int(max(self._gap, now - self._last)) if self._gap else 0

    def snapshot(self) -> list[float]:
        return [self._gap, self._last]

    def restore(self, state: list[float]) -> None:
        self._gap, self._last = state[0], int(state[1])
