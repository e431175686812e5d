"""What a batch will take: rows and longest length -> lower, median and upper run time.

    median = scale * (sum of w_i * f_i(rows, length)),  all w_i >= 0

Each f_i grows with rows and with length, so the whole does: a fixed part, one per row, one for the
depth of the computation (length), padded tokens, attention (tokens x length), steps at the row
counts at which kernels change size, and knees in the number of tokens at which a device is full.
Devices that differ in kind differ in which of them they use; nothing else is configured.

Three things are learned, each at its own pace. The *shape* (w) comes from the warm-up grid and is
fitted again as batches of new sizes complete: rarely, from averages per size, weighted by relative
error. The *scale* follows every batch, each by a bounded step, so that a device that slows down is
followed within a few batches and an outlier is not. *lower* and *upper* are ratios to the median that
track the quantiles of what was measured (stochastic approximation: Robbins and Monro 1951).

What was not measured for long, or when the device was of another speed, is doubted: in the fit it does
not argue with what is recent, and the next measurement takes its place. `probes` says which sizes are
worth a batch for that.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import exp, log
from typing import Any

from headway.core.ids import Measurement
from headway.core.nnls import nnls
from headway.core.probing import Probes
from headway.core.units import Duration, ms

STEPS = (2, 3, 5, 9, 17, 33, 65)
"""Row counts at which the kernels of a device may change."""
KNEES = tuple(64 << i for i in range(10))
"""Padded tokens from which on a device may be full."""
PENALTY = (1e-6,) * 4 + (1e-5,) + (1e-3,) * (len(STEPS) + len(KNEES))
"""Ridge in units of the squared relative error: what explains the same with fewer, plainer terms wins."""
NEGLIGIBLE = 0.03
"""A step of less than this part of the cost before it is noise."""

SHAPED = 16
"""Measurements before which an error is the shape's fault, and the scale does not move."""
GAIN, CLIP = 0.25, 0.3
"""A batch moves log(scale) by GAIN times its error, which counts up to CLIP; twice as far for each
further batch in a row that errs by more than CLIP to the same side: a device has changed, then."""
FIRST_STEP = 5
"""Where the weights of STEPS begin."""
FIRST_SEEN = 2.5
"""A size not seen before, or not for long, that takes so many times the prediction was compiled for: that tells nothing
of what it takes the next time."""
LOWER_QUANTILE, UPPER_QUANTILE = 0.05, 0.95
STEP = 0.02
"""How far one batch moves a quantile ratio, at most."""
MEMORY = 32
"""Batches of one size that its average remembers."""
OLD = 0.02
"""Batches that what is doubted counts for: it says what recent ones leave open, and does not argue with them."""
REFIT_AT_MOST = 1024
"""Batches between two fits, once there have been many."""
REFIT_SOON = 16
"""Batches until the next fit, at most, after a size of which nothing recent was known was off by more than CLIP."""
CACHE = 1 << 15


class Cell:
    """Average over batches of about one size.

    took: run time at scale 1, in nanoseconds.  last: batches of all sizes until the last of this one.
    """

    __slots__ = ("count", "last", "length", "rows", "took")

    def __init__(self, rows: float, length: float, took: float, count: int, last: int) -> None:
        self.rows = rows
        self.length = length
        self.took = took
        self.count = count
        self.last = last

    def add(self, rows: int, length: int, took: float) -> None:
        self.count = min(self.count + 1, MEMORY)
        part = 1 / self.count
        self.rows += part * (rows - self.rows)
        self.length += part * (length - self.length)
        self.took += part * (took - self.took)


