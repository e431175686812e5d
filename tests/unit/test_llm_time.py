"""Time between tokens, of one request and of those that share its steps."""

from __future__ import annotations

import pytest

from headway.core.units import ms
from headway.llm.plan.policy import PlanPolicy
from headway.llm.plan.request import SequenceId
from headway.llm.plan.step_time import Coefficients
from tests.unit.plan_world import World, prompt, runs

STEPS = Coefficients(step=ms(8), prefill=1_000.0, decode=ms(1))
"""A step of n streams takes 8 + n ms."""


def test_less_than_is_promised_is_refused_with_both_numbers() -> None:
    world = World(prior=STEPS, target_itl=ms(50))
    refused = world.add(1, prompt(5), itl=ms(10.3))
    assert refused is not None and refused.code == "deadline_unmeetable"
    assert refused.message == "tokens no more than 10.3 ms apart are asked for, and no less than 25.0 ms is promised"
    assert world.add(2, prompt(5), itl=ms(25)) is None
    assert World(prior=STEPS, target_itl=ms(50), least_itl=ms(10)).add(1, prompt(5), itl=ms(10.3)) is None


def test_what_is_promised_is_no_more_than_what_is_aimed_for() -> None:
    with pytest.raises(ValueError, match="least_itl must be at least 0 and at most target_itl"):
        PlanPolicy(target_itl=ms(50), least_itl=ms(51))


@pytest.mark.parametrize("tenant", ["a", "b"])
def test_one_that_wants_shorter_steps_than_there_are_keeps_nobody_out(tenant: str) -> None:
    world = World(blocks=256, prior=STEPS, target_itl=ms(50), least_itl=ms(10))
    for id in (1, 2):
        world.add(id, prompt(10, start=id), max_tokens=200)
    world.step()
    world.add(3, prompt(10, start=3), itl=ms(10.3), tenant=tenant)
    for id in (4, 5, 6):
        world.add(id, prompt(10, start=id), max_tokens=200, tenant="abc"[id - 4])
        world.step()
    world.step()
    assert runs(world) == [1, 2, 4, 5, 6], "of its own tenant and of others"


def test_but_does_not_wait_for_ever() -> None:
    world = World(blocks=64, prior=STEPS, target_itl=ms(50), least_itl=ms(10), max_sequences=4)
    number = 10

    def fill() -> None:
        nonlocal number
        while len(world.state.sequences) < 6:
            number += 1
            world.add(number, prompt(10, start=number), max_tokens=20)

    fill()
    world.step()
    world.add(3, prompt(10, start=3), itl=ms(10.3))
    world.step()
    since = world.of(3).account.turn
    while SequenceId(3) in world.state.sequences:
        fill()
        world.step()
    worth = world.state.tenants.accounts["a"].units(2 * 64 * 4)
    passed = world.state.tenants.accounts["a"].turn - since
    assert 0.5 * worth < passed < 1.5 * worth, "others have had what the pool is worth"
