"""With whom a batch leaves."""

from __future__ import annotations

import pytest

from headway.core.cost import CostModel
from headway.core.events import BatchCompleted, RequestCancelled, VersionConfigured
from headway.core.ids import Measurement, Part
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import ms
from tests.unit.core_world import LINEAR, A, B, V, World, arrive, dispatches, members


def waiting_behind(world, *arrivals):
    """What is dispatched when the worker gets free of request 0 while `arrivals` wait."""
    running = dispatches(world.tell(arrive(0)))[0]
    assert world.tell(*arrivals) == []
    return members(world.complete(running))[0]


def test_where_32_cost_as_much_as_one_the_batch_is_filled():
    world = World()
    assert len(waiting_behind(world, *(arrive(i, length=i) for i in range(1, 41)))) == 32


def test_a_queue_for_fixed_kernel_sizes_is_cut_at_the_size_that_serves_it_best():
    """24 more rows beside 8 take 18 ms more, and 24 together as much again as all 32; three batches of 8 take 18."""
    kernels = {1: 2, 2: 6, 4: 6, 8: 6, 16: 12, 32: 24}
    cost = tuple(Measurement(rows, length, ms(took)) for rows, took in kernels.items() for length in (1, 8, 64))
    assert len(waiting_behind(World(cost=cost), *(arrive(i) for i in range(1, 101)))) == 8


def test_where_every_padded_token_costs_the_same_strangers_in_length_stay_apart():
    world = World(cost=LINEAR)
    assert waiting_behind(world, arrive(1, length=20), arrive(2, length=200)) == [1]


def test_neighbours_in_length_are_preferred_to_earlier_arrivals():
    some_fixed_cost = tuple(
        Measurement(rows, length, ms(8) + ms(0.1) * rows * length) for rows in (1, 4, 16) for length in (8, 64, 256)
    )
    world = World(BatchPolicy(max_batch_size=2), cost=some_fixed_cost)
    assert waiting_behind(world, arrive(1, length=40), arrive(2, length=200), arrive(3, length=41)) == [1, 3]


def test_the_cap_in_rows_counts_rows_and_not_parts():
    world = World(BatchPolicy(max_batch_size=8))
    assert waiting_behind(world, arrive(1, rows=4), arrive(2, rows=3), arrive(3, rows=4)) == [1, 2]


def test_the_cap_in_tokens_counts_padding():
    world = World(BatchPolicy(max_batch_tokens=100))
    assert waiting_behind(world, arrive(1, length=10), arrive(2, length=60), arrive(3, length=10)) == [1, 3]


def test_where_nothing_is_padded_the_cap_in_tokens_counts_the_sum_of_lengths():
    world = World(BatchPolicy(max_batch_tokens=100, unpadded=True))
    assert waiting_behind(world, arrive(1, length=10), arrive(2, length=60), arrive(3, length=10)) == [1, 2, 3]
    world = World(BatchPolicy(max_batch_tokens=79, unpadded=True))
    assert waiting_behind(world, arrive(1, length=10), arrive(2, length=60), arrive(3, length=10)) == [1, 2]


def test_where_nothing_is_padded_strangers_in_length_share_what_every_batch_costs():
    """Padded, 20 beside 200 costs 180 tokens more; unpadded the second saves the 8 ms of a batch of its own."""
    some_fixed_cost = tuple(
        Measurement(rows, length, ms(8) + ms(0.1) * rows * length) for rows in (1, 4, 16) for length in (8, 64, 256)
    )
    strangers = (arrive(1, length=20), arrive(2, length=200))
    assert waiting_behind(World(cost=some_fixed_cost), *strangers) == [1]
    many = [arrive(number, length=20) for number in range(3, 12)]
    world = World(BatchPolicy(unpadded=True), cost=some_fixed_cost)
    assert 2 in waiting_behind(world, *strangers, *many)
    padded = waiting_behind(World(cost=some_fixed_cost), *strangers, *many)
    assert 2 not in padded


def test_where_nothing_is_padded_a_batch_is_learned_from_as_one_of_its_mean_length(monkeypatch: pytest.MonkeyPatch):
    world = World(BatchPolicy(max_batch_size=2, hold=True, max_queue_delay=0, unpadded=True))
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1, length=10), arrive(2, length=91))
    (batch,) = dispatches(world.complete(running))
    assert [ref.request for ref in batch.parts] == [1, 2]
    observed: list[tuple[int, int]] = []
    monkeypatch.setattr(CostModel, "observe", lambda cost, rows, length, took: observed.append((rows, length)))
    world.complete(batch)
    assert observed == [(2, 51)]


def test_the_cap_in_time_uses_the_upper_quantile():
    ten_a_row = tuple(Measurement(rows, 8, ms(10) * rows) for rows in (1, 2, 4, 8))
    world = World(BatchPolicy(max_batch_time=ms(35), hold=True, max_queue_delay=0), cost=ten_a_row)
    assert len(waiting_behind(world, *(arrive(i) for i in range(1, 9)))) == 3


