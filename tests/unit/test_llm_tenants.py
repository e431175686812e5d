"""Whose turn it is, what is charged, and who is forgotten."""

from __future__ import annotations

from headway.llm.plan.policy import UNIT
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.tenants import FEW, Service, Tenants
from tests.unit.plan_world import World, prompt, runs, sequence


def served(world: World) -> dict[str, int]:
    return {tenant: account.served for tenant, account in world.state.tenants.accounts.items()}


def counter(world: World, tenant: str) -> float:
    return world.state.tenants.accounts[tenant].counter / UNIT


def test_a_prompt_costs_one_a_token_and_output_two():
    world = World()
    world.add(1, prompt(10), max_tokens=3)
    world.run()
    assert served(world) == {"a": 10 + 2 * 3}


def test_a_prompt_is_charged_chunk_by_chunk_and_counts_for_turns_at_once():
    world = World(blocks=128, max_step_tokens=40)
    world.add(1, prompt(100))
    account = world.of(1).account
    seen = []
    for _ in range(3):
        world.plan()
        seen.append((account.counter // UNIT, account.turn // UNIT))
        world.commit()
    assert seen == [(0, 100), (40, 100), (80, 100)]


def test_what_was_found_in_the_cache_costs_nothing():
    world = World()
    world.add(1, prompt(13), max_tokens=1)
    world.run()
    world.add(2, prompt(13), max_tokens=1)
    world.run()
    assert served(world) == {"a": 13 + 2 + 1 + 2}


def test_all_choices_share_one_prompt_in_the_bill():
    world = World()
    world.add(1, prompt(13), max_tokens=2, choices=3)
    world.run()
    assert served(world) == {"a": 13 + 3 * 2 * 2}


def test_what_is_computed_again_is_charged_to_nobody():
    world = World()
    world.add(1, prompt(13), max_tokens=5, tenant="b")
    world.add(2, prompt(13, start=1), max_tokens=5)
    world.step()
    world.step()
    world.state.preempt(world.of(2), "growth")
    world.run()
    assert served(world)["a"] == 13 + 2 * 5


def test_what_ran_of_an_aborted_one_is_charged_and_no_more():
    world = World(blocks=128, max_step_tokens=40)
    world.add(1, prompt(100))
    world.step()
    world.planner.abort(1)
    world.planner.check()
    assert served(world) == {"a": 40} and world.state.tenants.accounts["a"].reserved == 0


def test_a_weight_of_two_is_half_the_counter():
    world = World(weight=lambda tenant: 2.0 if tenant == "a" else 1.0)
    for id, tenant in ((1, "a"), (2, "b")):
        world.add(id, prompt(10, start=id), max_tokens=3, tenant=tenant)
    world.run()
    assert (counter(world, "a"), counter(world, "b")) == (8.0, 16.0)


def test_the_least_counter_is_next_whoever_came_first():
    world = World(max_sequences=1)
    for id in range(1, 4):
        world.add(id, prompt(10, start=id), max_tokens=2, tenant="a")
    world.step()
    world.add(4, prompt(10, start=4), max_tokens=2, tenant="b")
    served_in_turn = []
    while world.state.sequences:
        world.step()
        served_in_turn += [id for id in runs(world) if id not in served_in_turn]
    assert served_in_turn == [4, 2, 3], "b is lifted to a's turn, which has grown by then"


def test_nobody_is_skipped_for_want_of_room():
    world = World(blocks=12, admit="unlimited", max_step_tokens=64)
    world.add(1, prompt(30), max_tokens=4, tenant="a")
    world.step()
    world.add(2, prompt(30, start=2), max_tokens=4, tenant="b")
    world.add(3, prompt(4, start=3), max_tokens=4, tenant="a")
    world.step()
    assert runs(world) == [1], "b is next, and has no room; a's would have"


def test_within_a_tenant_the_class_then_arrival():
    world = World(max_sequences=1)
    for id, priority in ((1, 0), (2, 1), (3, 0), (4, 1), (5, 0)):
        world.add(id, prompt(4, start=id), max_tokens=1, priority=priority)
    world.run()
    assert [id.request for id in world.ends] == [1, 3, 5, 2, 4]


# -- coming back -------------------------------------------------------------------------------


def waiting(tenants: Tenants, number: int, tenant: str) -> None:
    each = sequence(number, tenant=tenant)
    each.account = tenants.account(tenant)
    tenants.waits(each, tenant)


def leaves(tenants: Tenants, tenant: str) -> None:
    tenants.waits_no_more(tenants.accounts[tenant])


def test_who_returns_while_others_wait_is_lifted_to_the_least_of_them():
    tenants = Tenants(lambda tenant: 1.0)
    waiting(tenants, 1, "a")
    waiting(tenants, 2, "b")
    tenants.charge(tenants.accounts["a"], 100)
    tenants.charge(tenants.accounts["b"], 70)
    waiting(tenants, 9, "new")
    assert tenants.accounts["new"].counter == 70 * UNIT


def test_who_returns_while_nobody_waits_is_lifted_to_whoever_left_the_queue_last():
    tenants = Tenants(lambda tenant: 1.0)
    waiting(tenants, 1, "a")
    waiting(tenants, 2, "b")
    tenants.charge(tenants.accounts["a"], 100)
    tenants.charge(tenants.accounts["b"], 70)
    leaves(tenants, "a")
    leaves(tenants, "b")
    waiting(tenants, 9, "new")
    assert tenants.accounts["new"].counter == 70 * UNIT


def test_nobody_is_ever_lowered():
    tenants = Tenants(lambda tenant: 1.0)
    waiting(tenants, 1, "a")
    tenants.charge(tenants.accounts["a"], 500)
    leaves(tenants, "a")
    waiting(tenants, 2, "b")
    waiting(tenants, 3, "a")
    assert tenants.accounts["a"].counter == 500 * UNIT


# -- the server's counter ---------------------------------------------------------------------


def test_what_was_served_is_reported_once_and_the_answer_is_built_upon():
    tenants = Tenants(lambda tenant: 1.0)
    waiting(tenants, 1, "a")
    account = tenants.accounts["a"]
    tenants.charge(account, 10)
    assert tenants.report(1) == [Service("a", 10, 0)] and tenants.report(2) == [Service("a", 0, 0)]
    tenants.charge(account, 5)
    assert tenants.report(3) == [Service("a", 5, 0)]
    tenants.charge(account, 1)
    tenants.learn([("a", 1_000), ("never heard of", 5)], 2)
    assert account.counter == 1_006 * UNIT, "what the third report tells is not in the server's value yet"
    tenants.learn([("a", 1_005)], 3)
    assert account.counter == 1_006 * UNIT and tenants.report(4) == [Service("a", 1, 0)]


def test_what_is_yet_to_be_charged_is_reported_without_regard_to_weight():
    tenants = Tenants(lambda tenant: 3.0)
    waiting(tenants, 1, "a")
    tenants.accounts["a"].reserved = tenants.accounts["a"].units(700)
    tenants.charge(tenants.accounts["a"], 100)
    assert tenants.report(1) == [Service("a", 100, 700)]


def test_under_a_server_nobody_is_lifted_here():
    tenants = Tenants(lambda tenant: 1.0)
    waiting(tenants, 1, "a")
    tenants.learn([("a", 500)], 0)
    waiting(tenants, 2, "b")
    assert tenants.accounts["b"].counter == 0, "it may have been waiting there all the time"


def test_the_server_may_know_better_whose_turn_it_is():
    tenants = Tenants(lambda tenant: 1.0)
    waiting(tenants, 1, "a")
    waiting(tenants, 2, "b")
    tenants.learn([("a", 7), ("b", 3)], 0)
    assert tenants.first() is tenants.accounts["b"]
    tenants.learn([("b", 9)], 0)
    assert tenants.first() is tenants.accounts["a"]


def test_weights_that_change_hold_for_what_comes():
    weights = {"a": 1.0}
    tenants = Tenants(lambda tenant: weights[tenant])
    waiting(tenants, 1, "a")
    account = tenants.accounts["a"]
    tenants.charge(account, 10)
    weights["a"] = 4.0
    tenants.reweigh()
    tenants.charge(account, 8)
    assert account.counter == 12 * UNIT and tenants.weights == 4.0


# -- who is forgotten -------------------------------------------------------------------------


def once(world: World, count: int) -> int:
    """So many tenants that come once, some at a time; the most accounts that there ever were."""
    most = 0
    for id in range(1, count + 1):
        world.planner.add(request(id), world.now)
        most = max(most, len(world.state.tenants.accounts))
        if id % 50 == 0:
            while world.state.sequences:
                world.planner.commit([5] * len(world.planner.plan(0).rows), 0)
    return most


def request(id: int) -> SequenceRequest:
    return SequenceRequest(id, f"tenant {id}", [id], 1)


def test_a_hundred_thousand_tenants_that_come_once_leave_nothing():
    world = World(blocks=128, max_sequences=64, max_step_tokens=128)
    assert once(world, 100_000) < 8 * FEW
    pool = world.state.pool
    assert (pool.held, pool.idle, world.state.requests, world.state.later) == ({}, {}, {}, {})
    assert len(world.state.tenants._agenda._heap) < 4 * FEW


def test_who_is_ahead_is_not_forgotten():
    tenants = Tenants(lambda tenant: 1.0)
    waiting(tenants, 1, "ahead")
    waiting(tenants, 2, "b")
    tenants.charge(tenants.accounts["ahead"], 1_000)
    leaves(tenants, "ahead")
    tenants.forget_idle()
    assert list(tenants.accounts) == ["ahead", "b"]


def test_who_was_served_is_remembered_until_the_server_knows():
    tenants = Tenants(lambda tenant: 1.0)
    tenants.report(1)
    waiting(tenants, 1, "a")
    tenants.charge(tenants.accounts["a"], 10)
    leaves(tenants, "a")
    tenants.forget_idle()
    assert tenants.report(2) == [Service("a", 10, 0)]
    tenants.forget_idle()
    assert list(tenants.accounts) == ["a"]
    tenants.learn([("a", 10)], 2)
    tenants.forget_idle()
    assert tenants.accounts == {}


def test_deadlines_far_ahead_keep_nobody_who_is_over():
    world = World()
    for id in range(1, 1_001):
        world.add(id, [id], max_tokens=1, first_by=1 << 60)
        if id % 8 == 0:
            world.run()
    assert len(world.planner._starts) < 200


# -- taken back -------------------------------------------------------------------------------


def test_what_is_taken_back_goes_on_elsewhere_and_its_prompt_is_not_paid_for_twice():
    one, other = World(blocks=128, max_step_tokens=40), World(blocks=128)
    one.add(1, prompt(100), max_tokens=4)
    one.step()
    one.state.preempt(one.of(1), "class")
    moved = one.planner.take_back(SequenceId(1))
    assert moved is not None and one.state.sequences == {} == one.state.requests
    assert one.planner.take_back(SequenceId(1)) is None
    assert other.planner.add(moved, other.now) is None
    other.run()
    assert served(one)["a"] + served(other)["a"] == 100 + 2 * 4


def test_with_output_it_goes_on_where_it_was():
    one, other = World(), World()
    one.add(1, prompt(10), max_tokens=5)
    one.step()
    one.step()
    assert one.planner.take_back(SequenceId(1)) is None, "it runs"
    one.state.preempt(one.of(1), "growth")
    moved = one.planner.take_back(SequenceId(1))
    assert moved is not None and (moved.output, moved.max_tokens, len(moved.prompt)) == ((500, 500), 5, 10)
    other.planner.add(moved, other.now)
    plan = other.plan()
    assert (plan.rows[0].size, plan.rows[0].samples) == (12, True)
    (first,) = other.planner.commit([7], other.now)
    assert first.position == 2


def test_choices_are_taken_back_one_by_one_and_come_together_again_elsewhere():
    one, other = World(max_sequences=1), World()
    one.add(1, prompt(10), max_tokens=2, choices=3)
    one.step()
    for choice in (1, 2):
        moved = one.planner.take_back(SequenceId(1, choice))
        assert moved is not None and moved.choices == 1
        assert other.planner.add(moved, other.now, choice) is None
    other.run()
    one.run()
    assert list(one.tokens) == [SequenceId(1, 0)] and list(other.tokens) == [SequenceId(1, 1), SequenceId(1, 2)]
    assert served(one)["a"] + served(other)["a"] == 10 + 3 * 2 * 2


def comes_back(one: World) -> list[list[int]]:
    """Whose tokens come of two plans: in the first is a row of one that has gone since, and is back."""
    one.add(1, prompt(10), max_tokens=5)
    one.add(2, prompt(10, start=1), max_tokens=5)
    one.plan()
    one.state.preempt(one.of(2), "class")
    one.state.preempted.clear()
    moved = one.planner.take_back(SequenceId(2))
    assert moved is not None and one.planner.add(moved, one.now) is None
    one.plan()
    return [[each.id.request for each in one.commit()] for _ in range(2)]


def test_one_that_comes_back_is_not_given_what_was_sampled_for_it_before_it_left():
    assert comes_back(World()) == [[1], [1, 2]]
