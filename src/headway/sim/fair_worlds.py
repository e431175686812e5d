"""Seeded worlds of tenants: random weights, lengths, loads, devices, changes of weight and deaths, judged by two
oracles.

python -m headway.sim.fair_worlds --seeds 100 --seed 1
python -m headway.sim.fair_worlds --seed 123 --deadlines          # one, with deadlines
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import repeat
from random import Random

from headway.core.ids import Tenant
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.tenancy import TenantPolicy
from headway.core.units import NEVER, SECOND, Duration, ms
from headway.sim.costs import COSTS, Cost
from headway.sim.fair_oracle import FairOracle
from headway.sim.gaps import Gap
from headway.sim.shapes import SHAPES
from headway.sim.tenants import TenantLoad, TenantScenario, burst, requests, simulate_tenants
from headway.sim.turns import TurnOracle
from headway.sim.workloads import lognormal_length, on_off, poisson

WEIGHTS = (0.1, 0.5, 1, 1, 1, 2, 5)
DEVICES: tuple[Cost, ...] = (*COSTS.values(), *SHAPES.values())
USUAL_LENGTH = 60


@dataclass(frozen=True, slots=True)
class FairWorld:
    """What a seed came to. of_bound: the largest gap between two tenants, in parts of what is allowed between them."""

    seed: int
    requests: int
    of_bound: float
    worst: Gap | None


class FairWorldFailed(AssertionError):
    """The oracle was breached, or the core raised. Says how to see it again."""


def run_fair_world(seed: int, deadlines: bool = False, new_scheduler: Callable[[], Scheduler] = Scheduler) -> FairWorld:
    """Raises FairWorldFailed."""
    oracle = FairOracle()
    try:
        report = simulate_tenants(plan(seed, deadlines), (TurnOracle(), oracle), new_scheduler())
    except Exception as error:
        line = f"python -m headway.sim.fair_worlds --seed {seed}" + " --deadlines" * deadlines
        raise FairWorldFailed(f"fair world {seed}: {type(error).__name__}: {error}\nreplay: {line}") from error
    gaps = oracle.ledger.gaps.largest.values()
    worst = max(gaps, key=lambda gap: gap.service / oracle.bound(gap.ahead, gap.behind), default=None)
    of_bound = worst.service / oracle.bound(worst.ahead, worst.behind) if worst else 0.0
    return FairWorld(seed, report.overall.requests, of_bound, worst)


def plan(seed: int, deadlines: bool = False) -> TenantScenario:
    """A function of the seed alone."""
    rng = Random(f"fair world {seed}")
    cost, workers = rng.choice(DEVICES), rng.choice((1, 1, 2, 3))
    usual = cost(1, USUAL_LENGTH)
    tenants = [f"tenant-{number}" for number in range(rng.randint(2, 6))]
    duration = usual * rng.choice((100, 300))
    return TenantScenario(
        loads=tuple(_load(rng, tenant, usual, workers, deadlines) for tenant in tenants),
        duration=duration,
        policy=BatchPolicy(
            max_batch_size=rng.choice((1, 4, 32)),
            max_batch_tokens=rng.choice((0, 0, 0, 400)),
            max_batch_time=rng.choice((0, ms(20), ms(100))),
        ),
        changes=tuple(_changes(rng, tenants, duration)) if rng.random() < 0.4 else (),
        cost=cost,
        noise=rng.choice((0, 0, 0.2)),
        workers=workers,
        hand_over=rng.choice((0, 0, usual // 10)),
        losses=_losses(Random(f"fair world {seed} losses"), duration),
        seed=seed,
    )


def _load(rng: Random, tenant: Tenant, usual: Duration, workers: int, deadlines: bool) -> TenantLoad:
    own = Random(rng.random())
    fixed = own.choice((None, 5, 40, 200))
    patience = NEVER
    if deadlines:
        patience = own.choice((NEVER, usual * own.choice((3, 10, 50))))
    kind = own.choice(("closed", "poisson", "on-off", "burst"))
    rate = workers * own.choice((0.1, 0.5, 2, 8)) * SECOND / usual
    gaps: Iterator[Duration] = repeat(0)
    if kind == "poisson":
        gaps = poisson(own, rate)
    elif kind == "on-off":
        gaps = on_off(own, rate, 20 * usual, 20 * usual)
    elif kind == "burst":
        gaps = burst(300, usual * own.randint(0, 100))
    arrivals = requests(
        gaps,
        lambda: fixed or lognormal_length(own),
        patience=patience,
        priority=own.choice((0, 1, 2)),
        rows=own.choice((1, 1, 1, 3)),
    )
    clients = own.choice((1, 2, 8, 60)) if kind == "closed" else 0
    return TenantLoad(tenant, arrivals, TenantPolicy(own.choice(WEIGHTS)), clients, think=own.choice((0, 0, usual)))


def _changes(rng: Random, tenants: list[Tenant], duration: Duration) -> Iterator[tuple[int, Tenant, TenantPolicy]]:
    for _ in range(rng.randint(1, 4)):
        yield rng.randrange(duration), rng.choice(tenants), TenantPolicy(rng.choice(WEIGHTS))


def _losses(rng: Random, duration: Duration) -> tuple[int, ...]:
    return tuple(sorted(rng.randrange(duration) for _ in range(rng.choice((0, 0, 3)))))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--deadlines", action="store_true")
    options = parser.parse_args()
    worlds = [run_fair_world(seed, options.deadlines) for seed in range(options.seed, options.seed + options.seeds)]
    for world in sorted(worlds, key=lambda world: -world.of_bound)[:5]:
        print(f"seed {world.seed}: {world.of_bound:.2f} of the bound in {world.requests} requests, {world.worst}")
    print(f"{len(worlds)} worlds within the bound of docs/fairness.md")
    return 0


if __name__ == "__main__":
    sys.exit(main())
