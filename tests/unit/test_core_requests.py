"""Every request gets exactly one outcome, at the right time."""

from __future__ import annotations

import pytest

from headway.core.effects import DispatchBatch, ResolveRequest
from headway.core.errors import InvariantViolation
from headway.core.events import (
    BatchCompleted,
    BatchFailed,
    DrainStarted,
    MemoryPressureChanged,
    PartFailure,
    RequestCancelled,
    VersionConfigured,
    VersionDrained,
    WorkerDraining,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
    WorkerStopped,
)
from headway.core.ids import BatchKey, Capacity, Measurement, Part
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, ms, seconds
from tests.unit.core_world import FLAT, V, World, arrive, dispatches, members, outcomes


def test_a_request_completes_when_all_its_parts_have():
    world = World(BatchPolicy(max_batch_size=1), workers=2)
    first, second = dispatches(world.tell(arrive(1, parts=(Part(1, 8), Part(1, 9)))))
    assert world.complete(first) == []
    assert world.complete(second) == [ResolveRequest(1, Outcome.COMPLETED)]
    assert world.scheduler.is_idle()


def test_the_first_failure_of_a_part_ends_the_request_and_its_other_parts():
    world = World(BatchPolicy(max_batch_size=1))
    first = dispatches(world.tell(arrive(1, parts=(Part(1, 8), Part(1, 9)))))[0]
    effects = world.tell(BatchFailed(0, first.batch, ms(1), Outcome.MODEL_ERROR, "boom"))
    assert effects == [ResolveRequest(1, Outcome.MODEL_ERROR, "boom")]
    assert world.scheduler.is_idle()


def test_one_failed_part_leaves_the_rest_of_the_batch_alone():
    world = World()
    running = dispatches(world.tell(arrive(1), arrive(2), arrive(3)))[0]
    failure = PartFailure(1, Outcome.INVALID_INPUT, "no such word")
    effects = world.tell(BatchCompleted(0, running.batch, ms(5), (failure,)))
    assert outcomes(effects) == {1: Outcome.COMPLETED, 2: Outcome.INVALID_INPUT, 3: Outcome.COMPLETED}


@pytest.mark.parametrize("busy", [True, False])
def test_a_deadline_is_kept_to_the_nanosecond_whether_or_not_the_worker_is_busy(busy):
    hold = BatchPolicy(hold=True, max_queue_delay=seconds(9), deadline_margin=-seconds(9))
    world = World(None if busy else hold)
    if busy:
        world.tell(arrive(0))
    world.tell(arrive(1, deadline=ms(50)))
    assert world.scheduler.next_wakeup() == ms(50)
    assert world.tell(at=ms(50) - 1) == []
    assert outcomes(world.tell(at=ms(50))) == {1: Outcome.DEADLINE_EXCEEDED}


def test_a_running_request_expires_at_its_deadline_and_its_late_answer_is_dropped():
    world = World()
    running = dispatches(world.tell(arrive(1, deadline=ms(20))))[0]
    assert outcomes(world.tell(at=ms(20))) == {1: Outcome.DEADLINE_EXCEEDED}
    assert world.complete(running, at=ms(30)) == []
    assert world.scheduler.is_idle()


def test_an_estimate_that_became_too_high_does_not_refuse_everybody_for_ever():
    world = World(cost=tuple(Measurement(rows, 8, seconds(2)) for rows in (1, 2, 4, 8)))
    refused = 0
    for i in range(60):
        effects = world.tell(
            arrive(2 * i, deadline=world.now + ms(500)), arrive(2 * i + 1, deadline=world.now + ms(500))
        )
        refused += Outcome.DEADLINE_UNMEETABLE in outcomes(effects).values()
        while running := dispatches(effects):
            effects = world.complete(running[0], at=world.now + ms(10))
        world.tell(at=world.now + ms(500))
    assert 0 < refused < 20


