"""What the scheduler has learned of a version's run time, as JSON values, and what an SLO leaves for waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headway.core.policy import BatchPolicy
from headway.core.units import MILLISECOND
from headway.core.views import CostDetail, CostTerm, LingerDetail, SizeSeen
from headway.telemetry.histogram import Histogram
from headway.telemetry.phases import Phases

ROWS = (1, 2, 4, 8, 16, 32)
LENGTHS = (8, 32, 128)
"""Shown where no other lengths were seen."""

TERMS = {
    "fixed": "each batch",
    "row": "each row",
    "length": "each token of the longest row",
    "token": "each padded token",
    "attention": "each padded token x token of the longest row",
}


def ms(nanoseconds: float) -> float:
    return round(nanoseconds / MILLISECOND, 4)


def cost(detail: CostDetail, policy: BatchPolicy, probes: int) -> dict[str, Any]:
    """measured: batches and warm-up runs behind it; 0 = all below is a guess and no prediction is shown.
    probes: batches made larger than would pay, to learn from them."""
    return {
        "measured": detail.measured,
        "sizes_seen": len(detail.seen),
        "probes": probes,
        "terms": [{"of": in_words(term), "ns": round(term.weight, 3)} for term in detail.terms],
        "speed": round(detail.scale, 4),
        "lower_ratio": round(detail.lower_ratio, 4),
        "upper_ratio": round(detail.upper_ratio, 4),
        "error": round(detail.error, 4),
        "coverage": round(detail.coverage, 4),
        "predictions": list(predictions(detail, policy)) if detail.measured else [],
    }


def in_words(term: CostTerm) -> str:
    if term.name == "step":
        return f"a batch of {term.at} rows or more"
    if term.name == "knee":
        return f"each padded token beyond {term.at}, on top"
    return TERMS[term.name]


def predictions(detail: CostDetail, policy: BatchPolicy) -> Iterator[dict[str, Any]]:
    """speedup: against its rows one by one; above 1, batching pays.  allowed: within the cap in run time."""
    for length in lengths(detail.seen):
        alone = detail.predict(1, length)[1]
        limit = policy.time_limit(detail.predict(1, length)[2])
        for rows in sizes(policy, length):
            lower, median, upper = detail.predict(rows, length)
            yield {
                "rows": rows,
                "length": length,
                "lower_ms": ms(lower),
                "median_ms": ms(median),
                "upper_ms": ms(upper),
                "per_row_ms": ms(median / rows),
                "speedup": round(rows * alone / median, 2) if median else 1.0,
                "allowed": rows == 1 or upper <= limit,
            }


def lengths(seen: Sequence[SizeSeen]) -> list[int]:
    """The shortest, the one in the middle of all rows, and the longest that the model has seen."""
    ordered = sorted((size.length, size.rows * size.batches) for size in seen)
    if not ordered:
        return list(LENGTHS)
    left = sum(rows for _, rows in ordered) / 2
    middle = ordered[-1][0]
    for length, rows in ordered:
        left -= rows
        if left <= 0:
            middle = length
            break
    return sorted({max(1, round(length)) for length in (ordered[0][0], middle, ordered[-1][0])})


def sizes(policy: BatchPolicy, length: int) -> list[int]:
    """Of ROWS those that the caps allow, and the cap in rows itself."""
    most = policy.max_batch_size
    if policy.max_batch_tokens:
        most = min(most, max(1, policy.max_batch_tokens // length))
    return [rows for rows in ROWS if rows < most] + [most]


def phases(measured: Phases) -> dict[str, Any]:
    """Of completed requests. outside: what is neither waiting nor the worker's."""
    histograms = {**measured.histograms(), "outside": measured.outside()}
    return {
        "requests": histograms["total"].count,
        **{name: quantiles(histogram) for name, histogram in histograms.items() if histogram.count},
    }


def quantiles(histogram: Histogram) -> dict[str, float]:
    return {
        "mean_ms": ms(histogram.total / histogram.count),
        "p50_ms": ms(histogram.quantile(0.5)),
        "p99_ms": ms(histogram.quantile(0.99)),
    }


def budget(slo_ms: float, detail: CostDetail, policy: BatchPolicy, outside: Histogram) -> dict[str, Any]:
    """The SLO in parts: run time as predicted, outside as measured, and what they leave for waiting.

    usual: medians.  rare: the upper quantile of the run time, and p99 of the outside. Below 0: not to be had.
    """
    usual, rare = ms(outside.quantile(0.5)), ms(outside.quantile(0.99))
    return {
        "slo_ms": slo_ms,
        "outside": {"requests": outside.count, "usual_ms": usual, "rare_ms": rare},
        "batches": [
            {
                "rows": rows,
                "length": length,
                "run_usual_ms": ms(median),
                "run_rare_ms": ms(upper),
                "left_usual_ms": round(slo_ms - ms(median) - usual, 4),
                "left_rare_ms": round(slo_ms - ms(upper) - rare, 4),
            }
            for rows, length in extremes(detail, policy)
            for _, median, upper in [detail.predict(rows, length)]
        ],
    }


def linger(detail: LingerDetail, slo_ms: float) -> dict[str, Any]:
    """How the wait for company is derived: fraction * (SLO - run time - outside), with what each is now.

    rows: 0 = no batch has run yet and none was warmed up.  answers, late: of the window that is under way.
    """
    run, outside = ms(detail.run_time), ms(detail.outside)
    return {
        "rows": detail.rows,
        "length": detail.length,
        "run_ms": run,
        "outside_ms": outside,
        "left_ms": round(slo_ms - run - outside, 4),
        "fraction": round(detail.fraction, 4),
        "ceiling_ms": ms(detail.ceiling),
        "answers": detail.answers,
        "late": detail.late,
    }


def extremes(detail: CostDetail, policy: BatchPolicy) -> Iterator[tuple[int, int]]:
    """At each length one row, and the largest of the sizes shown that the caps allow."""
    if not detail.measured:
        return
    for length in lengths(detail.seen):
        limit = policy.time_limit(detail.predict(1, length)[2])
        allowed = [rows for rows in sizes(policy, length) if detail.predict(rows, length)[2] <= limit]
        for rows in sorted({1, max(allowed, default=1)}):
            yield rows, length
