"""Engines: who is handed to which, and when; what they report; what is taken back."""

from __future__ import annotations

import json
from dataclasses import replace

from headway.core.effects import AbortSequence, AdmitSequence, DeliverTokens, Effect, TakeBack, UpdateCounters
from headway.core.events import (
    CapacityChanged,
    EngineReported,
    RequestCancelled,
    RequestSatisfied,
    SequenceFinished,
    SequenceReturned,
    Served,
    ServerConfigured,
    TokensEmitted,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
)
from headway.core.ids import Capacity, Measurement, WorkerId
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.scheduler import Scheduler
from headway.core.tenancy import TenantPolicy
from tests.unit.core_world import A, V, World, arrive, outcomes

ENGINE = BatchPolicy(style=Style.SEQUENCE)
ROOM = Capacity(batch_slots=0, sequences=4, kv_blocks=100, block_size=16, step_tokens=64, max_context=1000)
PRICE = 1000
"""Nanoseconds that a token of a prompt costs."""
COST = tuple(Measurement(1, length, PRICE * length) for length in (1, 16, 64, 256, 1024))


def engines(count: int = 1, capacity: Capacity = ROOM, policy: BatchPolicy = ENGINE, **others: object) -> World:
    return World(policy, workers=count, capacity=capacity, cost=COST, **others)  # type: ignore[arg-type]


def report(
    worker: WorkerId = 0,
    number: int = 1,
    heard: int = 0,
    sequences: int = 4,
    blocks: int = 100,
    waiting: tuple[tuple[int, int], ...] = (),
    served: tuple[Served, ...] = (),
    **others: object,
) -> EngineReported:
    return EngineReported(
        worker,
        number,
        heard,
        sequences,
        blocks,
        served=served,
        waiting=waiting,
        **others,  # type: ignore[arg-type]
    )


def admitted(effects: list[Effect]) -> list[tuple[WorkerId, int]]:
    return [(effect.worker, effect.request) for effect in effects if isinstance(effect, AdmitSequence)]


def taken_back(effects: list[Effect]) -> list[tuple[WorkerId, int, int]]:
    return [(effect.worker, effect.request, effect.attempt) for effect in effects if isinstance(effect, TakeBack)]


def counter(world: World, tenant: str) -> int:
    return world.scheduler.views()[0].counters[tenant]


# -- room ------------------------------------------------------------------------------------


def test_an_engine_that_has_room_is_handed_one_step_s_worth() -> None:
    world = engines(capacity=ROOM._replace(sequences=100))
    effects = world.tell(*(arrive(n, length=20) for n in range(1, 8)))
    assert admitted(effects) == [(0, 1), (0, 2), (0, 3), (0, 4)], "of 20 tokens each; the step computes 64"
    assert admitted(world.tell(report(heard=4, sequences=96))) == [(0, 5), (0, 6), (0, 7)]


def test_beyond_room_one_waits_in_the_engine_and_no_more() -> None:
    world = engines(capacity=ROOM._replace(sequences=2))
    assert admitted(world.tell(*(arrive(n) for n in range(1, 6)))) == [(0, 1), (0, 2)]
    assert admitted(world.tell(report(heard=2, sequences=0, blocks=98))) == [(0, 3)], (
        "for the next step not to lack one"
    )
    assert admitted(world.tell(report(number=2, heard=3, sequences=0, blocks=98, waiting=((3, 1),)))) == []
    assert admitted(world.tell(report(number=3, heard=3, sequences=0, blocks=98))) == [(0, 4)]


def test_what_an_engine_has_not_heard_of_is_taken_off_its_room_exactly_once() -> None:
    world = engines(capacity=ROOM._replace(kv_blocks=4))
    assert admitted(world.tell(arrive(1, length=32), arrive(2, length=32), arrive(3, length=16))) == [(0, 1), (0, 2)]
    late = report(number=1, heard=0, sequences=4, blocks=4)
    assert admitted(world.tell(late)) == [], "it was made before the engine heard of either"
    assert admitted(world.tell(report(number=2, heard=1, sequences=3, blocks=2))) == []
    assert admitted(world.tell(report(number=3, heard=2, sequences=2, blocks=0))) == [(0, 3)], "beyond room"
    assert admitted(world.tell(arrive(4))) == []


