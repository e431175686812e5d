"""From the operator's settings to the core's policies."""

from __future__ import annotations

from collections.abc import Mapping

from headway.config.settings import MAX_QUEUE_DELAY_MS, MEBIBYTE, ModelSettings, Settings
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.tenancy import TenantPolicy
from headway.core.units import ms
from headway.registry.placement import Place


def server_policy(settings: Settings, devices: Mapping[str, int]) -> ServerPolicy:
    """devices: name -> cores of it that may be in use at once."""
    return ServerPolicy(
        max_queued_bytes=int(settings.limits.max_queued_mb * MEBIBYTE),
        patience=tuple(ms(span) for span in settings.scheduling.patience_ms),
        tenants=tuple((name, TenantPolicy(weight=tenant.weight)) for name, tenant in settings.tenants.items()),
        devices=tuple(devices.items()),
    )


def batch_policy(
    settings: ModelSettings,
    place: Place,
    streaming: bool = False,
    model_max_batch_size: int = 0,
    equal_lengths: bool = False,
    max_tokens: int = 0,
    unpadded: bool = False,
) -> BatchPolicy:
    """place: where its workers run.
    streaming: its sequences come and go one by one, and no turn could be given to a whole engine: it takes no cores.
    model_max_batch_size: rows that the model itself can take (0 = any); the lower of it and the setting counts.
    equal_lengths: padding would change its answers.
    unpadded: its workers run the rows of a batch end to end.
    max_tokens: that the workers' memory holds at once (0 = any); likewise.
    """
    batching = settings.batching
    size, delay = batching.max_batch_size, batching.max_queue_delay_ms
    return BatchPolicy(
        style=Style.SEQUENCE if streaming else Style.BATCH,
        max_batch_size=min(size, model_max_batch_size) if model_max_batch_size else size,
        max_batch_tokens=lower_cap(batching.max_batch_tokens, max_tokens),
        max_batch_bytes=batching.max_batch_bytes,
        max_batch_time=ms(batching.max_batch_ms),
        slo=ms(settings.slo_ms),
        max_queue_delay=ms(MAX_QUEUE_DELAY_MS if delay is None else delay),
        derive_delay=delay is None,
        hold=batching.hold,
        max_queued_requests=batching.max_queued_requests,
        max_queued_rows=batching.max_queued_rows,
        device=place.device,
        cores=0 if streaming else place.cores,
        equal_lengths=equal_lengths,
        unpadded=unpadded,
    )


def lower_cap(one: int, other: int) -> int:
    """0 = no cap."""
    return min(one, other) if one and other else one or other
