"""The fine points at which planners of other servers have failed: each has a test that bears its name."""

from __future__ import annotations

import pytest

from headway.llm.plan.policy import Admit
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.step import End
from headway.llm.plan.victims import IMMUNE_AFTER
from tests.unit.plan_world import TOKEN, World, prompt, runs, sizes, waits

# -- what does not fit -----------------------------------------------------------------------


def test_prompt_that_can_never_fit_is_refused_at_once_with_both_numbers():
    world = World(blocks=4)
    refused = world.add(1, prompt(16), max_tokens=1)
    assert refused is not None and refused.code == "context_length_exceeded"
    assert "needs 17" in refused.message and "holds 16" in refused.message
    assert world.plan().rows == [] and world.state.sequences == {}


def test_prompt_that_can_never_fit_since_the_pool_has_shrunk_is_told_so_and_blocks_nobody():
    world = World(blocks=16, max_sequences=1)
    world.add(1, prompt(4), max_tokens=20)
    world.add(2, prompt(50, start=1))
    world.add(3, prompt(5, start=2))
    world.step()
    world.planner.resize(8)
    world.run()
    assert world.ends == {SequenceId(1): End.LENGTH, SequenceId(2): End.TOO_LONG, SequenceId(3): End.LENGTH}


def test_prompt_fits_and_max_tokens_does_not_ends_with_length_at_the_wall():
    world = World(blocks=4)
    assert world.add(1, prompt(10), max_tokens=100) is None
    world.run()
    assert world.ends == {SequenceId(1): End.LENGTH}
    assert len(world.tokens[SequenceId(1)]) == 16 + 1 - 10, "16 are computed, and the last of them brings one more"


def test_prompt_and_max_tokens_beyond_the_context_are_refused_and_nothing_is_clamped():
    world = World(max_context=20)
    refused = world.add(1, prompt(15), max_tokens=6)
    assert refused is not None and "21 together, and the context holds 20" in refused.message


@pytest.mark.parametrize("admit", list(Admit))
@pytest.mark.parametrize("ahead", [False, True])
def test_two_that_each_hold_a_part_and_both_need_more_do_not_deadlock(admit: Admit, ahead: bool):
    world = World(blocks=8, admit=admit)
    for id in (1, 2):
        world.add(id, prompt(14, start=id), max_tokens=14)
    for _ in range(300):
        if not world.state.sequences:
            break
        if ahead and not world.plans:
            world.plan()
        world.plan()
        while world.plans:
            world.commit()
    assert world.ends == {SequenceId(1): End.LENGTH, SequenceId(2): End.LENGTH}
    assert all(len(tokens) == 14 for tokens in world.tokens.values())


def test_admission_gives_a_prompt_all_its_blocks_though_it_is_computed_in_chunks():
    world = World(blocks=64, max_step_tokens=40)
    world.add(1, prompt(100))
    plan = world.step()
    assert sizes(plan) == {1: 40} and len(plan.rows[0].block_table) == 25


def test_the_oldest_is_never_taken_and_can_always_finish_alone():
    world = World(blocks=8, admit=Admit.UNLIMITED)
    world.add(1, prompt(4), max_tokens=28)
    for id in range(2, 6):
        world.add(id, prompt(4, start=id), max_tokens=20)
    planned = []
    while world.state.sequences:
        planned.append(world.step())
    assert SequenceId(1) not in [id for plan in planned for id in plan.preempted]
    assert len(world.tokens[SequenceId(1)]) == 28 and world.state.counts.preemptions["growth"] > 0


def test_the_oldest_gives_way_to_a_strictly_higher_class_twice_and_then_finishes():
    world = World(max_sequences=1)
    world.add(1, prompt(4), max_tokens=28, priority=1)
    taken = []
    for id in range(2, 8):
        world.step()
        world.add(id, prompt(4, start=id), max_tokens=3)
        for _ in range(4):
            taken += world.step().preempted
    world.run()
    assert taken == [SequenceId(1)] * IMMUNE_AFTER
    assert len(world.tokens[SequenceId(1)]) == 28 and len(world.ends) == 7


