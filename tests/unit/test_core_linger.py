"""The ceiling of waiting for company that is derived from the SLO: its parts, and how it is moved."""

from __future__ import annotations

import json

import pytest

from headway.core.cost import CostModel
from headway.core.effects import Reason
from headway.core.events import BatchCompleted, ReplyWritten, VersionConfigured, WorkerReady, WorkerStarting
from headway.core.ids import Capacity, VersionId
from headway.core.linger import COMFORT, FEW, FIRST, LEAST, LONG, MOST, UP, WINDOW, Linger
from headway.core.policy import AUTOMATIC_BATCH_TIME, BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, Duration, Instant, ms, seconds, us
from headway.core.views import LingerDetail, detail
from tests.unit.core_world import FLAT, LINEAR, A, B, V, World, arrive, dispatches, members

SLO = ms(100)
DERIVED = BatchPolicy(slo=SLO, derive_delay=True, hold=True, deadline_margin=0)


def linger_of(world: World) -> LingerDetail:
    told = detail(world.scheduler, V, world.now)
    assert told is not None and told.linger is not None
    return told.linger


def in_force(world: World) -> Duration:
    (view,) = world.scheduler.views()
    return view.max_queue_delay


class Measured:
    """A Linger that is told of answers, each after so long, one millisecond after the other."""

    def __init__(self) -> None:
        self.cost = CostModel()
        self.cost.seed(FLAT)
        self.now: Instant = 0
        self.linger = Linger()
        self.linger.renew(SLO, self.cost, self.now)

    def answers(self, count: int, after: Duration) -> None:
        for _ in range(count):
            self.now += ms(1)
            self.linger.answered(self.now, self.now + after, SLO, 0)
        self.now += after

    def window(self, after: Duration, late: int = 0) -> float:
        """A whole window of answers, so many of them late. Returns the fraction after it."""
        self.answers(late, SLO + 1)
        self.answers(WINDOW - late, after)
        assert self.linger.is_over(self.now)
        self.linger.adapt()
        self.linger.renew(SLO, self.cost, self.now)
        return self.linger.fraction


EARLY, BUSY = ms(79), round(COMFORT * SLO) + 1
"""An answer with which all is well, and one that is in time with nothing to spare."""


# -- the parts ------------------------------------------------------------------------------------


def test_before_the_first_request_a_cautious_part_of_what_a_warmed_up_row_leaves_is_waited() -> None:
    world = World(DERIVED, cost=LINEAR)
    linger = linger_of(world)
    assert (linger.rows, linger.length, linger.outside, linger.fraction) == (1, 256, 0, FIRST)
    assert ms(51) < linger.run_time < ms(60), "256 tokens of 0.2 ms, at the upper quantile"
    assert in_force(world) == linger.ceiling == int(FIRST * (SLO - linger.run_time))


def test_the_run_time_is_that_of_the_dearest_batch_of_the_last_window() -> None:
    m = Measured()
    m.cost = CostModel()
    m.cost.seed(LINEAR)
    for rows, length, pace in ((1, 8, 1.0), (4, 64, 1.0), (2, 64, 1.5), (3, 64, 1.0)):
        m.linger.ran(rows, length, pace, m.cost)
    assert m.linger.rows == 0, "not before the window ends"
    m.linger.renew(SLO, m.cost, 0)
    assert (m.linger.rows, m.linger.length, m.linger.run_time) == (4, 64, m.cost.upper(4, 64))
    m.linger.ran(4, 64, 1.0, m.cost)
    m.linger.ran(3, 64, 1.5, m.cost)
    m.linger.renew(SLO, m.cost, 0)
    assert m.linger.run_time == int(1.5 * m.cost.upper(3, 64)), "as its worker, which is slow, takes for it"


def test_a_restarted_worker_does_not_change_what_was_learned_of_batches() -> None:
    m = Measured()
    m.linger.ran(8, 16, 1.0, m.cost)
    m.linger.renew(SLO, m.cost, 0)
    m.linger.expect(256)
    assert (m.linger.rows, m.linger.length) == (8, 16)


def test_where_the_run_time_leaves_nothing_nothing_is_waited() -> None:
    world = World(BatchPolicy(slo=ms(9), derive_delay=True, hold=True))
    assert in_force(world) == 0
    assert [batch.reason for batch in dispatches(world.tell(arrive(1)))] == [Reason.LINGER]


def test_time_outside_is_taken_off_from_the_next_window_on() -> None:
    world = World(DERIVED)
    before = in_force(world)
    world.tell(ReplyWritten(1, ms(20), V))
    assert linger_of(world).outside == ms(20)
    assert in_force(world) == before
    world.tell(WorkerStarting(7, V), WorkerReady(7, Capacity(1), FLAT))
    assert in_force(world) == int(FIRST * (SLO - linger_of(world).run_time - linger_of(world).outside)) < before


