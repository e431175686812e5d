"""Whether one more would fit, by each policy."""

from __future__ import annotations

from random import Random

import pytest

from headway.llm.plan.policy import Admit
from headway.llm.plan.room import FIRST_RATIO, LEAST_RATIO, Room
from headway.llm.plan.sequence import Sequence
from tests.unit.plan_world import TOKEN, World, prompt, sequence


def room(policy: Admit, block_size: int, running: list[Sequence], in_use: int | None = None) -> Room:
    """in_use: all that the running hold, unless told otherwise."""
    made = Room(policy, block_size)
    for each in running:
        each.blocks = list(range(-(-len(each.tokens) // block_size)))
    made.survey(running, sum(len(each.blocks) for each in running) if in_use is None else in_use)
    return made


def least(made: Room, candidate: Sequence, cached: int = 0, idle: int = 0) -> int:
    """The least number of usable blocks into which it would be admitted."""
    return next(usable for usable in range(10_000) if made.holds(candidate, cached, idle, usable))


def test_unlimited_lets_everybody_in():
    assert room(Admit.UNLIMITED, 4, [sequence(1, 100)]).holds(sequence(2, 100), 0, 0, 0)


def test_the_worst_case_counts_all_that_everybody_may_produce():
    running = [sequence(1, 10, 2, max_tokens=10), sequence(2, 5, max_tokens=3)]
    # 10 + 2 + 8 tokens are 5 blocks of 4; 5 + 3 are 2; 7 + 6 are 4
    assert least(room(Admit.WORST_CASE, 4, running), sequence(3, 7, max_tokens=6)) == 5 + 2 + 4


def test_shared_blocks_count_once():
    running = [sequence(1, 9, max_tokens=3), sequence(2, 9, max_tokens=3)]
    running[1].cached = 2
    made = room(Admit.WORST_CASE, 4, running, in_use=4)
    assert least(made, sequence(3, 9, max_tokens=3)) == 3 + 1 + 3
    assert least(made, sequence(3, 9, max_tokens=3), cached=2) == 3 + 1 + 1
    assert least(made, sequence(3, 9, max_tokens=3), cached=2, idle=1) == 3 + 1 + 1 + 1, "one more is held from then on"


def test_the_estimate_counts_a_part_that_shrinks_while_all_goes_well_and_starts_again():
    made = room(Admit.ESTIMATE, 1, [])
    candidate = sequence(1, 10, max_tokens=100)
    assert least(made, candidate) == 10 + int(100 * FIRST_RATIO)
    for _ in range(1_000):
        made.stepped()
    assert least(made, candidate) == 10 + int(100 * LEAST_RATIO)
    made.preempted()
    assert least(made, candidate) == 10 + int(100 * FIRST_RATIO)


def brute_force(growths: list[tuple[int, int]]) -> int:
    """(tokens now, tokens to come): step by step, each goes when it is through; the most that is ever in use."""
    most = sum(tokens for tokens, _ in growths)
    for step in range(1, max(to_come for _, to_come in growths) + 1):
        most = max(most, sum(tokens + step for tokens, to_come in growths if to_come >= step))
    return most


@pytest.mark.parametrize("seed", range(40))
def test_the_future_peak_is_what_step_by_step_comes_out(seed: int):
    random = Random(seed)
    running = [
        sequence(number, random.randrange(1, 40), produced := random.randrange(20), max_tokens=produced + more)
        for number in range(1, random.randrange(2, 9))
        for more in [random.randrange(1, 50)]
    ]
    candidate = sequence(99, random.randrange(1, 40), max_tokens=random.randrange(1, 50))
    together = [(len(s.tokens), s.max_tokens - s.produced) for s in [*running, candidate]]
    assert least(room(Admit.FUTURE_PEAK, 1, running), candidate) == brute_force(together)


def test_the_future_peak_goes_by_how_answers_turned_out():
    made = room(Admit.FUTURE_PEAK, 1, [])
    for _ in range(50):
        made.lengths.add(3)
    assert least(made, sequence(1, 10, max_tokens=500)) == 13
    assert least(made, sequence(2, 10, 3, max_tokens=500)) == 10 + 7, "longer than any before: expected to double"


def test_who_is_admitted_counts_for_the_next_in_the_same_step():
    made = room(Admit.WORST_CASE, 4, [])
    first = sequence(1, 9, max_tokens=3)
    made.add(first, 0)
    assert least(made, sequence(2, 5, max_tokens=3)) == 3 + 2


@pytest.mark.parametrize("admit", list(Admit))
def test_every_policy_serves_all_in_a_pool_that_is_far_too_small(admit: Admit):
    world = World(blocks=12, admit=admit)
    for id in range(1, 13):
        world.add(id, prompt(6 + id, start=id), max_tokens=20)
    world.run()
    assert all(len(tokens) == 20 for tokens in world.tokens.values()) and len(world.tokens) == 12


def test_with_the_worst_case_nobody_is_preempted_for_want_of_blocks():
    world = World(blocks=20, admit=Admit.WORST_CASE)
    for id in range(1, 20):
        world.add(id, prompt(3 + id, start=id), max_tokens=30, tenant="ab"[id % 2])
    world.run()
    assert world.state.counts.preemptions["growth"] == 0


def test_a_lone_one_is_admitted_whatever_it_may_come_to():
    world = World(blocks=4, admit=Admit.WORST_CASE)
    world.add(1, prompt(10), max_tokens=900)
    assert len(world.step().rows) == 1


@pytest.mark.parametrize("output", [5, 150, 1_936])
def test_a_cold_start_runs_several_at_once_though_each_may_fill_the_context(output: int):
    """Clients that say nothing of max_tokens have all that the context holds; the pool holds it once. Whatever the
    answers come to, all of them end."""
    world = World(blocks=500, max_context=2_000, max_step_tokens=512)
    for id in range(1, 9):
        assert world.add(id, prompt(64, start=id), max_tokens=1_936, stops=(9,)) is None
    for _ in range(3):
        world.step()
    assert len(world.state.running) >= 4
    while world.state.sequences:
        world.step(lambda id: 9 if len(world.tokens.get(id, ())) == output - 1 else TOKEN)
    assert [len(tokens) for tokens in world.tokens.values()] == [output] * 8
    assert (world.state.counts.preemptions["growth"] > 0) is (output > 200), "which is what it is for"
