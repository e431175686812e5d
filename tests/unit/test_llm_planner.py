"""The planner, story by story."""

from __future__ import annotations

import pytest

from headway.core.units import MILLISECOND
from headway.llm.plan.planner import Planner
from headway.llm.plan.policy import PlanPolicy
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.step import End
from headway.llm.plan.step_time import Coefficients
from tests.unit.plan_world import TOKEN, World, prompt, sizes


def test_a_prompt_is_computed_then_a_token_a_step():
    world = World()
    world.add(1, prompt(10), max_tokens=3)
    first = world.step()
    assert [(row.start, row.size, row.samples) for row in first.rows] == [(0, 10, True)]
    assert first.rows[0].tokens == prompt(10) and len(first.rows[0].block_table) == 3
    second = world.step()
    assert [(row.start, row.size, row.tokens, row.samples) for row in second.rows] == [(10, 1, [TOKEN], True)]
    world.step()
    assert world.tokens == {SequenceId(1): [TOKEN] * 3} and world.ends == {SequenceId(1): End.LENGTH}
    assert world.step().rows == []


def test_a_plan_beyond_the_one_that_runs_counts_on_what_that_will_bring():
    world = World()
    world.add(1, prompt(10), max_tokens=3)
    world.plan()
    ahead = world.plan()
    assert [(row.start, row.size, row.tokens) for row in ahead.rows] == [(10, 1, [])], "its token is not known yet"
    with pytest.raises(ValueError, match="2 plans are without results"):
        world.planner.plan(world.now)
    world.commit()
    world.commit()
    assert world.tokens[SequenceId(1)] == [TOKEN] * 2


def test_no_step_is_planned_beyond_the_last_token():
    world = World()
    world.add(1, prompt(10), max_tokens=2)
    world.plan()
    world.plan()
    world.commit()
    assert world.plan().rows == []
    world.commit()
    assert world.ends == {SequenceId(1): End.LENGTH}


def test_a_stop_token_ends_it_and_what_was_planned_beyond_is_void():
    world = World()
    world.add(1, prompt(10), max_tokens=9, stops=(7,))
    world.plan()
    world.plan()
    world.commit(7)
    assert world.ends == {SequenceId(1): End.STOP} and world.state.pool.in_use == 3, "the plan that runs may use them"
    assert world.commit(8) == []
    assert world.tokens == {SequenceId(1): [7]} and world.state.pool.in_use == 0 and world.state.counts.void == 1


def test_a_result_that_does_not_match_changes_nothing():
    world = World()
    world.add(1, prompt(10))
    with pytest.raises(ValueError, match="no plan is without results"):
        world.planner.commit([], world.now)
    world.plan()
    with pytest.raises(ValueError, match="step 1 has 1 rows, 2 results came"):
        world.planner.commit([1, 2], world.now)
    with pytest.raises(ValueError, match=r"step 1 has no token for <1\.0 of a, running"):
        world.planner.commit([None], world.now)
    world.planner.check()
    assert len(world.commit()) == 1


def test_a_row_that_failed_is_void_once_its_request_is_aborted():
    world = World()
    world.add(1, prompt(10))
    world.add(2, prompt(9, start=1))
    world.plan()
    world.planner.abort(1)
    emitted = world.planner.commit([None, TOKEN], world.now)
    assert [each.id.request for each in emitted] == [2] and world.state.counts.void == 1


def test_one_that_ends_at_the_wall_of_the_pool_makes_place_in_that_very_plan():
    world = World(blocks=3, block_size=4)
    world.add(1, prompt(11), max_tokens=50)
    world.add(2, prompt(11, start=1), max_tokens=1)
    world.step()
    world.step()
    plan = world.step()
    assert plan.finished == [(SequenceId(1), End.LENGTH)] and sizes(plan) == {2: 11}


def test_a_prompt_under_way_gets_a_tile_now_and_then_though_streams_leave_no_time() -> None:
    prior = Coefficients(step=1e6, prefill=1e6, decode=0.0, context=1e4)
    policy = PlanPolicy(max_sequences=8, max_step_tokens=64, tile=8, max_context=4_096, target_itl=10 * MILLISECOND)
    planner = Planner(policy, blocks=400, prior=prior)
    state = planner.state
    planner.add(SequenceRequest(1, "streams", [1] * 600, 400), 0)
    while not state.sequences[SequenceId(1)].produced:
        plan = planner.plan(0)
        planner.commit([5 if row.samples else None for row in plan.rows], 0)
    planner.add(SequenceRequest(2, "late", [2] * 64, 4), 0)
    state.steps.now = prior._replace(step=0.0, context=0.0)  # there is time when it is admitted
    plan = planner.plan(0)
    planner.commit([5 if row.samples else None for row in plan.rows], 0)
    assert SequenceId(2) in state.running
    state.steps.now = prior  # and none from then on: 600 tokens of context take 6 ms, and half of 10 are left
    for _ in range(60):
        plan = planner.plan(10**12)
        planner.commit([5 if row.samples else None for row in plan.rows], 10**12)
    assert 2 not in state.requests, "it is through"


def test_computed_again_is_what_was_lost_and_is_not_found_again() -> None:
    world = World(blocks=64, block_size=4)
    world.add(1, prompt(10), max_tokens=8)
    world.add(2, prompt(9, start=1), max_tokens=8)
    for _ in range(4):
        world.step()
    assert world.of(2).computed == 12
    world.state.preempt(world.of(2), "class")
    assert world.state.counts.recomputed == 0
    world.run()
    assert world.state.counts.recomputed == 0, "12 were found; the token after them is new"
    world.add(3, prompt(10, start=3), max_tokens=8)
    world.step()
    world.step()
    assert world.of(3).computed == 11
    world.state.preempt(world.of(3), "class")
    world.run()
    assert world.state.counts.recomputed == 11 - 8


def test_places_of_blocks_that_hold_nothing_are_counted() -> None:
    world = World(blocks=64, block_size=4, max_step_tokens=12)
    world.add(1, prompt(30), max_tokens=8)
    assert world.state.unfilled == 0
    unfilled = []
    for _ in range(6):
        world.step()
        unfilled.append(world.state.unfilled)
    assert unfilled == [20, 8, 2, 1, 0, 3], "of eight blocks; then tokens come, and a block more"
