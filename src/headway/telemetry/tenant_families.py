"""What there is per tenant as metric families: each that is configured, `default`, and all others as `other`.

Called at scrape only. Of `other` nothing is kept per tenant, so that strangers add no lines and no time.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from headway.core.tenancy import STRANGERS
from headway.core.units import NEVER, SECOND, Instant
from headway.telemetry.counters import OTHER, Counters
from headway.telemetry.families import TENANT, add_histogram
from headway.telemetry.sources import TenantRooms, TenantShares

SHARE = ("device", "tenant")


def tenant_families(counters: Counters) -> Iterator[Metric]:
    """Over all versions, from replies."""
    latency = HistogramMetricFamily(
        "headway_tenant_latency_seconds",
        "From the last byte of a request to the last of its reply, of completed requests.",
        labels=["tenant"],
    )
    queue = HistogramMetricFamily(
        "headway_tenant_queue_seconds", "The part of it that they waited for their dispatch.", labels=["tenant"]
    )
    in_slo = CounterMetricFamily(
        "headway_requests_in_slo",
        "Replies written within the tenant's SLO for the model; all replies where there is none.",
        labels=TENANT,
    )
    for tenant, times in counters.times.items():
        add_histogram(latency, (tenant,), times.latency, SECOND)
        add_histogram(queue, (tenant,), times.queue, SECOND)
    for (model, version), counts in counters.shown().items():
        for tenant, requests in counts.tenants.items():
            in_slo.add_metric((model, str(version), tenant), requests.in_slo)
    yield from (latency, queue, in_slo)


def share_families(shares: TenantShares, now: Instant) -> Iterator[Metric]:
    """By device, from the fair order itself."""
    received = CounterMetricFamily(
        "headway_tenant_service_seconds",
        "What the tenant received of the device, times cores: its part of batches that were answered, as measured.",
        labels=SHARE,
    )
    owed = CounterMetricFamily(
        "headway_tenant_owed_seconds",
        "What it was owed of what the device gave while it had something waiting: its weight's part of it.",
        labels=SHARE,
    )
    starving = GaugeMetricFamily(
        "headway_starving_tenants", "Tenants that get less than half of what they are owed, now.", labels=SHARE
    )
    since = GaugeMetricFamily(
        "headway_tenant_starving_seconds", "For how long that has been so; 0 = it is not.", labels=SHARE
    )
    spells = CounterMetricFamily(
        "headway_tenant_starvations", "How often a tenant was found to starve that had not.", labels=SHARE
    )
    for share in shares():
        labels = (share.device, shown(share.tenant))
        received.add_metric(labels, share.received / SECOND)
        owed.add_metric(labels, share.owed / SECOND)
        starving.add_metric(labels, share.starving)
        since.add_metric(labels, 0 if share.since == NEVER else max(0, now - share.since) / SECOND)
        spells.add_metric(labels, share.spells)
    yield from (received, owed, starving, since, spells)


def room_families(rooms: TenantRooms) -> Iterator[Metric]:
    """By version, from the room that requests wait in."""
    waiting = GaugeMetricFamily("headway_tenant_waiting_requests", "Requests with a part that waits.", labels=TENANT)
    borrowed = GaugeMetricFamily(
        "headway_tenant_borrowed_requests",
        "Of those, how many are beyond the tenant's own part of the room to wait in.",
        labels=TENANT,
    )
    lost = CounterMetricFamily(
        "headway_tenant_reclaimed_requests",
        "Borrowed slots that the tenant lost to whose they are: its requests were refused, `reclaimed`.",
        labels=TENANT,
    )
    regained = CounterMetricFamily(
        "headway_tenant_regained_requests", "Slots of its own that the tenant took back from borrowers.", labels=TENANT
    )
    for room in rooms():
        labels = (room.version.model, str(room.version.version), shown(room.tenant))
        waiting.add_metric(labels, room.waiting)
        borrowed.add_metric(labels, room.borrowed)
        lost.add_metric(labels, room.lost)
        regained.add_metric(labels, room.regained)
    yield from (waiting, borrowed, lost, regained)


def shown(tenant: str) -> str:
    return OTHER if tenant == STRANGERS else tenant
