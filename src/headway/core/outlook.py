"""What forecasts of answers are worth, learned from how they turned out.

Of the ratio of what an answer took to what was foreseen two things are followed: how it usually is, and what it
hardly ever exceeds. The latter is a quantile, found by stochastic approximation (Robbins and Monro 1951): a step up
for each answer above it, a much smaller one down for each below, so that it rests where one in `1 / RARE` is above.
No shape of the distribution is assumed: how long a request waits spreads from nothing to several times the mean, as
batches are made of neighbours in length, and the more so the greater the batches are.
"""

from __future__ import annotations

from headway.core.units import Duration

FOLLOW = 1 / 64
"""How fast the usual ratio is followed: by a mean of the last few dozen answers."""
ENOUGH = 32
UNTRIED = 2
"""Until so many answers have borne a forecast out, it is held only against who would be late if it took so many times
less than foreseen."""
RARE = 1 / 200
"""Of those that are let in so many may be late."""
UP = 1 + 3 / 100
DOWN = 1 - 3 / 100 * RARE / (1 - RARE)
DOUBT = 1 - 1 / 32768


class Outlook:
    """How forecasts turned out. took, foreseen: of answered requests, means of the last few dozen.
    seen: how many.  worst: the ratio of the two that is hardly ever exceeded."""

    __slots__ = ("foreseen", "seen", "took", "worst")

    def __init__(self) -> None:
        self.took = self.foreseen = 0.0
        self.worst = 1.0
        self.seen = 0

    def learn(self, foreseen: Duration, took: Duration) -> None:
        """An answer that was foreseen to take so long (more than 0) took so long."""
        self.seen += 1
        if not self.foreseen:
            self.took = self.foreseen = float(foreseen)
        self.took += FOLLOW * (took - self.took)
        self.foreseen += FOLLOW * (foreseen - self.foreseen)
        ratio = took / foreseen
        # never beyond what was seen: many that one stall made late are no reason for more than that
        self.worst = min(ratio, self.worst * UP) if ratio > self.worst else self.worst * DOWN

    @property
    def is_tried(self) -> bool:
        """A few dozen answers have shown how far forecasts are off."""
        return self.seen >= ENOUGH

    def doubt(self) -> None:
        """Somebody was refused for what was learned: were it wrong, nobody would be let in who could tell."""
        self.worst *= DOUBT

    def expect(self, foreseen: Duration) -> Duration:
        """What it will take, as it usually turns out."""
        return int(foreseen * self.took / self.foreseen) if self.foreseen else foreseen

    def at_most(self, foreseen: Duration) -> Duration:
        """What it will hardly ever exceed; before anything is known of that, what it will hardly ever fall short of."""
        return int(foreseen * self.worst) if self.is_tried else foreseen // UNTRIED

    def snapshot(self) -> list[float]:
        return [self.took, self.foreseen, self.worst, self.seen]

    def restore(self, state: list[float]) -> None:
        self.took, self.foreseen, self.worst = state[:3]
        self.seen = int(state[3])
