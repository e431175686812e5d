"""When a batch leaves, and why."""

from __future__ import annotations

from headway.core.effects import DispatchBatch, Reason
from headway.core.events import DrainStarted, MemoryPressureChanged, VersionDrained, WorkerReady, WorkerStarting
from headway.core.ids import Capacity, Measurement, PartRef
from headway.core.policy import BatchPolicy
from headway.core.units import NEVER, ms
from tests.unit.core_world import FLAT, LINEAR, A, B, V, World, arrive, dispatches, members

HOLD = BatchPolicy(max_batch_size=4, max_queue_delay=ms(5), hold=True, deadline_margin=0)


def reasons(effects):
    return [batch.reason for batch in dispatches(effects)]


def test_a_request_beside_an_idle_worker_leaves_at_once():
    world = World()
    assert world.tell(arrive(7)) == [DispatchBatch(0, 1, A, (PartRef(7, 0),), Reason.IDLE)]


def test_a_burst_drained_in_one_call_is_one_decision():
    world = World()
    assert members(world.tell(*(arrive(i) for i in range(16)))) == [list(range(16))]


def test_a_part_batch_leaves_when_its_oldest_request_has_waited_long_enough():
    world = World(HOLD)
    assert world.tell(arrive(7)) == []
    assert world.scheduler.next_wakeup() == ms(5)
    assert world.tell(at=ms(5) - 1) == []
    assert world.tell(at=ms(5)) == [DispatchBatch(0, 1, A, (PartRef(7, 0),), Reason.LINGER)]
    assert world.scheduler.next_wakeup() == NEVER


def test_a_held_batch_leaves_at_once_when_it_is_full():
    world = World(HOLD)
    assert world.tell(arrive(1), arrive(2), arrive(3)) == []
    assert reasons(world.tell(arrive(4))) == [Reason.FULL]


def test_what_is_left_over_from_a_full_batch_is_held_for_its_own_delay():
    world = World(HOLD, workers=2)
    world.tell(arrive(1), arrive(2), arrive(3))
    assert members(world.tell(arrive(4), arrive(5), at=ms(1))) == [[1, 2, 3, 4]]
    assert world.tell(at=ms(6) - 1) == []
    assert members(world.tell(at=ms(6))) == [[5]]


def test_a_held_request_leaves_at_its_latest_safe_start():
    world = World(HOLD)
    world.tell(arrive(1, deadline=ms(14)))
    wake = world.scheduler.next_wakeup()
    assert 0 < wake < ms(5), "10 ms of run time must fit before the deadline"
    assert reasons(world.tell(at=wake)) == [Reason.DEADLINE]


def test_a_batch_that_was_waiting_for_a_worker_until_its_latest_safe_start_says_so():
    world = World(BatchPolicy(deadline_margin=0))
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1, deadline=ms(22)))
    assert reasons(world.complete(running, at=ms(12))) == [Reason.DEADLINE]


def test_draining_flushes_what_is_held():
    for event in (DrainStarted(), VersionDrained(V)):
        world = World(HOLD)
        assert world.tell(arrive(1)) == []
        assert reasons(world.tell(event)) == [Reason.DRAIN]


def test_memory_pressure_flushes_what_is_held():
    world = World(HOLD)
    assert world.tell(arrive(1)) == []
    assert reasons(world.tell(MemoryPressureChanged(True))) == [Reason.MEMORY]


def test_a_held_batch_leaves_at_once_when_its_time_is_full():
    ten_a_row = tuple(Measurement(rows, 8, ms(10) * rows) for rows in (1, 2, 4, 8))
    world = World(BatchPolicy(hold=True, max_queue_delay=ms(50), max_batch_time=ms(30)), cost=ten_a_row)
    assert world.tell(arrive(1)) == []
    effects = world.tell(*(arrive(i) for i in range(2, 8)))
    assert reasons(effects) == [Reason.FULL]
    assert len(members(effects)[0]) == 2, "30 ms at the upper quantile"


def test_held_parts_leave_when_the_warm_up_tells_that_they_fill_a_batch():
    ten_a_row = tuple(Measurement(rows, 8, ms(10) * rows) for rows in (1, 2, 4, 8))
    world = World(BatchPolicy(hold=True, max_queue_delay=ms(50), max_batch_time=ms(30)), workers=0)
    world.tell(WorkerStarting(0, V))
    assert world.tell(*(arrive(i) for i in range(1, 5))) == []
    assert reasons(world.tell(WorkerReady(0, Capacity(1), ten_a_row))) == [Reason.FULL]


def test_a_batch_that_stays_small_because_company_does_not_pay_is_not_full():
    world = World(BatchPolicy(max_batch_tokens=256), cost=LINEAR)
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1, length=200), arrive(2, length=200), arrive(3, length=250))
    assert reasons(world.complete(running)) == [Reason.IDLE]


def test_two_interleaved_signatures_fill_batches_of_their_own():
    world = World(BatchPolicy(max_batch_size=8))
    running = world.tell(arrive(0))
    for i in range(1, 17):
        world.tell(arrive(i, key=A if i % 2 else B))
    first = world.complete(dispatches(running)[0])
    second = world.complete(dispatches(first)[0])
    assert sorted(len(batch) for batch in members(first) + members(second)) == [8, 8]
    assert all(len({i % 2 for i in batch}) == 1 for batch in members(first) + members(second))


def test_a_key_that_holds_its_parts_does_not_block_another_that_is_full():
    world = World(HOLD)
    world.tell(arrive(1, key=A))
    assert members(world.tell(*(arrive(i, key=B) for i in (2, 3, 4, 5)))) == [[2, 3, 4, 5]]


def test_an_earlier_timer_after_a_later_one_is_kept():
    world = World(HOLD, cost=FLAT)
    world.tell(arrive(1, key=A))
    world.tell(arrive(2, key=A, deadline=ms(13.5)), at=ms(0.5))
    assert world.scheduler.next_wakeup() < ms(5)
