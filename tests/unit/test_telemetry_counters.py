"""Counting on the hot path, and the page that is made of it."""

from __future__ import annotations

import asyncio
import math
import random

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway.core.effects import DeliverTokens, DispatchBatch, Reason, ResolveRequest
from headway.core.events import (
    RequestArrived,
    ServerConfigured,
    TokensEmitted,
    VersionConfigured,
    WorkerReady,
    WorkerStarting,
)
from headway.core.ids import BatchKey, Capacity, Part, PartRef, VersionId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.scheduler import Scheduler
from headway.core.views import devices
from headway.runtime.observer import BatchInfo, ReplyInfo
from headway.telemetry.counters import Counters
from headway.telemetry.histogram import DURATION_BOUNDS, Histogram
from headway.telemetry.lag import LagProbe
from headway.telemetry.metrics import Metrics
from headway.telemetry.phases import PHASES, ROOM, Phases
from headway.wire.messages import Timings

M1 = VersionId("m", 1)
KEY = BatchKey("m", 1, "s")
MS = 1_000_000
ON_CPU = BatchPolicy(device="cpu", cores=1)


def arrival(request: int, tenant: str = "default", key: BatchKey = KEY) -> RequestArrived:
    return RequestArrived(request, tenant, key, (Part(1, 5),))


def counters(*tenants: str) -> Counters:
    made = Counters(tenants)
    made.handled(0, [VersionConfigured(M1, BatchPolicy())], [])
    return made


def page(metrics: Metrics) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    text = metrics.render()[0].decode()
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(metrics: Metrics, name: str, **labels: str) -> float:
    return page(metrics)[name, frozenset(labels.items())]


def test_a_request_is_received_then_in_flight_then_has_its_outcome():
    c = counters("default")
    m = Metrics(c)
    labels = {"model": "m", "version": "1", "tenant": "default"}
    c.handled(0, [arrival(1), arrival(2)], [ResolveRequest(2, Outcome.QUEUE_FULL)])
    assert value(m, "headway_requests_received_total", **labels) == 2
    assert value(m, "headway_requests_in_flight", **labels) == 1
    assert value(m, "headway_requests_total", **labels, outcome="refused", code="queue_full") == 1
    c.handled(5, [], [ResolveRequest(1, Outcome.COMPLETED)])
    assert value(m, "headway_requests_in_flight", **labels) == 0
    assert value(m, "headway_requests_total", **labels, outcome="completed", code="completed") == 1


def test_a_tenant_that_is_not_configured_and_a_version_that_is_not_there_are_counted_as_other():
    c = counters("acme")
    unknown = BatchKey("made-up", 7, "s")
    c.handled(0, [arrival(1, "acme"), arrival(2, "stranger"), arrival(3, "stranger", unknown)], [])
    received = {key: v for key, v in page(Metrics(c)).items() if key[0] == "headway_requests_received_total" and v}
    assert {frozenset(labels) for _, labels in received} == {
        frozenset({("model", "m"), ("version", "1"), ("tenant", "acme")}),
        frozenset({("model", "m"), ("version", "1"), ("tenant", "other")}),
        frozenset({("model", "other"), ("version", "0"), ("tenant", "other")}),
    }


def test_a_flood_of_strange_tenants_and_models_adds_no_labels():
    c = counters()

    def flood(numbers: range) -> int:
        events = [arrival(n, f"t{n}", BatchKey(f"m{n}", n, "s")) for n in numbers]
        c.handled(0, events, [ResolveRequest(n, Outcome.UNKNOWN_VERSION) for n in numbers])
        return len(page(Metrics(c)))

    assert flood(range(1)) == flood(range(1, 500))


def test_the_label_for_unknown_versions_appears_only_once_somebody_has_asked_for_one():
    c = counters()
    assert b'model="other"' not in Metrics(c).render()[0]
    c.handled(0, [arrival(1, key=BatchKey("made-up", 7, "s"))], [ResolveRequest(1, Outcome.UNKNOWN_VERSION)])
    assert b'code="unknown_version",model="other"' in Metrics(c).render()[0]


def reply(outcome: Outcome = Outcome.COMPLETED) -> ReplyInfo:
    times = Timings(parse=1 * MS, queue=2 * MS, hand_over=3 * MS, execute=4 * MS, back=5 * MS)
    return ReplyInfo(1, "m", 1, "default", outcome, 1, 0, times, reply=6 * MS)


def test_the_phases_of_a_written_reply_add_up_to_its_total():
    c = counters()
    c.replied(reply())
    c.written(reply())
    m = Metrics(c)
    sums = [value(m, "headway_request_phase_seconds_sum", model="m", version="1", phase=p) for p in PHASES]
    assert sums == [0.001, 0.002, 0.003, 0.004, 0.005, 0.006, 0.021]
    assert math.isclose(sum(sums[:-1]), sums[-1])


