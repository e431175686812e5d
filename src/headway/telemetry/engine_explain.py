"""What the engines of one version have, what binds them and how fast tokens come, as JSON values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.core.engine_views import EngineDetail
from headway.telemetry import learned
from headway.telemetry.generation_families import preemptions
from headway.telemetry.generations import LanguageCounts
from headway.telemetry.histogram import Histogram
from headway.wire.engine import EngineCounts


def explained(engines: Sequence[EngineDetail], counts: LanguageCounts | None) -> dict[str, Any] | None:
    """None for what is no language model. All but `engines` is since the start.

    binds: what keeps who waits from running: "nothing" (nobody waits), "sequences", "kv_memory" or "step_time".
    free_kv_blocks: of the engine's; those that are neither held nor kept for the growth of what runs.
    """
    if counts is None:
        return None
    return {
        "engines": [_engine(detail, counts.engines.get(detail.worker, EngineCounts())) for detail in engines],
        "first_token": _quantiles(counts.first),
        "inter_token": _quantiles(counts.gaps),
        "finished": dict(counts.finished),
        "preemptions": preemptions(counts),
        "recomputed_tokens": counts.since("recomputed"),
        "prefix_cache": {"asked_tokens": counts.since("asked"), "hit_tokens": counts.since("hits")},
    }


def _engine(detail: EngineDetail, told: EngineCounts) -> dict[str, Any]:
    return {
        "worker": detail.worker,
        "running_requests": detail.running,
        "waiting_requests": detail.waiting,
        "max_sequences": detail.capacity.sequences,
        "kv_blocks": {
            "used": told.kv_used,
            "cached": told.kv_cached,
            "of": told.kv_used + told.kv_cached + told.kv_free,
        },
        "free_kv_blocks": detail.blocks,
        "block_size": detail.capacity.block_size,
        "prefilling_tokens": detail.prefilling,
        "binds": detail.binds.value,
    }


def _quantiles(histogram: Histogram) -> dict[str, float] | None:
    return learned.quantiles(histogram) if histogram.count else None