def test_lone_running_request_that_cannot_grow_ends_with_length_and_the_next_one_runs():
    world = World(blocks=4)
    world.add(1, prompt(13), max_tokens=50)
    world.add(2, prompt(12, start=1), max_tokens=2)
    world.run()
    assert {id.request: (end, len(world.tokens[id])) for id, end in world.ends.items()} == {
        1: (End.LENGTH, 4),
        2: (End.LENGTH, 2),
    }


def test_decode_of_a_huge_batch_in_a_tiny_pool_leaves_a_block_for_the_growth_of_those_that_run():
    world = World(blocks=32, max_sequences=32, admit=Admit.UNLIMITED)
    for id in range(1, 33):
        world.add(id, prompt(4, start=id), max_tokens=12)
    world.step()
    growing = -(-len(world.state.running) // world.state.block_size)
    assert world.state.pool.available >= growing - 1
    world.run()
    assert all(len(tokens) == 12 for tokens in world.tokens.values()) and len(world.tokens) == 32


# -- preemption ------------------------------------------------------------------------------


def thrash() -> World:
    world = World(blocks=10, admit=Admit.UNLIMITED)
    for id in range(1, 7):
        world.add(id, prompt(6, start=id), max_tokens=25)
    return world


def test_preempt_thrash_is_bounded_nobody_is_taken_a_third_time_while_others_run():
    world = thrash()
    seen: dict[int, int] = {}
    while world.state.sequences:
        for id in world.step().preempted:
            seen[id.request] = seen.get(id.request, 0) + 1
    assert max(seen.values()) <= IMMUNE_AFTER + 1 and sum(seen.values()) < 20
    assert all(len(tokens) == 25 for tokens in world.tokens.values())


def test_preempt_thrash_nobody_is_admitted_in_the_pass_in_which_it_was_preempted():
    world = thrash()
    while world.state.sequences:
        plan = world.step()
        running = list(world.state.running)
        assert not [id for id in plan.preempted if id in running]


def test_preempted_ones_resume_before_anything_new_of_their_class():
    world = World(blocks=12, admit=Admit.UNLIMITED)
    world.add(1, prompt(15), max_tokens=20, tenant="a")
    world.add(2, prompt(15, start=1), max_tokens=20, tenant="b")
    taken = False
    while not taken:
        taken = SequenceId(2) in world.step().preempted
    world.add(3, prompt(3, start=2), max_tokens=2, tenant="new")
    while SequenceId(2) not in world.state.running:
        assert SequenceId(3) not in world.state.running and SequenceId(3) not in world.ends
        world.step()
    assert runs(world).index(2) < [*runs(world), 3].index(3)
    world.run()


def test_blocks_of_a_victim_are_really_free_before_they_are_given_to_anybody():
    world = World(blocks=9, admit=Admit.UNLIMITED)
    for id in (1, 2):
        world.add(id, prompt(14, start=id), max_tokens=9)
    world.step()
    world.step()
    tables = {row.id.request: list(row.block_table) for row in world.plan().rows}
    ahead = world.plan()
    assert ahead.preempted == [SequenceId(2)] and [row.id.request for row in ahead.rows] == [1]
    assert len(ahead.rows[0].block_table) == 5 and world.state.pool.available == 0
    assert world.state.leaving == len(tables[2]) == 4, "the plan that runs still uses them"
    assert not [block for block in ahead.rows[0].block_table if block in tables[2]]
    world.commit()
    assert world.state.leaving == 0 and world.state.pool.available == 4


def test_equal_priority_does_not_ping_pong_only_a_strictly_higher_class_displaces():
    world = World(blocks=16, max_sequences=2)
    for id in (1, 2, 3):
        world.add(id, prompt(10, start=id), max_tokens=10, priority=1)
    for _ in range(5):
        world.step()
    assert runs(world) == [1, 2] and world.state.counts.preemptions["class"] == 0
    world.add(4, prompt(10, start=4), max_tokens=3, priority=0)
    plan = world.step()
    assert plan.preempted == [SequenceId(2)] and runs(world) == [1, 4]
    world.run()
    assert sum(world.state.counts.preemptions.values()) == 1


def test_a_strictly_higher_class_with_every_slot_and_block_taken_has_its_first_token_in_two_steps_and_its_own():
    world = World(blocks=16, max_sequences=3, admit=Admit.UNLIMITED)
    for id in (1, 2, 3):
        world.add(id, prompt(16, start=id), max_tokens=20, priority=1)
    for _ in range(3):
        world.step()
    world.plan()
    world.add(9, prompt(12, start=9), max_tokens=3, priority=0)
    steps = 0
    while SequenceId(9) not in world.tokens:
        world.plan()
        world.commit()
        steps += 1
    assert steps <= 3


@pytest.mark.parametrize("ahead", [1, 2])
def test_preempted_stream_goes_on_at_the_next_position_and_nothing_is_sampled_again(ahead: int):
    world = World(blocks=8, admit=Admit.UNLIMITED)
    count = iter(range(1_000))
    world.add(1, prompt(10), max_tokens=18)
    world.add(2, prompt(10, start=1), max_tokens=18)
    while world.state.sequences:
        while len(world.plans) < ahead and world.plan().rows:
            pass
        if world.plans:
            world.commit(lambda id: next(count))
    assert world.state.counts.preemptions["growth"] > 0
    told = sorted(token for tokens in world.tokens.values() for token in tokens)
    assert len(told) == len(set(told)) == 36, "World.commit has seen each position once, in order"


def test_penalties_after_resume_the_prompt_stays_the_prompt_and_output_stays_output():
    world = World(blocks=8, admit=Admit.UNLIMITED)
    world.add(1, prompt(10), max_tokens=18)
    world.add(2, prompt(10, start=1), max_tokens=18)
    while SequenceId(2) not in world.step().preempted:
        pass
    before = world.of(2)
    assert (before.num_prompt, before.produced) == (10, len(world.tokens[SequenceId(2)])) and before.produced > 0
    while SequenceId(2) not in world.state.running:
        world.step()
    assert world.of(2).num_prompt == 10
    moved = World()
    taken = SequenceRequest(5, "a", prompt(10), 18, output=(1, 2, 3))
    moved.planner.add(taken, moved.now)
    assert (moved.of(5).num_prompt, moved.of(5).produced) == (10, 3)


# -- choices, abort, ids ---------------------------------------------------------------------


def test_n_above_one_shares_the_prompt_and_each_choice_ends_once_and_abort_ends_all():
    world = World()
    world.add(1, prompt(14), max_tokens=3, choices=3)
    first = world.step()
    assert sizes(first) == {1: 14} and len(first.rows) == 1, "the others wait for what it computes"
    second = world.step()
    assert [(row.id.choice, row.start) for row in second.rows] == [(0, 14), (1, 12), (2, 12)]
    tables = {row.id.choice: list(row.block_table) for row in second.rows}
    assert tables[0][:3] == tables[1][:3] == tables[2][:3] and tables[0][3] != tables[1][3] != tables[2][3]
    world.run()
    assert {id.choice: end for id, end in world.ends.items()} == {0: End.LENGTH, 1: End.LENGTH, 2: End.LENGTH}
    world.add(2, prompt(14, start=1), choices=3)
    world.step()
    assert world.planner.abort(2)
    world.planner.check()
    assert world.state.sequences == {} == world.state.requests


STAGES = ("waiting", "mid-prefill", "prefill in flight", "decode in flight", "two plans in flight", "preempted")


@pytest.mark.parametrize("stage", STAGES)
def test_abort_in_every_state_frees_all_at_the_step_boundary_and_a_second_one_is_told_so(stage: str):
    world = World(blocks=64, max_step_tokens=40, max_sequences=1 if stage == "waiting" else 8)
    world.add(9, prompt(3, start=9), max_tokens=50)
    world.step()
    world.add(1, prompt(60), max_tokens=9)
    if stage != "waiting":
        world.step()
    if stage == "prefill in flight":
        world.plan()
    if stage in ("decode in flight", "two plans in flight", "preempted"):
        world.step()
        world.step()
    if stage in ("decode in flight", "two plans in flight"):
        world.plan()
    if stage == "two plans in flight":
        world.plan()
    if stage == "preempted":
        world.state.preempt(world.of(1), "class")
    told = len(world.tokens.get(SequenceId(1), ()))
    assert world.planner.abort(1) is True
    assert world.planner.abort(1) is False
    world.planner.check()
    while world.plans:
        world.commit()
    assert len(world.tokens.get(SequenceId(1), ())) == told, "what was in flight is discarded"
    assert world.state.pool.in_use == len(world.of(9).blocks) and world.state.leaving == 0
    world.run()
    assert list(world.ends) == [SequenceId(9)]


def test_abort_racing_finish_is_harmless_in_either_order():
    world = World()
    world.add(1, prompt(5), max_tokens=1)
    world.plan()
    world.commit()
    assert world.ends == {SequenceId(1): End.LENGTH} and world.planner.abort(1) is False
    world.add(2, prompt(5), max_tokens=1)
    world.plan()
    assert world.planner.abort(2) is True
    assert world.commit() == [] and world.planner.abort(2) is False
    world.planner.check()


def test_duplicate_request_ids_are_refused_and_the_first_goes_on():
    world = World()
    world.add(1, prompt(5))
    with pytest.raises(ValueError, match="request 1 is there already"):
        world.add(1, prompt(9))
    with pytest.raises(ValueError, match="request 1 is there already"):
        world.add(1, prompt(9), choices=2)
    world.planner.check()
    world.run()
    assert list(world.ends) == [SequenceId(1)]


# -- lengths ---------------------------------------------------------------------------------


def test_max_tokens_0_is_refused_and_max_tokens_1_needs_no_decode_step():
    world = World()
    assert world.add(1, prompt(5), max_tokens=0) is not None
    world.add(2, prompt(5), max_tokens=1)
    world.plan()
    assert world.plan().rows == [], "the prefill's sample is the only token, also with a plan ahead"
    world.commit()
    assert world.tokens == {SequenceId(2): [TOKEN]} and world.ends == {SequenceId(2): End.LENGTH}


def test_empty_prompt_is_refused():
    refused = World().add(1, [])
    assert refused is not None and refused.message == "the prompt must contain at least one token"


def test_prompt_as_long_as_the_context_is_refused_with_both_numbers():
    refused = World(max_context=20).add(1, prompt(20), max_tokens=1)
    assert refused is not None and "21 together, and the context holds 20" in refused.message


def test_a_prompt_of_one_token_is_a_prefill():
    world = World()
    world.add(1, [3], max_tokens=2)
    assert [(row.start, row.size, row.samples) for row in world.step().rows] == [(0, 1, True)]


# -- the prefix cache ------------------------------------------------------------------------


def test_prompt_logprobs_bypass_reading_the_cache():
    world = World()
    world.add(1, prompt(13))
    world.run()
    world.add(2, prompt(13), read_cache=False)
    assert [(row.start, row.size) for row in world.step().rows] == [(0, 13)]
    world.add(3, prompt(13))
    assert [(row.start, row.size) for row in world.step().rows if row.id.request == 3] == [(12, 1)]


@pytest.mark.parametrize("length", [12, 13, 16])
def test_prefix_hit_equal_to_the_whole_prompt_computes_the_last_token_again(length: int):
    world = World()
    world.add(1, prompt(length), max_tokens=1)
    world.run()
    world.add(2, prompt(length), max_tokens=1)
    (row,) = world.step().rows
    assert row.start == (length - 1) // 4 * 4 and row.start + row.size == length and row.samples


def test_hash_collision_or_another_tenant_is_never_served_what_was_computed_for_other_tokens():
    def same(before: bytes, tokens: tuple[int, ...]) -> bytes:
        return b"x"

    world = World(hash=same)
    world.add(1, prompt(13))
    world.run()
    world.add(2, prompt(13, start=1))
    world.add(3, prompt(13), tenant="b")
    starts = {}
    while world.state.sequences:
        for row in world.step().rows:
            starts.setdefault(row.id.request, row.start)
    assert starts == {2: 0, 3: 0} and world.state.cache.collisions > 0


def test_two_with_the_same_long_beginning_one_computes_and_the_other_hits():
    world = World()
    world.add(1, [*prompt(16), 1, 2])
    world.add(2, [*prompt(16), 3, 4])
    assert sizes(world.step()) == {1: 18} and waits(world, [2])
    assert [(row.id.request, row.start) for row in world.step().rows] == [(1, 18), (2, 16)]


def test_whoever_waits_for_what_another_computes_goes_on_by_itself_where_that_is_aborted():
    world = World(max_step_tokens=40)
    world.add(1, [*prompt(60), 1])
    world.add(2, [*prompt(60), 2])
    world.step()
    assert waits(world, [2])
    world.planner.abort(1)
    assert [(row.id.request, row.start) for row in world.step().rows] == [(2, 40)], "what was computed is found"


# -- steps -----------------------------------------------------------------------------------


def test_chunk_finishing_exactly_at_budget_samples_and_the_next_step_is_a_decode():
    world = World(max_step_tokens=40)
    world.add(1, prompt(80), max_tokens=3)
    first, second, third = world.step(), world.step(), world.step()
    assert [(row.size, row.samples) for plan in (first, second, third) for row in plan.rows] == [
        (40, False),
        (40, True),
        (1, True),
    ]


def test_latches_there_are_none_a_batch_that_was_full_is_full_no_more_once_somebody_has_left():
    world = World(max_sequences=2)
    for id in (1, 2, 3):
        world.add(id, prompt(5, start=id), max_tokens=2 if id == 1 else 9)
    world.step()
    world.step()
    assert SequenceId(1) in world.ends
    world.step()
    assert runs(world) == [2, 3]


def test_the_same_calls_give_the_same_plans():
    def story() -> list[object]:
        world = thrash()
        plans = []
        while world.state.sequences:
            plan = world.step()
            plans.append([(row.id, row.start, row.size, list(row.block_table)) for row in plan.rows])
        return plans

    assert story() == story()


@pytest.mark.parametrize("ahead", [False, True])
def test_max_tokens_0_for_log_probabilities_of_the_prompt_computes_it_and_brings_no_token(ahead: bool):
    world = World(blocks=4, max_context=16, max_step_tokens=12)
    world.add(1, prompt(16), max_tokens=0, read_cache=False)
    rows = []
    while world.state.sequences or world.plans:
        for _ in range(1 + ahead):
            rows += world.plan().rows
        while world.plans:
            assert world.commit() == []
    assert [(row.start, row.size, row.samples) for row in rows] == [(0, 12, False), (12, 4, False)]
    assert world.ends == {SequenceId(1): End.LENGTH} and world.state.pool.in_use == 0
    assert world.state.room.lengths.seen == 0, "it is no answer"
    refused = world.add(2, prompt(17), max_tokens=0, read_cache=False)
    assert refused is not None and "17 together, and the context holds 16" in refused.message


def test_a_prompt_that_is_only_scored_needs_no_room_for_a_token():
    world = World(blocks=4)
    assert world.add(1, prompt(16), max_tokens=0, read_cache=False) is None
    refused = world.add(2, prompt(17), max_tokens=0, read_cache=False)
    assert refused is not None and refused.message == "the prompt has 17 tokens: the pool holds 16"
    refused = world.add(2, prompt(5), max_tokens=0, read_cache=False, choices=2)
    assert refused is not None and refused.message == "n must be 1 where max_tokens is 0, not 2"
    world.planner.resize(4)
    world.run()
    assert world.ends == {SequenceId(1): End.LENGTH}
