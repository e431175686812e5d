"""One version's counts in the shape of the statistics extension (`/v2/models/NAME/stats`).

A request is counted as a success once its reply was written, with all its times at once, so that counts and times are
of the same requests. An inference is a row that ran in a batch that succeeded, an execution is such a batch: the
rows of `batch_stats` times their counts are therefore the inferences.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from headway.core.outcomes import Outcome
from headway.core.units import Instant
from headway.telemetry.counters import Counters, SizeCounts, VersionCounts

MILLISECOND = 1_000_000
NEVER_RUN = VersionCounts({})


class Statistics:
    """clock: the one that the core's instants come from.  wall: nanoseconds since 1970."""

    def __init__(
        self,
        counters: Counters,
        clock: Callable[[], Instant] = time.monotonic_ns,
        wall: Callable[[], int] = time.time_ns,
    ) -> None:
        self._counters = counters
        self._clock = clock
        self._wall = wall

    def __call__(self, model: str, version: int) -> dict[str, Any]:
        """Zeros for a version that the core has not been told of yet."""
        counts = self._counters.versions.get((model, version), NEVER_RUN)
        sizes = sorted(counts.sizes.items())
        return {
            "name": model,
            "version": str(version),
            "last_inference": self._last(counts),
            "inference_count": sum(rows * size.batches for rows, size in sizes),
            "execution_count": sum(size.batches for _, size in sizes),
            "inference_stats": _requests(counts),
            "failures": _failures(counts),
            "response_stats": {},
            "batch_stats": [_batches(rows, size) for rows, size in sizes],
            "memory_usage": [],
        }

    def _last(self, counts: VersionCounts) -> int:
        """Milliseconds since 1970; 0 = nothing has run."""
        if not counts.ran:
            return 0
        return (self._wall() - (self._clock() - counts.ran)) // MILLISECOND


def _requests(counts: VersionCounts) -> dict[str, Any]:
    """compute_output: from the end of the model to the reply, the channel and waiting for other parts included."""
    phases = counts.phases.histograms()
    served = phases["total"].count
    failed = sum(_failures(counts).values())
    return {
        "success": _duration(served, phases["total"].total),
        "fail": _duration(failed, counts.failed_time),
        "queue": _duration(served, phases["queue"].total),
        "compute_input": _duration(served, phases["hand_over"].total),
        "compute_infer": _duration(served, phases["execute"].total),
        "compute_output": _duration(served, phases["back"].total),
        "cache_hit": _duration(0, 0),
        "cache_miss": _duration(0, 0),
    }


def _failures(counts: VersionCounts) -> dict[str, int]:
    """Requests by outcome, successes left out."""
    failures: dict[str, int] = {}
    for requests in counts.tenants.values():
        for outcome, count in requests.outcomes.items():
            if outcome != Outcome.COMPLETED.value:
                failures[outcome] = failures.get(outcome, 0) + count
    return dict(sorted(failures.items()))


def _batches(rows: int, size: SizeCounts) -> dict[str, Any]:
    return {
        "batch_size": rows,
        "compute_input": _duration(size.batches, size.hand_over),
        "compute_infer": _duration(size.batches, size.execute),
        "compute_output": _duration(size.batches, size.finish),
    }


def _duration(count: int, ns: int) -> dict[str, int]:
    return {"count": count, "ns": ns}
