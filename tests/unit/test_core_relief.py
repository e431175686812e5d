"""A worker that is suspected: what was staged behind it goes back to whom it waited with, and another may run it."""

from __future__ import annotations

import json

from headway.core.effects import ClearWorker, KillWorker, Remedy, RetryParts, SuspectWorker, WithdrawBatch
from headway.core.events import (
    BatchCompleted,
    BatchFailed,
    PartFailure,
    Relief,
    ReliefReported,
    RequestCancelled,
    VersionConfigured,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
)
from headway.core.ids import Capacity, Measurement, PartRef
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, ms, seconds
from tests.unit.core_world import V, World, arrive, dispatches, members, outcomes

EXACT = tuple(Measurement(rows, 8, ms(10)) for rows in (1, 2, 4, 8, 16, 32) for _ in range(3))
POLICY = BatchPolicy(shed=False, hang_floor=seconds(5))


def hands_over(policy: BatchPolicy = POLICY) -> World:
    """A world whose scheduler has seen that a batch of 10 ms takes 11 to come back: it stages the next."""
    world = World(policy, cost=EXACT, watched=True)
    for number in range(1000, 1100):
        (running,) = dispatches(world.tell(arrive(number)))
        world.complete(running, at=world.now + ms(11))
    return world


def hangs(world: World):
    """Request 1 runs, 2 and 3 are staged behind it, 4 waits; then its worker is suspected. Returns what it runs, what
    was staged, and what is said then."""
    (running,) = dispatches(world.tell(arrive(1)))
    world.tell(arrive(2), arrive(3))
    (staged,) = dispatches(world.tell(at=world.scheduler.next_wakeup()))
    world.tell(arrive(4), at=world.now + ms(1))
    return running, staged, world.tell(at=world.scheduler.next_wakeup())


def test_what_is_staged_behind_a_worker_that_is_suspected_is_taken_back():
    world = hands_over()
    running, staged, said = hangs(world)
    cause = "worker 0 does not answer"
    assert [type(effect) for effect in said] == [SuspectWorker, WithdrawBatch, RetryParts]
    assert said[1] == WithdrawBatch(0, staged.batch, cause)
    assert said[2] == RetryParts(V, (PartRef(2, 0), PartRef(3, 0)), Remedy.AGAIN, cause)
    world.tell(WorkerStarting(1, V))
    effects = world.tell(WorkerReady(1, Capacity(1), EXACT))
    assert members(effects) == [[2, 3, 4]], "in their old places"
    (relieved,) = dispatches(effects)
    assert outcomes(world.complete(relieved)) == {2: Outcome.COMPLETED, 3: Outcome.COMPLETED, 4: Outcome.COMPLETED}
    assert outcomes(world.complete(running)) == {1: Outcome.COMPLETED}
    assert world.scheduler.is_idle()


def test_without_another_it_waits_for_the_suspected_one_to_answer_and_is_given_to_it_then():
    world = hands_over()
    running, _, _ = hangs(world)
    effects = world.complete(running)
    assert effects[0] == ClearWorker(0)
    assert outcomes(effects) == {1: Outcome.COMPLETED}
    assert members(effects) == [[2, 3, 4]]


def test_a_late_answer_to_what_was_taken_back_is_nobodys():
    """It had begun after all, before it heard that it need not."""
    world = hands_over()
    running, staged, _ = hangs(world)
    (again,) = dispatches(world.complete(running))
    for late in (
        BatchCompleted(0, staged.batch, ms(10)),
        BatchCompleted(0, staged.batch, ms(10), (PartFailure(0, Outcome.MODEL_ERROR, "withdrawn"),)),
        BatchFailed(0, staged.batch, ms(10), Outcome.MODEL_ERROR, "it raised"),
    ):
        assert world.tell(late) == []
    assert outcomes(world.complete(again)).keys() == {2, 3, 4}


def test_nobody_is_charged_for_what_was_taken_back():
    world = hands_over()
    running, _, _ = hangs(world)
    ((account, amount),) = world.scheduler._state.workers[0].batches[running.batch].charges
    assert account.pending == amount


