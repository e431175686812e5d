"""Several versions on one device: whose turn it is, and for how many cores."""

from __future__ import annotations

import json

import pytest

from headway.core.effects import DispatchBatch, ResolveRequest, SuspectWorker
from headway.core.errors import InvariantViolation
from headway.core.events import (
    BatchCompleted,
    BatchFailed,
    DeviceLost,
    DeviceRecovered,
    RequestCancelled,
    ServerConfigured,
    VersionConfigured,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
)
from headway.core.ids import BatchKey, Capacity, Measurement, VersionId
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import ms, seconds, us
from tests.unit.core_world import FLAT, arrive, dispatches, members

ONE, TWO, THREE = (BatchKey(name, 1, "s") for name in ("one", "two", "three"))
EXACT = tuple(Measurement(rows, 8, ms(10)) for rows in (1, 2, 4, 8, 16, 32) for _ in range(3))
TEN_A_ROW = tuple(Measurement(rows, 8, ms(10) * rows) for rows in (1, 2, 4, 8))


class Shared:
    """Versions of one device. cores: of the device.  need: version's key -> cores that a batch of it takes."""

    def __init__(self, cores, need, workers=1, cost=TEN_A_ROW, hand_over=0, **policy):
        self.scheduler = Scheduler()
        self.now = 0
        self.workers = {}
        self.server = ServerPolicy(devices=(("cpu", cores),))
        self.tell(ServerConfigured(self.server))
        for key, count in need.items():
            rules = BatchPolicy(device="cpu", cores=count, **policy)
            self.tell(VersionConfigured(key.version_id, rules))
            for _ in range(workers):
                id = len(self.workers) + 1
                self.workers[id] = key
                self.tell(WorkerStarting(id, key.version_id), WorkerReady(id, Capacity(1), cost))

    def tell(self, *events, at=None):
        self.now = self.now if at is None else at
        effects = self.scheduler.handle(events, self.now)
        self.scheduler.check()
        return effects

    def complete(self, batch, took=10_000_000, at=None):
        return self.tell(BatchCompleted(batch.worker, batch.batch, took), at=at)


def test_one_core_runs_one_batch_at_a_time_whatever_version_it_is_of():
    world = Shared(1, {ONE: 1, TWO: 1})
    [first] = dispatches(world.tell(arrive(1, key=ONE), arrive(2, key=TWO)))
    assert [ref.request for ref in first.parts] == [1]
    assert members(world.complete(first, at=ms(10))) == [[2]]


def test_two_cores_run_two():
    world = Shared(2, {ONE: 1, TWO: 1})
    assert members(world.tell(arrive(1, key=ONE), arrive(2, key=TWO))) == [[1], [2]]


def test_the_tenant_that_had_least_of_the_device_is_next_in_whatever_version():
    world = Shared(1, {ONE: 1, TWO: 1})
    [running] = dispatches(world.tell(arrive(1, key=ONE, tenant="greedy")))
    world.tell(arrive(2, key=ONE, tenant="greedy"), arrive(3, key=TWO, tenant="modest"), at=1)
    assert members(world.complete(running, at=ms(10))) == [[3]]


def test_of_one_tenant_the_most_urgent_is_next_in_whatever_version():
    world = Shared(1, {ONE: 1, TWO: 1, THREE: 1})
    [running] = dispatches(world.tell(arrive(1, key=ONE)))
    world.tell(arrive(2, key=ONE), arrive(3, key=TWO, priority=2), arrive(4, key=THREE, priority=0), at=1)
    [running] = dispatches(world.complete(running, at=ms(10)))
    assert running.parts[0].request == 4
    assert members(world.complete(running, at=ms(20))) == [[2]]


def test_what_takes_two_cores_waits_for_both_and_is_not_overtaken_by_what_takes_one():
    world = Shared(2, {ONE: 1, TWO: 2}, workers=2)
    first, second = dispatches(world.tell(arrive(1, key=ONE), arrive(2, key=ONE)))
    world.tell(arrive(3, key=TWO), arrive(4, key=ONE), at=1)
    assert members(world.complete(first, at=ms(10))) == []
    assert members(world.complete(second, at=ms(11))) == [[3]]


