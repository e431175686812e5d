"""Tenants, classes and sequences."""

from __future__ import annotations

from headway.core.effects import AbortSequence, AdmitSequence, DeliverTokens, ResolveRequest
from headway.core.events import (
    BatchCompleted,
    CapacityChanged,
    RequestCancelled,
    SequenceFailed,
    SequenceFinished,
    TokensEmitted,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
)
from headway.core.ids import Capacity
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.tenancy import TenantPolicy
from headway.core.units import ms, seconds
from tests.unit.core_world import A, V, World, arrive, dispatches, outcomes

ONE = BatchPolicy(max_batch_size=1, max_queued_requests=10_000)
ENGINE = BatchPolicy(style=Style.SEQUENCE)


def serve(world, batches, running, took=10_000_000):
    """Complete `batches` batches one after the other; the tenants served, in order, by request id."""
    served = []
    for _ in range(batches):
        running = dispatches(world.complete(running, at=world.now + took, took=took))[0]
        served += [ref.request for ref in running.parts]
    return served, running


def test_a_flood_of_one_tenant_does_not_delay_another():
    world = World(ONE)
    running = dispatches(world.tell(arrive(0, tenant="flood")))[0]
    world.tell(*(arrive(i, tenant="flood") for i in range(1, 1000)))
    world.tell(arrive(5000, tenant="polite"))
    served, _ = serve(world, 2, running)
    assert 5000 in served


def test_shares_follow_the_weights():
    world = World(ONE, server=ServerPolicy(tenants=(("big", TenantPolicy(weight=3.0)), ("small", TenantPolicy()))))
    running = dispatches(world.tell(arrive(0, tenant="big")))[0]
    world.tell(*(arrive(i, tenant="big") for i in range(1, 200)))
    world.tell(*(arrive(i, tenant="small") for i in range(1000, 1200)))
    served, _ = serve(world, 80, running)
    assert abs(sum(i < 1000 for i in served) - 60) <= 1


def test_nobody_banks_credit_by_being_away():
    world = World(ONE)
    running = dispatches(world.tell(arrive(0, tenant="busy")))[0]
    world.tell(*(arrive(i, tenant="busy") for i in range(1, 300)))
    _, running = serve(world, 100, running)
    world.tell(*(arrive(i, tenant="returns") for i in range(1000, 1100)))
    served, _ = serve(world, 40, running)
    assert abs(sum(i >= 1000 for i in served) - 20) <= 1


def test_a_batch_is_shared_in_the_order_of_tentative_counters():
    world = World(BatchPolicy(max_batch_size=8))
    running = dispatches(world.tell(arrive(0, tenant="flood")))[0]
    world.tell(*(arrive(i, tenant="flood") for i in range(1, 100)))
    world.tell(*(arrive(i, tenant="other") for i in range(1000, 1004)))
    served, _ = serve(world, 1, running)
    assert sum(i >= 1000 for i in served) == 4


def test_tenants_that_come_once_leave_no_growth():
    world = World()
    for i in range(2000):
        running = dispatches(world.tell(arrive(i, tenant=f"tenant-{i}")))
        world.complete(running[0], at=world.now + ms(1))
    assert len(world.scheduler.views()[0].counters) <= 2
    assert len(world.scheduler._state.pools[V].fair._debtors) <= 2


def test_odd_keys_leave_no_growth():
    world = World()
    for i in range(2000):
        running = dispatches(world.tell(arrive(i, key=A._replace(signature=f"shape-{i}"))))
        world.complete(running[0], at=world.now + ms(1))
    assert len(world.scheduler._state.pools[V].keys) <= 17


def test_a_higher_class_goes_first_and_a_lower_one_is_not_starved():
    patience = (ms(100), seconds(1), seconds(10))
    world = World(ONE, server=ServerPolicy(patience=patience))
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1, priority=2), arrive(2, priority=1), arrive(3, priority=0))
    served, running = serve(world, 3, running)
    assert served == [3, 2, 1]
    world.tell(arrive(9, priority=2))
    for i in range(100, 1300):  # a worker that is never without a newer request of the top class
        world.tell(arrive(i, priority=0))
        served, running = serve(world, 1, running)
        if 9 in served:
            break
    assert 9 in served
    assert world.now <= seconds(10.1)


def test_within_tenant_and_class_the_order_is_arrival():
    world = World(ONE)
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(*(arrive(i) for i in range(1, 20)))
    assert serve(world, 19, running)[0] == list(range(1, 20))


def test_a_tight_deadline_goes_first_within_its_tenant():
    world = World(ONE)
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(arrive(1), arrive(2, deadline=ms(100)))
    assert serve(world, 1, running)[0] == [2]


