"""Which worker, when it is handed the next batch, and when waiting beside an idle one pays."""

from __future__ import annotations

from headway.core.effects import Reason, ResolveRequest, WithdrawPart
from headway.core.events import BatchCompleted, PartFailure, RequestCancelled, WorkerLost, WorkerReady, WorkerStarting
from headway.core.ids import Capacity, Measurement
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from headway.core.placement import Placement
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, ms, us
from headway.core.workers import Worker, WorkerState
from tests.unit.core_world import FLAT, LINEAR, A, B, V, World, arrive, dispatches, members, outcomes

EXACT = tuple(Measurement(rows, 8, ms(10)) for rows in (1, 2, 4, 8, 16, 32) for _ in range(3))
HAND_OVER = ms(1)


def told_of_hand_over(**options):
    """A world whose scheduler has seen that a batch of 10 ms takes 11 to come back. Nothing runs."""
    world = World(cost=EXACT, **options)
    for i in range(1000, 1100):
        running = dispatches(world.tell(arrive(i)))[0]
        world.complete(running, at=world.now + ms(10) + HAND_OVER)
    return world


def test_the_next_batch_is_handed_over_shortly_before_the_running_one_ends_and_grows_until_then():
    world = told_of_hand_over()
    began = world.now
    running = dispatches(world.tell(arrive(0)))[0]
    assert world.tell(arrive(1), at=began + ms(2)) == []
    wake = world.scheduler.next_wakeup()
    assert began + ms(8) < wake < began + ms(10)
    assert world.tell(arrive(2), at=wake - 1) == []
    staged = dispatches(world.tell(at=wake))[0]
    assert [ref.request for ref in staged.parts] == [1, 2]
    assert staged.worker == running.worker


def test_the_first_hand_over_is_believed_for_where_all_others_are_staged_there_is_no_second():
    world = World(cost=EXACT)
    running = dispatches(world.tell(arrive(0)))[0]
    began = world.now + ms(12)
    assert members(world.complete(running, at=began)) == []
    world.tell(arrive(1))
    world.tell(arrive(2), at=began + 1)
    assert began + ms(7.5) <= world.scheduler.next_wakeup() <= began + ms(8), "two of twelve were spent on the way"


def noisy_device(hand_over, policy=None):
    """Batches of 10 ms, give or take 3, that come back so much later. Nothing runs."""
    cost = tuple(Measurement(rows, 8, ms(took)) for rows in (1, 2, 4, 8, 16, 32) for took in (7, 10, 13))
    world = World(policy, cost=cost)
    for i in range(1000, 1100):
        took = ms((7, 10, 13)[i % 3])
        running = dispatches(world.tell(arrive(i)))[0]
        world.complete(running, at=world.now + took + hand_over, took=took)
    return world


def test_a_batch_that_may_grow_is_not_fixed_early_where_nobody_knows_the_moment_to_a_hand_over():
    world = noisy_device(ms(0.2))
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1))
    assert world.tell(at=world.scheduler.next_wakeup()) == []
    assert world.scheduler.next_wakeup() == NEVER
    assert members(world.complete(running, at=world.now + ms(10))) == [[1]]


def test_a_batch_that_may_grow_is_fixed_for_the_expected_end_where_the_hand_over_takes_longer_than_the_doubt():
    world = noisy_device(ms(4))
    began = world.now
    world.tell(arrive(0))
    world.tell(arrive(1))
    wakes = []
    while not (effects := world.tell(at=world.scheduler.next_wakeup())):
        wakes.append(world.now)
    assert members(effects) == [[1]]
    assert began + ms(5.5) < world.now < began + ms(6.5)


def test_a_batch_that_cannot_grow_is_fixed_early_for_nobody_loses_by_it():
    world = noisy_device(ms(0.2), BatchPolicy(max_batch_size=2))
    began = world.now
    world.tell(arrive(0))
    world.tell(arrive(1), arrive(2))
    assert members(world.tell(at=world.scheduler.next_wakeup())) == [[1, 2]]
    assert world.now < began + ms(8)


def test_a_worker_holds_what_it_runs_and_one_staged_batch_and_no_more():
    world = told_of_hand_over()
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1))
    staged = dispatches(world.tell(at=world.scheduler.next_wakeup()))
    assert len(staged) == 1
    assert world.tell(arrive(2), at=world.now + ms(100)) == []
    assert outcomes(world.complete(running)) == {0: Outcome.COMPLETED}
    assert outcomes(world.complete(staged[0], at=world.now + ms(10))) == {1: Outcome.COMPLETED}


def test_the_last_one_that_waits_is_not_staged_where_it_would_be_late():
    world = told_of_hand_over(policy=BatchPolicy(shed=False))
    began = world.now
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1, deadline=began + ms(15)))
    assert world.tell(at=began + ms(9.5)) == []
    assert members(world.complete(running, at=began + ms(10))) == [[1]], "on an idle worker it is tried"


