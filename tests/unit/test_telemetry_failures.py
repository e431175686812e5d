"""What failed and what was done about it, counted and asked for at scrape."""

from __future__ import annotations

import pytest

from headway.core.breaker import DEATHS, FIRST
from headway.core.effects import (
    Effect,
    KillWorker,
    Remedy,
    ReportCircuit,
    ResolveRequest,
    RetryParts,
    SuspectWorker,
)
from headway.core.events import (
    ContentQuarantined,
    DeviceLost,
    DeviceRecovered,
    Event,
    Relief,
    ReliefReported,
    VersionConfigured,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
    WorkerStopped,
)
from headway.core.failure_views import stalls
from headway.core.ids import Capacity, PartRef
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, seconds
from headway.core.views import devices
from headway.telemetry.counters import Counters
from headway.telemetry.metrics import Metrics
from tests.unit.core_world import V, World
from tests.unit.test_telemetry_counters import M1, arrival, counters, page, value

ONE = {"model": "m", "version": "1"}


def counted(events: list[Event], effects: list[Effect] | None = None) -> Metrics:
    c = counters()
    c.handled(0, [WorkerStarting(1, M1), WorkerStarting(2, M1)], [])
    c.handled(1, events, effects or [])
    return Metrics(c)


def test_parts_that_wait_again_are_counted_by_how_they_are_run_then() -> None:
    halves = RetryParts(M1, (PartRef(1, 0), PartRef(2, 0)), Remedy.HALVES, "ValueError")
    m = counted([], [halves, halves, RetryParts(M1, (PartRef(3, 0),), Remedy.ALONE, "signal SIGSEGV")])
    assert value(m, "headway_retried_parts_total", **ONE, how="halves") == 4
    assert value(m, "headway_retried_parts_total", **ONE, how="alone") == 1


@pytest.mark.parametrize("loss", Loss)
def test_lost_workers_are_counted_by_what_they_are_taken_for_and_once_each(loss: Loss) -> None:
    m = counted([WorkerLost(1, "x", loss), WorkerLost(1, "channel closed", Loss.CRASHED)])
    shown = {key: n for key, n in page(m).items() if key[0] == "headway_worker_losses_total"}
    assert shown == {("headway_worker_losses_total", frozenset({*ONE.items(), ("kind", loss.value)})): 1}


def test_workers_that_are_suspected_and_those_that_hung_are_counted() -> None:
    m = counted([], [SuspectWorker(1, 4, "slow"), SuspectWorker(2, 5, "slow"), KillWorker(2, 5, "slow")])
    assert value(m, "headway_workers_suspected_total", **ONE) == 2
    assert value(m, "headway_workers_hung_total", **ONE) == 1


def test_what_becomes_of_reliefs_is_counted() -> None:
    started, gone = ReliefReported(M1, 1, Relief.STARTED, 2), ReliefReported(M1, 1, Relief.RETIRED, 2)
    m = counted([started, gone, started, ReliefReported(M1, 1, Relief.REFUSED, 0, "no memory")])
    shown = {dict(labels)["what"]: n for (name, labels), n in page(m).items() if name == "headway_worker_reliefs_total"}
    assert shown == {"started": 2, "retired": 1, "refused": 1}


def test_a_device_is_lost_once_however_often_it_is_tried_in_vain() -> None:
    core, c = Scheduler(), counters()
    events: list[Event] = [VersionConfigured(V, BatchPolicy(device="cuda:0")), DeviceLost("cuda:0", "x")]
    events.append(DeviceLost("cuda:0", "not yet"))
    core.handle(events, 0)
    c.handled(0, events, [])
    m = Metrics(c, devices=lambda: devices(core))
    assert value(m, "headway_device_lost", device="cuda:0") == 1
    assert value(m, "headway_device_losses_total", device="cuda:0") == 1
    core.handle([DeviceRecovered("cuda:0")], 1)
    c.handled(1, [DeviceRecovered("cuda:0"), DeviceLost("cuda:0", "again")], [])
    assert value(m, "headway_device_lost", device="cuda:0") == 0
    assert value(m, "headway_device_losses_total", device="cuda:0") == 2


def test_openings_of_the_circuit_are_counted_and_its_closing_is_none() -> None:
    m = counted([], [ReportCircuit(M1, True, seconds(10), "x"), ReportCircuit(M1, False)])
    assert value(m, "headway_circuit_openings_total", **ONE) == 1


def test_poison_requests_are_counted_over_all_tenants() -> None:
    c = counters("acme")
    ends = [ResolveRequest(1, Outcome.POISON_REQUEST), ResolveRequest(2, Outcome.POISON_REQUEST)]
    c.handled(0, [arrival(1, "acme"), arrival(2), arrival(3)], [*ends, ResolveRequest(3, Outcome.MODEL_ERROR)])
    assert value(Metrics(c), "headway_poison_requests_total", **ONE) == 2


def test_all_but_what_has_a_kind_is_there_from_the_start() -> None:
    m = Metrics(counters())
    names = ("workers_suspected_total", "workers_hung_total", "circuit_openings_total", "poison_requests_total")
    assert [value(m, f"headway_{name}", **ONE) for name in names] == [0, 0, 0, 0]


def test_workers_that_are_gone_are_forgotten() -> None:
    c = counters()
    c.handled(0, [WorkerStarting(1, M1), WorkerStarting(2, M1), WorkerStopped(1), WorkerLost(2)], [])
    assert c.failures._workers == {}


def standing(world: World, now: int) -> Metrics:
    core = world.scheduler
    return Metrics(counters(), views=core.views, stalls=lambda: stalls(core, now), clock=lambda: now)


def test_a_version_is_ready_while_a_worker_gets_somewhere_and_its_circuit_is_shown() -> None:
    world = World(watched=True)
    assert value(standing(world, 0), "headway_version_ready", **ONE) == 1
    assert value(standing(world, 0), "headway_circuit_open", **ONE) == 0
    for number in range(10, 10 + DEATHS):
        (worker,) = world.scheduler.views()[0].workers
        world.tell(WorkerLost(worker), WorkerStarting(number, V), WorkerReady(number, Capacity(1)))
    assert value(standing(world, 0), "headway_version_ready", **ONE) == 0
    assert value(standing(world, 0), "headway_circuit_open", **ONE) == 1
    assert value(standing(world, FIRST), "headway_version_ready", **ONE) == 1, "it wants a request to try"
    assert value(standing(world, FIRST), "headway_circuit_open", **ONE) == 1, "and lets in no others"


def test_a_version_without_a_worker_is_not_ready() -> None:
    assert value(standing(World(workers=0, watched=True), 0), "headway_version_ready", **ONE) == 0


def test_what_is_in_quarantine_and_what_retries_are_left_is_asked_for_at_scrape() -> None:
    world = World(watched=True)
    world.tell(ContentQuarantined(V, 7))
    assert value(standing(world, 0), "headway_quarantined_contents", **ONE) == 1
    assert value(standing(world, NEVER), "headway_quarantined_contents", **ONE) == 0
    assert value(standing(world, 0), "headway_retries_left", **ONE) == 100


def test_a_flood_of_failures_adds_no_labels() -> None:
    c = Counters()
    for number in range(50):
        c.handled(0, [WorkerLost(number)], [SuspectWorker(number, 1, "x"), KillWorker(number, 1, "x")])
    assert c.failures.versions == {}, "nobody knows these workers"
