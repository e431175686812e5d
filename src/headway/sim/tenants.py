"""Several tenants on one model version, each with a load of its own: what `headway simulate --scenario` plays."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from random import Random
from time import perf_counter

from headway.core.events import ServerConfigured, VersionConfigured
from headway.core.ids import Part, Tenant
from headway.core.losses import Loss
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.scheduler import Scheduler
from headway.core.tenancy import TenantPolicy
from headway.core.units import NEVER, Duration, Instant, ms, seconds
from headway.sim.clients import Clients
from headway.sim.costs import Cost, cpu, noisy, warm_up
from headway.sim.driver import Driver, Observer
from headway.sim.fair_oracle import FairOracle
from headway.sim.fleet import Fleet
from headway.sim.oracles import Oracle
from headway.sim.report import Recorder
from headway.sim.scenario import KEY, VERSION
from headway.sim.sim_worker import Model
from headway.sim.tenant_report import TenantRecorder, TenantsReport
from headway.sim.timeline import Timeline
from headway.sim.workloads import MAX_LENGTH, Arrival, TracedRequest, lognormal_length

PAUSE: Duration = ms(100)
"""Of a client in a closed loop after a refusal."""

MINUTE: Duration = seconds(60)


@dataclass(frozen=True, slots=True)
class TenantLoad:
    """A tenant: what it may, and what it sends.

    arrivals: in order of time, counted from `start`; endless ones end at `stop`. Whose they say to be does not count.
    clients: 0 sends each arrival at its own time; else a closed loop of so many, whatever the arrivals' times.
    think: of such a client, between reply and next request.  pause: the same after a refusal.
    """

    tenant: Tenant
    arrivals: Iterable[Arrival]
    policy: TenantPolicy = field(default_factory=TenantPolicy)
    clients: int = 0
    think: Duration = 0
    pause: Duration = PAUSE
    start: Instant = 0
    stop: Instant = NEVER


@dataclass(frozen=True, slots=True)
class TenantScenario:
    """loads: one for each tenant, or several.
    duration: of the load; what waits then is still answered.
    since: nothing before counts in the report: the time until everybody has come into step.
    server: its tenants are those of the loads.
    changes: (when, tenant, its policy from then on).
    noise: sigma of the service time's lognormal factor.
    hand_over: what a batch, and its answer, spends on the way; longer than nothing, and batches are staged.
    losses: when a worker dies, with what it runs; another takes its place.
    slo: the version's, for goodput; 0 = everything completed counts.
    as_one: everybody sends under one name.
    checked: judge every call by the oracles; slower.
    """

    loads: tuple[TenantLoad, ...]
    duration: Duration = MINUTE
    since: Instant = 0
    policy: BatchPolicy = field(default_factory=BatchPolicy)
    server: ServerPolicy = field(default_factory=ServerPolicy)
    changes: tuple[tuple[Instant, Tenant, TenantPolicy], ...] = ()
    cost: Cost = cpu
    noise: float = 0.0
    workers: int = 1
    hand_over: Duration = 0
    losses: tuple[Instant, ...] = ()
    seed: int = 1
    as_one: bool = False
    checked: bool = False

    @property
    def tenants(self) -> dict[Tenant, TenantPolicy]:
        return {"everybody": TenantPolicy()} if self.as_one else {load.tenant: load.policy for load in self.loads}


def requests(
    gaps: Iterable[Duration],
    length: Callable[[], int],
    *,
    patience: Duration = NEVER,
    priority: int = 1,
    rows: int = 1,
) -> Iterator[Arrival]:
    """Requests of one part. gaps: between them, the first from 0 on. length: asked for each."""
    at = 0
    for gap in gaps:
        at += gap
        yield Arrival(at, KEY, (Part(rows, length()),), priority=priority, patience=patience)


def burst(count: int, at: Instant = 0) -> Iterator[Duration]:
    """Gaps: so many at once."""
    yield from (at if number == 0 else 0 for number in range(count))


def replayed(trace: Iterable[TracedRequest], speed: float = 1.0, patience: Duration = NEVER) -> Iterator[Arrival]:
    """A trace's times and lengths. speed 10 plays an hour in six minutes."""
    for request in trace:
        yield Arrival(round(request.at / speed), KEY, (Part(1, request.length),), patience=patience)


