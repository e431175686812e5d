"""The suite must fail on a core with a bug, or its silence about the core means nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import SECOND, Instant
from headway.sim import engine_fairness
from headway.sim.engine_worlds import run_engine_world
from headway.sim.fair_worlds import FairWorldFailed, run_fair_world
from headway.sim.oracles import Oracle, OracleViolation
from headway.sim.tenants import TenantLoad, TenantScenario, burst, requests, simulate_tenants
from headway.sim.worlds import WorldFailed, run_world
from tests.canary.engines import ENGINES
from tests.canary.failures import FAILURES
from tests.canary.fair import FAIR
from tests.canary.planted import CANARIES, UNORDERED, Canary, plant

BUDGET = (1, 2, 4, 6, 7, 8, 11, 20, 41, 47, 49, 80, 86, 98, 301, 556, 3, 9, 15, *range(21, 41))
"""The same worlds for the clean core and for every bug; first those that notice something that few do."""
FAIR_BUDGET = ((1, False), (2, False), (4, False), (9, True), (45, False))
"""Seeds of fair worlds, and whether with deadlines."""
FAILURES_BUDGET = (2, 4, 7, 8, 9, 17, 36, 38, 112, 204)
ENGINES_BUDGET = (9, 1, 7, 6, 3, 29, 14)
ORDER_BUDGET = ("1", "25")
HASH_SEEDS = ("1", "2", "3", "4", "5")
ROOT = Path(__file__).parents[2]


class Kind(NamedTuple):
    """Of worlds: how one is run, which ones, and the bugs that they must notice."""

    run: Callable[..., object]
    seeds: tuple[int, ...]
    canaries: tuple[Canary, ...]


KINDS = {
    "worlds": Kind(run_world, BUDGET, CANARIES),
    "failures": Kind(run_world, FAILURES_BUDGET, FAILURES),
    "engines": Kind(run_engine_world, ENGINES_BUDGET, ENGINES),
}
PLANTED = [
    pytest.param(kind, canary, id=f"{name}: {canary}") for name, kind in KINDS.items() for canary in kind.canaries
]


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_a_clean_core_passes_the_worlds_that_must_catch_the_bugs(kind: Kind) -> None:
    for seed in kind.seeds:
        kind.run(seed)


@pytest.mark.parametrize(("kind", "canary"), PLANTED)
def test_the_worlds_notice_that(kind: Kind, canary: Canary) -> None:
    scheduler = plant(canary)
    with pytest.raises(WorldFailed):
        for seed in kind.seeds:
            kind.run(seed, scheduler)


def test_backlogged_tenants_drift_apart_where_what_engines_report_is_not_charged() -> None:
    scheduler = plant(Canary("engines serve for nothing", "engines", "if served.service:", "if False:"))
    assert engine_fairness.run(1).of_bound < 1
    with pytest.raises(OracleViolation, match="are allowed"):
        engine_fairness.run(1, scheduler=scheduler())


def test_a_clean_core_passes_the_fair_worlds_that_must_catch_the_bugs_of_the_fair_order() -> None:
    for seed, deadlines in FAIR_BUDGET:
        run_fair_world(seed, deadlines)


@pytest.mark.parametrize("canary", FAIR, ids=str)
def test_the_fair_worlds_notice_that(canary: Canary) -> None:
    scheduler = plant(canary)
    with pytest.raises(FairWorldFailed, match="OracleViolation"):
        for seed, deadlines in FAIR_BUDGET:
            run_fair_world(seed, deadlines, scheduler)


def starve(scheduler: Scheduler) -> None:
    """One has a minute's work waiting when another comes; a batch takes a second."""

    def load(tenant: str, count: int, start: Instant) -> TenantLoad:
        return TenantLoad(tenant, requests(burst(count), lambda: 8), start=start)

    loads = (load("flood", 60, 0), load("late", 20, SECOND))
    scenario = TenantScenario(loads, policy=BatchPolicy(max_batch_size=1), cost=lambda rows, length: SECOND)
    simulate_tenants(scenario, (Oracle(),), scheduler)


def test_nobody_starves_with_a_clean_core() -> None:
    starve(Scheduler())


def test_the_oracle_says_who_starves() -> None:
    by_arrival = next(canary for canary in FAIR if canary.name == "the turn goes by arrival")
    with pytest.raises(OracleViolation, match=r"ReportStarvation.*tenant='late', starves=True"):
        starve(plant(by_arrival)())


def digests(name: str, hash_seed: str) -> str:
    command = [sys.executable, "-m", "tests.canary.digests", name, *ORDER_BUDGET]
    environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
    return subprocess.run(command, cwd=ROOT, env=environment, check=True, capture_output=True, text=True).stdout


@pytest.mark.parametrize("canary", UNORDERED, ids=str)
def test_another_hash_seed_gives_it_away_that(canary: Canary) -> None:
    first = digests(canary.name, "0")
    assert any(digests(canary.name, hash_seed) != first for hash_seed in HASH_SEEDS)


def test_a_clean_core_does_the_same_under_every_hash_seed() -> None:
    assert digests("", "0") == digests("", HASH_SEEDS[0])


def test_a_planted_bug_stays_in_its_own_copy_of_the_core() -> None:
    assert plant(CANARIES[0]) is not Scheduler
    run_world(1)


def test_a_canary_whose_line_is_gone_says_so() -> None:
    with pytest.raises(AssertionError, match="occurs 0 times"):
        plant(Canary("it rotted", "state", "a line that nobody wrote", ""))