def test_what_wants_more_cores_than_there_are_gets_them_all():
    world = Shared(2, {ONE: 1, TWO: 8})
    assert members(world.tell(arrive(1, key=TWO), arrive(2, key=ONE))) == [[1]]


def test_a_version_that_computes_nothing_needs_no_core():
    world = Shared(1, {ONE: 1, TWO: 0}, workers=2)
    assert members(world.tell(*(arrive(i, key=ONE if i < 3 else TWO) for i in range(1, 5)))) == [[1], [3], [4]]


def test_two_cores_for_a_while_are_charged_as_twice_the_while():
    world = Shared(2, {ONE: 2, TWO: 1})
    [running] = dispatches(world.tell(arrive(1, key=ONE, tenant="wide"), arrive(2, key=TWO, tenant="narrow")))
    world.complete(running, took=ms(10), at=ms(10))
    [view, _] = world.scheduler.views()
    assert view.counters["wide"] == ms(20)
    assert view.counters["narrow"] == pytest.approx(ms(10), rel=0.01), "it runs, charged as predicted"


def test_a_lost_worker_gives_its_cores_back():
    world = Shared(1, {ONE: 1, TWO: 1})
    [running] = dispatches(world.tell(arrive(1, key=ONE), arrive(2, key=TWO)))
    assert members(world.tell(WorkerLost(running.worker), at=ms(1))) == [[2]]


def test_more_cores_are_used_at_once():
    world = Shared(1, {ONE: 1, TWO: 1})
    world.tell(arrive(1, key=ONE), arrive(2, key=TWO))
    assert members(world.tell(ServerConfigured(ServerPolicy(devices=(("cpu", 2),))), at=ms(1))) == [[2]]


def test_company_may_not_make_the_head_of_another_version_late():
    """Each batch takes 8 ms and 2 for each row. The other version's head is to end 15 and 11 ms from now."""
    cost = tuple(Measurement(rows, 8, ms(8) + ms(2) * rows) for rows in (1, 2, 4, 8))

    def batch_beside(*others):
        world = Shared(1, {ONE: 1, TWO: 1}, cost=cost, deadline_margin=0)
        [running] = dispatches(world.tell(arrive(0, key=ONE, tenant="had its share")))
        world.tell(*(arrive(i, key=ONE) for i in range(1, 9)), *others, at=1)
        [batch] = members(world.complete(running, at=ms(10)))
        return batch

    assert len(batch_beside()) > 3
    assert batch_beside(arrive(9, key=TWO, tenant="had its share", deadline=ms(10 + 15 + 11))) == [1, 2, 3]


def test_where_there_are_cores_for_both_another_version_does_not_shorten_a_batch():
    world = Shared(2, {ONE: 1, TWO: 1}, cost=FLAT)
    [running] = dispatches(world.tell(arrive(0, key=ONE)))
    world.tell(*(arrive(i, key=ONE) for i in range(1, 9)), at=1)
    assert members(world.complete(running, at=ms(10))) == [list(range(1, 9))]


def told_of_hand_over(world):
    """The scheduler has seen that a batch of 10 ms takes 11 to come back. Nothing runs."""
    for request in range(1000, 1100):
        [running] = dispatches(world.tell(arrive(request, key=ONE, tenant="greedy")))
        world.complete(running, at=world.now + ms(11))
    return world


def test_what_is_next_is_staged_behind_its_own_worker_though_no_core_is_free():
    world = told_of_hand_over(Shared(1, {ONE: 1, TWO: 1}, cost=EXACT))
    world.tell(arrive(0, key=ONE, tenant="greedy"))
    world.tell(arrive(1, key=ONE, tenant="greedy"), arrive(2, key=TWO, tenant="greedy"))
    assert members(world.tell(at=world.now + ms(9.5))) == [[1]]


def test_whose_turn_it_is_is_handed_its_batch_shortly_before_another_versions_ends():
    world = told_of_hand_over(Shared(1, {ONE: 1, TWO: 1}, cost=EXACT))
    began = world.now
    [running] = dispatches(world.tell(arrive(0, key=ONE, tenant="greedy")))
    world.tell(arrive(2, key=TWO, tenant="modest"))
    wake = world.scheduler.next_wakeup()
    assert began + ms(8) < wake < began + ms(10)
    assert world.tell(at=wake - 1) == []
    assert members(world.tell(at=wake)) == [[2]]
    assert world.tell(arrive(3, key=ONE, tenant="new"), at=began + ms(10)) == [], "the core is passed on once"
    assert dispatches(world.complete(running, at=began + ms(11))) == []


