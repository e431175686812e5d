"""What is owed to whom of what a device gives, and who is told to starve."""

from __future__ import annotations

import pytest

from headway.core.effects import Effect, ReportStarvation
from headway.core.events import BatchCompleted, ServerConfigured, VersionConfigured, WorkerStarting
from headway.core.fairness import Account, Starved
from headway.core.ids import BatchKey, Measurement, VersionId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.shares import WINDOW, ShareClock
from headway.core.tenancy import Tenancy, TenantPolicy
from headway.core.units import NEVER, ms, seconds
from tests.unit.core_world import V, World, arrive, dispatches, outcomes

ONE = BatchPolicy(max_batch_size=1)
SECOND_EACH = tuple(Measurement(rows, length, seconds(1)) for rows in (1, 8) for length in (8, 256))


def account(clock: ShareClock, tenant: str, weight: float = 1.0, now: int = 0) -> Account:
    """One that waits from now on."""
    new = Account(tenant, weight, 0, clock.tallies.of(tenant))
    begin(clock, new, now)
    return new


def begin(clock: ShareClock, account: Account, now: int) -> None:
    clock.begin(account, now)
    clock.joins(account)
    account.waiting = 1


def end(clock: ShareClock, account: Account) -> None:
    account.waiting = 0
    clock.ends(account)


def test_those_who_wait_are_owed_what_is_given_in_proportion_to_their_weights():
    clock = ShareClock(Tenancy())
    light, heavy = account(clock, "light"), account(clock, "heavy", weight=3)
    clock.gave(ms(8))
    assert (clock.owed(light), clock.owed(heavy)) == (ms(2), ms(6))


def test_who_waits_alone_is_owed_all_of_it_and_who_does_not_wait_nothing():
    clock = ShareClock(Tenancy())
    stays, goes = account(clock, "stays"), account(clock, "goes")
    clock.gave(ms(2))
    end(clock, goes)
    clock.gave(ms(10))
    assert (clock.owed(stays), goes.owed) == (ms(11), ms(1))
    begin(clock, goes, seconds(1))
    clock.gave(ms(2))
    assert (clock.owed(stays), clock.owed(goes)) == (ms(12), ms(2))


def test_what_is_given_while_nobody_waits_is_owed_to_nobody():
    clock = ShareClock(Tenancy())
    clock.gave(ms(10))
    assert clock.owed(account(clock, "late")) == 0


def test_a_weight_that_changes_counts_from_then_on():
    clock = ShareClock(Tenancy())
    one, other = account(clock, "one"), account(clock, "other")
    clock.gave(ms(4))
    clock.reweigh(one, 3)
    clock.gave(ms(4))
    assert (clock.owed(one), clock.owed(other)) == (ms(2) + ms(3), ms(2) + ms(1))
    end(clock, one)
    end(clock, other)
    assert clock.weights == 0


def test_a_tenant_is_judged_when_it_has_waited_for_a_window_beside_another():
    clock = ShareClock(Tenancy())
    first = account(clock, "first", now=5)
    assert clock.next_judgement() == NEVER, "nobody is ahead of anybody"
    account(clock, "second", now=7)
    assert clock.next_judgement() == 5 + WINDOW
    assert clock.due(4 + WINDOW) is None
    assert clock.due(5 + WINDOW) is first
    assert clock.next_judgement() == 7 + WINDOW


def test_one_that_had_nothing_waiting_meanwhile_is_watched_anew():
    clock = ShareClock(Tenancy())
    goes = account(clock, "goes", now=0)
    account(clock, "stays", now=1)
    end(clock, goes)
    begin(clock, goes, ms(3))
    assert clock.next_judgement() == 1 + WINDOW
    clock.due(1 + WINDOW)
    assert clock.next_judgement() == ms(3) + WINDOW


@pytest.mark.parametrize(
    ("received", "neglected"),
    [
        (ms(49), True),
        (ms(50), False),  # half of what it was owed
        (ms(100), False),
    ],
)
def test_less_than_half_of_its_share_is_neglect(received, neglected):
    clock = ShareClock(Tenancy())
    one = account(clock, "one")
    account(clock, "other")
    for _ in range(20):
        clock.gave(ms(10))
    one.received = received
    assert clock.window(one) == (received, ms(100))
    assert clock.neglects(one) is neglected


def test_being_two_of_the_longest_batches_short_is_not_neglect_whatever_part_of_the_share_that_is():
    clock = ShareClock(Tenancy())
    one = account(clock, "one")
    account(clock, "other")
    for _ in range(4):
        clock.gave(ms(10))
    assert not clock.neglects(one)
    clock.gave(ms(2))
    assert clock.neglects(one)


def test_what_was_received_and_owed_before_the_window_does_not_count_in_it():
    clock = ShareClock(Tenancy())
    one = account(clock, "one")
    account(clock, "other")
    clock.gave(ms(1000))
    one.received = ms(900)
    clock.watch(one, seconds(1))
    clock.gave(ms(100))
    assert clock.window(one) == (0, ms(50))


def test_watching_over_and_over_leaves_no_growth():
    clock = ShareClock(Tenancy())
    one = account(clock, "one")
    for at in range(10_000):
        end(clock, one)
        begin(clock, one, at)
    assert len(clock._watched) < 100


# -- in the scheduler ---------------------------------------------------------------------------


def reports(effects: list[Effect]) -> list[ReportStarvation]:
    return [effect for effect in effects if isinstance(effect, ReportStarvation)]