def test_an_engine_gets_as_many_sequences_as_it_says_it_has_room_for():
    world = World(ENGINE, capacity=Capacity(0, sequences=2))
    effects = world.tell(arrive(1), arrive(2), arrive(3))
    assert effects == [AdmitSequence(0, 1, 1, A), AdmitSequence(0, 2, 1, A)]
    assert world.tell(SequenceFinished(0, 1, 1)) == [
        ResolveRequest(1, Outcome.COMPLETED),
        AdmitSequence(0, 3, 1, A),
    ]


def test_an_engine_that_reports_more_room_gets_more():
    world = World(ENGINE, capacity=Capacity(0, sequences=1))
    world.tell(arrive(1), arrive(2))
    assert world.tell(CapacityChanged(0, Capacity(0, sequences=2))) == [AdmitSequence(0, 2, 1, A)]


def test_results_of_a_sequence_are_passed_on_once_and_in_order():
    world = World(ENGINE, capacity=Capacity(0, sequences=2))
    world.tell(arrive(1))
    assert world.tell(TokensEmitted(0, 1, 1, 0, 2, ms(1))) == [DeliverTokens(1, 1, 0, 2)]
    assert world.tell(TokensEmitted(0, 1, 1, 0, 2, ms(1))) == [], "told twice"
    assert world.tell(TokensEmitted(0, 1, 2, 2, 1, ms(1))) == [], "another attempt"
    assert world.tell(TokensEmitted(0, 1, 1, 2, 1, ms(1))) == [DeliverTokens(1, 1, 2, 1)]


def test_an_aborted_sequence_keeps_its_room_until_the_engine_lets_go():
    world = World(ENGINE, capacity=Capacity(0, sequences=1))
    world.tell(arrive(1), arrive(2))
    assert world.tell(RequestCancelled(1)) == [
        ResolveRequest(1, Outcome.CANCELLED),
        AbortSequence(0, 1, 1),
    ]
    assert world.tell(TokensEmitted(0, 1, 1, 0, 1, ms(1))) == []
    assert world.tell(SequenceFinished(0, 1, 1)) == [AdmitSequence(0, 2, 1, A)]


def test_a_sequence_that_raises_fails_alone():
    world = World(ENGINE, capacity=Capacity(0, sequences=2))
    world.tell(arrive(1), arrive(2))
    assert outcomes(world.tell(SequenceFailed(0, 1, 1, Outcome.MODEL_ERROR, "boom"))) == {1: Outcome.MODEL_ERROR}
    assert outcomes(world.tell(SequenceFinished(0, 2, 1))) == {2: Outcome.COMPLETED}


def test_of_a_lost_engine_s_sequences_only_those_begin_again_of_which_the_client_has_seen_nothing():
    world = World(ENGINE, capacity=Capacity(0, sequences=2))
    world.tell(arrive(1), arrive(2))
    world.tell(TokensEmitted(0, 1, 1, 0, 3, service=0))
    effects = world.tell(WorkerLost(0), WorkerStarting(1, V))
    assert outcomes(effects) == {1: Outcome.WORKER_LOST}
    effects = world.tell(WorkerReady(1, Capacity(0, sequences=2)))
    assert [(e.request, e.attempt) for e in effects if isinstance(e, AdmitSequence)] == [(2, 2)]
    assert outcomes(world.tell(SequenceFinished(1, 2, 1))) == {}, "an answer to the first attempt"
    assert outcomes(world.tell(SequenceFinished(1, 2, 2))) == {2: Outcome.COMPLETED}
    assert world.scheduler.is_idle()


def test_nobody_banks_credit_by_always_having_something_that_runs():
    """A tenant with one request at a time, the next of which comes as the one before it ends, is not backlogged."""
    weights = (("steady", TenantPolicy(weight=9)),)
    world = World(ONE, workers=2, server=ServerPolicy(tenants=weights))
    steady, busy = dispatches(world.tell(arrive(0, tenant="steady"), arrive(1, tenant="busy")))
    world.tell(*(arrive(i, tenant="busy") for i in range(2, 500)))
    for i in range(10_000, 10_040):
        for _ in range(10):
            busy = dispatches(world.complete(busy, at=world.now + ms(10)))[0]
        (steady,) = dispatches(
            world.tell(arrive(i, tenant="steady"), BatchCompleted(steady.worker, steady.batch, ms(100)))
        )
    world.tell(*(arrive(i, tenant="steady") for i in range(20_000, 20_100)))
    served, _ = serve(world, 40, busy)
    assert abs(sum(i >= 20_000 for i in served) - 36) <= 1