def test_nothing_is_staged_behind_a_batch_that_is_overdue():
    world = told_of_hand_over()
    running = dispatches(world.tell(arrive(0)))[0]
    assert world.tell(arrive(1), at=world.now + ms(50)) == []
    assert world.scheduler.next_wakeup() == NEVER
    world.tell(arrive(2), at=world.now + ms(50))
    assert members(world.complete(running, at=world.now + ms(1))) == [[1, 2]]


def test_nothing_is_staged_where_the_hand_over_costs_nothing():
    world = World(cost=EXACT)
    world.tell(arrive(0))
    world.tell(arrive(1))
    assert world.scheduler.next_wakeup() == NEVER


def test_nobody_is_woken_for_staging_while_nothing_waits():
    world = told_of_hand_over()
    world.tell(arrive(0))
    assert world.scheduler.next_wakeup() == NEVER
    world.tell(arrive(1))
    assert world.scheduler.next_wakeup() < NEVER
    world.tell(RequestCancelled(1))
    world.tell(at=world.scheduler.next_wakeup())
    assert world.scheduler.next_wakeup() == NEVER


def test_a_staged_request_that_is_given_up_is_withdrawn_and_the_rest_of_its_batch_stays():
    world = told_of_hand_over()
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1), arrive(2))
    staged = dispatches(world.tell(at=world.scheduler.next_wakeup()))[0]
    assert world.tell(RequestCancelled(2)) == [
        ResolveRequest(2, Outcome.CANCELLED),
        WithdrawPart(staged.worker, staged.batch, 1),
    ]
    world.complete(running)
    failure = PartFailure(1, Outcome.MODEL_ERROR, "withdrawn before its batch began")
    assert outcomes(world.tell(BatchCompleted(0, staged.batch, ms(5), (failure,)))) == {1: Outcome.COMPLETED}
    assert world.scheduler.is_idle()


def test_what_runs_already_is_not_withdrawn():
    world = told_of_hand_over()
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1))
    staged = dispatches(world.tell(at=world.scheduler.next_wakeup()))[0]
    world.complete(running)
    assert world.tell(RequestCancelled(1)) == [ResolveRequest(1, Outcome.CANCELLED)]
    assert world.complete(staged) == []


def test_what_was_staged_with_a_lost_worker_waits_again_and_nothing_is_held_against_it():
    world = told_of_hand_over()
    world.tell(arrive(0))
    world.tell(arrive(1), arrive(2))
    assert members(world.tell(at=world.scheduler.next_wakeup())) == [[1, 2]]
    assert outcomes(world.tell(WorkerLost(0, loss=Loss.KILLED), WorkerStarting(1, V))) == {}
    assert members(world.tell(WorkerReady(1, Capacity(1), FLAT))) == [[0, 1, 2]], "in their old places"


def test_a_staged_batch_is_judged_by_when_it_will_run():
    world = told_of_hand_over(policy=BatchPolicy(shed=False))
    began = world.now
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1, deadline=began + ms(15)), arrive(2))
    staged = world.tell(at=world.scheduler.next_wakeup())
    assert outcomes(staged) == {1: Outcome.DEADLINE_UNMEETABLE}, "20 ms at least from the beginning, 15 are there"
    (refused,) = [effect for effect in staged if isinstance(effect, ResolveRequest)]
    assert refused.detail.startswith("it would take ") and refused.detail.endswith(" s left by then")
    assert members(staged) == [[2]]
    assert outcomes(world.complete(running)) == {0: Outcome.COMPLETED}


def serve_all(world, running, took):
    """Complete what runs and what follows, earliest end first, until nothing is left."""
    ends = [(world.now + took[batch.worker], batch) for batch in running]
    while ends:
        ends.sort(key=lambda end: (end[0], end[1].batch))
        at, batch = ends.pop(0)
        effects = world.tell(BatchCompleted(batch.worker, batch.batch, took[batch.worker]), at=at)
        ends += [(at + took[follower.worker], follower) for follower in dispatches(effects)]


def two_workers(took):
    """Two that take so long each, and a scheduler that has seen it."""
    world = World(workers=2, cost=EXACT, policy=BatchPolicy(max_batch_size=1, max_queue_delay=ms(100)))
    for i in range(100):
        serve_all(world, dispatches(world.tell(*(arrive(1000 + 4 * i + j) for j in range(4)))), took)
    return world


def test_the_fastest_of_the_free_workers_is_preferred():
    world = two_workers({0: ms(30), 1: ms(10)})
    for i in range(10):
        running = dispatches(world.tell(arrive(i)))[0]
        assert running.worker == 1
        world.complete(running)


def test_a_single_request_waits_for_a_worker_that_answers_sooner_than_the_slow_idle_one():
    world = two_workers({0: ms(100), 1: ms(10)})
    fast = dispatches(world.tell(arrive(0)))[0]
    assert fast.worker == 1
    assert world.tell(arrive(1), at=world.now + us(1)) == []
    assert dispatches(world.complete(fast, at=world.now + ms(10)))[0].worker == 1


def test_the_slow_worker_serves_too_when_more_than_one_waits():
    world = two_workers({0: ms(100), 1: ms(10)})
    assert {batch.worker for batch in dispatches(world.tell(arrive(0), arrive(1), arrive(2)))} == {0, 1}


