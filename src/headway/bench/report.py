"""Figures of one measurement, as a table for people and as JSON for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

from headway.bench.run import Measured

Number = TypeVar("Number", int, float)

QUANTILES = (("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p99.9", 0.999))
BUSY_CLIENT = 0.8
EXAMPLE = 400
"""Characters of an error's body that are shown."""


def percentile(ordered: Sequence[Number], q: float) -> Number:
    """The smallest value that at least a share q of `ordered` (ascending, not empty) does not exceed."""
    count = len(ordered)
    rank = -(-round(q * 1_000_000) * count // 1_000_000)  # ceiling, in whole numbers: 0.95 * 20 is 19, not 20
    return ordered[max(rank, 1) - 1]


def distribution(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Mean, percentiles and maximum in milliseconds; empty when there is nothing."""
    if not nanoseconds:
        return {}
    ordered = sorted(nanoseconds)
    figures = {"mean": sum(ordered) / len(ordered)}
    figures |= {name: percentile(ordered, q) for name, q in QUANTILES}
    figures["max"] = ordered[-1]
    return {name: round(value / 1e6, 3) for name, value in figures.items()}


def summarise(measured: Measured) -> dict[str, Any]:
    """JSON-able. Latencies are of 2xx answers and count from the moment at which a request was due."""
    results = measured.results
    failed = sum(results.errors.values())
    return {
        "requests": len(results.latencies) + failed,
        "ok": len(results.latencies),
        "failed": failed,
        "errors": dict(sorted(results.errors.items())),
        "error_examples": {error: shortened(body) for error, body in sorted(results.examples.items())},
        "window_s": round(measured.seconds, 3),
        "ok_per_s": round(results.answered_in_window / measured.seconds, 2) if measured.seconds else 0.0,
        "latency_ms": distribution(results.latencies),
        "send_lag_ms": distribution(results.lags),
        "client_cpu_cores": round(measured.cpu, 3),
    }


def table(summary: dict[str, Any]) -> str:
    lines = [
        f"ok           {summary['ok']} of {summary['requests']} in {summary['window_s']:.2f} s"
        f" = {summary['ok_per_s']:.1f}/s",
        _row("latency ms", summary["latency_ms"]),
        _row("send lag ms", summary["send_lag_ms"]),
        f"client CPU   {summary['client_cpu_cores'] * 100:.0f} % of a core",
    ]
    for name, count in summary["errors"].items():
        example = summary["error_examples"].get(name)
        lines.append(f"error        {count} x {name}" + (f", such as: {example}" if example else ""))
    return "\n".join(line for line in lines if line)


def shortened(body: bytes) -> str:
    """On one line."""
    text = " ".join(body.decode(errors="replace").split())
    return text if len(text) <= EXAMPLE else text[:EXAMPLE] + " ..."


def warning(summary: dict[str, Any]) -> str:
    """What makes these figures doubtful; "" when nothing does."""
    if summary["client_cpu_cores"] > BUSY_CLIENT:
        return (
            f"the client itself used {summary['client_cpu_cores'] * 100:.0f} % of a core: "
            "it may be the bottleneck; lower the load or run several clients"
        )
    return ""


def _row(name: str, figures: dict[str, float]) -> str:
    if not figures:
        return ""
    return f"{name:<12} " + "  ".join(f"{key} {value:.2f}" for key, value in figures.items())