def test_phases_sorted_in_bulk_land_in_the_same_buckets_as_one_by_one():
    bulk, one_by_one = Phases(), {phase: Histogram(DURATION_BOUNDS) for phase in PHASES}
    rng = random.Random(5)
    for _ in range(2 * ROOM + 17):
        durations = tuple(rng.choice([0, *DURATION_BOUNDS, 10**12]) + rng.choice([-1, 0, 1]) for _ in range(6))
        bulk.add(durations)  # type: ignore[arg-type]
        for phase, duration in zip(PHASES, (*durations, sum(durations)), strict=True):
            one_by_one[phase].add(duration)
    for phase, histogram in bulk.histograms().items():
        assert (histogram.counts, histogram.total) == (one_by_one[phase].counts, one_by_one[phase].total)


def test_a_request_that_was_not_completed_has_no_phases():
    c = counters()
    c.written(reply(Outcome.DEADLINE_EXCEEDED))
    assert value(Metrics(c), "headway_request_phase_seconds_count", model="m", version="1", phase="total") == 0


def batch(failed: bool = False) -> BatchInfo:
    return BatchInfo(1, "m", 1, 4, 40, 30, 1 * MS, 2 * MS, 3 * MS, 9 * MS, Reason.FULL, failed)


def test_batches_are_counted_by_reason_when_they_leave_and_by_size_when_they_are_answered():
    c, labels = counters(), {"model": "m", "version": "1"}
    m = Metrics(c)
    c.handled(0, [], [DispatchBatch(1, 1, KEY, (PartRef(1, 0),), Reason.LINGER)])
    c.batch_done(batch())
    c.batch_done(batch(failed=True))
    assert value(m, "headway_batches_total", **labels, reason="linger") == 1
    assert value(m, "headway_batches_failed_total", **labels) == 1
    assert value(m, "headway_batch_rows_bucket", **labels, le="2.0") == 0
    assert value(m, "headway_batch_rows_bucket", **labels, le="4.0") == 1
    assert value(m, "headway_padded_tokens_total", **labels) == 40
    assert value(m, "headway_real_tokens_total", **labels) == 30
    assert value(m, "headway_worker_busy_seconds_total", **labels) == 0.012


def test_workers_are_shown_by_state_and_forgotten_when_they_are_gone():
    c, labels = counters(), {"model": "m", "version": "1"}
    m = Metrics(c)
    for worker in (1, 2, 3):
        c.worker_state(worker, M1, "starting", "")
        c.worker_state(worker, M1, "ready", "")
    c.worker_state(2, M1, "lost", "signal SIGKILL")
    c.worker_state(3, M1, "stopped", "")
    assert value(m, "headway_workers", **labels, state="ready") == 1
    assert value(m, "headway_workers", **labels, state="starting") == 0
    assert value(m, "headway_worker_lost_total", **labels, cause="signal") == 1
    assert list(c.workers) == [1]


def test_a_stream_counts_its_results_and_the_device_time_they_took():
    c, labels = counters(), {"model": "m", "version": "1"}
    c.worker_state(9, M1, "ready", "")
    c.handled(0, [arrival(1)], [])
    c.handled(1, [TokensEmitted(9, 1, 1, 0, 3, 2 * MS)], [DeliverTokens(1, 1, 0, 3)])
    m = Metrics(c)
    assert value(m, "headway_tokens_delivered_total", **labels, tenant="default") == 3
    assert value(m, "headway_worker_busy_seconds_total", **labels) == 0.002


def scheduler() -> Scheduler:
    """Two requests wait since 0 for a worker that is still starting."""
    core = Scheduler()
    events = [VersionConfigured(M1, BatchPolicy()), WorkerStarting(1, M1), arrival(1), arrival(2)]
    core.handle(events, 0)
    return core


def test_what_waits_is_asked_for_at_scrape():
    m = Metrics(counters(), views=scheduler().views, clock=lambda: 1500 * MS)
    assert value(m, "headway_queue_depth_requests", model="m", version="1") == 2
    assert value(m, "headway_queue_depth_rows", model="m", version="1") == 2
    assert value(m, "headway_queue_oldest_seconds", model="m", version="1") == 1.5


def test_how_good_the_cost_model_is_is_asked_for_at_scrape():
    core = scheduler()
    m = Metrics(counters(), views=core.views)
    (view,) = core.views()
    assert value(m, "headway_cost_error", model="m", version="1") == view.cost_error
    assert value(m, "headway_cost_coverage", model="m", version="1") == view.cost_coverage == 0.95