def test_nothing_is_handed_to_a_suspected_worker():
    world = hands_over()
    hangs(world)
    assert world.tell(arrive(5), at=world.now + ms(1)) == []
    (kill,) = world.tell(at=world.scheduler.next_wakeup())
    assert isinstance(kill, KillWorker)
    world.tell(WorkerStarting(1, V))
    world.tell(WorkerReady(1, Capacity(1), EXACT))
    lost = world.tell(WorkerLost(0, "no progress", Loss.HUNG))
    retried = [effect.parts for effect in lost if isinstance(effect, RetryParts)]
    assert retried == [(PartRef(1, 0),)], "nothing but what it ran is its loss"


def test_who_is_cancelled_or_late_meanwhile_is_told_so_where_it_waits():
    world = hands_over()
    (running,) = dispatches(world.tell(arrive(1)))
    world.tell(arrive(2), arrive(3, deadline=world.now + seconds(6)))
    world.tell(at=world.scheduler.next_wakeup())
    said = world.tell(RequestCancelled(2), at=world.now + ms(1))
    assert outcomes(said) == {2: Outcome.CANCELLED}
    (retried,) = (e for e in world.tell(at=world.scheduler.next_wakeup()) if isinstance(e, RetryParts))
    assert retried.parts == (PartRef(3, 0),)
    assert outcomes(world.tell(at=world.scheduler.next_wakeup())) == {3: Outcome.DEADLINE_EXCEEDED}
    assert outcomes(world.complete(running)) == {1: Outcome.COMPLETED}


def test_what_must_not_run_twice_is_never_staged():
    """A worker that was stopped and wakes up would run it, whatever it was told meanwhile."""
    world = hands_over(BatchPolicy(shed=False, hang_floor=seconds(5), idempotent=False))
    world.tell(arrive(1))
    world.tell(arrive(2))
    suspicion = world.tell(at=world.scheduler.next_wakeup())
    assert [type(effect) for effect in suspicion] == [SuspectWorker]
    world.tell(WorkerStarting(1, V))
    assert members(world.tell(WorkerReady(1, Capacity(1), EXACT))) == [[2]]
    lost = world.tell(WorkerLost(0, "no progress", Loss.HUNG))
    assert outcomes(lost) == {1: Outcome.MAY_HAVE_RUN}


def test_what_is_staged_already_stays_where_running_twice_comes_to_do_harm():
    world = hands_over()
    world.tell(arrive(1))
    world.tell(arrive(2))
    (staged,) = dispatches(world.tell(at=world.scheduler.next_wakeup()))
    world.tell(VersionConfigured(V, BatchPolicy(shed=False, hang_floor=seconds(5), idempotent=False)))
    suspicion = world.tell(at=world.scheduler.next_wakeup())
    assert [type(effect) for effect in suspicion] == [SuspectWorker]
    assert staged.batch in world.scheduler._state.workers[0].batches


def test_a_restored_scheduler_has_taken_it_back_too():
    world = hands_over()
    running, staged, _ = hangs(world)
    restored = Scheduler.restore(json.loads(json.dumps(world.scheduler.snapshot())))
    for events in (
        [BatchCompleted(0, staged.batch, ms(10))],
        [WorkerStarting(1, V)],
        [WorkerReady(1, Capacity(1), EXACT)],
        [BatchCompleted(0, running.batch, ms(10))],
    ):
        assert restored.handle(events, world.now) == world.scheduler.handle(events, world.now)
    assert restored.snapshot() == world.scheduler.snapshot()


def test_what_is_told_of_a_relief_decides_nothing():
    world = hands_over()
    hangs(world)
    before = world.scheduler.snapshot()
    assert world.tell(ReliefReported(V, 0, Relief.REFUSED, cause="no memory")) == []
    assert world.scheduler.snapshot() == before
    assert world.scheduler.next_wakeup() < NEVER