def test_a_batch_that_is_overdue_keeps_its_core():
    world = told_of_hand_over(Shared(1, {ONE: 1, TWO: 1}, cost=EXACT))
    began = world.now
    [running] = dispatches(world.tell(arrive(0, key=ONE)))
    assert world.tell(arrive(1, key=TWO), at=began + ms(20)) == []
    assert members(world.complete(running, took=ms(25), at=began + ms(26))) == [[1]]


def test_failures_tell_nothing_of_the_hand_over():
    world = Shared(1, {ONE: 1, TWO: 1}, cost=EXACT)
    for request in range(1000, 1100):
        [running] = dispatches(world.tell(arrive(request, key=ONE)))
        answer = BatchFailed(running.worker, running.batch, ms(10), Outcome.MODEL_ERROR, "it raised")
        world.tell(answer, at=world.now + ms(10))
    assert members(world.tell(arrive(0, key=ONE), arrive(1, key=TWO))) == [[0]]
    assert world.tell(at=world.now + ms(9.9)) == []


def steady(world, key):
    """Two hundred requests, evenly spaced: the scheduler knows the rate then. All are answered."""
    for request in range(1000, 1200):
        world.now += us(200)
        for running in dispatches(world.tell(arrive(request, key=key))):
            world.complete(running)


def test_a_version_that_waits_for_company_keeps_nobody_else():
    world = Shared(8, {ONE: 1, TWO: 1}, workers=4, cost=EXACT)
    steady(world, ONE)
    world.tell(arrive(1, key=ONE), at=world.now + us(200))
    assert world.tell(arrive(2, key=ONE), at=world.now + us(200)) == [], "it waits beside three idle workers"
    assert members(world.tell(arrive(3, key=TWO))) == [[3]]


def test_nobody_waits_for_company_where_others_may_want_the_cores():
    world = Shared(4, {ONE: 1, TWO: 1}, workers=4, cost=EXACT)
    steady(world, ONE)
    world.tell(arrive(1, key=ONE), at=world.now + us(200))
    assert members(world.tell(arrive(2, key=ONE), at=world.now + us(200))) == [[2]]


def test_what_a_batch_saves_is_saved_for_those_of_other_versions_too():
    """Two together take 2 ms less than one after the other, and the first waits 8 ms longer."""
    cost = tuple(Measurement(rows, 8, ms(2) + ms(8) * rows) for rows in (1, 2, 4, 8))

    def batch(others, cores):
        world = Shared(cores, {ONE: 1, TWO: 1}, cost=cost)
        [running] = dispatches(world.tell(arrive(0, key=ONE, tenant="had its share")))[:1]
        world.tell(arrive(1, key=ONE), arrive(2, key=ONE), *others)
        return members(world.complete(running, at=ms(10)))[0]

    others = [arrive(i, key=TWO, tenant=f"tenant-{i % 10}") for i in range(10, 30)]
    assert batch([], cores=1) == [1]
    assert batch(others, cores=1) == [1, 2]
    assert batch(others, cores=2) == [1], "they have a core of their own"


def test_a_late_request_that_waits_for_its_own_worker_keeps_no_other_version():
    world = told_of_hand_over(Shared(2, {ONE: 1, TWO: 1}, cost=EXACT, shed=False))
    began = world.now
    [running] = dispatches(world.tell(arrive(0, key=ONE)))
    world.tell(arrive(1, key=ONE, deadline=began + ms(15)))
    assert members(world.tell(arrive(2, key=TWO), at=began + ms(9.5))) == [[2]]
    assert members(world.complete(running, at=began + ms(10))) == [[1]]


def test_a_version_stays_on_its_device():
    world = Shared(1, {ONE: 1})
    with pytest.raises(InvariantViolation, match="moves from device 'cpu' to 'gpu'"):
        world.tell(VersionConfigured(ONE.version_id, BatchPolicy(device="gpu")))