class Unfair(World):
    """Batches of a second, one after the other. `debt` puts a tenant so far back that its turn does not come, as a
    bug of the order would."""

    def __init__(self, policy: BatchPolicy = ONE, server: ServerPolicy | None = None) -> None:
        super().__init__(policy, cost=SECOND_EACH, server=server)
        (self.running,) = dispatches(self.tell(arrive(0, tenant="served")))
        self.tell(arrive(1000, tenant="starved"), *(arrive(i, tenant="served") for i in range(1, 60)))
        self.indebt(seconds(1000))

    def indebt(self, amount: int) -> None:
        state = self.scheduler._state
        pool = state.pools[V]
        pool.device.correct(pool.fair.accounts["starved"], 0)
        pool.fair.accounts["starved"].counter += amount
        for queue in pool.keys.values():
            queue.turns.update(queue.tenants["starved"])
            pool.agenda.update(queue)

    def serve(self, batches: int) -> list[ReportStarvation]:
        told = []
        for _ in range(batches):
            effects = self.complete(self.running, at=self.now + seconds(1), took=seconds(1))
            told += reports(effects)
            (self.running,) = dispatches(effects)
        return told


def test_who_waits_for_a_window_and_gets_nothing_is_named():
    world = Unfair()
    assert world.serve(9) == []
    (report,) = world.serve(1)
    assert (report.tenant, report.starves, report.received) == ("starved", True, 0)
    assert report.owed == pytest.approx(seconds(5), rel=0.2)
    assert report.window == WINDOW


def test_whoever_is_ahead_of_it_is_named_with_it_and_borrows_no_room():
    world = Unfair(BatchPolicy(max_batch_size=1, max_queued_requests=52))
    world.serve(9)
    world.indebt(-seconds(2000))
    (report,) = reports(world.tell(at=seconds(10)))
    assert (report.tenant, report.ahead) == ("starved", "served")
    assert outcomes(world.tell(arrive(2000, tenant="served"))) == {2000: Outcome.TENANT_QUEUE_FULL}


def test_it_is_told_once_and_told_again_when_it_is_over():
    world = Unfair()
    assert [report.starves for report in world.serve(35)] == [True]
    world.tell(*(arrive(i, tenant="starved") for i in range(1001, 1020)))
    world.indebt(-seconds(2000))
    assert [(report.tenant, report.starves) for report in world.serve(11)] == [("starved", False)]


def test_who_leaves_starves_no_longer():
    world = Unfair()
    world.serve(10)
    world.indebt(-seconds(2000))
    (over,) = world.serve(2)
    assert (over.tenant, over.starves) == ("starved", False)
    assert not world.scheduler._state.pools[V].fair.starving


def test_the_one_ahead_borrows_no_room_until_it_is_over():
    bounded = BatchPolicy(max_batch_size=1, max_queued_requests=100)
    world = Unfair(bounded)
    fair = world.scheduler._state.pools[V].fair
    fair.accounts["served"].counter = fair.accounts["starved"].counter + 1  # ahead, and served all the same
    fair.starving["starved"] = Starved("served", 0)
    assert outcomes(world.tell(arrive(2000, tenant="served"))) == {2000: Outcome.TENANT_QUEUE_FULL}
    assert outcomes(world.tell(arrive(2001, tenant="starved"))) == {}
    del fair.starving["starved"]
    assert outcomes(world.tell(arrive(2002, tenant="served"))) == {}


def test_the_one_ahead_still_has_its_own_part_of_the_room():
    world = Unfair(BatchPolicy(max_batch_size=1, max_queued_requests=1000))
    world.scheduler._state.pools[V].fair.starving["starved"] = Starved("served", 0)
    assert outcomes(world.tell(arrive(2000, tenant="served"))) == {}


def test_who_waits_for_a_worker_that_is_only_starting_is_not_served_and_does_not_starve():
    on_cpu = BatchPolicy(max_batch_size=1, device="cpu", cores=1)
    world = World(on_cpu, cost=SECOND_EACH, server=ServerPolicy(devices=(("cpu", 1),)))
    loading = VersionId("loading", 1)
    world.tell(VersionConfigured(loading, on_cpu), WorkerStarting(9, loading, seconds(100)))
    (running,) = dispatches(world.tell(arrive(0, tenant="served")))
    world.tell(arrive(1, tenant="patient", key=BatchKey("loading", 1, "a")))
    world.tell(*(arrive(i, tenant="served") for i in range(2, 40)))
    for _ in range(25):
        effects = world.complete(running, at=world.now + seconds(1), took=seconds(1))
        assert reports(effects) == []
        (running,) = dispatches(effects)


def test_one_that_is_served_in_its_turn_is_never_named():
    world = World(ONE, cost=SECOND_EACH)
    (running,) = dispatches(world.tell(arrive(0, tenant="a")))
    world.tell(*(arrive(i, tenant=tenant) for n, tenant in enumerate("abc") for i in range(1 + 50 * n, 50 + 50 * n)))
    for _ in range(60):
        effects = world.tell(BatchCompleted(0, running.batch, seconds(1)), at=world.now + seconds(1))
        assert reports(effects) == []
        (running,) = dispatches(effects)


def test_a_heavier_weight_is_owed_more_in_the_window():
    world = Unfair(server=ServerPolicy(tenants=(("starved", TenantPolicy(weight=3)),)))
    (report,) = world.serve(10)
    assert report.owed == pytest.approx(seconds(7.5), rel=0.2)
    world.tell(ServerConfigured(ServerPolicy()))
    assert world.scheduler._state.pools[V].fair.accounts["starved"].weight == 1
