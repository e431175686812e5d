"""How many executions are repeated because workers die: not more for ever than do any good."""

from __future__ import annotations

from headway.core.units import Duration, Instant, seconds

WINDOW: Duration = seconds(60)
AT_LEAST, SHARE = 100, 0.1
"""Executions that may be repeated in a window: so many, or this part of those in the window before, if that is more."""


class Budget:
    """Of one version.

    began: the window that it counts in.  spent, dispatched: in it.  before: dispatched in the one before it.
    """

    __slots__ = ("before", "began", "dispatched", "spent")

    def __init__(self) -> None:
        self.began: Instant = 0
        self.spent = self.dispatched = self.before = 0

    def dispatches(self, now: Instant) -> None:
        self._turn(now)
        self.dispatched += 1

    def affords(self, now: Instant) -> bool:
        """Takes one if there is one left."""
        self._turn(now)
        if self.spent >= self.limit:
            return False
        self.spent += 1
        return True

    @property
    def limit(self) -> int:
        """Of the window that it counts in."""
        return max(AT_LEAST, int(SHARE * max(self.before, self.dispatched)))

    def _turn(self, now: Instant) -> None:
        if now >= self.began + WINDOW:
            self.before = self.dispatched if now < self.began + 2 * WINDOW else 0
            self.spent = self.dispatched = 0
            self.began = now - now % WINDOW

    def snapshot(self) -> list[int]:
        return [self.began, self.spent, self.dispatched, self.before]

    def restore(self, state: list[int]) -> None:
        self.began, self.spent, self.dispatched, self.before = state
