"""Counts as metric families. Called at scrape only; names carry their unit, HELP says what is counted when."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric

from headway.core.outcomes import Outcome
from headway.core.units import Instant
from headway.telemetry.counters import Counters, VersionCounts
from headway.telemetry.histogram import SECOND, Histogram
from headway.telemetry.sources import Devices, Gauges, Reports, Views

VERSION = ("model", "version")
TENANT = (*VERSION, "tenant")
WORKER_STATES = ("starting", "ready", "draining")


def request_families(counters: Counters) -> Iterator[Metric]:
    """received = the sum over outcomes + in flight, per label and at every moment."""
    received = CounterMetricFamily(
        "headway_requests_received", "Requests that reached the scheduler, refused ones included.", labels=TENANT
    )
    ended = CounterMetricFamily(
        "headway_requests",
        "Requests by the one outcome each gets. outcome: its class; code: which of the class.",
        labels=(*TENANT, "outcome", "code"),
    )
    flying = GaugeMetricFamily("headway_requests_in_flight", "Requests without an outcome.", labels=TENANT)
    tokens = CounterMetricFamily(
        "headway_tokens_delivered", "Results of streaming models passed on to clients.", labels=TENANT
    )
    open_now = Counter(map(id, counters.open.values()))
    for (model, version), counts in counters.shown().items():
        for tenant, requests in counts.tenants.items():
            labels = (model, str(version), tenant)
            received.add_metric(labels, requests.received)
            flying.add_metric(labels, open_now[id(requests)])
            tokens.add_metric(labels, requests.tokens)
            for outcome in Outcome:
                count = requests.outcomes.get(outcome.value, 0)
                if count or outcome is Outcome.COMPLETED:
                    ended.add_metric((*labels, outcome.kind.value, outcome.value), count)
    yield from (received, ended, flying, tokens)


def fallback_families(served: dict[tuple[str, str], int]) -> Iterator[Metric]:
    family = CounterMetricFamily(
        "headway_fallback_replies",
        "Replies that the fallback of the model that was asked for gave, failures of it among them.",
        labels=("model", "fallback"),
    )
    for pair, count in sorted(served.items()):
        family.add_metric(pair, count)
    yield family


def idempotency_families(counts: dict[str, int]) -> Iterator[Metric]:
    family = CounterMetricFamily(
        "headway_idempotency_keys",
        "What became of calls with an Idempotency-Key, and of the replies kept for them.",
        labels=["event"],
    )
    for event, count in counts.items():
        family.add_metric((event,), count)
    yield family


def phase_families(counters: Counters) -> Iterator[Metric]:
    family = HistogramMetricFamily(
        "headway_request_phase_seconds",
        "Phases of completed requests whose reply was written; total is the sum of the others. parse: last byte "
        "read to submission; queue: to dispatch; hand_over: padding and stacking; execute: the model; back: rest "
        "of the way; reply: until handed to the socket.",
        labels=(*VERSION, "phase"),
    )
    for labels, counts in _versions(counters):
        for phase, histogram in counts.phases.histograms().items():
            add_histogram(family, (*labels, phase), histogram, SECOND)
    yield family


def batch_families(counters: Counters) -> Iterator[Metric]:
    left = CounterMetricFamily(
        "headway_batches", "Batches that left, by the reason why they did.", labels=(*VERSION, "reason")
    )
    failed = CounterMetricFamily("headway_batches_failed", "Batches that their worker failed.", labels=VERSION)
    rows = HistogramMetricFamily("headway_batch_rows", "Rows of the batches that succeeded.", labels=VERSION)
    padded = CounterMetricFamily(
        "headway_padded_tokens",
        "Rows times longest length of the batches that succeeded: what was computed.",
        labels=VERSION,
    )
    real = CounterMetricFamily(
        "headway_real_tokens",
        "Sum of the rows' own lengths in the same batches: 1 - real/padded is what padding wastes.",
        labels=VERSION,
    )
    for labels, counts in _versions(counters):
        for reason, count in sorted(counts.batches.items()):
            left.add_metric((*labels, reason), count)
        failed.add_metric(labels, counts.batches_failed)
        add_histogram(rows, labels, counts.batch_rows, 1)
        padded.add_metric(labels, counts.padded_tokens)
        real.add_metric(labels, counts.real_tokens)
    yield from (left, failed, rows, padded, real)


def worker_families(counters: Counters) -> Iterator[Metric]:
    busy = CounterMetricFamily(
        "headway_worker_busy_seconds",
        "Time that workers of the version spent on batches and sequences, as they report it.",
        labels=VERSION,
    )
    workers = GaugeMetricFamily("headway_workers", "Worker processes by state.", labels=(*VERSION, "state"))
    lost = CounterMetricFamily(
        "headway_worker_lost", "Workers that died, hung or broke the protocol.", labels=(*VERSION, "cause")
    )
    now = Counter(counters.workers.values())
    for labels, counts in _versions(counters):
        busy.add_metric(labels, counts.busy / SECOND)
        for cause, count in sorted(counts.lost.items()):
            lost.add_metric((*labels, cause), count)
    states = dict.fromkeys([*WORKER_STATES, *(state for _, state in now)])
    for version in counters.shown():
        for state in states:
            workers.add_metric((version[0], str(version[1]), state), now[(version, state)])  # type: ignore[index]
    yield from (busy, workers, lost)


def queue_families(views: Views, now: Instant) -> Iterator[Metric]:
    """What the core itself says of each version at this moment."""
    requests = GaugeMetricFamily("headway_queue_depth_requests", "Requests with a part that waits.", labels=VERSION)
    rows = GaugeMetricFamily("headway_queue_depth_rows", "Rows that wait.", labels=VERSION)
    oldest = GaugeMetricFamily(
        "headway_queue_oldest_seconds", "How long the longest waiting part has waited; 0 = none waits.", labels=VERSION
    )
    batches = GaugeMetricFamily("headway_batches_running", "Batches that workers have now.", labels=VERSION)
    sequences = GaugeMetricFamily("headway_sequences_running", "Sequences that workers have now.", labels=VERSION)
    error = GaugeMetricFamily(
        "headway_cost_error",
        "How far predictions of a batch's run time are off: running mean of |ln(actual / median)|; 0.1 = 10 %.",
        labels=VERSION,
    )
    coverage = GaugeMetricFamily(
        "headway_cost_coverage",
        "Running share of batches that took no longer than the upper prediction, which aims at 0.95.",
        labels=VERSION,
    )
    delay = GaugeMetricFamily(
        "headway_max_queue_delay_seconds",
        "Longest that a part waits for company, as in force: fixed, or derived from slo_ms.",
        labels=VERSION,
    )
    probes = CounterMetricFamily(
        "headway_batches_probed",
        "Batches that were made larger than would pay, to see what a size takes that was not run of late.",
        labels=VERSION,
    )
    for view in views():
        labels = (view.version.model, str(view.version.version))
        delay.add_metric(labels, view.max_queue_delay / SECOND)
        error.add_metric(labels, view.cost_error)
        coverage.add_metric(labels, view.cost_coverage)
        probes.add_metric(labels, view.probes)
        requests.add_metric(labels, view.waiting_requests)
        rows.add_metric(labels, view.waiting_rows)
        oldest.add_metric(labels, max(0, now - view.oldest) / SECOND)
        batches.add_metric(labels, view.running_batches)
        sequences.add_metric(labels, view.running_sequences)
    yield from (requests, rows, oldest, batches, sequences, error, coverage, delay, probes)


def device_families(devices: Devices) -> Iterator[Metric]:
    """Of those that have a limit."""
    cores = GaugeMetricFamily(
        "headway_device_cores", "Cores of the device that batches may use at once.", labels=["device"]
    )
    in_use = GaugeMetricFamily(
        "headway_device_cores_in_use", "Cores of the device that running batches take now.", labels=["device"]
    )
    for device in devices():
        if device.cores:
            cores.add_metric([device.name], device.cores)
            in_use.add_metric([device.name], device.in_use)
    yield from (cores, in_use)


def safety_families(reports: Reports) -> Iterator[Metric]:
    """One line per version that has loaded."""
    family = GaugeMetricFamily(
        "headway_batch_safety",
        "1 for what was found of answers in batches when the version was loaded, and how it is served.",
        labels=(*VERSION, "verdict", "mode"),
    )
    for version, report in reports().items():
        family.add_metric((version.model, str(version.version), report.verdict, report.mode), 1)
    yield family


def lag_families(lags: Histogram) -> Iterator[Metric]:
    family = HistogramMetricFamily(
        "headway_loop_lag_seconds", "How late the event loop was for a call at a set moment, four times a second."
    )
    add_histogram(family, (), lags, SECOND)
    yield family


def reply_families(replies: dict[int, int]) -> Iterator[Metric]:
    family = CounterMetricFamily(
        "headway_http_replies",
        "HTTP replies begun, by status; of every route, and of what was no request.",
        labels=["status"],
    )
    for status in sorted(replies):
        family.add_metric((str(status),), replies[status])
    yield family


def gauge_families(gauges: Gauges) -> Iterator[Metric]:
    for name, value in gauges().items():
        kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
        text = name.removesuffix("_total").replace("_", " ").capitalize() + "."
        yield kind(f"headway_{name}", text, value=value)


def _versions(counters: Counters) -> Iterator[tuple[tuple[str, str], VersionCounts]]:
    for (model, version), counts in counters.shown().items():
        yield (model, str(version)), counts


def add_histogram(family: HistogramMetricFamily, labels: tuple[str, ...], histogram: Histogram, unit: int) -> None:
    family.add_metric(labels, buckets=list(histogram.cumulative(unit)), sum_value=histogram.total / unit)
