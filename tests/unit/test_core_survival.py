"""Versions whose workers keep dying, workers that say nothing, content that kills, memory that is short."""

from __future__ import annotations

from headway.core.breaker import DEATHS, FIRST
from headway.core.effects import Effect, KillWorker, QuarantineRequest, ReportCircuit, ReportMemoryCap, SuspectWorker
from headway.core.events import (
    BatchCompleted,
    BatchFailed,
    ContentQuarantined,
    QuarantineLifted,
    RequestArrived,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
)
from headway.core.ids import Capacity, Part
from headway.core.losses import Loss
from headway.core.memory_cap import PATIENCE, MemoryCap
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.core.units import NEVER, ms, seconds
from tests.unit.core_world import FLAT, A, V, World, arrive, dispatches, members, outcomes

POLICY = BatchPolicy(shed=False, max_attempts=100, hang_floor=seconds(5))


def dies(world: World, worker: int, loss: Loss = Loss.CRASHED) -> list[Effect]:
    """And its successor is ready."""
    effects = world.tell(WorkerLost(worker, "signal SIGSEGV", loss), WorkerStarting(worker + 1, V))
    return effects + world.tell(WorkerReady(worker + 1, Capacity(1), FLAT))


def open_circuit() -> World:
    world = World(POLICY)
    world.tell(arrive(1), arrive(2))
    for worker in range(DEATHS):
        effects = dies(world, worker)
        assert bool(outcomes(effects)) == (worker == DEATHS - 1)
    assert outcomes(effects) == {1: Outcome.CIRCUIT_OPEN, 2: Outcome.CIRCUIT_OPEN}
    return world


def test_a_version_whose_workers_keep_dying_is_refused_at_once_with_the_reason_and_when_it_is_tried_again():
    world = open_circuit()
    (refused,) = world.tell(arrive(3))
    assert refused.outcome is Outcome.CIRCUIT_OPEN
    assert f"{DEATHS} workers of m/1 died in a row" in refused.detail
    assert refused.retry_after == FIRST


def test_after_a_while_one_is_let_in_and_what_becomes_of_it_decides():
    world = open_circuit()
    (trial,) = dispatches(world.tell(arrive(4), at=FIRST))
    assert outcomes(world.tell(arrive(5))) == {5: Outcome.CIRCUIT_OPEN}, "one at a time"
    effects = world.complete(trial)
    assert ReportCircuit(V, False) in effects
    assert dispatches(world.tell(arrive(6)))


def test_a_trial_that_kills_again_opens_it_for_twice_as_long():
    world = open_circuit()
    world.tell(arrive(4), at=FIRST)
    (report,) = [effect for effect in dies(world, DEATHS) if isinstance(effect, ReportCircuit)]
    assert (report.open, report.lasts) == (True, 2 * FIRST)
    assert outcomes(world.tell(arrive(5), at=2 * FIRST)) == {5: Outcome.CIRCUIT_OPEN}
    assert dispatches(world.tell(arrive(6), at=3 * FIRST))


def test_deaths_from_outside_and_deaths_between_answers_open_nothing():
    world = World(POLICY)
    worker = 0
    for number in range(3 * DEATHS):
        world.tell(arrive(number))
        dies(world, worker, Loss.KILLED)
        worker += 1
    for number in range(3 * DEATHS):
        dies(world, worker)
        worker += 1
        running = next(iter(world.scheduler._state.workers[worker].batches.values()))
        world.tell(BatchCompleted(worker, running.id, ms(10)))
        world.tell(arrive(1000 + number))
    assert world.scheduler._state.pools[V].breaker.until == NEVER


def test_a_worker_that_says_nothing_is_suspected_and_after_as_long_again_given_up():
    world = World(POLICY, watched=True)
    (batch,) = dispatches(world.tell(arrive(1)))
    (suspect,) = world.tell(at=world.scheduler.next_wakeup())
    assert isinstance(suspect, SuspectWorker)
    assert world.now == seconds(5)
    (kill,) = world.tell(at=world.scheduler.next_wakeup())
    assert kill == KillWorker(0, batch.batch, kill.cause)
    assert world.now == seconds(10)
    assert "no answer for 10 s to a batch that should take 0.01 s" in kill.cause
    assert world.scheduler.next_wakeup() == NEVER
    again = dies(world, 0, Loss.HUNG)
    assert members(again) == [[1]]


