"""From the operator's settings to the core's policies."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headway.config.cross_tenants import DEFAULT
from headway.config.settings import MAX_QUEUE_DELAY_MS, MEBIBYTE, ModelSettings, Settings
from headway.config.tenants import LimitSettings, TenantRules
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.tenancy import RateLimit, TenantPolicy
from headway.core.units import NEVER, Duration, ms, seconds
from headway.registry.placement import Place

NONE: Mapping[str, float] = {}


def server_policy(settings: Settings, devices: Mapping[str, int], slos_ms: Mapping[str, float] = NONE) -> ServerPolicy:
    """devices: name -> cores of it that may be in use at once.  slos_ms: model -> its own slo_ms, 0 = none.

    DEFAULT is always among the tenants that are named, by the rules for others unless it has a table: what is told of
    tenants is told of it too."""
    tightened = {name: own for name, own in slos_ms.items() if tightest_slo_ms(settings, name, own) != own}
    return ServerPolicy(
        max_queued_bytes=int(settings.limits.max_queued_mb * MEBIBYTE),
        patience=tuple(ms(span) for span in settings.scheduling.patience_ms),
        tenants=tuple((name, tenant_policy(rules, tightened)) for name, rules in named(settings).items()),
        others=tenant_policy(settings.other_tenants, tightened),
        devices=tuple(devices.items()),
    )


def named(settings: Settings) -> dict[str, TenantRules]:
    return {**settings.tenants, DEFAULT: settings.tenants.get(DEFAULT, settings.other_tenants)}


def tenant_policy(tenant: TenantRules, tightened: Mapping[str, float] = NONE) -> TenantPolicy:
    """tightened: model -> its own slo_ms (0 = none), where some tenant's is tighter: then it is that which the model is
    run by, and a tenant that has none must be told the model's own."""
    by_tenant = {model: slo for model, slo in {"": tenant.slo_ms, **tenant.slo}.items() if slo}
    slos = by_tenant if tenant.slo_ms else {**tightened, **by_tenant}
    return TenantPolicy(
        weight=tenant.weight,
        limits=tuple(map(rate_limit, tenant.limits)),
        max_queued_requests=tenant.max_queued_requests,
        slos=tuple((model, ms(slo)) for model, slo in slos.items()),
    )


def rate_limit(limit: LimitSettings) -> RateLimit:
    return RateLimit(
        requests_per_second=limit.requests_per_second,
        tokens_per_second=limit.tokens_per_second,
        burst=limit.burst_s,
        concurrent=limit.concurrent,
        beyond=limit.longer_than,
        up_to=limit.up_to or NEVER,
    )


def tightest_slo_ms(settings: Settings, model: str, own_ms: float) -> float:
    """Of the model's own and all tenants' for it; 0 = there is none."""
    slos = [own_ms] + [tenant_slo_ms(tenant, model, own_ms) for tenant in every_tenant(settings)]
    return min((slo for slo in slos if slo), default=0)


def tenant_slo_ms(tenant: TenantRules, model: str, own_ms: float) -> float:
    """own_ms: the model's.  0 = there is none."""
    return tenant.slo.get(model) or tenant.slo_ms or own_ms


def slo_of(settings: Settings, slos_ms: Mapping[str, float]) -> Callable[[str, str], Duration]:
    """Tenant and model -> the latency that is aimed for, 0 = none.  slos_ms: model -> its own."""

    def find(tenant: str, model: str) -> Duration:
        rules = settings.tenants.get(tenant) or settings.other_tenants
        return ms(tenant_slo_ms(rules, model, slos_ms.get(model, 0)))

    return find


def every_tenant(settings: Settings) -> list[TenantRules]:
    return [*settings.tenants.values(), settings.other_tenants]


def batch_policy(
    settings: ModelSettings,
    place: Place,
    streaming: bool = False,
    model_max_batch_size: int = 0,
    equal_lengths: bool = False,
    max_tokens: int = 0,
    unpadded: bool = False,
    slo_ms: float | None = None,
) -> BatchPolicy:
    """place: where its workers run.
    streaming: its sequences come and go one by one, and no turn could be given to a whole engine: it takes no cores.
    model_max_batch_size: rows that the model itself can take (0 = any); the lower of it and the setting counts.
    equal_lengths: padding would change its answers.
    unpadded: its workers run the rows of a batch end to end.
    max_tokens: that the workers' memory holds at once (0 = any); likewise.
    slo_ms: the tightest of the model's and its tenants' (`tightest_slo_ms`); None = the model's own.
    """
    batching = settings.batching
    size, delay = batching.max_batch_size, batching.max_queue_delay_ms
    return BatchPolicy(
        style=Style.SEQUENCE if streaming else Style.BATCH,
        max_batch_size=min(size, model_max_batch_size) if model_max_batch_size else size,
        max_batch_tokens=lower_cap(batching.max_batch_tokens, max_tokens),
        max_batch_bytes=batching.max_batch_bytes,
        max_batch_time=ms(batching.max_batch_ms),
        slo=ms(settings.slo_ms if slo_ms is None else slo_ms),
        max_queue_delay=ms(MAX_QUEUE_DELAY_MS if delay is None else delay),
        derive_delay=delay is None,
        hold=batching.hold,
        max_queued_requests=batching.max_queued_requests,
        max_queued_rows=batching.max_queued_rows,
        device=place.device,
        cores=0 if streaming else place.cores,
        equal_lengths=equal_lengths,
        unpadded=unpadded,
        max_attempts=settings.max_attempts,
        idempotent=settings.idempotent,
        quarantine=seconds(settings.quarantine_s),
        hang_floor=seconds(settings.hang_s),
    )


def lower_cap(one: int, other: int) -> int:
    """0 = no cap."""
    return min(one, other) if one and other else one or other
