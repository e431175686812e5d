"""Several answers to one prompt."""

from __future__ import annotations

from collections import Counter

import pytest

from headway.llm.plan.request import SequenceId
from headway.llm.plan.step import End
from tests.unit.plan_world import World, prompt

N = 5
WHOLE = 40
"""Tokens of a prompt of full blocks, but for its last two."""


def computed(world: World, most: int = 200) -> Counter[int]:
    """Until nothing is left: positions of the prompt that each choice has computed."""
    counts: Counter[int] = Counter()
    for _ in range(most):
        if not world.state.sequences:
            return counts
        for row in world.step().rows:
            counts[row.id.choice] += max(0, min(row.start + row.size, WHOLE + 2) - row.start)
    raise AssertionError("they never end")


@pytest.mark.parametrize("defer", [True, False])
@pytest.mark.parametrize("read_cache", [True, False])
@pytest.mark.parametrize("cached", [True, False])
def test_one_computes_the_prompt_and_the_others_find_it(defer: bool, read_cache: bool, cached: bool) -> None:
    world = World(blocks=200, defer=defer, max_step_tokens=32)
    if cached:
        world.add(9, prompt(WHOLE + 2), max_tokens=1)
        world.run()
    world.add(1, prompt(WHOLE + 2), max_tokens=3, choices=N, read_cache=read_cache)
    first = 2 if cached and read_cache else WHOLE + 2
    assert computed(world) == {choice: first if choice == 0 else 2 for choice in range(N)}
    assert {id: end for id, end in world.ends.items() if id.request == 1} == {
        SequenceId(1, choice): End.LENGTH for choice in range(N)
    }


def test_they_hold_the_prompt_once() -> None:
    world = World(blocks=200)
    world.add(1, prompt(WHOLE + 2), max_tokens=30, choices=N)
    while len(world.state.running) < N:
        world.step()
    world.step()
    tables = [sequence.blocks for sequence in world.state.running.values()]
    shared = WHOLE // world.state.block_size
    assert all(table[:shared] == tables[0][:shared] for table in tables)
    assert world.state.pool.in_use == shared + sum(len(table) - shared for table in tables)
    world.planner.abort(1)
    assert world.state.pool.in_use == 0 and not world.state.requests


def test_where_nothing_is_shared_each_pays_for_what_it_computes() -> None:
    world = World(blocks=200, prefix_cache=False)
    world.add(1, prompt(WHOLE + 2), max_tokens=3, choices=N)
    account = world.of(1).account
    assert computed(world) == dict.fromkeys(range(N), WHOLE + 2)
    assert account.served == N * (WHOLE + 2 + 2 * 3)


def test_more_answers_than_the_policy_has_are_refused_with_both_numbers() -> None:
    world = World(max_choices=4)
    refused = world.add(1, prompt(5), choices=5)
    assert refused is not None and (refused.code, refused.message) == ("invalid_n", "n must be at most 4, not 5")
    assert world.add(2, prompt(5), choices=4) is None


@pytest.mark.parametrize("at", range(8))
def test_an_abort_takes_all_of_them_wherever_they_are(at: int) -> None:
    world = World(blocks=200, max_step_tokens=32)
    world.add(1, prompt(WHOLE + 2), max_tokens=9, choices=N)
    for _ in range(at):
        world.step()
    world.plan()
    assert world.planner.abort(1)
    world.planner.check()
    world.commit()
    assert world.state.pool.in_use == 0 and not world.state.sequences and not world.state.computing


def test_one_answer_is_aborted_and_the_others_go_on() -> None:
    world = World(blocks=200)
    world.add(1, prompt(WHOLE + 2), max_tokens=9, choices=3)
    while len(world.state.running) < 3:
        world.step()
    world.plan()
    assert world.planner.abort(1, 1) and not world.planner.abort(1, 1) and not world.planner.abort(1, 7)
    world.planner.check()
    told = len(world.tokens[SequenceId(1, 1)])
    world.commit()
    world.run()
    assert {id.choice: len(tokens) for id, tokens in world.tokens.items()} == {0: 9, 1: told, 2: 9}
    assert world.planner.abort(1) is False