def test_a_report_that_comes_after_a_later_one_is_void() -> None:
    world = engines(capacity=ROOM._replace(sequences=1))
    world.tell(arrive(1), arrive(2), arrive(3))
    world.tell(report(number=2, heard=1, sequences=0))
    assert world.tell(report(number=1, heard=0, sequences=1)) == []
    assert world.tell(report(number=2, heard=1, sequences=1)) == [], "nor is one that is told twice"


def test_nobody_passes_one_that_waits_for_room() -> None:
    world = engines(capacity=ROOM._replace(kv_blocks=10, step_tokens=640))
    assert admitted(world.tell(arrive(1, length=130), arrive(2, length=100), arrive(3, length=1))) == [(0, 1)]
    assert admitted(world.tell(report(heard=1, sequences=3, blocks=1, waiting=()))) == [(0, 2)]
    assert admitted(world.tell(report(number=2, heard=2, sequences=3, blocks=1, waiting=((2, 1),)))) == []


def test_whoever_is_more_urgent_than_all_that_wait_in_a_full_engine_is_handed_to_it() -> None:
    world = engines(capacity=ROOM._replace(sequences=1))
    world.tell(arrive(1, priority=1), arrive(2, priority=1))
    world.tell(report(heard=1, sequences=0))
    assert admitted(world.tell(report(number=2, heard=2, sequences=0, waiting=((2, 1),)))) == []
    assert admitted(world.tell(arrive(3, priority=1), arrive(4, priority=0, tenant="other"))) == [(0, 4)]


def test_what_can_never_fit_is_refused_at_once_with_both_numbers() -> None:
    world = engines(capacity=ROOM._replace(kv_blocks=2))
    effects = world.tell(arrive(1, length=32))
    assert outcomes(effects) == {1: Outcome.TOO_LARGE}
    assert "room for 33: the engine holds 32" in effects[0].detail  # type: ignore[union-attr]
    assert outcomes(world.tell(arrive(2, length=31))) == {}
    assert outcomes(engines().tell(arrive(1, length=1000))) == {1: Outcome.TOO_LARGE}, "beyond the context"


def test_what_no_longer_fits_is_refused_when_its_turn_comes() -> None:
    world = engines(capacity=ROOM._replace(sequences=1))
    world.tell(arrive(1), arrive(2, length=200))
    effects = world.tell(CapacityChanged(0, ROOM._replace(sequences=1, kv_blocks=5)))
    assert outcomes(effects) == {2: Outcome.TOO_LARGE}


def test_an_aborted_sequence_keeps_its_room_until_the_engine_says_otherwise() -> None:
    world = engines(capacity=ROOM._replace(sequences=1))
    world.tell(arrive(1), arrive(2))
    assert AbortSequence(0, 1, 1) in world.tell(RequestCancelled(1))
    assert admitted(world.tell(report(heard=1, sequences=1))) == [(0, 2)]
    assert world.tell(SequenceFinished(0, 1, 1)) == []


# -- accounts --------------------------------------------------------------------------------


def test_a_prompt_is_charged_in_advance_then_as_the_engine_tells() -> None:
    world = engines()
    world.tell(arrive(1, length=64, tenant="a"), arrive(2, length=64, tenant="a"))
    assert abs(counter(world, "a") - 64 * PRICE) <= 1, "one has been handed over"
    world.tell(report(heard=1, served=(Served("a", 16 * PRICE, 48 * PRICE),)))
    assert abs(counter(world, "a") - 2 * 64 * PRICE) <= 1, "computed, yet to be computed, and handed over"
    world.tell(report(number=2, heard=2, served=(Served("a", 0, 100 * PRICE),)))
    assert counter(world, "a") == 116 * PRICE, "12 tokens of the second were in the cache"
    world.tell(report(number=3, heard=2, served=(Served("a", 100 * PRICE, 0),)))
    assert counter(world, "a") == 116 * PRICE


