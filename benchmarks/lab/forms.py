"""Forms that the cost of a batch could have, and how far each is from what was measured."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from math import log
from statistics import median
from typing import TypeAlias

from headway.bench.report import percentile
from headway.core.cost import PENALTY, STEPS, CostModel, _features
from headway.core.ids import Measurement
from headway.core.nnls import nnls

Size: TypeAlias = tuple[int, int]
Predict: TypeAlias = Callable[[int, int], float]
"""(rows, length) -> nanoseconds."""

RIDGE = 1e-6
"""As the cost model has for its plain terms."""


def affine(rows: int, length: int) -> list[float]:
    return [1.0, rows, rows * length]


def attention(rows: int, length: int) -> list[float]:
    return [*affine(rows, length), rows * length * length]


def kernels(rows: int, length: int) -> list[float]:
    """The cost model's own terms, and steps in rows that cost something for every place of the length, as rows do that
    are filled up to a kernel's."""
    return [*_features(rows, length), *(length if rows >= step else 0.0 for step in STEPS)]


OF_KERNELS = (*PENALTY, *PENALTY[-len(STEPS) :])
"""Their ridge: a step of either kind has the same."""


def fitted(
    features: Callable[[int, int], list[float]], runs: Sequence[Measurement], ridge: Sequence[float] = ()
) -> Predict:
    """Least squares of the relative error without negative weights, as in headway.core.cost, over single runs."""
    samples = [[f / max(1, m.duration) for f in features(m.rows, m.length)] for m in runs]
    of_each = range(len(samples[0]))
    norms = [sum(x[i] ** 2 for x in samples) ** 0.5 or 1.0 for i in of_each]
    gram = [[sum(x[i] * x[j] for x in samples) / norms[i] / norms[j] for j in of_each] for i in of_each]
    for i in of_each:
        gram[i][i] += ridge[i] if ridge else RIDGE
    right = [sum(x[i] for x in samples) / norms[i] for i in of_each]
    weights = [w / norm for w, norm in zip(nnls(gram, right), norms, strict=True)]
    return lambda rows, length: sum(w * f for w, f in zip(weights, features(rows, length), strict=True))


def looked_up(runs: Sequence[Measurement]) -> Predict:
    """The median of the nearest size that was run; near is by ratio, in rows and in length alike."""
    table = medians(runs)

    def predict(rows: int, length: int) -> float:
        return table[min(table, key=lambda size: log(rows / size[0]) ** 2 + log(length / size[1]) ** 2)]

    return predict


def modelled(warm_up: Sequence[Measurement], runs: Iterable[Measurement] = ()) -> CostModel:
    """headway's own, told of each in turn."""
    model = CostModel()
    model.seed(warm_up)
    for m in runs:
        model.observe(m.rows, m.length, m.duration)
    return model


def medians(runs: Iterable[Measurement]) -> dict[Size, float]:
    took: dict[Size, list[int]] = {}
    for m in runs:
        took.setdefault((m.rows, m.length), []).append(m.duration)
    return {size: median(durations) for size, durations in took.items()}


def errors(predict: Predict, truth: dict[Size, float]) -> dict[str, float]:
    """p50, p90: of |prediction / truth - 1| over the sizes.  shape_p50, shape_p90: with the median of the ratios taken
    out, which is the device's speed and not the form's fault: the cost model's scale follows it."""
    ratios = [predict(*size) / took for size, took in truth.items()]
    speed = median(ratios)
    found: dict[str, float] = {}
    for name, by in (("", 1.0), ("shape_", speed or 1.0)):
        off = sorted(abs(ratio / by - 1) for ratio in ratios)
        found |= {f"{name}p50": percentile(off, 0.5), f"{name}p90": percentile(off, 0.9)}
    return found


def in_service(model: CostModel, runs: Sequence[Measurement]) -> dict[str, float]:
    """within_upper: part of the runs that took at most `upper`.  p50, p90: of |median / run time - 1|.
    Each run is judged before the model is told of it."""
    within, off = 0, []
    for m in runs:
        within += m.duration <= model.upper(m.rows, m.length)
        off.append(abs(model.median(m.rows, m.length) / m.duration - 1))
        model.observe(m.rows, m.length, m.duration)
    off.sort()
    return {"within_upper": within / len(runs), "p50": percentile(off, 0.5), "p90": percentile(off, 0.9)}