def test_company_may_not_make_a_member_late():
    ten_a_row = tuple(Measurement(rows, 8, ms(8) + ms(2) * rows) for rows in (1, 2, 4, 8))
    world = World(BatchPolicy(deadline_margin=0, shed=False), cost=ten_a_row)
    batch = waiting_behind(world, arrive(1, deadline=ms(15)), *(arrive(i) for i in range(2, 9)))
    assert batch[0] == 1
    assert len(batch) == 3, "8 + 2 * 3 = 14 ms, and a little for the upper quantile"


def test_company_may_not_make_the_joiner_or_the_head_of_another_key_late():
    ten_a_row = tuple(Measurement(rows, 8, ms(8) + ms(2) * rows) for rows in (1, 2, 4, 8))
    world = World(BatchPolicy(deadline_margin=0, shed=False), cost=ten_a_row)
    assert waiting_behind(world, arrive(1), arrive(2, deadline=ms(11))) in ([1], [2])
    world = World(BatchPolicy(deadline_margin=0, shed=False), cost=ten_a_row)
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(*(arrive(i, deadline=ms(24)) for i in range(1, 9)), arrive(9, key=B, deadline=ms(26)))
    first = members(world.complete(running))[0]
    assert 9 not in first
    assert len(first) == 3, "8 + 2 * 3 = 14 ms leaves 12 for the one of the other key"


def test_shapes_that_have_come_and_gone_do_not_hide_the_head_of_another_key():
    ten_a_row = tuple(Measurement(rows, 8, ms(8) + ms(2) * rows) for rows in (1, 2, 4, 8))
    world = World(BatchPolicy(deadline_margin=0, shed=False), cost=ten_a_row)
    for i in range(1000, 1040):
        running = dispatches(world.tell(arrive(i, key=A._replace(signature=f"shape-{i}"))))[0]
        world.complete(running)
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(*(arrive(i, deadline=ms(24)) for i in range(1, 9)), arrive(9, key=B, deadline=ms(26)))
    twin = Scheduler.restore(world.scheduler.snapshot())
    effects = world.complete(running)
    assert twin.handle([BatchCompleted(0, running.batch, ms(10))], world.now) == effects
    first = members(effects)[0]
    assert 9 not in first
    assert len(first) == 3, "as if the forty had never been"


def test_a_request_of_many_parts_is_batched_with_everybody_elses():
    world = World(BatchPolicy(max_batch_size=4))
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1, parts=tuple(Part(1, 8) for _ in range(6))), arrive(2))
    first = dispatches(world.complete(running))[0]
    assert [(ref.request, ref.part) for ref in first.parts] == [(1, 0), (1, 1), (1, 2), (1, 3)]
    assert members(world.complete(first)) == [[1, 1, 2]]


def test_every_request_is_served_when_lengths_never_match():
    world = World(cost=LINEAR)
    running = dispatches(world.tell(arrive(0)))
    world.tell(*(arrive(i, length=1 + (i * 97) % 256) for i in range(1, 60)))
    served = []
    while running:
        effects = world.complete(running.pop(0), at=world.now + ms(50))
        running += dispatches(effects)
        served += [ref.request for batch in dispatches(effects) for ref in batch.parts]
    assert sorted(served) == list(range(1, 60))
    assert world.scheduler.is_idle()


def test_where_padding_changes_answers_only_equal_lengths_go_together_also_of_one_request():
    world = World(BatchPolicy(equal_lengths=True))
    request = arrive(1, parts=(Part(1, 7), Part(1, 9), Part(2, 7), Part(1, 9), Part(1, 9)))
    running = dispatches(world.tell(arrive(0)))[0]
    assert world.tell(request, arrive(2, length=9), arrive(3, length=7)) == []
    first = world.complete(running)
    assert members(first) == [[1, 1, 3]], "all of length 7, the other request's too"
    assert sorted(members(world.complete(dispatches(first)[0]))[0]) == [1, 1, 1, 2]


def test_what_waits_is_kept_apart_by_length_as_soon_as_that_is_the_rule():
    world = World(BatchPolicy())
    running = dispatches(world.tell(arrive(0)))[0]
    assert world.tell(arrive(1, length=7), arrive(2, length=9), arrive(3, length=7)) == []
    world.tell(VersionConfigured(V, BatchPolicy(equal_lengths=True)))
    assert members(world.complete(running)) == [[1, 3]]


def test_one_that_is_given_up_leaves_the_queue_of_its_length():
    world = World(BatchPolicy(equal_lengths=True))
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1, length=7), arrive(2, length=9), arrive(3, length=7))
    world.tell(RequestCancelled(1))
    assert members(world.complete(running))[0] == [2]


def test_where_nothing_is_padded_a_long_one_joins_short_ones_for_its_own_tokens_alone():
    cost = tuple(
        Measurement(rows, length, ms(20) + ms(0.02) * rows * length) for rows in (1, 4, 16) for length in (8, 64, 256)
    )
    for unpadded, first in ((True, [1, 2, 3, 4]), (False, [1, 2, 3])):
        world = World(BatchPolicy(unpadded=unpadded), cost=cost)
        short = (arrive(number, length=8) for number in (1, 2, 3))
        assert sorted(waiting_behind(world, *short, arrive(4, length=250))) == first