def test_the_engine_is_told_the_counters_without_what_it_knows_better() -> None:
    world = engines(server=ServerPolicy(tenants=(("a", TenantPolicy(weight=2.0)),)))
    world.tell(arrive(1, length=64, tenant="a"), arrive(2, length=64, tenant="b"))
    effects = world.tell(report(heard=1, served=(Served("a", 16 * PRICE, 48 * PRICE),)))
    assert UpdateCounters(0, 1, (("a", 8 * PRICE),)) in effects
    effects = world.tell(report(number=2, heard=2, served=(Served("a", 48 * PRICE, 0), Served("b", 0, 64 * PRICE))))
    assert effects == [UpdateCounters(0, 2, (("a", 32 * PRICE), ("b", 0)))]


def test_the_engine_learns_of_what_another_has_served() -> None:
    world = engines(2)
    world.tell(arrive(1, length=64, tenant="a"), arrive(2, length=64, tenant="a"))
    world.tell(report(0, heard=1, served=(Served("a", 64 * PRICE),)))
    effects = world.tell(report(1, heard=1, served=(Served("a", 0, 64 * PRICE),)))
    assert effects == [UpdateCounters(1, 1, (("a", 64 * PRICE),))]
    admits = world.tell(arrive(3, length=1, tenant="a"))
    assert [effect.counter for effect in admits if isinstance(effect, AdmitSequence)] == [128 * PRICE], "of both"


def test_tenants_take_turns_by_what_engines_have_served_them() -> None:
    world = engines(capacity=ROOM._replace(sequences=1))
    world.tell(*(arrive(n, tenant="a", length=16) for n in range(1, 4)))
    world.tell(*(arrive(n, tenant="b", length=16) for n in range(4, 7)))
    order = []
    for number in range(1, 7):
        effects = world.tell(
            report(number=number, heard=number, sequences=1, served=(Served("ba"[number % 2], 16 * PRICE),))
        )
        order += [request for _, request in admitted(effects)]
    assert order[:4] == [4, 2, 5, 3]


def test_service_of_one_that_has_left_is_owed_and_no_more_where_nobody_is_left() -> None:
    world = engines(capacity=ROOM._replace(sequences=1))
    world.tell(arrive(1, tenant="a"), arrive(2, tenant="b"), arrive(3, tenant="b"))
    world.tell(report(heard=1, sequences=0, served=(Served("a", 8 * PRICE),)), SequenceFinished(0, 1, 1))
    world.tell(report(number=2, heard=2, sequences=0, served=(Served("a", 500 * PRICE),)))
    assert counter(world, "a") == 508 * PRICE
    world.tell(SequenceFinished(0, 2, 1))
    world.tell(report(number=3, heard=3), SequenceFinished(0, 3, 1))
    assert world.tell(report(number=4, heard=3, served=(Served("b", PRICE),))) == [
        UpdateCounters(0, 4, (("b", 508000),))
    ]
    assert world.scheduler.views()[0].counters == {}


def test_a_streaming_worker_that_reports_nothing_is_charged_as_ever() -> None:
    world = World(ENGINE, capacity=Capacity(0, sequences=2))
    assert world.tell(arrive(1), arrive(2)) == [AdmitSequence(0, 1, 1, A), AdmitSequence(0, 2, 1, A)]
    world.tell(TokensEmitted(0, 1, 1, 0, 1, service=77))
    assert counter(world, "t") == 77
    assert world.tell(report(heard=2)) == [], "it is no engine"


# -- taking back -----------------------------------------------------------------------------


