"""How long answers turn out: what those that are still going will come to.

A histogram of the lengths of finished answers, with forgetting. What a sequence is expected to come to is a quantile of
those that were longer than what it has produced already; which quantile is its own, drawn by its number from a
sequence that fills the unit interval evenly (the golden ratio's multiples), so that the sum over many is right and
nothing is random.

At first there are lengths that are made up, spread exponentially about a mean that somebody expects; each answer that
ends takes the place of one of them.
"""

from __future__ import annotations

from math import log, sqrt

GOLDEN = 0.6180339887498949
STEPS = 4
"""Cells of a doubling."""
CELLS = 20 * STEPS
KEEP = 0.999
PRIOR = 16
"""Lengths that are made up."""


class OutputLengths:
    """expected: tokens of an answer, before any is known; 0 = nothing is expected: it may be all that it may."""

    __slots__ = ("_counts", "_gain", "_prior", "_squares", "_sum", "_total", "seen")

    def __init__(self, expected: int = 0) -> None:
        self._counts = [0.0] * CELLS
        self._gain = 1.0
        self._total = self._sum = self._squares = 0.0
        self.seen = 0
        self._prior = _made_up(expected) if expected else []
        for length in self._prior:
            self._put(length, 1.0)

    def add(self, length: int) -> None:
        """An answer has ended with so many tokens."""
        if self._prior:
            self._put(self._prior.pop(), -1.0)
        self._gain /= KEEP
        self._put(length, self._gain)
        self.seen += 1
        if self._gain > 1e12:
            self._counts = [count / self._gain for count in self._counts]
            self._total, self._sum, self._squares = (x / self._gain for x in (self._total, self._sum, self._squares))
            self._gain = 1.0

    def _put(self, length: int, weight: float) -> None:
        self._counts[_cell(length)] += weight
        self._total += weight
        self._sum += weight * length
        self._squares += weight * length * length

    @property
    def spread(self) -> float:
        """Standard deviation, in tokens."""
        if self._total <= 0:
            return 0.0
        mean = self._sum / self._total
        return sqrt(max(0.0, self._squares / self._total - mean * mean))

    def expect(self, produced: int, most: int, number: int) -> int:
        """Tokens in all that the sequence of this number comes to, of which so many are there; at most `most`."""
        if self._total < PRIOR:  # nothing is known: all that it may
            return most
        first = _cell(produced + 1)
        counts = self._counts
        left = sum(counts[first:])
        if left <= 1e-6 * self._total:  # what is made up leaves rounding behind
            return min(most, 2 * produced + 1)
        wanted = ((number * GOLDEN) % 1.0) * left
        for cell in range(first, CELLS):
            wanted -= counts[cell]
            if wanted <= 0:
                return max(produced + 1, min(most, _upper(cell)))
        return most


def _made_up(mean: int) -> list[int]:
    """Evenly spaced quantiles of the exponential distribution, those in the middle last: they are the first to go."""
    lengths = [max(1, round(-mean * log(1 - (place + 0.5) / PRIOR))) for place in range(PRIOR)]
    half = PRIOR // 2
    return [each for pair in zip(lengths[:half], reversed(lengths[half:]), strict=True) for each in pair]


def _cell(length: int) -> int:
    """Lengths from 1: exact to 4, then so many cells for each doubling."""
    if length < STEPS:
        return max(0, length - 1)
    shift = length.bit_length() - 3
    return min(CELLS - 1, STEPS * shift + (length >> shift) - STEPS + STEPS - 1)


def _upper(cell: int) -> int:
    """The greatest length of a cell."""
    if cell < STEPS - 1:
        return cell + 1
    shift, place = divmod(cell - (STEPS - 1), STEPS)
    return ((place + STEPS + 1) << shift) - 1
