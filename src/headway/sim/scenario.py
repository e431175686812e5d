"""One model version under one load: what `headway simulate` and the benchmarks run."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random
from time import perf_counter

from headway.core.events import ServerConfigured, VersionConfigured
from headway.core.ids import BatchKey, VersionId
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import Duration
from headway.sim.chaos import Disturbances
from headway.sim.clients import Clients
from headway.sim.costs import Cost, cpu, warm_up
from headway.sim.driver import Driver, Observer
from headway.sim.faults import NO_FAULTS, Faults
from headway.sim.fleet import Fleet
from headway.sim.oracles import Oracle
from headway.sim.report import Recorder, Report
from headway.sim.sim_worker import Model
from headway.sim.workloads import MAX_LENGTH, Arrival

VERSION = VersionId("model", 1)
KEY = BatchKey(*VERSION, "tokens")


@dataclass(frozen=True, slots=True)
class Scenario:
    """clients: 0 sends each arrival at its own time; else a closed loop of so many, without thinking.

    overhead: mean time outside queue and worker, which is reported to the scheduler (0: not).
    checked: judge every call by the oracles too; slower.
    hand_over: what a batch, and its answer, spends on the way.
    """

    arrivals: Iterable[Arrival]
    policy: BatchPolicy = field(default_factory=BatchPolicy)
    server: ServerPolicy = field(default_factory=ServerPolicy)
    cost: Cost = cpu
    workers: int = 1
    load_time: Duration = 0
    hand_over: Duration = 0
    clients: int = 0
    overhead: Duration = 0
    faults: Faults = NO_FAULTS
    seed: int = 1
    checked: bool = False


def simulate(scenario: Scenario, also: tuple[Observer, ...] = ()) -> Report:
    """Until every request has its outcome. Faults that come by themselves end with the arrivals.

    also: who else watches. Requests are numbered from 1 in the order in which they are sent.
    """
    recorder, oracle = Recorder(), Oracle()
    observers: tuple[Observer, ...] = (oracle, recorder) if scenario.checked else (recorder,)
    driver = Driver(Scheduler(), observers + also)
    fleet = _fleet(scenario, driver)
    clients = Clients(driver, Random(f"{scenario.seed} clients"), scenario.overhead)
    driver.tell(ServerConfigured(scenario.server))
    driver.tell(VersionConfigured(VERSION, scenario.policy))
    fleet.start()
    began = perf_counter()
    driver.run(until=scenario.load_time)
    if scenario.clients:
        clients.closed_loop(scenario.arrivals, scenario.clients, think=0)
    else:
        clients.open_loop(scenario.arrivals)
    disturbances = Disturbances(driver, fleet, Random(f"{scenario.seed} faults"), lambda: not clients.are_sending)
    disturbances.start()
    driver.run()
    if scenario.checked:
        oracle.finish(driver.scheduler)
    busy = fleet.busy(recorder.first, recorder.last)
    return recorder.report(busy=busy, workers=scenario.workers, calls=driver.calls, wall_s=perf_counter() - began)


def _fleet(scenario: Scenario, driver: Driver) -> Fleet:
    model = Model(
        scenario.cost,
        workers=scenario.workers,
        measurements=warm_up(scenario.cost, scenario.policy.max_batch_size, MAX_LENGTH),
        load_time=scenario.load_time,
        hand_over=scenario.hand_over,
        unpadded=scenario.policy.unpadded,
    )
    return Fleet(driver, {VERSION: model}, Random(f"{scenario.seed} fleet"), scenario.faults)