def test_an_answer_that_was_there_before_the_clock_was_asked_clears_it():
    """The loop stood still for a minute: nobody is blamed for that."""
    world = World(POLICY, watched=True)
    (batch,) = dispatches(world.tell(arrive(1)))
    assert outcomes(world.complete(batch, at=seconds(60))) == {1: Outcome.COMPLETED}
    (late,) = dispatches(world.tell(arrive(2)))
    effects = world.tell(at=seconds(120))
    assert [type(effect) for effect in effects] == [SuspectWorker], "not given up in the same breath"
    assert outcomes(world.complete(late, at=seconds(121))) == {2: Outcome.COMPLETED}
    assert world.scheduler.next_wakeup() == NEVER


def test_a_size_that_was_never_run_is_given_more_time():
    world = World(POLICY, cost=(), watched=True)
    world.tell(arrive(1))
    assert world.scheduler.next_wakeup() == seconds(30)


def test_no_floor_means_no_watch():
    world = World(BatchPolicy(shed=False, hang_floor=0), watched=True)
    world.tell(arrive(1))
    assert world.scheduler.next_wakeup() == NEVER


def of_content(request: int, content: int) -> RequestArrived:
    return RequestArrived(request, "t", A, (Part(1, 8),), content=content)


def test_content_that_killed_is_refused_until_its_time_is_over_or_it_is_lifted():
    world = World(BatchPolicy(shed=False, max_attempts=1, quarantine=seconds(60)))
    world.tell(of_content(1, 0))
    effects = dies(world, 0)
    assert QuarantineRequest(V, 1) in effects
    world.tell(ContentQuarantined(V, 77))
    (refused,) = world.tell(of_content(2, 77))
    assert refused.outcome is Outcome.POISON_REQUEST
    assert "60 s more" in refused.detail
    (other,) = dispatches(world.tell(of_content(3, 78)))
    world.complete(other)
    assert dispatches(world.tell(of_content(4, 77), at=seconds(60)))
    world.tell(ContentQuarantined(V, 77))
    world.tell(QuarantineLifted(V))
    assert outcomes(world.tell(of_content(5, 77))) == {}


def test_a_batch_that_was_too_large_is_halved_and_the_cap_is_tried_upward_again():
    world = World(BatchPolicy(shed=False, max_batch_size=64))
    first = dispatches(world.tell(arrive(0)))[0]
    world.tell(*(arrive(number) for number in range(1, 33)))
    (batch,) = dispatches(world.complete(first))
    effects = world.tell(BatchFailed(batch.worker, batch.batch, ms(1), Outcome.OUT_OF_MEMORY, "too large"))
    assert ReportMemoryCap(V, 128, 256) in effects
    (half,) = members(effects)
    assert len(half) == 16
    assert not outcomes(effects)


def test_one_that_is_too_large_alone_is_told_so():
    world = World(BatchPolicy(shed=False))
    (batch,) = dispatches(world.tell(arrive(1)))
    effects = world.tell(BatchFailed(batch.worker, batch.batch, ms(1), Outcome.OUT_OF_MEMORY, "too large"))
    assert outcomes(effects) == {1: Outcome.OUT_OF_MEMORY}
    assert not any(isinstance(effect, ReportMemoryCap) for effect in effects)


def test_a_memory_cap_is_raised_slowly_and_more_slowly_where_that_went_wrong():
    cap = MemoryCap()
    assert cap.lower(1024) == 512
    assert [cap.went_well(0) for _ in range(PATIENCE)] == [False] * (PATIENCE - 1) + [True]
    assert cap.tokens == 576
    assert cap.lower(576) == 288
    assert cap.patience == 2 * PATIENCE
    forgotten = MemoryCap()
    forgotten.lower(1024)
    for _ in range(200 * PATIENCE):
        forgotten.went_well(600)
    assert forgotten.tokens == 0, "at the operator's own cap there is nothing to remember"