def test_a_reply_of_another_or_of_no_known_version_teaches_nothing() -> None:
    world = World(DERIVED)
    world.tell(ReplyWritten(1, ms(20)), ReplyWritten(2, ms(20), VersionId("other", 1)))
    assert linger_of(world).outside == 0


def test_time_outside_comes_to_rest_where_one_reply_in_twenty_takes_longer() -> None:
    linger = Linger()
    spent = [ms(1) + us(10) * (n * 37 % 100) for n in range(5000)]  # 1 to 2 ms, evenly
    for overhead in spent:
        linger.spent_outside(overhead)
    assert ms(1.88) < linger.outside < ms(2.05)


def test_one_stray_reply_hardly_moves_the_time_outside() -> None:
    linger = Linger()
    for _ in range(50):
        linger.spent_outside(ms(2))
    before = linger.outside
    linger.spent_outside(seconds(3))
    assert before < linger.outside < 1.05 * before


def test_what_the_core_sees_of_the_hand_over_is_not_counted_twice() -> None:
    linger = Linger()
    linger.spent_outside(ms(6))
    linger.answered(0, SLO - ms(3), SLO, hand_over=ms(4))
    assert linger.late == 0, "97 ms with the hand-over, and 2 ms beside"
    linger.answered(0, SLO - ms(3), SLO, hand_over=ms(2))
    assert linger.late == 1


# -- how it is moved --------------------------------------------------------------------------------


def test_early_answers_raise_it_by_one_step() -> None:
    assert Measured().window(EARLY) == FIRST + UP


def test_of_a_hundred_answers_one_may_be_late_and_two_halve_it() -> None:
    assert Measured().window(EARLY, late=1) >= FIRST
    assert Measured().window(EARLY, late=2) == FIRST / 2


def test_two_late_answers_end_the_window_at_once() -> None:
    m = Measured()
    m.answers(2, SLO + 1)
    assert m.linger.is_over(m.now)


def test_between_comfort_and_the_slo_it_is_at_rest() -> None:
    m = Measured()
    m.answers(WINDOW - 5, EARLY)
    m.answers(5, BUSY)
    m.linger.adapt()
    assert m.linger.fraction == FIRST + UP, "five in a hundred are beyond: p95 is below"
    assert [Measured().window(BUSY) for _ in range(3)] == [FIRST] * 3


def test_a_ceiling_that_no_answer_reached_is_not_raised() -> None:
    m = Measured()
    assert m.window(m.linger.ceiling - 1) == FIRST
    assert m.window(m.linger.ceiling) == FIRST + UP


def test_answers_to_requests_from_before_the_change_are_no_evidence() -> None:
    m = Measured()
    m.now = ms(500)
    m.linger.renew(SLO, m.cost, m.now)
    for _ in range(50):
        m.linger.answered(m.now - 1, m.now + seconds(1), SLO, 0)
    assert not m.linger.is_over(m.now + seconds(60))
    m.linger.answered(m.now, m.now + seconds(1), SLO, 0)
    m.linger.answered(m.now, m.now + seconds(1), SLO, 0)
    assert m.linger.is_over(m.now)


def test_a_window_of_few_answers_ends_after_a_time() -> None:
    m = Measured()
    m.answers(FEW - 1, EARLY)
    assert not m.linger.is_over(LONG)
    m.answers(1, EARLY)
    assert not m.linger.is_over(LONG - 1) and m.linger.is_over(LONG)


def test_however_long_it_goes_on_it_stays_above_nothing_and_below_all_and_comes_back() -> None:
    m = Measured()
    assert [m.window(EARLY, late=2) for _ in range(20)][-1] == LEAST > 0
    assert [m.window(EARLY) for _ in range(60)][-1] == MOST < 1


# -- in the scheduler ---------------------------------------------------------------------------------


def late_pair(world: World, first: int) -> None:
    """Two requests of key A leave at their ceiling, and are answered beyond the SLO."""
    world.tell(arrive(first), arrive(first + 1))
    (batch,) = dispatches(world.tell(at=world.now + in_force(world)))
    world.tell(BatchCompleted(0, batch.batch, ms(10)), at=world.now + SLO)


def test_a_held_part_leaves_at_the_derived_ceiling() -> None:
    world = World(DERIVED)
    world.tell(arrive(1))
    assert world.scheduler.next_wakeup() == in_force(world) > ms(15)
    assert world.tell(at=in_force(world) - 1) == []
    assert [batch.reason for batch in dispatches(world.tell(at=in_force(world)))] == [Reason.LINGER]


def test_a_ceiling_that_falls_calls_those_who_wait_already() -> None:
    world = World(DERIVED, workers=2)
    world.tell(arrive(1), arrive(2))
    (batch,) = dispatches(world.tell(at=in_force(world)))
    before = in_force(world)
    since = world.now + SLO - ms(5)
    world.tell(arrive(3, key=B), at=since)
    assert world.scheduler.next_wakeup() == since + before
    world.tell(BatchCompleted(0, batch.batch, ms(10)), at=since + ms(5))
    assert ms(5) < in_force(world) < 0.6 * before
    assert world.scheduler.next_wakeup() == since + in_force(world)
    assert members(world.tell(at=since + in_force(world))) == [[3]]


