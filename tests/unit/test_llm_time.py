"""Time between tokens, of one request and of those that share its steps."""

from __future__ import annotations

import pytest

from headway.core.units import NEVER, ms
from headway.llm.plan.planner import Planner
from headway.llm.plan.policy import NO_DEADLINES, Deadlines, PlanPolicy
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.step import End
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


def test_a_tenant_has_deadlines_for_requests_that_have_none_of_their_own() -> None:
    wanted = {"hasty": Deadlines(first_token=ms(12), itl=ms(30)), "patient": NO_DEADLINES}
    planner = Planner(PlanPolicy(target_itl=ms(50)), 64, 4, prior=STEPS, deadlines=wanted.__getitem__)

    def add(id: int, tenant: str, **more: int) -> SequenceRequest:
        assert planner.add(SequenceRequest(id, tenant, [id] * 9, 5, **more), ms(100)) is None
        return planner.state.sequences[SequenceId(id)].request

    asked = [add(1, "hasty"), add(2, "patient"), add(3, "hasty", first_by=ms(900), itl=ms(40))]
    assert [(each.first_by, each.itl) for each in asked] == [(ms(112), ms(30)), (NEVER, 0), (ms(900), ms(40))]
    assert planner.plan(ms(111)).finished == [(SequenceId(1), End.DEADLINE)], "it is given up"
    hasty = SequenceRequest(4, "hasty", [4] * 250, 5)
    planner.state.deadlines = lambda tenant: Deadlines(first_token=ms(8))
    refused = planner.add(hasty, ms(100))
    assert refused is not None and refused.message == "the first token would come in 8 ms, and 8 ms are left"


def test_who_goes_on_elsewhere_has_had_its_first_token() -> None:
    planner = Planner(PlanPolicy(), 64, 4, prior=STEPS, deadlines=lambda tenant: Deadlines(first_token=1, itl=ms(40)))
    assert planner.add(SequenceRequest(1, "a", [1] * 9, 5, output=(7,)), ms(100)) is None
    request = planner.state.sequences[SequenceId(1)].request
    assert (request.first_by, request.itl) == (NEVER, ms(40))
