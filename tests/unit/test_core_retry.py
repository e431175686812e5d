"""An execution that comes to nothing: who is tried again, with whom, and who is found to be the cause."""

from __future__ import annotations

from collections.abc import Callable, Container
from math import ceil, log2

import pytest

from headway.core.budget import AT_LEAST, WINDOW
from headway.core.effects import DispatchBatch, Effect, QuarantineRequest, Reason, Remedy, RetryParts
from headway.core.events import BatchCompleted, BatchFailed, RequestCancelled, WorkerLost, WorkerReady, WorkerStarting
from headway.core.ids import Capacity, PartRef
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.core.retry import HOPELESS_STREAK
from headway.core.scheduler import Scheduler
from headway.core.units import ms
from tests.unit.core_world import FLAT, A, V, World, arrive, dispatches, members, outcomes

POLICY = BatchPolicy(max_batch_size=64, shed=False)


class Model:
    """Plays the workers of a world until nothing is left to do.

    raises, kills: requests that spoil whatever batch they are in.
    executions: request ids of every batch that was run, in order.  deaths: of workers.
    """

    def __init__(
        self,
        world: World,
        raises: Container[int] = (),
        kills: Container[int] = (),
        look: Callable[[], object] = lambda: None,
    ) -> None:
        """look: called after each answer."""
        self.world = world
        self.raises = raises
        self.kills = kills
        self._look = look
        self.executions: list[list[int]] = []
        self.deaths = 0
        self.ends: dict[int, Outcome] = {}
        self.said: list[Effect] = []

    def play(self, effects: list[Effect]) -> None:
        pending = self._take(effects)
        while pending:
            batch = pending.pop(0)
            pending += self._take(self._run(batch))
            self._look()

    def _take(self, effects: list[Effect]) -> list[DispatchBatch]:
        self.ends.update(outcomes(effects))
        self.said += effects
        return dispatches(effects)

    def _run(self, batch: DispatchBatch) -> list[Effect]:
        world, requests = self.world, [ref.request for ref in batch.parts]
        self.executions.append(requests)
        at = world.now + ms(10)
        if any(request in self.kills for request in requests):
            self.deaths += 1
            successor = 100 + self.deaths
            events = WorkerLost(batch.worker, "signal SIGSEGV"), WorkerStarting(successor, V)
            return world.tell(*events, WorkerReady(successor, Capacity(1)), at=at)
        if any(request in self.raises for request in requests):
            failed = BatchFailed(batch.worker, batch.batch, ms(10), Outcome.MODEL_ERROR, "ValueError: nine")
            return world.tell(failed, at=at)
        return world.tell(BatchCompleted(batch.worker, batch.batch, ms(10)), at=at)


def received_by(world: World) -> dict[str, int]:
    """Device nanoseconds that tenants with something to do were charged for."""
    return {row[0]: row[3] for row in world.scheduler.snapshot()["devices"][0]["fair"]["accounts"]}


def batch_of(world: World, count: int) -> list[Effect]:
    """The dispatch of one batch with so many requests."""
    first = dispatches(world.tell(arrive(0)))[0]
    world.tell(*(arrive(number) for number in range(1, count + 1)))
    effects = world.complete(first, at=world.now + ms(10))
    assert members(effects) == [list(range(1, count + 1))]
    return effects


@pytest.mark.parametrize("offender", [1, 23, 64])
def test_of_64_one_of_which_raises_63_are_answered_within_12_executions_more(offender: int) -> None:
    world = World(POLICY)
    model = Model(world, raises=(offender,))
    model.play(batch_of(world, 64))
    assert model.ends.pop(0) is Outcome.COMPLETED
    assert model.ends.pop(offender) is Outcome.POISON_REQUEST
    assert list(model.ends.values()) == [Outcome.COMPLETED] * 63
    assert len(model.executions) - 1 <= 2 * ceil(log2(64))
    assert world.scheduler.is_idle()