def lengths(rng: Random) -> Callable[[], int]:
    """Lognormal, with a median of 44 and at most 256 tokens."""
    return lambda: lognormal_length(rng)


def simulate_tenants(
    scenario: TenantScenario,
    also: tuple[Observer, ...] = (),
    scheduler: Scheduler | None = None,
    timeline: Timeline | None = None,
) -> TenantsReport:
    """Until every request has its outcome. also: who else watches.  timeline: is filled in."""
    until, timeline = scenario.duration, timeline or Timeline()
    recorder = TenantRecorder(scenario.tenants, scenario.policy.slo, scenario.since, until, timeline)
    whole, oracle = Recorder(), Oracle()
    checks: tuple[Observer, ...] = (oracle, FairOracle()) if scenario.checked else ()
    driver = Driver(scheduler or Scheduler(), (*checks, recorder, whole, *also))
    fleet = _fleet(scenario, driver)
    clients = Clients(driver, Random(f"{scenario.seed} clients"))
    began = perf_counter()
    _configure(scenario, driver)
    fleet.start()
    for at in scenario.losses:
        driver.at(at, lambda: fleet.lose(fleet.living()[0], "it was to die", Loss.KILLED))
    driver.run(until=0)
    for load in scenario.loads:
        _send(scenario, load, driver, clients)
    driver.run()
    if scenario.checked:
        oracle.finish(driver.scheduler)
    busy = fleet.busy(whole.first, whole.last)
    overall = whole.report(busy=busy, workers=scenario.workers, calls=driver.calls, wall_s=perf_counter() - began)
    window = min(scenario.duration, max(whole.last, 1)) - scenario.since
    utilisation = fleet.busy(scenario.since, scenario.since + window) / (scenario.workers * max(1, window))
    return recorder.report(overall, utilisation)


def _configure(scenario: TenantScenario, driver: Driver) -> None:
    tenants = dict(scenario.tenants)
    driver.tell(ServerConfigured(replace(scenario.server, tenants=tuple(tenants.items()))))
    driver.tell(VersionConfigured(VERSION, scenario.policy))
    for at, tenant, policy in sorted(scenario.changes, key=lambda change: change[0]):
        tenants[tenant] = policy
        changed = ServerConfigured(replace(scenario.server, tenants=tuple(tenants.items())))
        driver.at(at, lambda changed=changed: driver.tell(changed))  # type: ignore[misc]


def _send(scenario: TenantScenario, load: TenantLoad, driver: Driver, clients: Clients) -> None:
    tenant = "everybody" if scenario.as_one else load.tenant
    stop = min(load.stop, scenario.duration)
    if load.clients:
        arrivals = (replace(arrival, tenant=tenant) for arrival in load.arrivals)
        driver.at(
            load.start,
            lambda: clients.closed_loop(arrivals, load.clients, load.think, load.pause, stop),
        )
    else:
        clients.open_loop(_until(stop, load.start, tenant, load.arrivals))


def _until(stop: Instant, start: Instant, tenant: Tenant, arrivals: Iterable[Arrival]) -> Iterator[Arrival]:
    for arrival in arrivals:
        at = arrival.at + start
        if at >= stop:
            return
        yield replace(arrival, at=at, tenant=tenant)


def _fleet(scenario: TenantScenario, driver: Driver) -> Fleet:
    cost = scenario.cost
    model = Model(
        noisy(cost, Random(f"{scenario.seed} noise"), scenario.noise) if scenario.noise else cost,
        workers=scenario.workers,
        measurements=warm_up(cost, scenario.policy.max_batch_size, MAX_LENGTH),
        hand_over=scenario.hand_over,
        unpadded=scenario.policy.unpadded,
    )
    return Fleet(driver, {VERSION: model}, Random(f"{scenario.seed} fleet"))
