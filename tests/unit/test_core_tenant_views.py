"""What is told of tenants: what they received and were owed, whose room they are in, who starves, what is foreseen."""

from __future__ import annotations

import json

import pytest

from headway.core.effects import DispatchBatch
from headway.core.events import ServerConfigured, TokensEmitted, WorkerLost, WorkerReady, WorkerStarting
from headway.core.ids import Capacity
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.scheduler import Scheduler
from headway.core.shares import WINDOW
from headway.core.tallies import SPAN
from headway.core.tenancy import STRANGERS, RateLimit, TenantPolicy
from headway.core.tenant_views import TenantDetail, TenantRoom, TenantShare, rooms, shares
from headway.core.units import NEVER, SECOND, ms, seconds
from headway.core.views import detail
from tests.unit.core_world import FLAT, V, World, arrive, dispatches, outcomes

ONE = BatchPolicy(max_batch_size=1, max_queued_requests=100_000, shed=False)


def policy(*, heavy: float = 3, **others: TenantPolicy) -> ServerPolicy:
    return ServerPolicy(tenants=(("heavy", TenantPolicy(heavy)), ("light", TenantPolicy()), *others.items()))


def share(world: World, tenant: str) -> TenantShare:
    (found,) = [one for one in shares(world.scheduler) if one.tenant == tenant]
    return found


def room(world: World, tenant: str) -> TenantRoom:
    (found,) = [one for one in rooms(world.scheduler) if one.tenant == tenant]
    return found


def told(world: World, tenant: str) -> TenantDetail:
    found = detail(world.scheduler, V, world.now)
    assert found is not None
    (one,) = [one for one in found.tenants if one.tenant == tenant]
    return one


def backlogged(*tenants: str, server: ServerPolicy | None = None, each: int = 100) -> tuple[World, DispatchBatch]:
    """All of them have something waiting, and the first has one that runs."""
    world = World(ONE, server=server or policy())
    events = [arrive(10_000 * n + i, tenant=name) for n, name in enumerate(tenants) for i in range(each)]
    (running,) = dispatches(world.tell(*events))
    return world, running


def serve(world: World, running: DispatchBatch, batches: int, took: int = ms(10)) -> DispatchBatch:
    for _ in range(batches):
        (running,) = dispatches(world.complete(running, at=world.now + took, took=took))
    return running


def test_received_follows_the_weights_and_owed_is_what_it_should_have_been() -> None:
    world, running = backlogged("heavy", "light")
    serve(world, running, 80)
    assert share(world, "heavy").received == pytest.approx(ms(600), abs=ms(20))
    assert share(world, "light").received == pytest.approx(ms(200), abs=ms(20))
    assert share(world, "heavy").owed == pytest.approx(ms(600), abs=ms(10))
    assert share(world, "light").owed == pytest.approx(ms(200), abs=ms(10))


def assert_it_adds_up(world: World) -> None:
    """What was owed is what was received, and what runs, as predicted."""
    state = world.scheduler._state
    received = sum(one.received for one in shares(world.scheduler))
    owed = sum(one.owed for one in shares(world.scheduler))
    charged = sum(batch.predicted for worker in state.workers.values() for batch in worker.batches.values())
    unsettled = state.devices[str(V)].fair.clock.tallies.unsettled
    assert owed + unsettled == pytest.approx(received + charged, abs=10)


def test_what_was_owed_adds_up_to_what_was_received_though_batches_take_other_than_predicted() -> None:
    world, running = backlogged("heavy", "light", "stranger")
    running = serve(world, running, 30)
    running = serve(world, running, 30, took=ms(35))
    serve(world, running, 30, took=ms(4))
    received = sum(one.received for one in shares(world.scheduler))
    assert received == pytest.approx(30 * (ms(10) + ms(35) + ms(4)), abs=10)
    assert_it_adds_up(world)


def test_neither_ever_falls_whatever_happens_to_a_batch() -> None:
    world, running = backlogged("heavy", "light")
    before = share(world, "heavy")
    for number in range(40):
        if number % 5 == 4:
            lost = WorkerLost(running.worker), WorkerStarting(number, V), WorkerReady(number, Capacity(1), FLAT)
            (running,) = dispatches(world.tell(*lost, at=world.now + ms(1)))
        else:
            took = ms(1) if number % 2 else ms(30)
            (running,) = dispatches(world.complete(running, at=world.now + took, took=took))
        after = share(world, "heavy")
        assert after.received >= before.received and after.owed >= before.owed
        assert_it_adds_up(world)
        before = after


