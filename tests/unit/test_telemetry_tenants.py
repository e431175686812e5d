"""What is counted per tenant: latency, waiting, and what was within its SLO."""

from __future__ import annotations

from headway.config.settings import Settings
from headway.config.tenants import OtherTenants, TenantSettings
from headway.core.effects import ResolveRequest
from headway.core.events import VersionConfigured
from headway.core.ids import VersionId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.core.units import ms
from headway.runtime.observer import ReplyInfo
from headway.runtime.policies import slo_of
from headway.telemetry.counters import Counters
from headway.telemetry.metrics import Metrics
from headway.wire.messages import Timings
from tests.unit.test_telemetry_counters import arrival, page, value

SETTINGS = Settings(
    tenants={"acme": TenantSettings(slo={"m": 20}), "calm": TenantSettings()}, other_tenants=OtherTenants(slo_ms=40)
)
SLOS = slo_of(SETTINGS, {"m": 30.0})


def counting(settings: Settings = SETTINGS) -> Counters:
    counters = Counters(settings.tenants, slo_of(settings, {"m": 30.0}))
    counters.handled(0, [VersionConfigured(VersionId("m", 1), BatchPolicy())], [])
    return counters


def written(counters: Counters, tenant: str, milliseconds: float, outcome: Outcome = Outcome.COMPLETED) -> None:
    times = Timings(parse=0, queue=ms(milliseconds) - ms(2), hand_over=0, execute=ms(1), back=0)
    counters.written(ReplyInfo(1, "m", 1, tenant, outcome, 1, 0, times, reply=ms(1)))


def in_slo(counters: Counters, tenant: str) -> float:
    return value(Metrics(counters), "headway_requests_in_slo_total", model="m", version="1", tenant=tenant)


def test_each_tenant_has_its_own_slo_the_models_or_what_holds_for_others() -> None:
    assert [SLOS(tenant, "m") for tenant in ("acme", "calm", "stranger")] == [ms(20), ms(30), ms(40)]
    assert [SLOS(tenant, "another") for tenant in ("acme", "calm", "stranger")] == [0, 0, ms(40)]


def test_replies_within_the_tenants_own_slo_are_counted() -> None:
    counters = counting()
    for milliseconds in (10, 20, 25, 30, 35, 40, 45):
        for tenant in ("acme", "calm", "default", "stranger"):
            written(counters, tenant, milliseconds)
    assert [in_slo(counters, tenant) for tenant in ("acme", "calm", "default", "other")] == [2, 4, 6, 6]


def test_where_there_is_no_slo_every_reply_is_in_time_and_what_failed_never_is() -> None:
    counters = Counters(["acme"])
    counters.handled(0, [VersionConfigured(VersionId("m", 1), BatchPolicy())], [])
    written(counters, "acme", 10_000)
    written(counters, "acme", 1, Outcome.MODEL_ERROR)
    assert in_slo(counters, "acme") == 1


def test_latency_and_waiting_are_kept_for_configured_tenants_and_the_others_together() -> None:
    counters = counting()
    written(counters, "acme", 12)
    written(counters, "stranger", 7)
    written(counters, "another", 9)
    shown = Metrics(counters)
    sums = {
        tenant: (
            value(shown, "headway_tenant_latency_seconds_sum", tenant=tenant),
            value(shown, "headway_tenant_queue_seconds_sum", tenant=tenant),
        )
        for tenant in ("acme", "calm", "default", "other")
    }
    assert sums == {"acme": (0.012, 0.01), "calm": (0, 0), "default": (0, 0), "other": (0.016, 0.012)}


def test_tenants_that_come_with_a_reload_get_labels_and_those_that_go_keep_their_counts() -> None:
    counters = counting()
    counters.handled(0, [arrival(1, "acme"), arrival(2, "newcomer")], [])
    written(counters, "acme", 25)
    new = Settings(tenants={"newcomer": TenantSettings(slo_ms=50), "acme": TenantSettings(slo_ms=30)})
    counters.configure(new.tenants, slo_of(new, {"m": 30.0}))
    counters.handled(1, [arrival(3, "newcomer")], [ResolveRequest(n, Outcome.COMPLETED) for n in (1, 2, 3)])
    written(counters, "acme", 25)
    written(counters, "newcomer", 45)
    assert (in_slo(counters, "acme"), in_slo(counters, "newcomer")) == (1, 1)
    received = {
        dict(labels)["tenant"]: count
        for (name, labels), count in page(Metrics(counters)).items()
        if name == "headway_requests_received_total"
    }
    assert received == {"acme": 1, "calm": 0, "default": 0, "other": 1, "newcomer": 1}
    assert [counters.label(tenant) for tenant in ("newcomer", "stranger")] == ["newcomer", "other"]


def test_a_flood_of_strangers_adds_no_times() -> None:
    counters = counting()
    for number in range(1000):
        written(counters, f"t{number}", 5)
    assert list(counters.times) == ["acme", "calm", "default", "other"]


def test_replies_of_fallbacks_are_counted_by_both_models() -> None:
    shown = Metrics(counting(), fallbacks=lambda: {("big", "small"): 3})
    assert value(shown, "headway_fallback_replies_total", model="big", fallback="small") == 3
