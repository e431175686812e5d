"""One simulation from start to end: a preset, a load, a scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from random import Random
from time import perf_counter

from headway.core.ids import Tenant
from headway.core.units import MILLISECOND, NEVER, Duration, Instant
from headway.llm.plan.planner import Planner
from headway.llm.plan.policy import PlanPolicy
from headway.llm.plan.step_time import DEFAULT, Coefficients
from headway.sim.llm.arrivals import Arrival
from headway.sim.llm.driver import Driver, Placement, least_loaded
from headway.sim.llm.engine import Engine, Scheduler, exact, noisy
from headway.sim.llm.presets import BLOCK_SIZE, PRESETS, Preset
from headway.sim.llm.recorder import Recorder
from headway.sim.llm.report import LlmReport, report
from headway.sim.timeline import Timeline

Make = Callable[["LlmScenario"], Scheduler]


@dataclass(frozen=True, slots=True)
class LlmScenario:
    """policy: None = the preset's.  blocks: of each engine's pool; 0 = the preset's.  noise: sigma of the lognormal
    factor of step times.  prior: what the scheduler expects of steps at first.  late: when the next step is planned,
    see `Driver`.  until: the clock stops there, and whatever has not ended is left out.
    """

    preset: Preset = PRESETS["a100-8b"]
    policy: PlanPolicy | None = None
    blocks: int = 0
    engines: int = 1
    weights: dict[Tenant, float] = field(default_factory=dict)
    noise: float = 0.0
    seed: int = 1
    prior: Coefficients = DEFAULT
    late: Duration = 2 * MILLISECOND
    until: Instant = NEVER

    @property
    def plan_policy(self) -> PlanPolicy:
        return self.policy or self.preset.policy

    @property
    def pool(self) -> int:
        return self.blocks or self.preset.blocks

    def weight(self, tenant: Tenant) -> float:
        return self.weights.get(tenant, 1.0)


def headway(scenario: LlmScenario) -> Planner:
    """The planner as it is."""
    return Planner(scenario.plan_policy, scenario.pool, BLOCK_SIZE, weight=scenario.weight, prior=scenario.prior)


def simulate(
    scenario: LlmScenario,
    arrivals: Iterable[Arrival],
    make: Make = headway,
    place: Placement = least_loaded,
    recorder: Recorder | None = None,
    timeline: Timeline | None = None,
) -> LlmReport:
    """OracleViolation where the scheduler loses, repeats or invents something, Stuck where it goes on no more."""
    recorder = recorder or Recorder(scenario.weight, timeline)
    engines = []
    for number in range(scenario.engines):
        steps = scenario.preset.steps
        rng = Random(f"{scenario.seed} steps {number}")
        time = noisy(steps, rng, scenario.noise) if scenario.noise else exact(steps)
        engines.append(Engine(number, make(scenario), time))
    began = perf_counter()
    Driver(engines, recorder, place, scenario.late).run(arrivals, scenario.until)
    if scenario.until == NEVER:
        recorder.finish()
    return report(recorder, engines, perf_counter() - began)
