"""What forecasts of answers are worth, learned from how they turned out."""

from __future__ import annotations

from headway.core.units import Duration

FOLLOW = 1 / 64
FORGET = 1 / 256
ENOUGH = 32
CAREFUL = 2.0
"""A forecast is taken to be so many times its usual error too short: who is let in is to be in time."""


class Outlook:
    """How forecasts turned out. took, foreseen: of answered requests, means of the last few dozen.
    seen: how many. error: the mean distance of what it took from what was foreseen, corrected, by then."""

    __slots__ = ("error", "foreseen", "seen", "took")

    def __init__(self) -> None:
        self.took = self.foreseen = self.error = 0.0
        self.seen = 0

    def learn(self, foreseen: Duration, took: Duration) -> None:
        self.seen += 1
        if not self.foreseen:
            self.took = self.foreseen = float(foreseen)
        self.error += FOLLOW * (abs(took - foreseen * self.took / self.foreseen) - self.error)
        self.took += FOLLOW * (took - self.took)
        self.foreseen += FOLLOW * (foreseen - self.foreseen)

    @property
    def is_tried(self) -> bool:
        """A forecast that was not borne out by a few dozen answers is held against nobody."""
        return self.seen >= ENOUGH

    def doubt(self) -> None:
        """Somebody was refused for what was learned: were it wrong, nobody would be let in who could tell."""
        self.took += FORGET * (self.foreseen - self.took)
        self.error -= FORGET * self.error

    def expect(self, foreseen: Duration) -> Duration:
        """What it will take, as it usually turns out."""
        return int(foreseen * self.took / self.foreseen) if self.foreseen else foreseen

    def at_most(self, foreseen: Duration) -> Duration:
        """What it will hardly ever exceed."""
        return int(self.expect(foreseen) * (1 + CAREFUL * self.error / self.took)) if self.took else foreseen

    def snapshot(self) -> list[float]:
        return [self.took, self.foreseen, self.error, self.seen]

    def restore(self, state: list[float]) -> None:
        self.took, self.foreseen, self.error = state[:3]
        self.seen = int(state[3])
