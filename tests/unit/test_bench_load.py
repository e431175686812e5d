"""The load generator's accounting, with moments made up by the test."""

from __future__ import annotations

import random

from headway.bench.arrivals import constant, poisson
from headway.bench.load import NEVER, ClosedPacer, Load, OpenPacer, Shot, Window

MS = 1_000_000


def open_load(*moments: int, window: Window | None = None) -> Load:
    return Load(OpenPacer(iter(moments)), window or Window(0, 0))


def send(load: Load, now: int) -> Shot:
    shot = load.take(now)
    assert shot is not None
    shot.sent = now
    return shot


def test_in_an_open_loop_latency_counts_from_the_moment_a_request_was_due_even_when_the_server_stalls():
    load = open_load(0, 10 * MS, 20 * MS)
    first = send(load, 0)
    # The server stalls for 100 ms; the one connection is free again only then.
    load.answered(first, 100 * MS, None)
    for _ in range(2):
        load.answered(send(load, 100 * MS), 101 * MS, None)
    assert list(load.results.latencies) == [100 * MS, 91 * MS, 81 * MS]
    assert list(load.results.lags) == [0, 90 * MS, 80 * MS]


def test_in_an_open_loop_requests_are_due_whether_or_not_earlier_ones_were_answered():
    load = open_load(0, 10 * MS, 20 * MS)
    assert [load.take(25 * MS) is not None for _ in range(4)] == [True, True, True, False]
    assert load.in_flight == 3


def test_nothing_is_sent_before_it_is_due_and_the_next_moment_is_known():
    load = open_load(10 * MS)
    assert load.take(9 * MS) is None
    assert load.wake_at(9 * MS) == 10 * MS


def test_in_a_closed_loop_a_user_sends_the_next_request_when_the_last_is_answered():
    load = Load(ClosedPacer(2), Window(0, 0))
    first = send(load, 0)
    send(load, 0)
    assert load.take(5 * MS) is None
    load.answered(first, 7 * MS, None)
    assert send(load, 7 * MS).intended == 7 * MS
    assert list(load.results.latencies) == [7 * MS]


def test_requests_that_were_due_during_the_warm_up_are_sent_and_not_counted():
    load = open_load(0, 10 * MS, window=Window(0, 5 * MS, 50 * MS))
    load.answered(send(load, 0), 8 * MS, "503 queue_full")
    load.answered(send(load, 10 * MS), 13 * MS, None)
    assert list(load.results.latencies) == [3 * MS]
    assert load.results.errors == {}


def test_a_request_that_was_due_in_the_window_counts_with_its_latency_but_not_to_throughput_when_answered_after_it():
    load = open_load(0, 40 * MS, window=Window(0, 0, 50 * MS))
    load.answered(send(load, 0), 5 * MS, None)
    load.answered(send(load, 40 * MS), 60 * MS, None)
    assert list(load.results.latencies) == [5 * MS, 20 * MS]
    assert load.results.answered_in_window == 1


def test_nothing_is_sent_once_the_window_has_closed_and_it_is_over_when_the_last_has_ended():
    load = Load(ClosedPacer(1), Window(0, 0, 50 * MS))
    last = send(load, 49 * MS)
    assert not load.is_over(50 * MS)
    load.answered(last, 60 * MS, "timeout")
    assert load.take(60 * MS) is None
    assert load.is_over(60 * MS)
    assert load.results.errors == {"timeout": 1}


def test_a_count_of_requests_ends_the_run_after_exactly_so_many_measured_ones():
    load = Load(ClosedPacer(10), Window(0, 0, NEVER, requests=3))
    shots = [send(load, 0) for _ in range(3)]
    assert load.take(0) is None
    for shot in shots:
        load.answered(shot, MS, None)
    assert load.is_over(MS)


def test_every_request_that_was_sent_is_either_a_latency_or_an_error():
    rng = random.Random(7)
    load = Load(OpenPacer(poisson(1000, 0, rng)), Window(0, 0, 500 * MS))
    flying, now = [], 0
    while not load.is_over(now):
        now += MS
        while shot := load.take(now):
            flying.append(shot)
        while flying and (rng.random() < 0.6 or now > 600 * MS):
            load.answered(flying.pop(rng.randrange(len(flying))), now, rng.choice([None, "timeout", "503"]))
    results = load.results
    assert load.in_flight == 0
    assert 400 < len(results.latencies) + sum(results.errors.values()) < 600


def test_evenly_spaced_arrivals_do_not_drift():
    moments = constant(3, 100)
    assert [next(moments) for _ in range(4)] == [100, 100 + 333333333, 100 + 666666667, 100 + 1_000_000_000]


def test_poisson_arrivals_have_the_rate_that_was_asked_for_and_repeat_with_the_seed():
    first = poisson(1000, 5, random.Random(1))
    moments = [next(first) for _ in range(10_000)]
    assert moments == sorted(moments)
    assert 9.5e9 < moments[-1] < 10.5e9
    again = poisson(1000, 5, random.Random(1))
    assert moments[:10] == [next(again) for _ in range(10)]
