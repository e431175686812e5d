"""What a batch will take: rows and padded length -> lower, median and upper run time.

    median = scale * (a + b * rows + c * rows * length)

`a`, `b`, `c` >= 0 are fitted by least squares of the relative error, so that a small batch counts as
much as a large one. They come from the warm-up grid, or, where a model was not warmed up, from the
batches themselves. `scale` follows every completed batch; `lower` and `upper` are ratios that track
the quantiles of actual / median (stochastic approximation, Robbins and Monro 1951).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

from headway.core.ids import Measurement
from headway.core.units import Duration, ms

WINDOW = 64
"""Batches remembered for a fit from traffic."""
REFIT_EVERY = 8
FOLLOW = 1 / 8
"""How much of a batch's error goes into `scale`."""
LOWER_QUANTILE, UPPER_QUANTILE = 0.05, 0.95
STEP = 0.02
"""How far one batch moves a quantile ratio, at most."""


class CostModel:
    """Of one pool. Not measured yet: a fixed cost, which favours joining."""

    __slots__ = ("_recent", "_seen", "a", "b", "c", "lower_ratio", "scale", "seeded", "upper_ratio")

    def __init__(self) -> None:
        self.a = float(ms(1))
        self.b = 0.0
        self.c = 0.0
        self.scale = 1.0
        self.lower_ratio = 0.8
        self.upper_ratio = 1.25
        self.seeded = False
        self._recent: deque[Measurement] = deque(maxlen=WINDOW)
        self._seen = 0

    def median(self, rows: int, length: int) -> Duration:
        """length: of the longest row; the batch computes rows * length tokens."""
        return int(self.scale * (self.a + rows * (self.b + self.c * length)))

    def lower(self, rows: int, length: int) -> Duration:
        return int(self.lower_ratio * self.scale * (self.a + rows * (self.b + self.c * length)))

    def upper(self, rows: int, length: int) -> Duration:
        return int(self.upper_ratio * self.scale * (self.a + rows * (self.b + self.c * length)))

    def seed(self, measurements: Sequence[Measurement]) -> None:
        """From a warm-up grid: the shape, and the spread around it."""
        if not measurements:
            return
        self.a, self.b, self.c = fit(measurements)
        self.scale = 1.0
        self.seeded = True
        ratios = sorted(m.duration / max(1, self.median(m.rows, m.length)) for m in measurements)
        self.lower_ratio = min(0.95, ratios[0])
        self.upper_ratio = max(1.05, ratios[-1])

    def observe(self, rows: int, length: int, duration: Duration) -> None:
        """A batch has completed."""
        expected = self.median(rows, length)
        if expected <= 0 or duration <= 0:
            return
        ratio = duration / expected
        self._track(ratio)
        if self.seeded:
            self.scale *= 1 + FOLLOW * (min(ratio, 4.0) - 1)  # an outlier moves it by a bounded step
            return
        self._recent.append(Measurement(rows, length, duration))
        self._seen += 1
        if self._seen <= REFIT_EVERY or self._seen % REFIT_EVERY == 0:
            self.a, self.b, self.c = fit(self._recent)

    def _track(self, ratio: float) -> None:
        """Each ratio moves up and down in such proportion that it comes to rest at its quantile."""
        up = ratio > self.upper_ratio
        self.upper_ratio *= 1 + STEP * (UPPER_QUANTILE if up else UPPER_QUANTILE - 1)
        below = ratio < self.lower_ratio
        self.lower_ratio *= 1 - STEP * (1 - LOWER_QUANTILE if below else -LOWER_QUANTILE)
        self.upper_ratio = max(1.0, self.upper_ratio)
        self.lower_ratio = min(1.0, self.lower_ratio)

    def snapshot(self) -> dict[str, Any]:
        return {
            "fit": [self.a, self.b, self.c],
            "scale": self.scale,
            "ratios": [self.lower_ratio, self.upper_ratio],
            "seeded": self.seeded,
            "recent": [list(m) for m in self._recent],
            "seen": self._seen,
        }

    @classmethod
    def restore(cls, state: dict[str, Any]) -> CostModel:
        model = cls()
        model.a, model.b, model.c = state["fit"]
        model.scale = state["scale"]
        model.lower_ratio, model.upper_ratio = state["ratios"]
        model.seeded = state["seeded"]
        model._recent.extend(Measurement(*m) for m in state["recent"])
        model._seen = state["seen"]
        return model


def fit(measurements: Iterable[Measurement]) -> tuple[float, float, float]:
    """a, b, c >= 0 with the least relative squared error.

    Non-negative least squares over three unknowns: every subset of them is solved by its normal
    equations, and the best solution without a negative is taken. Subsets that the measurements
    cannot tell apart (all rows equal, say) are singular and drop out.
    """
    moments = [[0.0] * 3 for _ in range(3)]
    right = [0.0] * 3
    for m in measurements:
        took = max(1, m.duration)
        features = (1 / took, m.rows / took, m.rows * m.length / took)
        for i in range(3):
            right[i] += features[i]
            for j in range(3):
                moments[i][j] += features[i] * features[j]
    best, most = (0.0, 0.0, 0.0), -1.0
    for size in (1, 2, 3):
        for chosen in combinations(range(3), size):
            solution = _solve([[moments[i][j] for j in chosen] for i in chosen], [right[i] for i in chosen])
            if solution is None or min(solution) < 0:
                continue
            explained = sum(x * right[i] for x, i in zip(solution, chosen, strict=True))
            if explained > most * (1 + 1e-9):  # the squared error is (number of measurements) - explained
                values = dict(zip(chosen, solution, strict=True))
                best, most = (values.get(0, 0.0), values.get(1, 0.0), values.get(2, 0.0)), explained
    return best


def _solve(matrix: list[list[float]], right: list[float]) -> list[float] | None:
    """Gaussian elimination with scaling; None when singular."""
    n = len(right)
    scales = [matrix[i][i] ** 0.5 for i in range(n)]
    if not all(scales):
        return None
    rows = [[matrix[i][j] / scales[i] / scales[j] for j in range(n)] + [right[i] / scales[i]] for i in range(n)]
    for i in range(n):
        pivot = max(range(i, n), key=lambda r: abs(rows[r][i]))
        if abs(rows[pivot][i]) < 1e-9:
            return None
        rows[i], rows[pivot] = rows[pivot], rows[i]
        for r in range(n):
            if r != i:
                factor = rows[r][i] / rows[i][i]
                rows[r] = [x - factor * y for x, y in zip(rows[r], rows[i], strict=True)]
    return [rows[i][n] / rows[i][i] / scales[i] for i in range(n)]
