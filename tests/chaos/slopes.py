"""Whether a measured series grows: a line by least squares, its error, and a verdict that noise cannot buy."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

SURE = 2.0
"""Standard errors beyond what is allowed."""
BLOCK = 3
"""Samples that are averaged to one point: neighbours are alike, and would make the error look smaller than it is."""


class Slope(NamedTuple):
    """mean: of the series.  change, error: over all of its time."""

    mean: float
    change: float
    error: float

    def exceeds(self, allowed: float) -> bool:
        """Surely: beyond the noise, and beyond what is allowed either way that `allowed` points to."""
        towards = math.copysign(1, allowed)
        return towards * self.change - SURE * self.error > abs(allowed)


def fit(times: Sequence[float], values: Sequence[float], beside: Sequence[float] = ()) -> Slope:
    """beside: something that the values may follow, and that is not to be blamed on time: what it explains of both is
    taken away first (two regressors; Frisch and Waugh 1933). Raises ValueError for fewer than four points."""
    at, found = _points(times), _points(values)
    known = 2
    if len(found) < 4:
        raise ValueError(f"{len(values)} samples are too few for a line and its error")
    mean = sum(found) / len(found)
    at, found = _around(at), _around(found)
    if beside:
        other = _around(_points(beside))
        if any(other):
            at, found, known = _without(at, other), _without(found, other), 3
    spread = sum(t * t for t in at)
    if spread == 0:
        raise ValueError("what it may follow is time itself")
    slope = sum(t * v for t, v in zip(at, found, strict=True)) / spread
    left = sum((v - slope * t) ** 2 for t, v in zip(at, found, strict=True))
    span = times[-1] - times[0]
    return Slope(mean, slope * span, math.sqrt(left / (len(found) - known) / spread) * span)


def _points(series: Sequence[float]) -> list[float]:
    """Means of whole blocks."""
    return [sum(series[at : at + BLOCK]) / BLOCK for at in range(0, len(series) - BLOCK + 1, BLOCK)]


def _around(series: list[float]) -> list[float]:
    mean = sum(series) / len(series)
    return [value - mean for value in series]


def _without(series: list[float], other: list[float]) -> list[float]:
    """What the other does not explain of it. Both are around zero."""
    share = sum(a * b for a, b in zip(series, other, strict=True)) / sum(b * b for b in other)
    return [a - share * b for a, b in zip(series, other, strict=True)]