def test_who_finds_a_free_worker_is_let_in_whatever_was_learned_of_those_who_had_to_wait():
    world = World()
    outlook = world.scheduler._state.pools[V].outlook
    for took in [100] * 100 + [10_000] * 100:
        outlook.learn(ms(100), ms(took))
    assert len(dispatches(world.tell(arrive(1, deadline=ms(50))))) == 1
    assert outcomes(world.tell(arrive(2, deadline=ms(50)))) == {2: Outcome.DEADLINE_UNMEETABLE}


def test_one_that_can_no_longer_make_its_deadline_is_resolved_and_not_run():
    world = World(BatchPolicy(shed=False))
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1, deadline=ms(12)), arrive(2))
    effects = world.complete(running, at=ms(10))
    assert outcomes(effects) == {0: Outcome.COMPLETED, 1: Outcome.DEADLINE_UNMEETABLE}
    assert members(effects) == [[2]]


def test_a_cancelled_request_that_waits_leaves_at_once_and_is_never_computed():
    world = World()
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1), arrive(2))
    assert world.tell(RequestCancelled(1)) == [ResolveRequest(1, Outcome.CANCELLED)]
    assert world.scheduler.views()[0].waiting_parts == 1
    assert members(world.complete(running)) == [[2]]


def test_the_answer_to_a_cancelled_running_request_is_dropped():
    world = World()
    running = dispatches(world.tell(arrive(1)))[0]
    assert outcomes(world.tell(RequestCancelled(1))) == {1: Outcome.CANCELLED}
    assert world.complete(running) == []
    assert world.tell(RequestCancelled(1)) == []


def test_a_second_answer_to_a_batch_is_ignored():
    world = World()
    running = dispatches(world.tell(arrive(1)))[0]
    world.complete(running)
    assert world.complete(running) == []


def test_the_work_of_a_lost_worker_waits_again_and_its_late_answer_is_ignored():
    world = World()
    running = dispatches(world.tell(arrive(1)))[0]
    (retried,) = world.tell(WorkerLost(0, "signal SIGKILL", Loss.KILLED), WorkerStarting(1, V))
    assert "SIGKILL" in retried.cause
    assert world.complete(running) == []
    again = dispatches(world.tell(WorkerReady(1, Capacity(1), FLAT)))[0]
    assert world.complete(running) == []
    assert outcomes(world.complete(again)) == {1: Outcome.COMPLETED}


def test_what_waits_stays_for_the_worker_that_is_started_in_place_of_a_lost_one():
    world = World()
    world.tell(arrive(1))
    world.tell(arrive(2))
    assert outcomes(world.tell(WorkerLost(0, loss=Loss.KILLED), WorkerStarting(1, V))) == {}
    assert members(world.tell(WorkerReady(1, Capacity(1), FLAT))) == [[1, 2]]


def test_nobody_waits_for_a_version_that_nobody_runs_or_will_run():
    world = World()
    world.tell(arrive(1))
    world.tell(arrive(2))
    assert outcomes(world.tell(WorkerLost(0))) == {1: Outcome.NO_WORKER, 2: Outcome.NO_WORKER}
    assert outcomes(world.tell(arrive(3))) == {3: Outcome.NO_WORKER}


def test_a_draining_worker_finishes_and_gets_nothing_new():
    world = World(workers=2)
    running = dispatches(world.tell(arrive(1)))[0]
    world.tell(WorkerDraining(running.worker))
    other = dispatches(world.tell(arrive(2)))[0]
    assert other.worker != running.worker
    assert outcomes(world.complete(running)) == {1: Outcome.COMPLETED}
    assert world.tell(arrive(3)) == [], "the other worker is busy"
    assert world.tell(WorkerStopped(running.worker)) == []


