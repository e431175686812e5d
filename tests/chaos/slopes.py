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


def fit(times: Sequence[float], values: Sequence[float]) -> Slope:
    """Raises ValueError for fewer than three points."""
    points = [(sum(t) / len(t), sum(v) / len(v)) for t, v in zip(_blocks(times), _blocks(values), strict=True)]
    count = len(points)
    if count < 3:
        raise ValueError(f"{len(values)} samples are too few for a line and its error")
    middle, mean = sum(t for t, _ in points) / count, sum(v for _, v in points) / count
    spread = sum((t - middle) ** 2 for t, _ in points)
    slope = sum((t - middle) * (v - mean) for t, v in points) / spread
    left = sum((v - mean - slope * (t - middle)) ** 2 for t, v in points)
    span = times[-1] - times[0]
    return Slope(mean, slope * span, math.sqrt(left / (count - 2) / spread) * span)


def _blocks(series: Sequence[float]) -> list[Sequence[float]]:
    """Whole ones only."""
    return [series[at : at + BLOCK] for at in range(0, len(series) - BLOCK + 1, BLOCK)]