def test_a_latest_safe_start_comes_before_the_derived_ceiling() -> None:
    world = World(DERIVED)
    world.tell(arrive(1, deadline=ms(14)))
    assert world.scheduler.next_wakeup() < ms(5) < in_force(world)


def test_late_answers_lower_it_and_early_ones_bring_it_back() -> None:
    world = World(DERIVED)
    late_pair(world, 1)
    assert linger_of(world).fraction == FIRST / 2
    for request in range(1000, 1000 + 9 * WINDOW):
        world.tell(arrive(request))
        (batch,) = dispatches(world.tell(at=world.now + in_force(world)))
        world.complete(batch, at=world.now + ms(10))
    assert linger_of(world).fraction == FIRST / 2 + 9 * UP


def test_who_gave_up_after_more_than_the_slo_counts_as_late_and_who_had_less_time_does_not() -> None:
    world = World(DERIVED)
    world.tell(arrive(1))
    world.tell(at=in_force(world))
    began = world.now
    world.tell(arrive(2, deadline=began + SLO - 1), arrive(3, deadline=began + SLO + 1))
    world.tell(at=began + SLO - 1)
    world.tell(at=began + SLO + 1)
    assert (linger_of(world).answers, linger_of(world).late) == (1, 1)


def test_a_fixed_delay_stays_whatever_is_measured() -> None:
    world = World(BatchPolicy(slo=SLO, max_queue_delay=ms(7), hold=True))
    assert in_force(world) == ms(7)
    for first in range(1, 20, 2):
        late_pair(world, first)
        assert in_force(world) == ms(7)
    told = detail(world.scheduler, V, 0)
    assert told is not None and told.linger is None


def test_the_operator_may_fix_it_and_let_it_go_again_while_parts_wait() -> None:
    world = World(DERIVED)
    world.tell(arrive(1))
    world.tell(VersionConfigured(V, BatchPolicy(slo=SLO, hold=True, max_queue_delay=ms(2))))
    assert world.scheduler.next_wakeup() == in_force(world) == ms(2)
    world.tell(VersionConfigured(V, DERIVED))
    assert world.scheduler.next_wakeup() == in_force(world) > ms(15)


def test_without_an_slo_there_is_nothing_to_derive_from() -> None:
    assert in_force(World(BatchPolicy(derive_delay=True, max_queue_delay=ms(3)))) == ms(3)


def test_a_snapshot_in_the_middle_of_a_window_holds_all_of_it() -> None:
    world = World(DERIVED)
    late_pair(world, 1)
    world.tell(arrive(3), ReplyWritten(1, ms(3), V))
    (batch,) = dispatches(world.tell(at=world.now + in_force(world)))
    world.complete(batch, at=world.now + ms(10))
    assert linger_of(world).answers == 1
    saved = json.loads(json.dumps(world.scheduler.snapshot()))
    restored = Scheduler.restore(saved)
    assert json.loads(json.dumps(restored.snapshot())) == saved
    told = detail(restored, V, world.now)
    assert told is not None and told.linger == linger_of(world)
    assert restored.views()[0].max_queue_delay == in_force(world)


# -- the cap on run time ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "limit"),
    [
        (BatchPolicy(), AUTOMATIC_BATCH_TIME),
        (BatchPolicy(slo=ms(100)), ms(50)),
        (BatchPolicy(slo=seconds(2)), AUTOMATIC_BATCH_TIME),
        (BatchPolicy(hold=True), NEVER),
        (BatchPolicy(hold=True, slo=seconds(2)), seconds(1)),
        (BatchPolicy(slo=ms(100), max_batch_time=ms(70)), ms(70)),
    ],
)
def test_a_batch_may_take_half_of_the_slo(policy: BatchPolicy, limit: Duration) -> None:
    assert policy.time_limit(ms(3)) == limit


def test_a_head_that_takes_more_than_half_of_the_slo_may_have_as_much_company() -> None:
    assert BatchPolicy(slo=ms(100)).time_limit(ms(60)) == ms(120)
    assert BatchPolicy(slo=ms(100), max_batch_time=ms(70)).time_limit(ms(60)) == ms(70)


def test_a_held_batch_is_full_when_it_takes_half_of_the_slo() -> None:
    world = World(BatchPolicy(slo=ms(100), hold=True, max_queue_delay=ms(90)), cost=LINEAR)
    effects = []
    for request in range(8):
        effects += world.tell(arrive(request, key=A, length=64))
    (batch,) = dispatches(effects)
    assert batch.reason is Reason.FULL
    assert len(batch.parts) in (3, 4), "12.8 ms each"
