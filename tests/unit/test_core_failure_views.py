"""What is told of a version's failures, and whether it gets anywhere."""

from __future__ import annotations

from headway.core.breaker import DEATHS, FIRST, Circuit
from headway.core.budget import AT_LEAST, WINDOW
from headway.core.effects import DispatchBatch, SuspectWorker
from headway.core.events import (
    BatchCompleted,
    ContentQuarantined,
    QuarantineLifted,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
)
from headway.core.failure_views import FailureView, stalls
from headway.core.ids import Capacity
from headway.core.losses import Loss
from headway.core.policy import BatchPolicy
from headway.core.units import NEVER, ms, seconds
from tests.unit.core_world import FLAT, V, World, arrive, dispatches


def of(world: World) -> FailureView:
    (view,) = world.scheduler.views()
    return view.failures


def kill_all(world: World, deaths: int, first: int = 10) -> None:
    """Workers die idle, one after the other, each of its own doing; the last has a successor that is ready."""
    for number in range(first, first + deaths):
        (worker,) = world.scheduler.views()[0].workers
        world.tell(WorkerLost(worker, "signal SIGSEGV"), WorkerStarting(number, V), WorkerReady(number, Capacity(1)))


def test_a_version_without_failures_has_nothing_to_tell() -> None:
    told = of(World(watched=True))
    assert (told.deaths, told.suspected, told.quarantine, told.circuit(0)) == (0, (), {}, Circuit.CLOSED)
    assert (told.retries, told.retries_left) == (AT_LEAST, AT_LEAST)
    assert stalls(World(watched=True).scheduler, 0) == {}


def test_an_open_circuit_stalls_the_version_until_it_may_be_tried() -> None:
    world = World(watched=True)
    kill_all(world, DEATHS - 1)
    assert stalls(world.scheduler, 0) == {}
    kill_all(world, 1, first=50)
    told = of(world)
    assert (told.deaths, told.refused_until, told.circuit(0)) == (DEATHS, FIRST, Circuit.OPEN)
    assert stalls(world.scheduler, 0) == {V: f"{DEATHS} workers died in a row, it is tried again in 10 s"}
    assert stalls(world.scheduler, FIRST) == {}, "who is not ready gets no request, and none would ever try it"
    assert told.circuit(FIRST) is Circuit.HALF_OPEN, "though the core was told nothing since"


def suspect(world: World) -> DispatchBatch:
    """The batch of a worker that is suspected by now, the only one that has any."""
    (batch,) = dispatches(world.tell(arrive(1)))
    due = world.scheduler.next_wakeup()
    (said,) = [effect for effect in world.tell(at=due) if isinstance(effect, SuspectWorker)]
    assert said.worker == batch.worker
    return batch


def test_a_version_of_whose_workers_all_are_suspected_is_stalled_until_one_answers() -> None:
    world = World(BatchPolicy(hang_floor=seconds(1)), watched=True)
    batch = suspect(world)
    assert of(world).suspected == (batch.worker,)
    assert list(stalls(world.scheduler, world.now)) == [V]
    world.tell(BatchCompleted(batch.worker, batch.batch, ms(900)), at=world.now + ms(1))
    assert of(world).suspected == ()
    assert stalls(world.scheduler, world.now) == {}


def test_a_version_with_another_worker_gets_somewhere_though_one_is_suspected() -> None:
    world = World(BatchPolicy(hang_floor=seconds(1)), workers=2, watched=True)
    suspect(world)
    assert len(of(world).suspected) == 1
    assert stalls(world.scheduler, world.now) == {}


def test_what_is_in_quarantine_is_told_with_its_end() -> None:
    world = World(BatchPolicy(quarantine=seconds(60)), watched=True)
    world.tell(ContentQuarantined(V, 7), ContentQuarantined(V, 8))
    assert of(world).refused(world.now) == {7: seconds(60), 8: seconds(60)}
    assert of(world).refused(seconds(60)) == {}
    world.tell(QuarantineLifted(V, 7))
    assert of(world).refused(world.now) == {8: seconds(60)}


def test_retries_that_are_left_are_told_and_a_new_window_has_all_of_them() -> None:
    world = World(watched=True)
    (batch,) = dispatches(world.tell(arrive(1)))
    world.tell(
        WorkerLost(batch.worker, "signal SIGKILL", Loss.KILLED),
        WorkerStarting(9, V),
        WorkerReady(9, Capacity(1), FLAT),
    )
    told = of(world)
    assert (told.retries, told.retries_left, told.left(0)) == (AT_LEAST, AT_LEAST - 1, AT_LEAST - 1)
    assert told.left(WINDOW) == AT_LEAST
    assert told.refused_until == NEVER, "a kill from outside is nobody's fault"