def test_a_version_without_a_device_shares_nothing():
    scheduler = Scheduler()
    versions = [VersionId("one", 1), VersionId("two", 1)]
    scheduler.handle([ServerConfigured(ServerPolicy(devices=(("cpu", 1),)))], 0)
    for number, version in enumerate(versions):
        scheduler.handle([VersionConfigured(version, BatchPolicy()), WorkerStarting(number, version)], 0)
        scheduler.handle([WorkerReady(number, Capacity(1), FLAT)], 0)
    assert members(scheduler.handle([arrive(1, key=ONE), arrive(2, key=TWO)], 1)) == [[1], [2]]


def test_a_restored_scheduler_knows_whose_turn_it_is():
    world = Shared(1, {ONE: 1, TWO: 1})
    [running] = dispatches(world.tell(arrive(1, key=ONE, tenant="greedy")))
    world.tell(arrive(2, key=ONE, tenant="greedy"), arrive(3, key=TWO, tenant="modest"), at=1)
    restored = Scheduler.restore(json.loads(json.dumps(world.scheduler.snapshot())))
    answer = BatchCompleted(running.worker, running.batch, ms(10))
    assert restored.handle([answer], ms(10)) == world.scheduler.handle([answer], ms(10))
    restored.check()
    assert restored.snapshot() == world.scheduler.snapshot()


def test_whose_turn_it_was_and_who_went_away_keeps_no_cores_waiting():
    world = Shared(2, {ONE: 1, TWO: 2, THREE: 1})
    [running] = dispatches(world.tell(arrive(1, key=ONE)))
    assert world.tell(arrive(2, key=TWO), at=ms(1)) == [], "it waits for both cores, and nobody overtakes it"
    assert world.tell(arrive(3, key=THREE), at=ms(2)) == []
    assert members(world.tell(RequestCancelled(2), at=ms(3))) == [[3]]
    world.complete(running, at=ms(10))


def test_who_hangs_keeps_no_cores_from_the_others():
    world = Shared(1, {ONE: 1, TWO: 1}, hang_floor=ms(500), shed=False)
    [hangs] = dispatches(world.tell(arrive(1, key=ONE)))
    assert members(world.tell(arrive(2, key=TWO))) == []
    assert members(world.tell(at=ms(499))) == []
    suspicion = world.tell(at=world.scheduler.next_wakeup())
    assert [type(effect) for effect in suspicion] == [SuspectWorker, DispatchBatch]
    assert members(suspicion) == [[2]]
    world.complete(hangs)  # it did not hang, it was slow: for a moment both kept the core busy
    [other] = dispatches(suspicion)
    assert members(world.tell(arrive(3, key=ONE))) == []
    assert members(world.complete(other)) == [[3]]


def test_who_waits_for_a_device_that_is_lost_is_told_so_and_when_it_is_tried_again():
    world = Shared(2, {ONE: 1, TWO: 1})
    world.tell(arrive(1, key=ONE))
    lost = [DeviceLost("cpu", "exit code 87", seconds(4))]
    lost += [WorkerLost(worker, "its device is lost", Loss.DEVICE_LOST) for worker in world.scheduler._state.workers]
    (refused,) = [effect for effect in world.tell(*lost) if isinstance(effect, ResolveRequest)]
    assert (refused.request, refused.outcome, refused.retry_after) == (1, Outcome.NO_WORKER, seconds(4))
    assert refused.detail == f"cpu, which {ONE.version_id} runs on, is lost: exit code 87"
    restored = Scheduler.restore(json.loads(json.dumps(world.scheduler.snapshot())))
    later = [[arrive(2, key=TWO)], [DeviceRecovered("cpu"), DeviceLost("no such device", "x")], [arrive(3, key=TWO)]]
    for number, events in enumerate(later):
        said = world.tell(*events, at=seconds(1 + number))
        assert restored.handle(events, world.now) == said
    assert restored.snapshot() == world.scheduler.snapshot()
    (refused,) = said
    assert "nothing runs" in refused.detail


def test_a_device_that_is_tried_at_any_moment_is_not_asked_for_again_at_once():
    world = Shared(1, {ONE: 1})
    world.tell(DeviceLost("cpu", "x"), *(WorkerLost(worker) for worker in world.scheduler._state.workers))
    (refused,) = world.tell(arrive(1, key=ONE))
    assert refused.retry_after == seconds(1)