@pytest.mark.parametrize("offender", [1, 40, 64])
def test_of_64_one_of_which_kills_63_are_answered_at_two_more_deaths(offender: int) -> None:
    world = World(POLICY)
    model = Model(world, kills=(offender,))
    model.play(batch_of(world, 64))
    assert model.ends.pop(offender) is Outcome.POISON_REQUEST
    assert list(model.ends.values()) == [Outcome.COMPLETED] * 64
    assert model.deaths - 1 <= 2
    assert QuarantineRequest(V, offender) in model.said
    assert all(len(batch) == 1 for batch in model.executions[1:])


def test_what_may_kill_runs_alone_and_one_at_a_time_while_others_go_on_beside_it() -> None:
    world = World(POLICY, workers=2)
    first, second = dispatches(world.tell(arrive(1)) + world.tell(arrive(2), arrive(3)))
    assert [ref.request for ref in second.parts] == [2, 3]
    world.tell(WorkerLost(second.worker, "signal SIGSEGV"), WorkerStarting(9, V))
    (suspect,) = dispatches(world.tell(WorkerReady(9, Capacity(1))))
    assert suspect.reason is Reason.RETRY
    assert [ref.request for ref in suspect.parts] == [2]
    assert dispatches(world.complete(first)) == [], "the next suspect waits for the one before it"
    (other,) = dispatches(world.tell(arrive(4), arrive(5)))
    assert [ref.request for ref in other.parts] == [4, 5]
    world.complete(other)
    (third,) = dispatches(world.complete(suspect))
    assert [ref.request for ref in third.parts] == [3]


def test_two_kills_from_outside_are_held_against_nobody() -> None:
    world = World(POLICY)
    effects = world.tell(arrive(1))
    for worker in (1, 2):
        world.tell(WorkerLost(dispatches(effects)[0].worker, "killed", Loss.KILLED), WorkerStarting(worker, V))
        effects = world.tell(WorkerReady(worker, Capacity(1), FLAT))
        assert dispatches(effects)[0].reason is not Reason.RETRY
    assert outcomes(world.complete(dispatches(effects)[0])) == {1: Outcome.COMPLETED}


def test_the_fault_of_the_model_is_not_looked_for_in_the_requests() -> None:
    world = World(BatchPolicy(max_batch_size=1024, shed=False))
    model = Model(world, raises=range(1, 10_000))
    model.play(batch_of(world, 1000))
    assert set(model.ends.values()) == {Outcome.COMPLETED, Outcome.MODEL_ERROR, Outcome.POISON_REQUEST}
    assert len(model.executions) <= 2 * HOPELESS_STREAK + 2


def test_one_that_raises_by_itself_from_the_start_is_the_model_s_error() -> None:
    world = World(POLICY)
    model = Model(world, raises=(1,))
    model.play(world.tell(arrive(1)))
    assert model.ends == {1: Outcome.MODEL_ERROR}
    assert len(model.executions) == 1


def test_a_model_that_is_not_idempotent_never_begins_anything_twice() -> None:
    world = World(BatchPolicy(max_batch_size=64, shed=False, idempotent=False))
    model = Model(world, raises=(3,))
    model.play(batch_of(world, 8))
    assert {model.ends[number] for number in range(1, 9)} == {Outcome.MODEL_ERROR}
    running = dispatches(world.tell(arrive(20)))[0]
    lost = world.tell(WorkerLost(running.worker, "killed", Loss.KILLED), WorkerStarting(7, V))
    assert outcomes(lost) == {20: Outcome.MAY_HAVE_RUN}


def test_who_has_no_time_left_is_not_tried_again() -> None:
    world = World(POLICY, cost=FLAT)
    running = dispatches(world.tell(arrive(1, deadline=ms(25))))[0]
    lost = world.tell(WorkerLost(running.worker, "killed", Loss.KILLED), WorkerStarting(7, V), at=ms(20))
    assert outcomes(lost) == {1: Outcome.WORKER_LOST}
    assert "no time left" in lost[0].detail