def test_what_was_owed_does_not_fall_where_more_is_lost_than_leaves_next() -> None:
    world = World(ONE, workers=3, server=policy())
    world.tell(*(arrive(number, tenant="light") for number in range(50)))
    before = share(world, "light").owed
    world.tell(WorkerLost(0), WorkerLost(1), at=ms(5))
    world.tell(WorkerStarting(9, V), WorkerReady(9, Capacity(1), FLAT))
    assert share(world, "light").owed == before, "of two lost batches one still makes up for the next"
    assert_it_adds_up(world)


def test_what_a_lost_worker_ran_was_received_by_nobody() -> None:
    world = World(ONE, server=policy())
    world.tell(arrive(1, tenant="heavy"))
    world.tell(WorkerLost(0), at=ms(500))
    assert share(world, "heavy").received == 0


def test_who_had_nothing_waiting_was_owed_nothing_meanwhile() -> None:
    world, running = backlogged("light")
    running = serve(world, running, 50)
    assert share(world, "heavy").owed == 0
    world.tell(*(arrive(50_000 + i, tenant="heavy") for i in range(100)))
    serve(world, running, 40)
    assert share(world, "heavy").owed == pytest.approx(ms(300), abs=ms(10))


def test_the_total_of_a_tenant_that_leaves_is_kept_and_goes_on_when_it_is_back() -> None:
    world = World(ONE, server=policy())
    for number in range(3):
        (running,) = dispatches(world.tell(arrive(number, tenant="light")))
        world.complete(running, at=world.now + ms(10))
        assert "light" not in world.scheduler.views()[0].counters, "its account is closed"
        assert share(world, "light").received == (number + 1) * ms(10)
        assert share(world, "light").owed == pytest.approx((number + 1) * ms(10), abs=1000)


def test_strangers_are_counted_together_and_leave_no_growth() -> None:
    world = World(ONE, server=policy())
    for number in range(500):
        (running,) = dispatches(world.tell(arrive(number, tenant=f"stranger-{number}")))
        world.complete(running, at=world.now + ms(10))
    assert share(world, STRANGERS).received == 500 * ms(10)
    state = world.scheduler._state
    assert list(state.devices[str(V)].fair.clock.tallies.by_tenant) == [STRANGERS]
    assert [one.tenant for one in shares(world.scheduler)] == ["heavy", "light", STRANGERS]
    assert not state.pools[V].room.lost and not state.pools[V].room.regained


def test_strangers_that_wait_side_by_side_are_owed_the_sum_of_their_parts() -> None:
    world, running = backlogged("light", "one", "two", server=policy())
    serve(world, running, 90)
    assert share(world, STRANGERS).owed == pytest.approx(ms(600), abs=ms(10))
    assert share(world, "light").owed == pytest.approx(ms(300), abs=ms(10))


def test_a_tenant_that_is_named_while_it_waits_is_counted_by_its_name_from_then_on_and_keeps_that() -> None:
    world, running = backlogged("light", "newcomer")
    running = serve(world, running, 20)
    world.tell(ServerConfigured(policy(newcomer=TenantPolicy())))
    running = serve(world, running, 20)
    assert share(world, "newcomer").received == pytest.approx(ms(100), abs=ms(20))
    assert share(world, STRANGERS).received == pytest.approx(ms(100), abs=ms(20))
    assert share(world, "newcomer").owed == pytest.approx(ms(100), abs=ms(10))
    world.tell(ServerConfigured(policy()))
    serve(world, running, 20)
    assert share(world, "newcomer").received == pytest.approx(ms(200), abs=ms(20))


def test_other_weights_hold_for_what_is_owed_from_then_on_and_no_batch_counts_by_both() -> None:
    world, running = backlogged("heavy", "light", server=policy(heavy=1))
    running = serve(world, running, 20)
    world.tell(ServerConfigured(policy(heavy=1000)))
    received = sum(one.received for one in shares(world.scheduler))
    running = serve(world, running, 1)
    assert sum(one.received for one in shares(world.scheduler)) == received + ms(10)
    serve(world, running, 40)
    assert share(world, "light").owed == pytest.approx(ms(100), abs=ms(12))


