"""From the operator's settings to the core's policies, and to the cores that each worker may use."""

from __future__ import annotations

import os
from collections.abc import Sequence

from headway.config.settings import ModelSettings, Settings
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.units import ms
from headway.registry.spec import VersionSpec

MEGABYTE = 1 << 20


def server_policy(settings: Settings) -> ServerPolicy:
    return ServerPolicy(
        max_queued_bytes=int(settings.limits.max_queued_mb * MEGABYTE),
        patience=tuple(ms(span) for span in settings.scheduling.patience_ms),
        weights=tuple((name, tenant.weight) for name, tenant in settings.tenants.items()),
    )


def batch_policy(settings: ModelSettings, streaming: bool = False, model_max_batch_size: int = 0) -> BatchPolicy:
    """model_max_batch_size: rows that the model itself can take (0 = any); the lower of it and the setting counts."""
    batching = settings.batching
    size = batching.max_batch_size
    return BatchPolicy(
        style=Style.SEQUENCE if streaming else Style.BATCH,
        max_batch_size=min(size, model_max_batch_size) if model_max_batch_size else size,
        max_batch_tokens=batching.max_batch_tokens,
        max_batch_time=ms(batching.max_batch_ms),
        max_queue_delay=ms(batching.max_queue_delay_ms),
        hold=batching.hold,
        max_queued_requests=batching.max_queued_requests,
        max_queued_rows=batching.max_queued_rows,
    )


def usable_cores(settings: Settings) -> int:
    return settings.server.threads or len(os.sched_getaffinity(0))


def thread_shares(versions: Sequence[VersionSpec], cores: int) -> list[int]:
    """Compute threads for one worker of each version: together they use the cores once, each at least one.

    What is set per model is taken as it is; the workers of the others share what is left.
    """
    fixed = sum(spec.settings.threads * spec.settings.instances for spec in versions)
    sharing = sum(spec.settings.instances for spec in versions if not spec.settings.threads)
    share = max(1, (cores - fixed) // sharing) if sharing else 1
    return [spec.settings.threads or share for spec in versions]