def test_so_many_lost_executions_are_repeated_in_a_minute_and_no_more() -> None:
    world = World(POLICY)
    world.tell(arrive(1))

    def kill(worker: int) -> dict[int, Outcome]:
        effects = world.tell(WorkerLost(worker, "killed", Loss.KILLED), WorkerStarting(worker + 1, V))
        world.tell(WorkerReady(worker + 1, Capacity(1), FLAT))
        return outcomes(effects)

    assert not any(kill(worker) for worker in range(AT_LEAST))
    assert kill(AT_LEAST) == {1: Outcome.WORKER_LOST}
    world.tell(arrive(2), at=WINDOW)
    assert kill(AT_LEAST + 1) == {}


def test_a_retry_that_was_cancelled_leaves_nothing_behind() -> None:
    world = World(POLICY)
    batch = dispatches(batch_of(world, 4))[0]
    half = dispatches(world.tell(BatchFailed(batch.worker, batch.batch, ms(10), Outcome.MODEL_ERROR, "no")))[0]
    effects = world.tell(*(RequestCancelled(number) for number in range(1, 5)))
    assert set(outcomes(effects).values()) == {Outcome.CANCELLED}
    assert world.complete(half) == []
    assert world.scheduler.is_idle()


def test_a_retried_part_goes_before_what_came_later() -> None:
    world = World(BatchPolicy(max_batch_size=1, shed=False))
    world.tell(arrive(1))
    world.tell(arrive(2), arrive(3))
    world.tell(WorkerLost(0, "killed", Loss.KILLED), WorkerStarting(1, V))
    assert members(world.tell(WorkerReady(1, Capacity(1), FLAT))) == [[1]]


def test_the_tenant_of_the_offender_pays_for_what_it_spoiled_and_the_others_for_one_run() -> None:
    world = World(BatchPolicy(max_batch_size=8, shed=False))
    first = dispatches(world.tell(arrive(0, tenant="other")))[0]
    world.tell(*(arrive(n, tenant="bad" if n == 1 else "good") for n in range(1, 9)))
    world.tell(*(arrive(n, tenant=tenant) for n, tenant in ((11, "bad"), (12, "good"), (13, "other"))))
    received: dict[str, int] = {}
    model = Model(world, raises=(1,), look=lambda: received.update(received_by(world)))
    model.play(world.complete(first, at=ms(10)))
    assert received["good"] <= 4 * ms(10)
    assert received["bad"] >= 3 * ms(10), "batches of 8, 4 and 2 came to nothing for it"


def test_a_scheduler_restored_amid_a_bisection_goes_on_alike() -> None:
    world = World(POLICY)
    batch = dispatches(batch_of(world, 16))[0]
    world.tell(BatchFailed(batch.worker, batch.batch, ms(10), Outcome.MODEL_ERROR, "no"))
    other = Scheduler.restore(world.scheduler.snapshot())
    assert other.snapshot() == world.scheduler.snapshot()
    twin = World(POLICY)
    twin.scheduler, twin.now = other, world.now
    halves = [half for copy in (world, twin) for half in running(copy)]
    assert halves[0] == halves[1]
    models = [Model(copy, raises=(5,), kills=(9,)) for copy in (world, twin)]
    for model in models:
        model.play([halves[0]])
    assert models[0].ends == models[1].ends
    assert models[0].said == models[1].said
    assert models[0].ends[5] is models[0].ends[9] is Outcome.POISON_REQUEST


def running(world: World) -> list[Effect]:
    """What its workers have, as it was dispatched to them."""
    return [
        DispatchBatch(worker["id"], batch["id"], A, tuple(PartRef(*ref) for ref in batch["members"]), Reason.RETRY)
        for pool in world.scheduler.snapshot()["pools"]
        for worker in pool["workers"]
        for batch in worker["batches"]
    ]


def test_every_retry_says_why_and_how() -> None:
    world = World(POLICY)
    batch = dispatches(batch_of(world, 4))[0]
    effects = world.tell(BatchFailed(batch.worker, batch.batch, ms(10), Outcome.MODEL_ERROR, "ValueError: nine"))
    retries = [effect for effect in effects if isinstance(effect, RetryParts)]
    assert [(len(retry.parts), retry.how) for retry in retries] == [(2, Remedy.HALVES)] * 2
    assert all("ValueError: nine" in retry.cause for retry in retries)
