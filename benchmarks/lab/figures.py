"""Small statistics and tables."""

from __future__ import annotations

from collections.abc import Sequence

from headway.bench.report import percentile

QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def quantiles_ms(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Of at least one value: p50, p90, p95, p99 and max in milliseconds."""
    ordered = sorted(nanoseconds)
    figures = {name: percentile(ordered, q) / 1e6 for name, q in QUANTILES.items()}
    return {**figures, "max": ordered[-1] / 1e6}


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A table, its columns as wide as they need to be."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    lines = [header, ["-" * width for width in widths], *rows]
    return "\n".join("| " + " | ".join(f"{c:<{w}}" for c, w in zip(line, widths, strict=True)) + " |" for line in lines)
