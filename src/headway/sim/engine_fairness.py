"""Tenants with more to do than several engines can, and how far apart that leaves them. Bound: docs/fairness.md.

python -m headway.sim.engine_fairness --seeds 20
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass, field
from random import Random

from headway.core.effects import AdmitSequence, Effect, ResolveRequest
from headway.core.events import (
    EngineReported,
    Event,
    RequestArrived,
    SequenceReturned,
    ServerConfigured,
    TokensEmitted,
    VersionConfigured,
)
from headway.core.ids import Part, RequestId, Tenant
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.scheduler import Scheduler
from headway.core.tenancy import TenantPolicy
from headway.core.units import Instant, ms
from headway.llm.plan.policy import PlanPolicy, Prices
from headway.sim.clients import Clients
from headway.sim.costs import warm_up
from headway.sim.driver import Driver
from headway.sim.engine_worlds import OUTPUT, PROMPT, STEPS, ServiceOracle
from headway.sim.engines import EngineModel
from headway.sim.fleet import Fleet
from headway.sim.gaps import Gaps
from headway.sim.oracles import Oracle, OracleViolation
from headway.sim.scenario import KEY, VERSION
from headway.sim.sim_worker import Model
from headway.sim.workloads import Arrival

REQUESTS = 60
"""Of each tenant."""


@dataclass(slots=True)
class Sequence:
    """What engines have: a request, and whether its prompt is computed."""

    arrival: Arrival
    prefilled: bool = False


@dataclass(slots=True)
class EngineFairOracle:
    """An observer: two tenants that both wait here drift apart by no more than U / w of the one and of the other, where

        U = w_p x (L + P) + w_q x M

    L: tokens of the longest prompt.  P: of the prompts that engines had and had yet to compute, at most.
    M: tokens of the answers that engines had begun, or were about to, at most.  All of them together.
    """

    driver: Driver
    weights: dict[Tenant, float]
    gaps: Gaps = field(default_factory=Gaps)
    served: dict[Tenant, int] = field(default_factory=dict)
    moves: int = 0
    _arrivals: dict[RequestId, Arrival] = field(default_factory=dict)
    _waiting: dict[Tenant, dict[RequestId, None]] = field(default_factory=dict)
    _there: dict[RequestId, Sequence] = field(default_factory=dict)
    _longest: int = 0
    _prompts: int = 0
    _answers: int = 0

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        for event in events:
            self._told(event, now)
        for effect in effects:
            if type(effect) is AdmitSequence:
                arrival = self._arrivals[effect.request]
                self._leave(effect.request)
                self._there[effect.request] = Sequence(arrival)
            elif type(effect) is ResolveRequest:
                self._leave(effect.request)
                self._there.pop(effect.request, None)
        there = self._there.values()
        self._prompts = max(self._prompts, sum(s.arrival.parts[0].length for s in there if not s.prefilled))
        self._answers = max(self._answers, sum(s.arrival.outputs for s in there))
        for tenant, waiting in self._waiting.items():
            if bool(waiting) != (tenant in self.gaps._received):
                self.gaps.open(tenant, now) if waiting else self.gaps.close(tenant)
        for gap in self.gaps.news():
            if gap.service > self.bound(gap.ahead, gap.behind):
                raise OracleViolation(f"{gap}, and {self.bound(gap.ahead, gap.behind):.0f} are allowed")

    def bound(self, one: Tenant, other: Tenant) -> float:
        """On |W / w of one - W / w of the other|, in ns of service."""
        most = PROMPT * (self._longest + self._prompts) + OUTPUT * self._answers
        return most / self.weights[one] + most / self.weights[other]

    def _told(self, event: Event, now: Instant) -> None:
        if type(event) is RequestArrived:
            self._arrivals[event.request] = self.driver.requests[event.request]
            self._longest = max(self._longest, event.parts[0].length)
            self._waiting.setdefault(event.tenant, {})[event.request] = None
        elif type(event) is SequenceReturned:
            self.moves += 1
            if self._there.pop(event.request, None) is not None:
                self._waiting[self._arrivals[event.request].tenant][event.request] = None
        elif type(event) is TokensEmitted and event.request in self._there:
            self._there[event.request].prefilled = True
        elif type(event) is EngineReported:
            self.gaps.add({s.tenant: s.service / self.weights[s.tenant] for s in event.served if s.service}, now)
            for served in event.served:
                self.served[served.tenant] = self.served.get(served.tenant, 0) + served.service

    def _leave(self, request: RequestId) -> None:
        self._waiting[self._arrivals[request].tenant].pop(request, None)


@dataclass(frozen=True, slots=True)
class FairEngines:
    """What a seed came to. of_bound: the largest gap, in parts of what is allowed.  served: ns, by tenant.
    gap: in ns by weight.  moves: sequences that went from one engine to another.
    """

    of_bound: float
    gap: float
    served: dict[Tenant, int]
    moves: int


def run(seed: int, engines: int = 2, scheduler: Scheduler | None = None) -> FairEngines:
    """Tenants of different weights and habits, all of whom want more than there is from the beginning."""
    rng = Random(f"{seed} engine fairness")
    weights = {f"tenant-{n}": rng.choice((0.5, 1.0, 1.0, 3.0)) for n in range(rng.choice((2, 2, 3)))}
    driver = Driver(scheduler or Scheduler())
    oracle, fair = Oracle(), EngineFairOracle(driver, weights)
    driver.observers = (oracle, fair, ServiceOracle())
    policy = PlanPolicy(
        max_sequences=(sequences := rng.choice((2, 8))),
        max_step_tokens=sequences + rng.choice((32, 128)),
        max_context=1000,
        tile=8,
        target_itl=ms(20),
        prices=Prices(PROMPT, OUTPUT),
    )
    model = EngineModel(policy, rng.choice((30, 100)), 16, STEPS, rng.random() < 0.5, weights=tuple(weights.items()))
    measurements = warm_up(lambda rows, length: PROMPT * rows * length, 1, 256)
    workers = Model(_none, engines, model.capacity, measurements, engine=model)
    fleet = Fleet(driver, {VERSION: workers}, Random(f"{seed} fleet"))
    tenants = tuple((tenant, TenantPolicy(weight=weight)) for tenant, weight in weights.items())
    driver.tell(ServerConfigured(ServerPolicy(tenants=tenants)))
    driver.tell(VersionConfigured(VERSION, BatchPolicy(style=Style.SEQUENCE)))
    fleet.start()
    clients = Clients(driver, Random(f"{seed} clients"))
    for tenant in weights:
        longest, outputs = rng.choice((8, 64, 200)), rng.choice((1, 16, 60))
        clients.open_loop([_arrival(rng, tenant, longest, outputs) for _ in range(REQUESTS)])
    driver.run()
    oracle.finish(driver.scheduler)
    if oracle.outcomes != {Outcome.COMPLETED: REQUESTS * len(weights)}:
        raise OracleViolation(f"all should have been completed: {oracle.outcomes}")
    gaps = fair.gaps.largest.values()
    worst = max(gaps, key=lambda gap: gap.service / fair.bound(gap.ahead, gap.behind), default=None)
    of_bound = worst.service / fair.bound(worst.ahead, worst.behind) if worst else 0.0
    return FairEngines(of_bound, worst.service if worst else 0.0, fair.served, fair.moves)


def _arrival(rng: Random, tenant: Tenant, longest: int, outputs: int) -> Arrival:
    return Arrival(0, KEY, (Part(1, rng.randint(1, longest)),), tenant, outputs=rng.randint(1, outputs))


def _none(rows: int, length: int) -> int:
    """Engines have step times of their own."""
    return 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m headway.sim.engine_fairness", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--seeds", type=int, default=1, help="how many seeds, counting up (default 1)")
    parser.add_argument("--engines", type=int, default=2, help="of the pool (default 2)")
    options = parser.parse_args(arguments)
    for seed in range(options.seed, options.seed + options.seeds):
        print(seed, run(seed, options.engines))
    return 0


if __name__ == "__main__":
    sys.exit(main())
