"""How long a step takes: a + b x prefill tokens + c x decode rows + d x context tokens + e x pairs.

Context counts the positions whose keys and values are read: all that a decode looks back at, and once for a chunk of a
prompt. Pairs are those of a chunk's tokens with all that each looks back at, in thousands: the part of attention that
grows with the square of a prompt. Learned from the steps as they were, with forgetting, by least squares with
coefficients that are not negative; the prior counts as a few steps.
"""

from __future__ import annotations

from typing import NamedTuple

from headway.core.nnls import nnls
from headway.core.units import Duration, ms, us

PAIRS = 1000
REFIT = 16
"""Steps between two fits."""
KEEP = 0.995
"""Of the weight of what was seen, per step: the last 200 count."""
UPPER = 0.9
"""The quantile of actual / predicted that budgets are kept by."""


class Coefficients(NamedTuple):
    """In ns: of a step, of a prefill token, of a decode row, of a context token, of a thousand pairs."""

    step: float
    prefill: float
    decode: float
    context: float = 0.0
    pairs: float = 0.0

    def predict(self, prefill: int, decodes: int, context: int, pairs: int) -> float:
        return (
            self.step
            + self.prefill * prefill
            + self.decode * decodes
            + self.context * context
            + self.pairs * pairs / PAIRS
        )


DEFAULT = Coefficients(step=ms(5), prefill=us(100), decode=us(200), context=50.0, pairs=50.0)
"""Before anything is known: a small model on a few cores."""

_GRID = (
    (64, 0, 64, 2_048),
    (512, 0, 512, 131_072),
    (0, 1, 256, 0),
    (0, 32, 8_192, 0),
    (0, 64, 131_072, 0),
    (256, 16, 65_536, 524_288),
)


class StepTime:
    """upper: actual over predicted at the upper quantile; what is planned for is the prediction times this.
    error: of the median, moving, as a share."""

    __slots__ = ("_gram", "_right", "_since", "error", "now", "observed", "upper")

    def __init__(self, prior: Coefficients = DEFAULT) -> None:
        self.now = prior
        self.upper = 1.0
        self.error = 0.0
        self.observed = 0
        self._since = 0
        self._gram = [[0.0] * 5 for _ in range(5)]
        self._right = [0.0] * 5
        for size in _GRID:
            self._add(size, prior.predict(*size), 0.5)

    def predict(self, prefill: int, decodes: int, context: int, pairs: int) -> Duration:
        """Median, in ns."""
        return int(self.now.predict(prefill, decodes, context, pairs))

    def learn(self, prefill: int, decodes: int, context: int, pairs: int, elapsed: Duration) -> None:
        """A step of such a size has taken so long."""
        if elapsed <= 0 or prefill + decodes == 0:
            return
        ratio = elapsed / max(1.0, self.now.predict(prefill, decodes, context, pairs))
        self.error += 0.05 * (abs(ratio - 1) - self.error)
        self.upper += 0.02 * (UPPER if ratio > self.upper else UPPER - 1) * max(0.05, self.upper)
        self.upper = min(3.0, max(1.0, self.upper))
        ratio = min(ratio, 4.0)  # one that was stalled teaches little
        size = (prefill, decodes, context, pairs)
        for row in self._gram:
            for i in range(5):
                row[i] *= KEEP
        self._right = [KEEP * value for value in self._right]
        self._add(size, ratio * self.now.predict(*size), 1.0)
        self.observed += 1
        self._since += 1
        if self._since >= REFIT:
            self._since = 0
            self._fit()

    def _add(self, size: tuple[int, int, int, int], elapsed: float, weight: float) -> None:
        prefill, decodes, context, pairs = size
        features = (1.0, float(prefill), float(decodes), float(context), pairs / PAIRS)
        weight /= elapsed * elapsed  # a share of the time, not so many ns, is what it may be wrong by
        for i, row in enumerate(self._gram):
            scaled = weight * features[i]
            self._right[i] += scaled * elapsed
            for j in range(5):
                row[j] += scaled * features[j]

    def _fit(self) -> None:
        gram = [row[:] for row in self._gram]
        for i in range(5):
            gram[i][i] = gram[i][i] * (1 + 1e-9) + 1e-30
        self.now = Coefficients(*nnls(gram, self._right))

    # -- turning time into tokens ------------------------------------------------------------

    def fits(self, left: float, start: int) -> int:
        """Prefill tokens, from position `start` on, that take no longer than so many ns."""
        k = self.now
        left -= k.context * start
        if left <= 0:
            return 0
        per_token = k.prefill + k.context + k.pairs * start / PAIRS
        if k.pairs <= 0:
            return int(left / per_token) if per_token > 0 else 1 << 30
        half = k.pairs / (2 * PAIRS)  # n tokens: per_token n + half n^2; a token looks back at itself, too
        per_token += half
        return int(((per_token * per_token + 4 * half * left) ** 0.5 - per_token) / (2 * half))

    def chunk(self, start: int, count: int) -> float:
        """What a chunk adds to a step, in ns."""
        k = self.now
        return k.prefill * count + k.context * (start + count) + k.pairs * pairs(start, count) / PAIRS


def pairs(start: int, count: int) -> int:
    """Of the tokens from `start` on with all that each looks back at, itself included."""
    return count * start + count * (count + 1) // 2