def steady(world, first, count, gap, took=10_000_000):
    """So many requests, evenly spaced: the scheduler knows the rate then. All are answered."""
    for i in range(first, first + count):
        world.now += gap
        for running in dispatches(world.tell(arrive(i))):
            world.complete(running, took=took)


def test_departures_are_spaced_where_company_costs_nothing():
    world = World(workers=4, cost=EXACT)
    steady(world, 1000, 200, us(200))
    busy = dispatches(world.tell(arrive(0), at=world.now + us(200)))
    assert len(busy) == 1, "with all four free there is nobody to be spaced from"
    assert world.tell(arrive(1), at=world.now + us(200)) == []
    wake = world.scheduler.next_wakeup()
    assert world.now < wake <= world.now + ms(5)
    effects = world.tell(at=wake)
    assert [batch.reason for batch in dispatches(effects)] == [Reason.IDLE]


def test_more_company_brings_the_departure_forward():
    world = World(workers=4, cost=EXACT, policy=BatchPolicy(max_queue_delay=ms(50)))
    steady(world, 1000, 200, us(200))
    world.tell(arrive(0), at=world.now + us(200))
    world.tell(arrive(1), at=world.now + us(200))
    before = world.scheduler.next_wakeup()
    world.tell(arrive(2), at=world.now + us(200))
    assert world.scheduler.next_wakeup() < before
    left = [world.tell(arrive(i), at=world.now + us(200)) for i in range(3, 20)]
    assert any(dispatches(effects) for effects in left)


def test_nobody_waits_beside_an_idle_worker_longer_than_the_queue_delay():
    world = World(workers=4, cost=EXACT, policy=BatchPolicy(max_queue_delay=us(300)))
    steady(world, 1000, 200, us(200))
    world.tell(arrive(0), at=world.now + us(200))
    world.tell(arrive(1), at=world.now + us(200))
    assert world.scheduler.next_wakeup() <= world.now + us(300)


def test_nor_longer_than_the_delay_that_is_derived_from_the_slo():
    world = World(workers=4, cost=EXACT, policy=BatchPolicy(slo=ms(12), derive_delay=True))
    steady(world, 1000, 200, us(200))
    world.tell(arrive(0), at=world.now + us(200))
    assert world.tell(arrive(1), at=world.now + us(200)) == []
    (view,) = world.scheduler.views()
    assert world.scheduler.next_wakeup() == world.now + view.max_queue_delay < world.now + ms(1)


def test_where_company_costs_as_much_as_it_saves_nobody_waits_for_it():
    world = World(workers=4, cost=LINEAR)
    steady(world, 1000, 200, us(200), took=ms(1.61))
    for i in range(4):
        assert len(dispatches(world.tell(arrive(i), at=world.now + us(200)))) == 1


def test_nobody_waits_for_company_of_another_key():
    world = World(workers=2, cost=FLAT)
    steady(world, 1000, 200, us(200))
    world.tell(arrive(0), at=world.now + us(200))
    held = world.tell(arrive(1, key=A), at=world.now + us(200))
    assert dispatches(held) == []
    assert members(world.tell(arrive(2, key=B), at=world.now + us(200)))[0] in ([1], [2])


def test_a_restored_scheduler_remembers_what_is_staged_and_whom_it_waits_for():
    world = told_of_hand_over(workers=2)
    for i in range(3):
        world.tell(arrive(i))
    if world.scheduler.next_wakeup() < NEVER:
        world.tell(at=world.scheduler.next_wakeup())
    twin = Scheduler.restore(world.scheduler.snapshot())
    twin.check()
    assert twin.snapshot() == world.scheduler.snapshot()
    assert twin.next_wakeup() == world.scheduler.next_wakeup()


def two_that_run(second_stage_at):
    """The first is expected back at 100 and overdue after 110, and nothing is staged for it; the second at 120, 200."""
    placement = Placement()
    for id, ends_at, stage_at, overdue_at in ((1, 100, NEVER, 110), (2, 120, second_stage_at, 200)):
        worker = placement.workers[id] = Worker(id, None)
        worker.state, worker.capacity, worker.batches = WorkerState.READY, Capacity(1), {id: None}
        worker.ends_at, worker.stage_at, worker.overdue_at = ends_at, stage_at, overdue_at
        placement.refresh(worker)
    return placement


def test_once_the_first_is_overdue_a_batch_may_be_staged_for_the_next():
    placement = two_that_run(second_stage_at=90)
    assert placement.pick(95) is None
    assert placement.next_stage(95) == 111
    assert placement.pick(111).id == 2


def test_who_is_expected_back_does_not_depend_on_who_asked_before():
    asked, fresh = two_that_run(second_stage_at=190), two_that_run(second_stage_at=190)
    asked.pick(111)
    assert (asked.next_free(150).id, fresh.next_free(150).id) == (2, 2)
    assert (asked.next_stage(150), fresh.next_stage(150)) == (190, 190)
    assert (asked.next_free(201), fresh.next_free(201)) == (None, None)
