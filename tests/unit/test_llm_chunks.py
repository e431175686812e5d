"""How the prefill of a step is dealt out."""

from __future__ import annotations

from random import Random

import pytest

from headway.llm.plan.chunks import Prefill
from headway.llm.plan.sequence import RUNNING, Sequence
from headway.llm.plan.step_time import Coefficients, StepTime
from tests.unit.plan_world import sequence

STEPS = StepTime(Coefficients(step=1_000.0, prefill=10.0, decode=0.0, context=0.0, pairs=0.0))
"""A token takes 10 ns, and nothing else anything."""
FAR = 1e12


def under_way(number: int, prompt: int, computed: int = 0) -> Sequence:
    made = sequence(number, prompt, computed=computed)
    made.status = RUNNING
    return made


def deal(
    sequences: list[Sequence],
    *,
    time: float = FAR,
    tokens: int = 1 << 30,
    tile: int = 8,
    part: int = 4,
    must: bool = False,
    steps: StepTime = STEPS,
) -> dict[int, int]:
    prefill = Prefill(steps, time, tokens, tile, part)
    for each in sequences:
        prefill.add(each)
    return {each.number: count for each, count in prefill.deal(must)}


def test_what_fits_is_computed_whole_to_the_token():
    assert deal([under_way(1, 13), under_way(2, 70, computed=40)]) == {1: 13, 2: 30}


def test_a_chunk_that_is_not_the_last_is_a_multiple_of_a_tile():
    assert deal([under_way(1, 1_000)], tokens=61) == {1: 56}
    assert deal([under_way(1, 1_000)], time=619.0) == {1: 56}


def test_the_last_chunk_takes_exactly_what_is_left_of_the_budget():
    assert deal([under_way(1, 1_000, computed=939)], tokens=61) == {1: 61}
    assert deal([under_way(1, 1_000, computed=939)], time=610.0) == {1: 61}


def test_the_oldest_gets_its_part_then_the_shortest_first():
    assert deal([under_way(1, 1_000), under_way(2, 20), under_way(3, 30)], tokens=64) == {1: 16, 2: 20, 3: 24}


def test_what_the_shorter_leave_goes_to_the_longer():
    assert deal([under_way(1, 1_000), under_way(2, 20)], tokens=64) == {1: 40, 2: 20}


def test_where_its_part_is_no_tile_the_oldest_gets_one_and_the_short_ones_the_rest():
    assert deal([under_way(1, 1_000), under_way(2, 20)], tokens=36, tile=16) == {1: 16, 2: 20}
    assert deal([under_way(1, 1_000), under_way(2, 20)], tokens=15, tile=16) == {}


def test_a_short_prompt_gets_through_beside_a_long_one():
    assert deal([under_way(1, 100_000), under_way(2, 60)], tokens=128)[2] == 60


def test_a_long_prompt_gets_through_beside_any_number_of_short_ones():
    long = under_way(1, 512)
    steps = 0
    while long.to_prefill:
        shorts = [under_way(100 * steps + number, 30) for number in range(2, 40)]
        long.computed += deal([long, *shorts], tokens=128)[1]
        steps += 1
    assert steps <= 4 * 512 / 128


def test_nobody_gets_anything_where_there_is_no_time_unless_somebody_must():
    assert deal([under_way(2, 100), under_way(1, 100)], time=5.0) == {}
    assert deal([under_way(2, 100), under_way(1, 100)], time=-5.0) == {}
    assert deal([under_way(2, 100), under_way(1, 100)], time=-5.0, must=True) == {1: 8}
    assert deal([under_way(1, 100, computed=97)], time=-5.0, must=True) == {1: 3}


def test_who_has_lost_its_blocks_since_gets_nothing():
    gone = sequence(1, 50)
    assert deal([gone, under_way(2, 20)]) == {2: 20}


@pytest.mark.parametrize("seed", range(30))
def test_the_budget_is_kept_whatever_is_asked_for(seed: int):
    random = Random(seed)
    steps = StepTime(Coefficients(1000.0, random.uniform(1, 20), 0.0, random.uniform(0, 0.5), random.uniform(0, 9)))
    for _ in range(50):
        time, tokens = random.uniform(-1_000, 20_000), random.randrange(0, 600)
        tile = random.choice([1, 8, 32])
        sequences = [
            under_way(number, size := random.randrange(1, 1_500), computed=random.randrange(size))
            for number in range(1, random.randrange(2, 7))
        ]
        dealt = deal(sequences, time=time, tokens=tokens, tile=tile, steps=steps)
        by_number = {each.number: each for each in sequences}
        assert sum(dealt.values()) <= tokens
        used = sum(steps.chunk(by_number[number].computed, count) for number, count in dealt.items())
        assert used <= max(0.0, time) + 1e-6
        for number, count in dealt.items():
            assert 0 < count <= by_number[number].to_prefill
            assert count == by_number[number].to_prefill or count % tile == 0


def test_few_are_under_way_that_will_not_get_through():
    prefill = Prefill(STEPS, 640.0, 64, 8, 4)
    prefill.add(under_way(1, 1_000))
    assert prefill.has_place(0, 30, most_unfinished=1), "it gets through beside the long one"
    assert not prefill.has_place(0, 500, most_unfinished=1)
    assert prefill.has_place(0, 500, most_unfinished=2)


def test_what_is_spoken_for_is_not_promised_twice():
    prefill = Prefill(STEPS, 640.0, 64, 8, 4)
    prefill.add(under_way(1, 40))
    assert prefill.has_place(0, 24, most_unfinished=0)
    assert not prefill.has_place(0, 25, most_unfinished=0)
