"""The cap in bytes: what the members of a batch bring along to the worker."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.admission import shares_of
from headway.core.effects import Reason
from headway.core.events import BatchCompleted, RequestCancelled, VersionConfigured
from headway.core.ids import Measurement, Part
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import ms, us
from tests.unit.core_world import V, World, arrive, dispatches, members, outcomes

CAP = BatchPolicy(max_batch_bytes=100)
HELD = BatchPolicy(max_batch_bytes=100, hold=True, max_queue_delay=ms(5), deadline_margin=0)


def behind_a_running_batch(world, *arrivals):
    """What is dispatched when the worker gets free while `arrivals` wait."""
    running = dispatches(world.tell(arrive(0)))[0]
    assert world.tell(*arrivals) == []
    return dispatches(world.complete(running))[0]


def requests(batch):
    return [ref.request for ref in batch.parts]


def test_a_joiner_that_would_exceed_the_cap_stays_out_and_the_batch_is_full():
    batch = behind_a_running_batch(World(CAP), arrive(1, size=40), arrive(2, size=50), arrive(3, size=11))
    assert (requests(batch), batch.reason) == ([1, 2], Reason.FULL)


def test_a_batch_that_reaches_the_cap_exactly_is_allowed_and_full():
    batch = behind_a_running_batch(World(CAP), arrive(1, size=40), arrive(2, size=60))
    assert (requests(batch), batch.reason) == ([1, 2], Reason.FULL)


def test_a_batch_below_the_cap_is_not_full():
    batch = behind_a_running_batch(World(CAP), arrive(1, size=40), arrive(2, size=59))
    assert (requests(batch), batch.reason) == ([1, 2], Reason.IDLE)


def test_without_a_cap_bytes_do_not_matter():
    batch = behind_a_running_batch(World(), arrive(1, size=1 << 20), arrive(2, size=1 << 20))
    assert requests(batch) == [1, 2]


def test_one_row_beyond_the_cap_goes_alone_and_nobody_joins_it():
    world = World(CAP)
    first = behind_a_running_batch(world, arrive(1, size=101), arrive(2, size=0), arrive(3, size=1))
    assert requests(first) == [1]
    assert members(world.complete(first)) == [[2, 3]]


def test_members_that_are_given_back_take_their_bytes_along():
    """Three cost in a batch what they cost one by one, so the block on trial is dropped; it had reached the cap."""
    fixed_sizes = tuple(Measurement(rows, 8, ms(2) if rows == 1 else ms(6)) for rows in (1, 2, 4, 8))
    world = World(BatchPolicy(max_batch_bytes=120), cost=fixed_sizes)
    batch = behind_a_running_batch(world, *(arrive(i, size=40) for i in (1, 2, 3)))
    assert (requests(batch), batch.reason) == ([1], Reason.IDLE)


def test_the_parts_of_a_request_share_its_bytes():
    world = World(CAP)
    first = behind_a_running_batch(world, arrive(1, size=120, parts=(Part(1, 8),) * 3))
    assert requests(first) == [1, 1], "40 bytes each"
    assert members(world.complete(first)) == [[1]]


def test_a_part_of_several_rows_beyond_the_cap_is_refused_with_the_numbers():
    world = World(CAP)
    (refusal,) = world.tell(arrive(1, rows=3, size=101))
    assert refusal.outcome is Outcome.TOO_LARGE
    assert "3 rows of length 8, 101 bytes," in refusal.detail and "(32 rows, 100 bytes)" in refusal.detail
    by_its_share = arrive(2, size=150, parts=(Part(1, 8), Part(3, 8)))
    assert outcomes(world.tell(by_its_share)) == {2: Outcome.TOO_LARGE}, "112 of the 150 bytes"
    assert members(world.tell(arrive(3, rows=3, size=100))) == [[3]]


def test_a_part_that_waited_already_goes_alone_under_a_cap_that_was_lowered():
    world = World()
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1, rows=3, size=500), arrive(2, size=1))
    world.tell(VersionConfigured(V, CAP))
    assert members(world.complete(running)) == [[1]]


def test_held_parts_leave_at_once_when_their_bytes_fill_a_batch():
    world = World(HELD)
    assert world.tell(arrive(1, size=60)) == []
    (batch,) = dispatches(world.tell(arrive(2, size=40)))
    assert (requests(batch), batch.reason) == ([1, 2], Reason.FULL)


def test_bytes_that_left_by_cancellation_do_not_fill_a_held_batch():
    world = World(HELD)
    world.tell(arrive(1, size=60))
    world.tell(RequestCancelled(1))
    assert world.tell(arrive(2, size=60)) == []
    assert members(world.tell(arrive(3, size=40))) == [[2, 3]]


def test_what_is_left_of_a_full_batch_is_held_for_its_own_bytes():
    world = World(HELD, workers=2)
    assert members(world.tell(arrive(1, size=60), arrive(2, size=60))) == [[1]]
    assert members(world.tell(arrive(3, size=40))) == [[2, 3]]


def test_nobody_waits_for_company_that_the_cap_leaves_no_room_for():
    every_size = tuple(Measurement(rows, 8, ms(10)) for rows in (1, 2, 8, 32))

    def busy_among_four(policy):
        world = World(policy, workers=4, cost=every_size)
        for i in range(1000, 1200):
            world.now += us(200)
            for running in dispatches(world.tell(arrive(i))):
                world.complete(running)
        assert dispatches(world.tell(arrive(0), at=world.now + us(200)))
        return dispatches(world.tell(arrive(1, size=100), at=world.now + us(200)))

    assert busy_among_four(BatchPolicy()) == []
    assert busy_among_four(CAP) != []


def test_a_restored_scheduler_knows_the_bytes_of_parts_that_wait_and_of_those_that_are_given_up():
    world = World(HELD)
    (running,) = dispatches(world.tell(arrive(0, size=100)))
    world.tell(arrive(1, size=90, parts=(Part(1, 8), Part(2, 8))), RequestCancelled(0))
    text = json.dumps(world.scheduler.snapshot())
    twin = Scheduler.restore(json.loads(text))
    twin.check()
    assert json.dumps(twin.snapshot()) == text
    events = [BatchCompleted(0, running.batch, ms(10)), arrive(2, size=10)]
    effects = world.tell(*events)
    assert [batch.reason for batch in dispatches(effects)] == [Reason.FULL]
    assert twin.handle(events, world.now) == effects


@pytest.mark.parametrize(
    ("size", "parts", "shares"),
    [
        (100, [(3, 7)], [100]),
        (100, [(1, 10), (3, 10)], [25, 75]),
        (90, [(1, 10), (1, 20)], [30, 60]),
        (100, [(1, 8)] * 3, [33, 33, 33]),
        (2, [(1, 8)] * 3, [0, 0, 0]),
        (9, [(1, 0), (1, 0)], [0, 0]),
        (0, [(1, 8), (1, 9)], [0, 0]),
    ],
)
def test_a_part_has_its_share_of_the_bytes_by_rows_and_length(size, parts, shares):
    assert shares_of(size, [Part(*part) for part in parts]) == shares


@given(st.integers(0, 1 << 40), st.lists(st.builds(Part, st.integers(1, 9), st.integers(1, 999)), min_size=1))
def test_shares_are_whole_and_together_all_but_a_byte_a_part(size, parts):
    shares = shares_of(size, parts)
    assert all(isinstance(share, int) for share in shares)
    assert size - len(parts) < sum(shares) <= size
