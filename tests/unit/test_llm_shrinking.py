"""A pool that shrinks while it is in use, and grows again."""

from __future__ import annotations

from headway.llm.plan.policy import Admit
from headway.llm.plan.request import SequenceId
from headway.llm.plan.step import End
from tests.unit.plan_world import World, prompt, runs


def test_who_waits_and_can_never_fit_any_more_is_ended_at_once_and_the_others_are_not():
    world = World(blocks=16, max_sequences=1)
    for id, length in ((1, 8), (2, 40), (3, 10)):
        world.add(id, prompt(length, start=id))
    world.step()
    world.planner.resize(8)
    plan = world.step()
    assert plan.finished == [(SequenceId(2), End.TOO_LONG)]
    world.run()
    assert {id.request: end for id, end in world.ends.items()} == {1: End.LENGTH, 2: End.TOO_LONG, 3: End.LENGTH}


def test_who_runs_when_the_pool_shrinks_and_loses_its_blocks_later_does_not_wait_for_ever():
    """Two hold more than there will be; the one that is preempted could not come back even alone."""
    world = World(blocks=20, admit=Admit.UNLIMITED)
    world.add(1, prompt(8), max_tokens=30)
    world.add(2, prompt(40, start=1), max_tokens=30)
    world.step()
    assert runs(world) == [1, 2]
    world.planner.resize(8)
    world.run()
    assert world.ends == {SequenceId(1): End.LENGTH, SequenceId(2): End.TOO_LONG}


def test_what_is_held_stays_held_until_it_is_given_back():
    world = World(blocks=8)
    world.add(1, prompt(18), max_tokens=3)
    world.step()
    world.planner.resize(2)
    world.planner.check()
    world.run()
    assert len(world.tokens[SequenceId(1)]) == 3 and world.state.pool.debt == 0
    refused = world.add(2, prompt(8))
    assert refused is not None and refused.message.endswith("the pool holds 8")
    world.planner.resize(3)
    assert world.add(2, prompt(8)) is None
    world.run()
    assert len(world.tokens[SequenceId(2)]) == 4