def test_results_of_sequences_are_received() -> None:
    world = World(BatchPolicy(style=Style.SEQUENCE), capacity=Capacity(0, sequences=1), server=policy())
    world.tell(arrive(1, tenant="light"), arrive(2, tenant="heavy"))
    world.tell(TokensEmitted(0, 1, 1, 0, 2, ms(7)))
    assert (share(world, "light").received, share(world, "heavy").received) == (ms(7), 0)
    assert share(world, "heavy").owed == ms(7), "who waits is owed it"


def lent(server: ServerPolicy, also: str = "greedy") -> World:
    """All four places are taken by one tenant, or a part of them by another."""
    world = World(BatchPolicy(max_batch_size=1, max_queued_requests=4, shed=False), server=server)
    world.tell(arrive(0, tenant="greedy"))
    world.tell(*(arrive(n, tenant="greedy") for n in range(1, 4)), arrive(4, tenant=also))
    return world


def test_borrowed_is_what_is_beyond_the_tenants_part_of_the_room() -> None:
    world = lent(policy(greedy=TenantPolicy()), also="light")
    assert (room(world, "greedy").waiting, room(world, "light").waiting) == (3, 1)
    assert (room(world, "greedy").borrowed, room(world, "light").borrowed) == (1, 0)
    assert room(lent(policy()), STRANGERS) == TenantRoom(V, STRANGERS, 4, 0, 0, 0), "nobody else is in it"
    together = room(lent(policy(), also="light"), STRANGERS)
    assert (together.waiting, together.borrowed) == (3, 1)


def test_reclaimed_slots_are_told_of_both_sides_and_stay_told() -> None:
    world = lent(policy(greedy=TenantPolicy()))
    world.tell(arrive(10, tenant="light"), arrive(11, tenant="light"))
    assert (room(world, "greedy").lost, room(world, "greedy").regained) == (2, 0)
    assert (room(world, "light").lost, room(world, "light").regained) == (0, 2)
    world = lent(policy())
    world.tell(arrive(10, tenant="another"))
    assert (room(world, STRANGERS).lost, room(world, STRANGERS).regained) == (1, 1)


def test_what_a_tenants_own_other_lengths_take_from_it_was_not_lent() -> None:
    world = World(BatchPolicy(max_batch_size=1, max_queued_requests=4, shed=False), server=policy())
    world.tell(arrive(0, tenant="light", length=256))
    world.tell(*(arrive(number, tenant="light", length=256) for number in range(1, 5)))
    effects = world.tell(arrive(9, tenant="light", length=8))
    assert outcomes(effects) == {4: Outcome.RECLAIMED}
    assert (room(world, "light").lost, room(world, "light").regained) == (0, 0)


def neglected(tenant: str = "light") -> World:
    """It waits for a whole window in which another gets everything."""
    world, running = backlogged("heavy", tenant, each=150)
    fair = world.scheduler._state.devices[str(V)].fair
    while world.now < WINDOW + seconds(2):
        fair.accounts[tenant].counter = 10 * world.now + SECOND * 1000  # as if it had had its share long ago
        running = serve(world, running, 1, took=ms(100))
    return world


@pytest.mark.parametrize(("tenant", "told_as"), [("light", "light"), ("stranger", STRANGERS)])
def test_who_starves_is_told_with_since_when_and_how_often_and_why(tenant: str, told_as: str) -> None:
    world = neglected(tenant)
    found = share(world, told_as)
    assert (found.starving, found.spells) == (1, 1)
    assert WINDOW <= found.since <= WINDOW + ms(100)
    neglect = told(world, told_as).neglect
    assert neglect is not None
    assert (neglect.received, neglect.running, neglect.served) == (0, 0, True)
    assert neglect.owed > 0
    assert neglect.window == pytest.approx(seconds(2), abs=ms(200))
    assert share(world, "heavy").since == NEVER
    assert told(world, "heavy").neglect is None


def test_the_last_while_is_told_by_itself_and_never_of_less_than_a_span_once_there_was_one() -> None:
    world, running = backlogged("light", each=130)
    serve(world, running, 120, took=ms(300))
    lately = told(world, "light").lately
    assert SPAN <= lately.span <= 2 * SPAN + ms(300)
    assert lately.received == pytest.approx(lately.span, abs=ms(600))
    assert lately.owed == pytest.approx(lately.span, abs=ms(600))
    assert share(world, "light").received == seconds(36)