class CostModel:
    """Of one pool. Not measured yet: a fixed cost, which favours joining.

    measured: batches that were measured.
    error: running mean of |log(actual / median)|.  coverage: running part of batches within upper.
    probes: which sizes nothing recent is known of.
    steady_from: rows from which on the cost has no further step: each joiner costs at least what
        the one before it did.
    """

    __slots__ = (
        "_astray",
        "_base",
        "_cells",
        "_next_fit",
        "coverage",
        "error",
        "lower_ratio",
        "measured",
        "probes",
        "scale",
        "steady_from",
        "upper_ratio",
        "weights",
    )

    def __init__(self) -> None:
        self.weights: list[float] = [float(ms(1))] + [0.0] * (len(PENALTY) - 1)
        self.scale = 1.0
        self.lower_ratio = 0.8
        self.upper_ratio = 1.25
        self.error = 0.0
        self.coverage = UPPER_QUANTILE
        self.steady_from = 1
        self.probes = Probes()
        self._cells: dict[tuple[int, int], Cell] = {}
        self.measured = 0
        self._astray = 0
        self._next_fit = 1
        self._base: dict[tuple[int, int], float] = {}

    # -- asked -----------------------------------------------------------------------------

    def median(self, rows: int, length: int) -> Duration:
        """length: of the longest row; the batch computes rows * length tokens."""
        base = self._base.get((rows, length))
        if base is None:
            base = self._evaluate(rows, length)
        return int(self.scale * base)

    def lower(self, rows: int, length: int) -> Duration:
        return int(self.lower_ratio * self.median(rows, length))

    def upper(self, rows: int, length: int) -> Duration:
        return int(self.upper_ratio * self.median(rows, length))

    def sizes(self) -> Iterable[Cell]:
        """What it remembers, by about one size."""
        return self._cells.values()

    def mean_length(self) -> float:
        """Of the rows that it remembers; 0 = it remembers none."""
        rows = sum(cell.rows * cell.count for cell in self._cells.values())
        return sum(cell.rows * cell.count * cell.length for cell in self._cells.values()) / rows if rows else 0.0

    def _evaluate(self, rows: int, length: int) -> float:
        if len(self._base) >= CACHE:
            self._base.clear()
        base = self._base[rows, length] = _value(self.weights, rows, length)
        return base

    # -- told ------------------------------------------------------------------------------

    def seed(self, measurements: Sequence[Measurement]) -> None:
        """From a warm-up grid: the shape, and the spread around it. Several workers may tell theirs."""
        if not measurements:
            return
        first = self.measured == 0
        for m in measurements:
            self._remember(m.rows, m.length, m.duration / self.scale)
            self.probes.measured(m.rows, m.length)
        self.measured += len(measurements)
        if first:
            self._fit()
            self._next_fit = 2 * self.measured
            ratios = sorted(m.duration / max(1, self.median(m.rows, m.length)) for m in measurements)
            self.lower_ratio = min(0.95, ratios[len(ratios) // 20])
            self.upper_ratio = max(1.05, ratios[-1 - len(ratios) // 20])

    def observe(self, rows: int, length: int, duration: Duration) -> None:
        """A batch has completed."""
        expected = self.median(rows, length)
        if expected <= 0 or duration <= 0:
            return
        ratio = duration / expected
        stale = self.probes.observed(rows, length)
        if self.measured and ratio > FIRST_SEEN and self._is_new(rows, length):
            self._remember(rows, length, expected / self.scale)
            return
        self.measured += 1
        off = log(ratio)
        self.error += (abs(off) - self.error) / min(self.measured, 256)
        self.coverage += ((ratio <= self.upper_ratio) - self.coverage) / 256
        self._track(ratio)
        if stale and abs(off) > CLIP:
            self._next_fit = min(self._next_fit, self.measured + REFIT_SOON)
        if self.measured >= SHAPED:
            self._follow(off)
        self._remember(rows, length, duration / self.scale)
        if self.measured >= self._next_fit:
            self._fit()
            self._next_fit = self.measured + min(self.measured, REFIT_AT_MOST)

    def _is_new(self, rows: int, length: int) -> bool:
        cell = self._cells.get(_cell(rows, length))
        return cell is None or self.probes.is_old(cell.last)

    def _follow(self, off: float) -> None:
        """off: log(actual / median)."""
        if abs(off) <= CLIP:
            self._astray = 0
        else:
            side = 1 if off > 0 else -1
            self._astray = self._astray + side if self._astray * side > 0 else side
        bound = CLIP * 2 ** max(0, abs(self._astray) - 2)
        self.scale *= exp(GAIN * max(-bound, min(bound, off)))
        self.probes.follow(self.scale)

    def _track(self, ratio: float) -> None:
        """Each ratio moves up and down in such proportion that it comes to rest at its quantile."""
        up = ratio > self.upper_ratio
        self.upper_ratio *= 1 + STEP * (UPPER_QUANTILE if up else UPPER_QUANTILE - 1)
        below = ratio < self.lower_ratio
        self.lower_ratio *= 1 - STEP * (1 - LOWER_QUANTILE if below else -LOWER_QUANTILE)
        self.upper_ratio = max(1.0, self.upper_ratio)
        self.lower_ratio = min(1.0, self.lower_ratio)

    def _remember(self, rows: int, length: int, took: float) -> None:
        key = _cell(rows, length)
        cell = self._cells.get(key)
        if cell is None:
            self._cells[key] = Cell(rows, length, took, 1, self.probes.seen)
        else:
            if self.probes.is_old(cell.last):
                cell.count = 0
            cell.add(rows, length, took)
            cell.last = self.probes.seen

    def _fit(self) -> None:
        is_old = self.probes.is_old
        self.weights = fit(
            [(c.rows, c.length, c.took, OLD if is_old(c.last) else c.count) for c in self._cells.values()]
        )
        self._base.clear()
        self.steady_from = self._last_step()

    def _last_step(self) -> int:
        return max((1, *(rows for i, rows in enumerate(STEPS) if self.weights[FIRST_STEP + i])))

    # -- kept ------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            "weights": self.weights,
            "scale": self.scale,
            "ratios": [self.lower_ratio, self.upper_ratio],
            "quality": [self.error, self.coverage],
            "cells": [[*key, c.rows, c.length, c.took, c.count, c.last] for key, c in self._cells.items()],
            "seen": [self.measured, self._next_fit, self._astray],
            "probes": self.probes.snapshot(),
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> CostModel:
        model = cls()
        model.weights = list(state["weights"])
        model.scale = state["scale"]
        model.lower_ratio, model.upper_ratio = state["ratios"]
        model.error, model.coverage = state["quality"]
        model._cells = {(a, b): Cell(*cell) for a, b, *cell in state["cells"]}
        model.measured, model._next_fit, model._astray = state["seen"]
        model.steady_from = model._last_step()
        model.probes = Probes.restore(state["probes"])
        return model


def fit(sizes: Sequence[tuple[float, float, float, float]]) -> list[float]:
    """Weights from (rows, length, run time, how often): the least squared relative error, none negative."""
    total = sum(count for *_, count in sizes)
    samples = [
        ([f / max(1.0, took) for f in _features(rows, length)], count / total) for rows, length, took, count in sizes
    ]
    n = len(PENALTY)
    norms = [sum(part * x[i] ** 2 for x, part in samples) ** 0.5 or 1.0 for i in range(n)]
    gram = [[0.0] * n for _ in range(n)]
    right = [0.0] * n
    for x, part in samples:
        used = [i for i in range(n) if x[i]]
        for i in used:
            scaled = part * x[i] / norms[i]
            right[i] += scaled
            row = gram[i]
            for j in used:
                row[j] += scaled * x[j] / norms[j]
    for i in range(n):
        gram[i][i] += PENALTY[i]
    weights = [w / norm for w, norm in zip(nnls(gram, right), norms, strict=True)]
    for i, rows in enumerate(STEPS):
        if weights[FIRST_STEP + i] < NEGLIGIBLE * _value(weights, rows - 1, 1):
            weights[FIRST_STEP + i] = 0.0
    return weights


def _features(rows: float, length: float) -> list[float]:
    tokens = rows * length
    return [
        1.0,
        rows,
        length,
        tokens,
        tokens * length,
        *(1.0 if rows >= step else 0.0 for step in STEPS),
        *(max(0.0, tokens - knee) for knee in KNEES),
    ]


def _value(weights: Sequence[float], rows: float, length: float) -> float:
    return sum(w * f for w, f in zip(weights, _features(rows, length), strict=True) if w)


def _cell(rows: int, length: int) -> tuple[int, int]:
    """Sizes that are averaged: rows to a power of two (1, 2, 3-4, 5-8 ...), lengths to a third of one."""
    return (rows - 1).bit_length(), int(3 * log(length, 2))
