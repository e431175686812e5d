"""What is refused at once, with its numbers."""

from __future__ import annotations

import pytest

from headway.core.units import ms
from headway.llm.plan.request import SequenceId
from headway.llm.plan.step import End
from headway.llm.plan.step_time import Coefficients
from tests.unit.plan_world import TOKEN, World, prompt

SLOW = Coefficients(step=ms(5), prefill=ms(0.1), decode=ms(0.2))


def refused(world: World, *arguments, **more) -> tuple[str, str]:
    refusal = world.add(1, *arguments, **more)
    assert refusal is not None and world.state.sequences == {} and world.state.requests == {}
    assert world.state.tenants.accounts == {}, "nothing is kept of it"
    return refusal.code, refusal.message


def test_a_prompt_needs_a_token():
    assert refused(World(), []) == ("invalid_prompt", "the prompt must contain at least one token")


def test_max_tokens_must_be_one_at_least():
    assert refused(World(), prompt(5), 0) == ("invalid_max_tokens", "max_tokens must be at least 1, not 0")
    assert refused(World(), prompt(5), -3) == ("invalid_max_tokens", "max_tokens must be at least 1, not -3")
    resumed = refused(World(), prompt(5), 2, output=(8, 9))
    assert resumed == ("invalid_max_tokens", "max_tokens must be at least 3, not 2")


def test_there_must_be_an_answer():
    assert refused(World(), prompt(5), choices=0) == ("invalid_n", "n must be at least 1, not 0")


def test_what_the_context_does_not_hold():
    world = World(max_context=20)
    assert refused(world, prompt(15), 6) == (
        "context_length_exceeded",
        "the prompt has 15 tokens and max_tokens is 6: 21 together, and the context holds 20",
    )
    assert world.add(2, prompt(15), 5) is None


def test_what_the_pool_can_never_hold():
    world = World(blocks=4)
    assert refused(world, prompt(16), 1) == (
        "context_length_exceeded",
        "the prompt has 16 tokens, and with one token of output more it needs 17: the pool holds 16",
    )
    assert refused(world, prompt(10), 100, output=(1,) * 6) == (
        "context_length_exceeded",
        "the prompt has 10 tokens with 6 tokens of output, and with one token of output more it needs 17:"
        " the pool holds 16",
    )
    assert world.add(2, prompt(15), 1) is None


def test_a_first_token_that_cannot_come_in_time():
    world = World(prior=SLOW)
    # 64 tokens: a step of 5 ms and 64 x 0.1 ms
    assert refused(world, prompt(64), first_by=world.now + ms(10)) == (
        "deadline_unmeetable",
        "the first token would come in 11 ms, and 10 ms are left",
    )
    assert world.add(2, prompt(64), first_by=world.now + ms(12)) is None


def test_what_waits_of_the_same_tenant_comes_first_and_what_others_have_does_not_count_but_for_its_part():
    alone, behind = World(prior=SLOW), World(prior=SLOW)
    for id in range(10, 20):
        behind.add(id, prompt(60, start=id), tenant="a")
    by = alone.now + ms(60)
    assert alone.add(1, prompt(64), tenant="a", first_by=by) is None
    refusal = behind.add(1, prompt(64), tenant="a", first_by=by)
    assert refusal is not None and refusal.code == "deadline_unmeetable"
    assert behind.add(2, prompt(64), tenant="b", first_by=by) is None


def test_what_waits_of_less_urgent_classes_is_not_ahead():
    world = World(prior=SLOW)
    for id in range(10, 20):
        world.add(id, prompt(60, start=id), priority=2)
    by = world.now + ms(60)
    assert world.add(1, prompt(64), priority=2, first_by=by) is not None
    assert world.add(1, prompt(64), priority=1, first_by=by) is None


def test_what_is_cached_need_not_be_computed_in_time():
    world = World(prior=SLOW)
    world.add(1, prompt(64))
    world.run()
    assert world.add(2, prompt(64), first_by=world.now + ms(6)) is None
    assert world.add(3, prompt(64), first_by=world.now + ms(6), read_cache=False) is not None


def test_tokens_that_would_come_too_far_apart():
    assert refused(World(prior=SLOW, target_itl=ms(10)), prompt(64), itl=ms(5)) == (
        "deadline_unmeetable",
        "tokens would come 5.2 ms apart, and no more than 5.0 ms are asked for",
    )
    assert World(prior=SLOW, target_itl=ms(10)).add(1, prompt(64), itl=ms(6)) is None


def test_one_that_waits_for_what_another_computes_is_not_given_up_by_what_it_would_take_alone():
    world = World(prior=Coefficients(step=ms(0.1), prefill=ms(0.01), decode=ms(0.01)))
    world.add(1, prompt(200), max_tokens=1)
    world.plan()
    by = world.now + ms(6)  # alone it takes 2.4 ms
    assert world.add(2, [*prompt(200), 7], first_by=by) is None
    while world.state.sequences:
        world.commit()
        world.plan()
    assert End.DEADLINE not in world.ends.values()
    assert world.tokens == {SequenceId(1): [TOKEN], SequenceId(2): [TOKEN] * 4}


@pytest.mark.parametrize("known", ["cached", "under way", "of one that waits", "of another choice"])
def test_what_is_not_to_be_computed_is_not_ahead_of_a_first_token(known: str):
    """Ten prompts of 62 tokens wait, of which all but two are there, or will be: some 20 tokens are ahead, not 620."""
    world = World(blocks=200, prior=SLOW, max_sequences=1, max_step_tokens=32)
    if known == "cached":
        world.add(90, prompt(60), max_tokens=1)
        world.run()
    world.add(99, [*prompt(60), 5] if known == "under way" else prompt(9, start=9), max_tokens=90)
    world.step()
    if known == "of another choice":
        world.add(10, [*prompt(60), 10, 10], choices=10)
    else:
        for id in range(10, 20):
            world.add(id, [*prompt(60), id, id])
    assert world.add(1, prompt(8, start=1), first_by=world.now + ms(60)) is None
    assert world.add(2, [*prompt(60), 7], first_by=world.now + ms(60)) is None
    refused = world.add(3, prompt(200, start=3), first_by=world.now + ms(30))
    assert refused is not None and "and 30 ms are left" in refused.message


def test_what_waits_and_is_known_to_nobody_is_ahead_of_a_first_token():
    world = World(blocks=200, prior=SLOW, max_sequences=1, max_step_tokens=32)
    world.add(99, prompt(9, start=9), max_tokens=90)
    world.step()
    for id in range(10, 20):
        world.add(id, prompt(62, start=id))
    assert world.add(1, prompt(8, start=1), first_by=world.now + ms(60)) is not None