def test_limits_are_told_with_what_is_left_of_them_now() -> None:
    limits = RateLimit(requests_per_second=10, burst=2), RateLimit(concurrent=3, beyond=64)
    world = World(ONE, server=policy(bound=TenantPolicy(limits=limits)))
    assert [(use.requests, use.open) for use in told(world, "bound").limits] == [(20, 0), (0, 0)]
    world.tell(*(arrive(n, tenant="bound", length=100) for n in range(2)), arrive(2, tenant="bound"))
    assert [(use.requests, use.open) for use in told(world, "bound").limits] == [(17, 3), (0, 2)]
    world.now = ms(100)
    assert told(world, "bound").limits[0].requests == pytest.approx(18)
    assert told(world, STRANGERS).limits == [] and told(world, "heavy").limits == []


def test_what_is_foreseen_is_more_for_who_has_more_waiting() -> None:
    shedding = BatchPolicy(max_batch_size=1, max_queued_requests=10_000)
    world = World(shedding, server=policy())
    assert told(world, "light").foreseen == 0, "a worker is free"
    world.tell(*(arrive(n, tenant="light") for n in range(100)))
    light, heavy = told(world, "light").foreseen, told(world, "heavy").foreseen
    assert light is not None and heavy is not None
    assert light == pytest.approx(seconds(1), rel=0.1)
    assert heavy < ms(60)
    for _ in range(200):
        world.scheduler._state.pools[V].outlook.learn(ms(100), ms(200))
    assert told(world, "light").foreseen == pytest.approx(2 * light, rel=0.1), "as forecasts usually turn out"
    assert told(World(ONE), STRANGERS).foreseen is None


def test_the_forecast_is_told_with_how_it_turned_out() -> None:
    world = World(server=policy())
    outlook = world.scheduler._state.pools[V].outlook
    for took in [150] * 40 + [250]:
        outlook.learn(ms(100), ms(took))
    found = detail(world.scheduler, V, 0)
    assert found is not None and found.forecast is not None
    assert (found.forecast.answers, found.forecast.counts) == (41, True)
    assert found.forecast.usual == pytest.approx(1.5, rel=0.05)
    assert 0 < found.forecast.margin <= ms(100)
    plain = detail(World(ONE).scheduler, V, 0)
    assert plain is not None and plain.forecast is None


def test_totals_survive_a_snapshot_and_go_on_alike() -> None:
    world, running = backlogged("heavy", "stranger", each=60)
    running = serve(world, running, 7)
    world.tell(*(arrive(70_000 + number, tenant="light") for number in range(60)))
    world.tell(ServerConfigured(policy(gone=TenantPolicy())))
    world.tell(ServerConfigured(policy()))
    running = serve(world, running, 25, took=ms(900))
    saved = json.loads(json.dumps(world.scheduler.snapshot()))
    other = Scheduler.restore(saved)
    other.check()
    assert json.loads(json.dumps(other.snapshot())) == saved
    twin = World.__new__(World)
    twin.scheduler, twin.now = other, world.now
    serve(world, running, 60)
    serve(twin, running, 60)
    assert shares(other) == shares(world.scheduler)
    assert rooms(other) == rooms(world.scheduler)
    assert "gone" in [one.tenant for one in shares(other)]
    assert told(twin, "light") == told(world, "light")
    assert other.snapshot() == world.scheduler.snapshot()


def test_reclaimed_slots_and_starvation_survive_a_snapshot() -> None:
    world = neglected()
    other = Scheduler.restore(json.loads(json.dumps(world.scheduler.snapshot())))
    assert shares(other) == shares(world.scheduler)
    world = lent(policy())
    world.tell(arrive(10, tenant="light"))
    other = Scheduler.restore(json.loads(json.dumps(world.scheduler.snapshot())))
    assert rooms(other) == rooms(world.scheduler)


def test_to_look_changes_nothing() -> None:
    world, running = backlogged("heavy", "light", "stranger")
    serve(world, running, 25)
    before = world.scheduler.snapshot()
    world.now += seconds(30)
    told(world, "light")
    shares(world.scheduler), rooms(world.scheduler)
    assert world.scheduler.snapshot() == before
