"""Random worlds whose versions are engines: the real planner behind the core, with everything that goes wrong besides.

python -m headway.sim.engine_worlds --seeds 50 --seed 1
python -m headway.sim.engine_worlds --seed 123   # replay one
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from random import Random

from headway.core.effects import AdmitSequence, Effect
from headway.core.events import EngineReported, Event, RequestArrived, TokensEmitted, WorkerLost, WorkerStopped
from headway.core.ids import Part, RequestId, Tenant, WorkerId
from headway.core.policy import Style
from headway.core.scheduler import Scheduler
from headway.core.units import SECOND, ms, us
from headway.llm.plan.policy import Admit, PlanPolicy, Prices
from headway.llm.plan.step_time import Coefficients
from headway.sim import many_worlds
from headway.sim.costs import warm_up
from headway.sim.engines import EngineModel
from headway.sim.oracles import OracleViolation
from headway.sim.plans import WorldPlan, plan_world
from headway.sim.sim_worker import Model
from headway.sim.workloads import Arrival
from headway.sim.worlds import World, WorldFailed, WorldResult

PROMPT, OUTPUT = 60_000, 400_000
"""Nanoseconds: prices of a token of a prompt, and of an answer."""
STEPS = Coefficients(step=ms(2), prefill=us(60), decode=us(300), context=20.0, pairs=10.0)


@dataclass(slots=True)
class ServiceOracle:
    """An observer: no tenant is charged for a token twice, whatever is computed again, moved or lost.

    charged: by reports that count.  due: what prompts and answers cost, each token once.  In ns.
    """

    charged: Counter[Tenant] = field(default_factory=Counter)
    due: Counter[Tenant] = field(default_factory=Counter)
    _gone: dict[WorkerId, None] = field(default_factory=dict)
    _arrived: dict[RequestId, RequestArrived] = field(default_factory=dict)
    _seen: dict[WorkerId, int] = field(default_factory=dict)
    _emitted: dict[tuple[RequestId, int], int] = field(default_factory=dict)

    def observe(self, now: int, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        for event in events:
            if type(event) is RequestArrived:
                self._arrived[event.request] = event
            elif type(event) is WorkerLost or type(event) is WorkerStopped:
                self._gone[event.worker] = None
            elif type(event) is TokensEmitted:
                key = (event.request, event.attempt)
                fresh = event.first + event.count - self._emitted.get(key, event.first)
                if fresh > 0:
                    self._emitted[key] = event.first + event.count
                    self.due[self._arrived[event.request].tenant] += OUTPUT * fresh
            elif type(event) is EngineReported and event.worker not in self._gone:
                self._reported(event)
        for effect in effects:
            if type(effect) is AdmitSequence and effect.attempt == 1:
                request = self._arrived[effect.request]
                self.due[request.tenant] += PROMPT * request.parts[0].length
        for tenant, charged in self.charged.items():
            if charged > self.due[tenant]:
                raise OracleViolation(f"{tenant} was charged {charged} ns, for tokens that cost {self.due[tenant]}")

    def _reported(self, event: EngineReported) -> None:
        if event.number > self._seen.get(event.worker, 0):
            self._seen[event.worker] = event.number
            for served in event.served:
                self.charged[served.tenant] += served.service


def run_engine_world(
    seed: int, new_scheduler: Callable[[], Scheduler] = Scheduler, restore_every: int = 0
) -> WorldResult:
    """Raises WorldFailed."""
    try:
        world = World(plan_engine_world(seed), new_scheduler, restore_every)
        world.driver.observers = (ServiceOracle(), *world.driver.observers)
        return world.run()
    except Exception as error:
        line = f"PYTHONHASHSEED={os.environ.get('PYTHONHASHSEED', 'random')} python -m headway.sim.engine_worlds"
        raise WorldFailed(f"world {seed}: {type(error).__name__}: {error}\nreplay: {line} --seed {seed}") from error


def plan_engine_world(seed: int) -> WorldPlan:
    """As a world of that seed, and the first of its versions, or all, are engines: few or many, small or large."""
    plan = plan_world(seed)
    rng = Random(f"{seed} engines")
    versions = list(plan.policies)
    engines = versions if rng.random() < 0.5 else versions[:1]
    weights = tuple((tenant, policy.weight) for tenant, policy in plan.server.tenants)
    for version in engines:
        cores = 0 if plan.policies[version].device else 1
        plan.policies[version] = replace(plan.policies[version], style=Style.SEQUENCE, cores=cores)
        engine = _engine(rng, plan.grid, weights)
        plan.models[version] = Model(
            lambda rows, length: PROMPT * rows * length,
            workers=rng.choice((1, 2, 2, 3)),
            capacity=engine.capacity,
            measurements=warm_up(lambda rows, length: PROMPT * rows * length, 1, 256),
            load_time=rng.choice((0, 1, 20)) * plan.grid,
            device=plan.models[version].device,
            engine=engine,
        )
    duration = max(plan.heal_at, SECOND // 2)
    plan.arrivals = _arrivals(rng, plan.arrivals, dict.fromkeys(engines), duration / max(1, plan.heal_at))
    plan.heal_at = duration
    return plan


def _engine(rng: Random, grid: int, weights: tuple[tuple[Tenant, float], ...]) -> EngineModel:
    block_size = rng.choice((4, 16))
    sequences = rng.choice((1, 4, 32))
    policy = PlanPolicy(
        max_sequences=sequences,
        max_step_tokens=sequences + rng.choice((32, 128)),
        max_context=rng.choice((280, 1000)),
        tile=rng.choice((1, 16)),
        target_itl=ms(20),
        admit=rng.choice(list(Admit)),
        prices=Prices(PROMPT, OUTPUT),
        prefix_cache=rng.random() < 0.7,
    )
    blocks = rng.choice((120, 400, 2000)) // block_size
    return EngineModel(policy, blocks, block_size, STEPS, rng.random() < 0.5, grid, weights)


def _arrivals(
    rng: Random, arrivals: Iterator[Arrival], engines: dict[object, None], stretch: float
) -> Iterator[Arrival]:
    """Prompts of one row, some with a beginning that others have."""
    for arrival in arrivals:
        arrival.at = round(arrival.at * stretch)
        if arrival.key.version_id in engines:
            length = arrival.parts[0].length
            arrival.parts = (Part(1, length),)
            if rng.random() < 0.5:
                shared = min(rng.choice((16, 48)), length)
                arrival.prefix = ((shared, 1 + 100 * rng.randrange(4) + shared),)
        yield arrival


def main(arguments: list[str] | None = None) -> int:
    parser = many_worlds.options("headway.sim.engine_worlds", __doc__)
    parser.add_argument(
        "--restore-every", type=int, default=0, help="calls between restores from a snapshot (0: never)"
    )
    chosen = parser.parse_args(arguments)

    def run(seed: int) -> many_worlds.Played:
        return run_engine_world(seed, restore_every=chosen.restore_every).played

    return many_worlds.play(chosen, run, WorldFailed)


if __name__ == "__main__":
    sys.exit(main())
