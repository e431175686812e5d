"""What failed and what is done about it as metric families, by version. Called at scrape only."""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from headway.core.breaker import Circuit
from headway.core.outcomes import Outcome
from headway.core.units import Instant
from headway.core.views import VersionState
from headway.telemetry.counters import Counters, VersionCounts
from headway.telemetry.families import VERSION
from headway.telemetry.sources import Devices, Stalls, Views


def failure_families(counters: Counters) -> Iterator[Metric]:
    """Counted. Lines with a kind appear with the first of it, all others from the start, so that a rise is seen."""
    retried = CounterMetricFamily(
        "headway_retried_parts",
        "Parts that waited again because their execution came to nothing, by how they are run then.",
        labels=(*VERSION, "how"),
    )
    losses = CounterMetricFamily(
        "headway_worker_losses",
        "Workers lost, by what it is taken for: that decides what becomes of what they ran.",
        labels=(*VERSION, "kind"),
    )
    suspected = CounterMetricFamily(
        "headway_workers_suspected",
        "How often a worker was given no new work because it did not answer for too long.",
        labels=VERSION,
    )
    hung = CounterMetricFamily(
        "headway_workers_hung", "Workers that were killed because they did not answer at all.", labels=VERSION
    )
    reliefs = CounterMetricFamily(
        "headway_worker_reliefs",
        "Workers started, or not, beside one that did not answer, and what became of them.",
        labels=(*VERSION, "what"),
    )
    openings = CounterMetricFamily(
        "headway_circuit_openings", "How often the version came to be refused because its workers died.", labels=VERSION
    )
    poison = CounterMetricFamily(
        "headway_poison_requests",
        "Requests that made whatever ran them fail, and those refused because their content had killed workers.",
        labels=VERSION,
    )
    for version, counts in counters.shown().items():
        labels, told = (version[0], str(version[1])), counters.failures.of(version)
        for how, count in sorted(told.retried.items()):
            retried.add_metric((*labels, how), count)
        for kind, count in sorted(told.losses.items()):
            losses.add_metric((*labels, kind), count)
        for what, count in sorted(told.reliefs.items()):
            reliefs.add_metric((*labels, what), count)
        suspected.add_metric(labels, told.suspected)
        hung.add_metric(labels, told.hung)
        openings.add_metric(labels, told.openings)
        poison.add_metric(labels, poisoned(counts))
    yield from (retried, losses, suspected, hung, reliefs, openings, poison)


def poisoned(counts: VersionCounts) -> int:
    """Of all tenants."""
    return sum(requests.outcomes.get(Outcome.POISON_REQUEST.value, 0) for requests in counts.tenants.values())


def standing_families(views: Views, stalls: Stalls, now: Instant) -> Iterator[Metric]:
    """What the core itself says of each version at this moment."""
    ready = GaugeMetricFamily(
        "headway_version_ready",
        "1 while the version has a worker that is ready and gets somewhere, as its readiness is told.",
        labels=VERSION,
    )
    circuit = GaugeMetricFamily(
        "headway_circuit_open",
        "1 while the version is refused because its workers died, or lets in single requests to try.",
        labels=VERSION,
    )
    quarantine = GaugeMetricFamily(
        "headway_quarantined_contents", "Contents of requests that are refused because they killed.", labels=VERSION
    )
    retries = GaugeMetricFamily(
        "headway_retries_left",
        "Executions that may be repeated in this minute because workers were lost.",
        labels=VERSION,
    )
    stalled = stalls()
    for view in views():
        labels, told = (view.version.model, str(view.version.version)), view.failures
        ready.add_metric(labels, view.state is VersionState.READY and view.version not in stalled)
        circuit.add_metric(labels, told.circuit(now) is not Circuit.CLOSED)
        quarantine.add_metric(labels, len(told.refused(now)))
        retries.add_metric(labels, told.left(now))
    yield from (ready, circuit, quarantine, retries)


def device_families(devices: Devices, counters: Counters) -> Iterator[Metric]:
    """Every device has a line from the start, so that a rise is seen."""
    lost = GaugeMetricFamily(
        "headway_device_lost", "1 while no worker is started on the device, as it is broken.", labels=["device"]
    )
    losses = CounterMetricFamily("headway_device_losses", "How often the device was found broken.", labels=["device"])
    for device in devices():
        lost.add_metric([device.name], bool(device.trouble))
        losses.add_metric([device.name], counters.failures.devices.get(device.name, 0))
    yield from (lost, losses)
