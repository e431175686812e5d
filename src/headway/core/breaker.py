"""A version whose workers keep dying is refused for a while, instead of making everybody wait for the next death.

The states of a circuit breaker (Nygard, Release It!, 2007): closed, requests flow; open, none is let in; half open, a
single one is, and what becomes of it decides. Here only deaths count that what ran may be to blame for, and any batch
that comes back, well or raising, shows that the version can live.
"""

from __future__ import annotations

from enum import Enum

from headway.core.ids import RequestId
from headway.core.units import NEVER, Duration, Instant, seconds

DEATHS = 8
"""In a row, at which it opens: two requests that kill what runs them, each `max_attempts` times, are too few."""
FIRST: Duration = seconds(10)
"""How long it is open the first time; each time in a row twice as long."""
LONGEST: Duration = seconds(300)


class Circuit(Enum):
    CLOSED = "closed"
    OPEN = "open"
    HALF_OPEN = "half_open"


class Breaker:
    """Of one version.

    deaths: of workers, since a batch came back last.  opened: how many times in a row.
    until: when it may be tried again; NEVER while it is closed.  trial: who is let in to try; 0: nobody.
    """

    __slots__ = ("deaths", "opened", "trial", "until")

    def __init__(self) -> None:
        self.deaths = 0
        self.opened = 0
        self.until: Instant = NEVER
        self.trial: RequestId = 0

    def circuit(self, now: Instant) -> Circuit:
        if self.until == NEVER:
            return Circuit.CLOSED
        return Circuit.OPEN if now < self.until else Circuit.HALF_OPEN

    def died(self, now: Instant) -> bool:
        """One more worker has. True: it opens by that."""
        self.deaths += 1
        circuit = self.circuit(now)
        if circuit is Circuit.OPEN or (circuit is Circuit.CLOSED and self.deaths < DEATHS):
            return False
        self.until = now + min(LONGEST, FIRST << min(self.opened, 30))
        self.opened += 1
        self.trial = 0
        return True

    def lives(self) -> bool:
        """A batch came back. True: it closes by that."""
        self.deaths = 0
        if self.until == NEVER:
            return False
        self.until = NEVER
        self.opened = 0
        self.trial = 0
        return True

    def snapshot(self) -> list[int]:
        return [self.deaths, self.opened, self.until, self.trial]

    def restore(self, state: list[int]) -> None:
        self.deaths, self.opened, self.until, self.trial = state
