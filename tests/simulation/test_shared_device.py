"""Several models on a device of two cores: each tenant has its share, nobody is kept out, nothing is lost."""

from __future__ import annotations

from collections import Counter
from itertools import count
from random import Random

import pytest

from headway.core.effects import Effect
from headway.core.events import BatchCompleted, Event, ServerConfigured, VersionConfigured
from headway.core.ids import BatchKey, Part, Tenant, VersionId, WorkerId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, Duration, Instant, ms, seconds
from headway.core.views import devices
from headway.sim.clients import Clients
from headway.sim.costs import Cost, warm_up
from headway.sim.driver import Driver
from headway.sim.fleet import Fleet
from headway.sim.oracles import Oracle
from headway.sim.report import Latency, Recorder, summarise
from headway.sim.sim_worker import Model
from headway.sim.workloads import Arrival, poisson

CORES = 2
LONGEST = ms(20)
"""Run time of a full batch of the model that is flooded."""
A, B, C = (BatchKey(name, 1, "rows") for name in "abc")
FROM, UNTIL = seconds(0.5), seconds(3)
"""What is measured: a stretch in which the backlogs stay."""
URGENT = ms(26)
"""Patience that is enough for what runs, a full batch, and for one of its own."""
BACKLOG = 40
"""Clients that ask again as soon as they are answered: more than all workers together can hold."""


def slow(rows: int, length: int) -> Duration:
    return ms(4) + ms(2) * rows


def quick(rows: int, length: int) -> Duration:
    return ms(1) + ms(1) * rows


class Use:
    """An observer: what ran within the stretch, in nanoseconds x cores, and whether more ran than there are cores."""

    def __init__(self, fleet: Fleet, need: dict[VersionId, int]) -> None:
        self.took: Counter[VersionId] = Counter()
        self.most = 0
        self._fleet = fleet
        self._need = need

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        for event in events:
            if isinstance(event, BatchCompleted):
                self._ran(event.worker, now - event.duration, now)
        (device,) = devices(scheduler)
        self.most = max(self.most, device.in_use)

    def _ran(self, worker: WorkerId, begin: Instant, end: Instant) -> None:
        version = self._fleet.workers[worker].version
        self.took[version] += self._need[version] * max(0, min(end, UNTIL) - max(begin, FROM))

    @property
    def shares(self) -> dict[str, float]:
        """Model -> its part of all that the device could do."""
        return {version.model: took / (CORES * (UNTIL - FROM)) for version, took in self.took.items()}


class World:
    """costs: of the versions on the device.  need: cores that a batch takes, where it is not one."""

    def __init__(self, costs: dict[BatchKey, Cost], need: dict[BatchKey, int] | None = None, workers: int = 1) -> None:
        self.recorder, self.oracle = Recorder(), Oracle()
        self.driver = Driver(Scheduler())
        models = {key.version_id: Model(cost, workers, measurements=warm_up(cost, 8, 1)) for key, cost in costs.items()}
        takes = {key.version_id: (need or {}).get(key, 1) for key in costs}
        fleet = Fleet(self.driver, models, Random(1))
        self.use = Use(fleet, takes)
        self.driver.observers = (self.oracle, self.recorder, self.use)
        self.clients = Clients(self.driver, Random(1))
        self.driver.tell(ServerConfigured(ServerPolicy(devices=(("cpu", CORES),))))
        for version, cores in takes.items():
            policy = BatchPolicy(max_batch_size=8, device="cpu", cores=cores)
            self.driver.tell(VersionConfigured(version, policy))
        fleet.start()
        self.driver.run()

    def backlog(self, key: BatchKey, tenant: Tenant) -> None:
        """As much as is taken, until the end."""
        self.clients.closed_loop((Arrival(0, key, (Part(1, 1),), tenant) for _ in count()), BACKLOG, think=1)

    def now_and_then(self, key: BatchKey, tenant: Tenant, rate: float, patience: Duration = NEVER) -> None:
        """One row at a time, `rate` per second."""
        at, gaps, arrivals = 0, poisson(Random(2), rate), []
        while (at := at + next(gaps)) < UNTIL:
            arrivals.append(Arrival(at, key, (Part(1, 1),), tenant, patience=patience))
        self.clients.open_loop(arrivals)

    def run(self) -> World:
        """To the end of the stretch, and until all that was sent one by one has its outcome."""
        self.driver.run(until=UNTIL + seconds(0.5))
        return self

    def latency(self, tenant: Tenant) -> Latency:
        return summarise(self.recorder.latencies[tenant])


def test_who_floods_one_model_leaves_half_of_the_device_to_who_uses_another() -> None:
    world = World({A: slow, B: quick}, workers=CORES)
    world.backlog(A, "greedy")
    world.backlog(B, "other")
    shares = world.run().use.shares
    assert shares["b"] == pytest.approx(0.5, abs=0.02)
    assert shares["a"] == pytest.approx(0.5, abs=0.02)


def test_who_uses_a_model_now_and_then_hardly_waits_for_who_floods_another() -> None:
    """At most for the batch that ends first of the two that run when it comes."""
    assert slow(8, 1) == LONGEST

    def latency(flooded: bool) -> Latency:
        world = World({A: slow, B: quick}, workers=CORES)
        if flooded:
            world.backlog(A, "greedy")
        world.now_and_then(B, "modest", rate=40)
        return world.run().latency("modest")

    alone, beside = latency(flooded=False), latency(flooded=True)
    assert beside.count == alone.count > 100
    assert beside.p50_ms < alone.p50_ms + LONGEST / ms(1) / 2
    assert beside.p99_ms < alone.p99_ms + LONGEST / ms(1)


def test_batches_of_one_core_and_of_both_are_served_in_proportion() -> None:
    world = World({A: slow, B: quick}, need={A: CORES}, workers=CORES)
    world.backlog(A, "wide")
    world.backlog(B, "narrow")
    shares = world.run().use.shares
    assert shares["a"] == pytest.approx(shares["b"], rel=0.05)
    assert 0.9 < sum(shares.values()) <= 1, "a core may stand still while the other is waited for"
    assert world.use.most == CORES


def test_deadlines_of_one_model_hold_beside_the_backlog_of_another() -> None:
    """Of the same tenant: no share helps, only that the most urgent comes first whatever model it is for."""
    world = World({A: slow, B: quick}, workers=CORES)
    world.backlog(A, "one")
    world.now_and_then(B, "one", rate=40, patience=URGENT)
    assert list(world.run().recorder.outcomes) == [Outcome.COMPLETED]
    assert world.recorder.outcomes[Outcome.COMPLETED] > 2000


def test_more_workers_than_cores_lose_nothing_of_the_device() -> None:
    world = World({A: slow, B: quick, C: slow})
    for key, tenant in ((A, "one"), (B, "two"), (C, "one")):
        world.backlog(key, tenant)
    shares = world.run().use.shares
    assert 0.99 < sum(shares.values()) <= 1
    assert shares["b"] == pytest.approx(0.5, abs=0.02)
    assert world.use.most == CORES
