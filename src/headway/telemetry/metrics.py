"""The page of metrics: a registry of our own that collects plain counts when it is asked."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterator, Sequence

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from headway import __version__
from headway.core.units import Instant
from headway.telemetry import failure_families, families, generation_families, tenant_families, vllm_families
from headway.telemetry.counters import Counters
from headway.telemetry.histogram import Histogram
from headway.telemetry.sources import (
    Devices,
    Fallbacks,
    Gauges,
    Keys,
    Replies,
    Reports,
    Stalls,
    TenantRooms,
    TenantShares,
    Views,
)


class Metrics(Collector):
    """counters: the runtime's observer.  views: Scheduler.views, asked at each scrape for what waits.
    devices: what versions share, asked at each scrape.  safety: what was found of batches, likewise.
    lags: of the loop (LagProbe.lags).
    replies: of the HTTP server, refusals that no scheduler saw among them.  fallbacks, idempotency: of the gateway.
    stalls: versions whose workers get nowhere, asked at each scrape.
    shares, rooms: what tenants received and were owed, and what of theirs waits, asked at each scrape.
    gauges: anything else that is asked for at scrape.  clock: the one that the core's instants come from."""

    def __init__(
        self,
        counters: Counters,
        views: Views = tuple,
        lags: Histogram | None = None,
        replies: Replies = dict,
        gauges: Sequence[Gauges] = (),
        devices: Devices = tuple,
        clock: Callable[[], Instant] = time.monotonic_ns,
        safety: Reports = dict,
        fallbacks: Fallbacks = dict,
        idempotency: Keys = dict,
        shares: TenantShares = tuple,
        rooms: TenantRooms = tuple,
        stalls: Stalls = dict,
    ) -> None:
        self._counters = counters
        self._views = views
        self._lags = lags
        self._replies = replies
        self._gauges = gauges
        self._devices = devices
        self._clock = clock
        self._safety = safety
        self._fallbacks = fallbacks
        self._idempotency = idempotency
        self._shares = shares
        self._rooms = rooms
        self._stalls = stalls
        self._registry = CollectorRegistry()
        self._registry.register(self)
        ProcessCollector(registry=self._registry)  # this process's memory, descriptors, CPU time

    def render(self, accept: str = "") -> tuple[bytes, str]:
        """(page, content type). accept: the request's header; OpenMetrics where it asks for that, else text."""
        encode, content_type = choose_encoder(accept)
        return encode(self._registry), content_type

    def collect(self) -> Iterator[Metric]:
        yield from families.request_families(self._counters)
        yield from tenant_families.tenant_families(self._counters)
        yield from tenant_families.share_families(self._shares, self._clock())
        yield from tenant_families.room_families(self._rooms)
        yield from families.fallback_families(self._fallbacks())
        yield from families.idempotency_families(self._idempotency())
        yield from families.phase_families(self._counters)
        yield from families.queue_families(self._views, self._clock())
        yield from families.device_families(self._devices)
        yield from families.batch_families(self._counters)
        yield from families.worker_families(self._counters)
        yield from failure_families.failure_families(self._counters)
        yield from failure_families.standing_families(self._views, self._stalls, self._clock())
        yield from failure_families.device_families(self._devices, self._counters)
        yield from generation_families.generation_families(self._counters)
        yield from generation_families.engine_families(self._counters, self._views)
        yield from vllm_families.vllm_families(self._counters, self._views)
        yield from families.safety_families(self._safety)
        if self._lags is not None:
            yield from families.lag_families(self._lags)
        yield from families.reply_families(self._replies())
        for gauges in self._gauges:
            yield from families.gauge_families(gauges)
        yield InfoMetricFamily(
            "headway_build", "What runs here.", value={"version": __version__, "python": platform.python_version()}
        )
