"""What forecasts of answers are worth, learned from how they turned out.

Two things are followed: how many times longer than foreseen an answer usually takes, and by how much it hardly ever
exceeds even that. The latter is a quantile, found by stochastic approximation (Robbins and Monro 1951): a step up for
each answer beyond it, a much smaller one down for each below, so that it rests where one in `1 / RARE` is beyond. No
shape of the distribution is assumed: how long a request waits spreads from nothing to several times the mean, as
batches are made of neighbours in length, and the more so the greater the batches are.

The margin is a time, not another factor: answers that were foreseen soon are often late by many times what was foreseen
(somebody else's batch had just left), and that says nothing of those that are far off.
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
START = 1 / 16
"""Of what was foreseen: the least step up, for a margin that is nothing yet."""
DOUBT = 1 - 1 / 32768


class Outlook:
    """How forecasts turned out. took, foreseen: of answered requests, means of the last few dozen, in nanoseconds.
    seen: how many.  margin: what an answer hardly ever takes beyond what it usually does, in nanoseconds."""

    __slots__ = ("foreseen", "margin", "seen", "took")

    def __init__(self) -> None:
        self.took = self.foreseen = self.margin = 0.0
        self.seen = 0

    def learn(self, foreseen: Duration, took: Duration) -> None:
        """An answer that was foreseen to take so long (more than 0) took so long."""
        if self.seen:
            self._widen(foreseen, took - foreseen * self.took / self.foreseen)
        self.seen += 1
        follow = max(FOLLOW, 1 / self.seen)
        self.took += follow * (took - self.took)
        self.foreseen += follow * (foreseen - self.foreseen)

    def _widen(self, foreseen: Duration, beyond: float) -> None:
        """Never by more than was seen: many that one stall made late are no reason for more than that."""
        if beyond > self.margin:
            self.margin = min(beyond, max(self.margin * UP, self.margin + foreseen * START))
        else:
            self.margin *= DOWN

    @property
    def is_tried(self) -> bool:
        """A few dozen answers have shown how far forecasts are off."""
        return self.seen >= ENOUGH

    def doubt(self) -> None:
        """Somebody was refused for what was learned: were it wrong, nobody would be let in who could tell."""
        self.margin *= DOUBT
        self.took = max(self.took * DOUBT, min(self.took, self.foreseen))

    def expect(self, foreseen: Duration) -> Duration:
        """What it will take, as it usually turns out."""
        return int(foreseen * self.took / self.foreseen) if self.foreseen else foreseen

    def at_most(self, foreseen: Duration) -> Duration:
        """What it will hardly ever exceed; before anything is known of that, what it will hardly ever fall short of."""
        return self.expect(foreseen) + int(self.margin) if self.is_tried else foreseen // UNTRIED

    def snapshot(self) -> list[float]:
        return [self.took, self.foreseen, self.margin, self.seen]

    def restore(self, state: list[float]) -> None:
        self.took, self.foreseen, self.margin = state[:3]
        self.seen = int(state[3])