def two_engines_of_which_one_preempts() -> World:
    """Engine 0 has had to preempt request 1, which has produced 3 tokens; engine 1 is about to have room."""
    world = engines(2, capacity=ROOM._replace(sequences=1))
    assert admitted(world.tell(arrive(1, length=64), arrive(2, length=64))) == [(0, 1), (1, 2)]
    world.tell(report(0, 1, 1, 0, 0, served=(Served("t", 64 * PRICE),)), TokensEmitted(0, 1, 1, 0, 3, 0))
    world.tell(report(1, 1, 1, 0, 96, served=(Served("t", 64 * PRICE),)))
    assert world.tell(report(0, 2, 1, 0, 0, waiting=((1, 1),))) == [UpdateCounters(0, 2, ())]
    return world


def test_what_waits_in_a_full_engine_goes_to_another_that_has_room() -> None:
    world = two_engines_of_which_one_preempts()
    before = counter(world, "t")
    assert taken_back(world.tell(report(1, 2, 1, 1, 100), SequenceFinished(1, 2, 1))) == [(0, 1, 1)]
    assert taken_back(world.tell(report(1, 3, 1, 1, 100))) == [], "asked already"
    effects = world.tell(SequenceReturned(0, 1, 1, paid=64))
    assert effects == [AdmitSequence(1, 1, 2, A, counter=before, paid=64)], "nothing of it is charged again"
    assert world.tell(TokensEmitted(0, 1, 1, 3, 1, 0)) == [], "the one that gave it back has no say any more"
    assert world.tell(TokensEmitted(1, 1, 2, 3, 1, 0)) == [DeliverTokens(1, 2, 3, 1)], "it goes on where it was"
    assert outcomes(world.tell(SequenceFinished(1, 1, 2))) == {1: Outcome.COMPLETED}


def test_what_has_begun_again_meanwhile_stays() -> None:
    world = two_engines_of_which_one_preempts()
    assert taken_back(world.tell(report(1, 2, 1, 1, 100), SequenceFinished(1, 2, 1))) == [(0, 1, 1)]
    world.tell(report(0, 3, 1, 0, 0))
    world.tell(report(0, 4, 2, 0, 0))
    assert taken_back(world.tell(report(0, 5, 2, 0, 0, waiting=((1, 1),)))) == [(0, 1, 1)], "and may be asked for anew"


def test_nothing_is_taken_back_while_something_waits_that_could_have_the_room() -> None:
    world = two_engines_of_which_one_preempts()
    world.tell(*(arrive(n, length=64) for n in range(3, 8)))
    assert world.scheduler.views()[0].waiting_requests == 4
    assert taken_back(world.tell(report(1, 2, 2, 0, 96), SequenceFinished(1, 2, 1))) == []


def test_moves_are_no_attempts() -> None:
    world = engines(2, capacity=ROOM._replace(sequences=1))
    world.tell(arrive(1, length=64), arrive(2, length=64))
    world.tell(report(0, 1, 1, 0, 0, waiting=((1, 1),)), report(1, 1, 1, 1, 100), SequenceFinished(1, 2, 1))
    world.tell(SequenceReturned(0, 1, 1, paid=10))
    effects = world.tell(
        WorkerLost(1, "it died", Loss.CRASHED), WorkerStarting(7, V), WorkerReady(7, ROOM), report(0, 2, 2, 1, 100)
    )
    assert outcomes(effects) == {}
    assert [(e.worker, e.attempt, e.paid) for e in effects if isinstance(e, AdmitSequence)] == [(0, 3, 10)]


def test_one_that_is_given_up_while_it_is_taken_back_is_gone() -> None:
    world = two_engines_of_which_one_preempts()
    world.tell(report(1, 2, 1, 1, 100), SequenceFinished(1, 2, 1))
    assert outcomes(world.tell(RequestCancelled(1))) == {1: Outcome.CANCELLED}
    assert world.tell(SequenceReturned(0, 1, 1, paid=64)) == []
    assert world.scheduler.is_idle()


