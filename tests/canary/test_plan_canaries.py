"""The worlds of the planner must fail on a planner with a bug, or their silence means nothing."""

from __future__ import annotations

import pytest

from headway.core.errors import InvariantViolation
from headway.llm.plan.planner import Planner
from headway.sim.llm.worlds import WorldFailed, run_world
from tests.canary.plan import ATTEMPT, PLAN
from tests.canary.planted import Canary, plant_planner
from tests.unit.plan_world import World
from tests.unit.test_llm_tenants import comes_back

BUDGET = (3, 1, 12, 2, 15, 16, 17, 23, 24, 84)
"""The same worlds for the clean planner and for every bug; first those in which many are noticed."""
STEPS = 100


def test_a_clean_planner_passes_the_worlds_that_must_catch_the_bugs() -> None:
    for seed in BUDGET:
        run_world(seed, STEPS)


@pytest.mark.parametrize("canary", PLAN, ids=str)
def test_the_worlds_notice_that(canary: Canary) -> None:
    planner = plant_planner(canary)
    with pytest.raises(WorldFailed):
        for seed in BUDGET:
            run_world(seed, STEPS, planner)


def test_a_story_notices_that_results_of_an_earlier_attempt_are_believed() -> None:
    with pytest.raises(InvariantViolation):
        comes_back(World(planner=plant_planner(ATTEMPT)))


def test_a_planted_bug_stays_in_its_own_copy_of_the_planner() -> None:
    assert plant_planner(PLAN[0]) is not Planner
    run_world(1, 20)
