"""How long answers turn out: what those that are still going will come to.

A histogram of the lengths of finished answers, with forgetting. What a sequence is expected to come to is a quantile of
those that were longer than what it has produced already; which quantile is its own, drawn by its number from a
sequence that fills the unit interval evenly (the golden ratio's multiples), so that the sum over many is right and
nothing is random.
"""

from __future__ import annotations

from math import sqrt

GOLDEN = 0.6180339887498949
STEPS = 4
"""Cells of a doubling."""
CELLS = 20 * STEPS
KEEP = 0.999


class OutputLengths:
    __slots__ = ("_counts", "_gain", "_squares", "_sum", "_total", "seen")

    def __init__(self) -> None:
        self._counts = [0.0] * CELLS
        self._gain = 1.0
        self._total = self._sum = self._squares = 0.0
        self.seen = 0

    def add(self, length: int) -> None:
        """An answer has ended with so many tokens."""
        self._gain /= KEEP
        self._counts[_cell(length)] += self._gain
        self._total += self._gain
        self._sum += self._gain * length
        self._squares += self._gain * length * length
        self.seen += 1
        if self._gain > 1e12:
            self._counts = [count / self._gain for count in self._counts]
            self._total, self._sum, self._squares = (x / self._gain for x in (self._total, self._sum, self._squares))
            self._gain = 1.0

    @property
    def spread(self) -> float:
        """Standard deviation, in tokens."""
        if not self.seen:
            return 0.0
        mean = self._sum / self._total
        return sqrt(max(0.0, self._squares / self._total - mean * mean))

    def expect(self, produced: int, most: int, number: int) -> int:
        """Tokens in all that the sequence of this number comes to, of which so many are there; at most `most`."""
        if self.seen < 16:  # nothing is known: all that it may
            return most
        first = _cell(produced + 1)
        counts = self._counts
        left = sum(counts[first:])
        if left <= 0:
            return min(most, 2 * produced + 1)
        wanted = ((number * GOLDEN) % 1.0) * left
        for cell in range(first, CELLS):
            wanted -= counts[cell]
            if wanted <= 0:
                return max(produced + 1, min(most, _upper(cell)))
        return most


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