# -- death, and going on ---------------------------------------------------------------------


def test_whose_engine_dies_pays_nothing_again_and_is_owed_nothing_in_advance() -> None:
    world = engines()
    world.tell(arrive(1, length=64, tenant="a"), arrive(2, length=64, tenant="b"))
    world.tell(report(heard=1, served=(Served("a", 16 * PRICE, 48 * PRICE),)))
    effects = world.tell(
        WorkerLost(0, "it died", Loss.KILLED), WorkerStarting(1, V), WorkerReady(1, ROOM._replace(step_tokens=999))
    )
    assert {(e.request, e.attempt, e.paid) for e in effects if isinstance(e, AdmitSequence)} == {(1, 2, 64), (2, 2, 0)}
    assert counter(world, "a") == 16 * PRICE


def test_a_restored_core_goes_on_alike() -> None:
    world = two_engines_of_which_one_preempts()
    world.tell(*(arrive(n, tenant="ab"[n % 2], length=40) for n in range(3, 6)))
    restored = Scheduler.restore(json.loads(json.dumps(world.scheduler.snapshot())))
    assert restored.snapshot() == world.scheduler.snapshot()
    then = [
        [report(1, 2, 1, 1, 100, served=(Served("t", 5, 7), Served("a", 0, 900))), SequenceFinished(1, 2, 1)],
        [report(0, 3, 1, 1, 100)],
        [report(0, 4, 3, 0, 50, waiting=((1, 1),)), report(1, 3, 2, 1, 80)],
        [ServerConfigured(ServerPolicy(tenants=(("b", TenantPolicy(weight=3.0)),)))],
        [WorkerLost(0, "it died", Loss.KILLED)],
    ]
    for events in then:
        assert restored.handle(events, world.now) == world.tell(*events)
        assert restored.snapshot() == world.scheduler.snapshot()
        restored.check()


# -- which engine ----------------------------------------------------------------------------


def test_a_prompt_goes_where_its_beginning_was_computed() -> None:
    world = engines(2, capacity=ROOM._replace(step_tokens=1000))
    prefixed = [replace(arrive(n, length=64), prefix=((32, 111), (64, 222))) for n in range(1, 4)]
    assert admitted(world.tell(prefixed[0])) == [(0, 1)]
    world.tell(report(0, heard=1, sequences=3, blocks=96))
    assert admitted(world.tell(prefixed[1])) == [(0, 2)], "though the other has nothing to do"
    world.tell(report(0, 2, heard=2, sequences=2, blocks=92, forgot=(111, 222)))
    assert admitted(world.tell(prefixed[2])) == [(1, 3)], "it holds it no more"


def test_a_very_long_prompt_is_kept_off_the_engine_that_serves_short_ones() -> None:
    world = engines(2, capacity=ROOM._replace(kv_blocks=1000, step_tokens=64))
    assert admitted(world.tell(arrive(1, length=10))) == [(0, 1)]
    assert admitted(world.tell(arrive(2, length=400))) == [(1, 2)]
    world.tell(report(0, 1, 1, 4, 1000), report(1, 1, 1, 3, 900, prefilling=336), SequenceFinished(0, 1, 1))
    assert admitted(world.tell(arrive(3, length=10), arrive(4, length=10), arrive(5, length=400))) == [
        (0, 3),
        (0, 4),
        (1, 5),
    ], "and the long one does not go to the one that has less to do"


def test_who_has_all_that_he_wants_of_a_stream_is_completed_and_it_is_stopped() -> None:
    world = engines()
    world.tell(arrive(1, length=32))
    effects = world.tell(RequestSatisfied(1))
    assert outcomes(effects) == {1: Outcome.COMPLETED}
    assert [type(effect) for effect in effects if isinstance(effect, AbortSequence)] == [AbortSequence]
    assert outcomes(world.tell(RequestSatisfied(1), SequenceFinished(0, 1, 0))) == {}
    world.scheduler.check()