def test_the_longest_wait_for_company_in_force_is_asked_for_at_scrape():
    core = scheduler()
    m = Metrics(counters(), views=core.views)
    assert value(m, "headway_max_queue_delay_seconds", model="m", version="1") == 0.005
    core.handle([VersionConfigured(M1, BatchPolicy(slo=100 * MS, derive_delay=True))], 0)
    assert value(m, "headway_max_queue_delay_seconds", model="m", version="1") == 0.025


def test_probes_are_counted():
    core = scheduler()
    core._state.pools[M1].cost.probes.count = 3
    assert value(Metrics(counters(), views=core.views), "headway_batches_probed_total", model="m", version="1") == 3


def test_what_versions_share_is_asked_for_at_scrape_where_it_has_a_limit():
    core = Scheduler()
    core.handle([ServerConfigured(ServerPolicy(devices=(("cpu", 2),))), VersionConfigured(M1, ON_CPU)], 0)
    core.handle([VersionConfigured(VersionId("alone", 1), BatchPolicy())], 0)
    core.handle([WorkerStarting(1, M1), WorkerReady(1, Capacity(1))], 0)
    m = Metrics(counters(), devices=lambda: devices(core))
    assert value(m, "headway_device_cores", device="cpu") == 2
    assert value(m, "headway_device_cores_in_use", device="cpu") == 0
    core.handle([arrival(1)], 0)
    assert value(m, "headway_device_cores_in_use", device="cpu") == 1
    named = {dict(labels).get("device") for name, labels in page(m) if name == "headway_device_cores"}
    assert named == {"cpu"}, "a version that shares nothing has no limit to tell"


def test_other_gauges_can_be_added_and_the_build_and_the_process_are_named():
    shown = page(Metrics(counters(), gauges=[lambda: {"recorder_dropped_records_total": 4, "recorder_file_bytes": 9}]))
    assert shown["headway_recorder_dropped_records_total", frozenset()] == 4
    assert shown["headway_recorder_file_bytes", frozenset()] == 9
    names = {name for name, _ in shown}
    assert {"headway_build_info", "process_resident_memory_bytes", "process_open_fds"} <= names


def test_the_page_is_in_the_format_that_the_reader_accepts():
    metrics = Metrics(counters(), lags=LagProbe().lags)
    assert metrics.render()[1].startswith("text/plain")
    body, content_type = metrics.render("application/openmetrics-text; version=1.0.0")
    assert content_type.startswith("application/openmetrics-text") and body.endswith(b"# EOF\n")


def test_every_family_has_a_help_text_and_a_unit_or_is_a_count():
    text = Metrics(counters(), views=scheduler().views, lags=LagProbe().lags).render()[0].decode()
    for family in text_string_to_metric_families(text):
        assert family.documentation
        if family.type in ("gauge", "histogram") and family.name.startswith("headway_"):
            ends = ("_seconds", "_rows", "_requests", "_in_flight", "_workers", "_info", "_running")
            ends += ("_error", "_coverage")  # ratios
            ends += ("_cores", "_in_use")
            ends += ("_safety",)  # 1 for the state that its labels name
            ends += ("_tenants", "_contents")
            ends += ("_ready", "_open", "_lost", "_left")  # 1 = it is so; how many are left
            assert family.name.endswith(ends), family.name


def test_a_value_on_a_bound_belongs_to_that_bucket_and_one_beyond_the_last_is_kept():
    h = Histogram((10, 100))
    for value_ in (10, 11, 100, 5000):
        h.add(value_)
    assert list(h.cumulative()) == [("10.0", 1), ("100.0", 3), ("+Inf", 4)]
    assert h.total == 5121


def test_duration_buckets_reach_from_ten_microseconds_to_most_of_a_minute_in_rising_order():
    assert list(DURATION_BOUNDS) == sorted(DURATION_BOUNDS)
    assert (DURATION_BOUNDS[0], DURATION_BOUNDS[-1]) == (10_000, 50_000_000_000)


def test_the_probe_sees_a_loop_that_was_blocked():
    class Loop:
        """A loop whose clock stands where the test puts it."""

        now = 10.0

        def time(self) -> float:
            return self.now

        def call_at(self, when: float, callback: object, *args: object) -> None:
            self.due = (when, callback, args)

    async def scenario() -> Histogram:
        probe, loop = LagProbe(interval_s=3600), Loop()
        probe.start()
        probe._ring(loop, 9.5)  # type: ignore[arg-type]
        probe.stop()
        return probe.lags

    lags = asyncio.run(scenario())
    assert lags.total == pytest.approx(500 * MS) and sum(lags.counts) == 1