def test_a_draining_server_refuses_what_comes_and_finishes_what_is_there():
    world = World()
    running = dispatches(world.tell(arrive(1)))[0]
    world.tell(arrive(2))
    world.tell(DrainStarted())
    assert outcomes(world.tell(arrive(3))) == {3: Outcome.DRAINING}
    last = dispatches(world.complete(running))[0]
    assert outcomes(world.complete(last)) == {2: Outcome.COMPLETED}
    assert world.scheduler.is_idle()


def test_a_drained_version_is_served_again_when_it_is_configured_again():
    world = World()
    world.tell(VersionDrained(V))
    assert outcomes(world.tell(arrive(1))) == {1: Outcome.DRAINING}
    world.tell(VersionConfigured(V, BatchPolicy()))
    assert members(world.tell(arrive(2))) == [[2]]


@pytest.mark.parametrize(
    ("policy", "server", "second", "outcome"),
    [
        (BatchPolicy(max_queued_requests=1), ServerPolicy(), arrive(2), Outcome.QUEUE_FULL),
        (BatchPolicy(max_queued_rows=4), ServerPolicy(), arrive(2, rows=4), Outcome.QUEUE_FULL),
        (BatchPolicy(), ServerPolicy(max_queued_bytes=100), arrive(2, size=50), Outcome.OVERLOADED),
    ],
)
def test_bounds_in_requests_rows_and_bytes_refuse_with_a_time_to_try_again(policy, server, second, outcome):
    world = World(policy, server=server)
    world.tell(arrive(0))
    assert world.tell(arrive(1, size=60)) == []
    (refusal,) = world.tell(second)
    assert refusal.outcome is outcome and refusal.retry_after > 0 and refusal.detail


def test_memory_pressure_refuses():
    world = World()
    world.tell(MemoryPressureChanged(True))
    assert outcomes(world.tell(arrive(1))) == {1: Outcome.OVERLOADED}
    world.tell(MemoryPressureChanged(False))
    assert members(world.tell(arrive(2))) == [[2]]


def test_what_can_never_be_served_is_refused_at_once():
    policy = BatchPolicy(max_batch_size=4, max_batch_tokens=64, max_queued_rows=20)
    world = World(policy, server=ServerPolicy(max_queued_bytes=100))
    effects = world.tell(
        arrive(1, rows=5),
        arrive(2, rows=2, length=40),
        arrive(3, key=BatchKey("nobody", 1, "")),
        arrive(4, deadline=0),
        arrive(6, parts=tuple(Part(1, 8) for _ in range(21))),
        arrive(7, size=101),
    )
    assert outcomes(effects) == {
        1: Outcome.TOO_LARGE,
        2: Outcome.TOO_LARGE,
        3: Outcome.UNKNOWN_VERSION,
        4: Outcome.DEADLINE_EXCEEDED,
        6: Outcome.TOO_LARGE,
        7: Outcome.TOO_LARGE,
    }
    assert members(world.tell(arrive(5, rows=1, length=100))) == [[5]], "one row cannot be cut"


def test_a_broken_contract_is_a_bug_and_says_whose():
    world = World()
    world.tell(arrive(1))
    with pytest.raises(InvariantViolation, match="request id 1 arrived while it was in use"):
        world.tell(arrive(1))
    with pytest.raises(InvariantViolation, match="time went back from 5 to 4"):
        scheduler = Scheduler()
        scheduler.handle([], 5)
        scheduler.handle([], 4)


def test_nothing_waits_for_ever_in_timers_of_requests_that_are_gone():
    world = World()
    world.tell(arrive(0))
    for i in range(1, 2000):
        world.tell(arrive(i, deadline=seconds(100)), RequestCancelled(i))
    state = world.scheduler._state
    assert len(state.deadlines._heap) < 200
    assert world.scheduler.views()[0].waiting_parts == 0
    assert world.scheduler.next_wakeup() == NEVER or world.scheduler.next_wakeup() == seconds(100)


def test_the_effect_types_are_told_apart_by_equality():
    assert DispatchBatch(0, 1, None, (), None) != ResolveRequest(0, 1)
