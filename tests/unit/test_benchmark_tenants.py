"""What the benchmark of tenants counts, and by what it judges."""

from __future__ import annotations

import sys
from collections import Counter
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))

import tenants  # noqa: E402
from lab import sharing, usage  # noqa: E402
from lab.beside import Got, Run, judged, pooled  # noqa: E402
from lab.overload import Overload  # noqa: E402
from lab.returning import returns  # noqa: E402
from lab.streams import Answer, Stream, Times, bursts  # noqa: E402

del sys.path[0]

from headway.core.effects import DispatchBatch, Reason, ResolveRequest  # noqa: E402
from headway.core.events import BatchCompleted, RequestArrived  # noqa: E402
from headway.core.ids import BatchKey, Part, PartRef  # noqa: E402
from headway.core.outcomes import Outcome  # noqa: E402
from headway.runtime.codec import Call  # noqa: E402

MS, SECOND = 1_000_000, 1_000_000_000
KEY = BatchKey("m", 1, "x")


def test_a_window_counts_requests_that_were_due_in_it_and_answers_that_came_in_it():
    before, within, after = Answer(5, 6, 12, "", 30), Answer(11, 12, 14, "", 40), Answer(15, 15, 25, "", 50)
    refused = Answer(16, 17, 18, "503 overloaded", 60)
    got = judged([before, within, after, refused], Times(0, 10, 20))
    assert (got.arrived, got.offered_tokens) == (3, 150)
    assert (got.answered, got.tokens) == (2, 70)
    assert (got.took, got.of_lengths) == ([3, 10], [40, 50])
    assert got.tokens_within(5e-6) == 40
    assert got.refused_in == [2]
    assert got.errors == {"503 overloaded": 1}


def test_two_windows_of_one_load_are_judged_as_one():
    one = judged([Answer(11, 11, 14, "", 40)], Times(0, 0, SECOND))
    both = pooled([one, judged([Answer(3, 3, 9, "", 2), Answer(4, 4, 5, "503", 2)], Times(0, 0, SECOND))])
    assert (both.seconds, both.arrived, both.per_s, both.took, both.errors["503"]) == (2, 3, 1.0, [3, 6], 1)


def test_bursts_come_at_once_after_each_period():
    assert list(islice(bursts(2, 1.5, start=SECOND), 4)) == [2.5 * SECOND, 2.5 * SECOND, 4 * SECOND, 4 * SECOND]


def run(**tokens: tuple[int, int]) -> Run:
    """tokens: offered and answered, of each stream, in one second."""
    streams = {name: Got(1.0, offered_tokens=offered, tokens=done) for name, (offered, done) in tokens.items()}
    return Run(streams, 1.0, {"workers": 1.0}, [50.0])


def test_who_asks_for_more_than_half_is_owed_half_of_all_that_was_done():
    assert sharing.part_of_share(run(polite=(900, 400), aggressor=(9000, 400))) == 1.0
    assert sharing.part_of_share(run(polite=(900, 300), aggressor=(9000, 500))) == 0.75


def test_who_asks_for_less_than_half_is_owed_what_it_asks_for():
    assert sharing.part_of_share(run(polite=(200, 190), aggressor=(9000, 610))) == 0.95


def beside_row(took_ms: float, offered: int) -> list[str]:
    one = run(polite=(offered, offered), aggressor=(9000, 1000 - offered))
    one.streams["polite"].took = [round(took_ms * MS)]
    return sharing.beside_row(0.5, 500, one, limit_ms=100, busy=0.9)


def test_the_tail_of_who_asks_for_half_its_share_is_held_against_the_goal():
    assert "100: met" in beside_row(99, offered=250)
    assert "100: **missed**" in beside_row(101, offered=250)


def test_there_is_no_goal_for_the_tail_where_the_machine_slowed_until_half_a_share_was_most_of_one():
    assert "none: the machine slowed" in beside_row(101, offered=400)


def test_the_cost_of_eight_tenants_is_told_by_round_beside_one_and_beside_first_come():
    tokens = {sharing.ONE: [500, 400], sharing.MANY: [490, 400], sharing.FIRST: [600, 400]}
    runs = {name: [run(all=(0, done)) for done in each] for name, each in tokens.items()}
    lines = sharing.cost_table(runs).splitlines()
    assert "0.99 (0.98, 1.00): met" in lines[2]
    assert "0.91 (0.82, 1.00): **missed**" in lines[4]


# -- coming back -----------------------------------------------------------------------------------


def arrived(request: int, tenant: str, length: int = 10) -> RequestArrived:
    return RequestArrived(request, tenant, KEY, (Part(1, length),))


def leaves(batch: int, *requests: int) -> DispatchBatch:
    return DispatchBatch(1, batch, KEY, tuple(PartRef(n, 0) for n in requests), Reason.IDLE)


def done(request: int) -> ResolveRequest:
    return ResolveRequest(request, Outcome.COMPLETED)


def call(now: int, events: list[Any], effects: list[Any]) -> Call:
    return Call(now * MS, events, effects)


AWAY = [
    call(0, [arrived(n, "other", 30) for n in range(1, 7)], [leaves(1, 1), leaves(2, 2)]),
    call(5, [arrived(11, "back"), arrived(12, "back")], []),
]


def test_batches_that_workers_had_when_it_came_back_are_told_apart_from_those_that_passed_it_by():
    went = [call(6, [BatchCompleted(1, 1, 1)], [leaves(3, 3)]), call(9, [BatchCompleted(1, 2, 1)], [leaves(4, 11, 4)])]
    [found] = returns([*AWAY, *went], "back")
    assert (found.in_hand, found.passed, found.waited_ms) == (2, 1, 4)


def test_a_batch_that_was_answered_before_it_came_back_is_in_nobodys_hands():
    came = call(5, [arrived(11, "back")], [leaves(3, 11)])
    [found] = returns([AWAY[0], call(4, [BatchCompleted(1, 1, 1)], []), came], "back")
    assert (found.in_hand, found.passed, found.waited_ms) == (1, 0, 0)


def test_its_share_is_of_the_batches_that_left_while_something_of_it_waited():
    went = [call(6, [], [leaves(3, 11, 3)]), call(7, [], [leaves(4, 4)]), call(8, [], [leaves(5, 12), leaves(6, 5)])]
    [found] = returns([*AWAY, *went], "back")
    assert (found.tokens, found.of_all) == (20, 20 + 30 + 30)


def test_it_comes_back_anew_only_when_everything_of_it_was_answered():
    first = [call(6, [], [leaves(3, 11)]), call(7, [arrived(13, "back")], []), call(8, [], [leaves(4, 12, 13)])]
    again = [
        call(9, [], [done(11), done(12), done(13)]),
        call(20, [arrived(14, "back")], []),
        call(21, [], [leaves(5, 14)]),
    ]
    assert [found.at // MS for found in returns([*AWAY, *first, *again], "back")] == [5, 20]


def test_what_was_given_up_while_it_waited_waits_no_more():
    [found] = returns([*AWAY, call(6, [], [leaves(3, 11), done(12)]), call(7, [], [leaves(4, 3)])], "back")
    assert (found.tokens, found.of_all) == (10, 10)


# -- overload --------------------------------------------------------------------------------------


def overloaded(
    took_ms: list[float], errors: dict[str, int], refused_ms: list[float], health_ms: float, lengths: int = 30
) -> Overload:
    def of(got: Got, **more: Got) -> Run:
        return Run({"t": got, **more}, 1.0, {"gateway": 0.5}, [50.0, 60.0])

    closed = [of(Got(1.0, answered=rate, tokens=30 * rate)) for rate in (9, 11)]
    calm = of(Got(1.0, answered=3, took=[20 * MS]))
    got = Got(1.0, took=[round(t * MS) for t in took_ms], refused_in=[round(t * MS) for t in refused_ms])
    got.of_lengths = [lengths] * len(took_ms)
    got.errors = Counter(errors)
    loaded = of(got, health=Got(1.0, took=[round(health_ms * MS)]))
    return Overload(3.0, 100.0, "t", closed[0], calm, loaded, calm, closed[1])


def test_goodput_is_what_was_answered_within_the_slo_beside_what_was_done_before_and_after():
    found = overloaded([50] * 8 + [101], {}, [], 1)
    assert found.capacity == 10
    assert found.goodput == 0.8


def test_goodput_in_tokens_does_not_gain_by_short_texts():
    assert overloaded([50] * 10 + [101], {}, [], 1, lengths=15).tokens == 0.5


def test_what_was_let_in_and_given_up_is_as_late_as_what_was_answered_late():
    assert overloaded(
        [50] * 8 + [101], {"504 deadline_exceeded": 1, "503 overloaded": 90}, [], 1
    ).late == pytest.approx(0.2)
    assert overloaded([], {"503 overloaded": 90}, [], 1).late == 0.0


def test_each_goal_of_an_overload_is_told_as_met_or_missed():
    good = dict(overloaded([50] * 9, {"503 overloaded": 2}, [3, 9], 20).rows())
    assert [text for text in good.values() if "missed" in text] == []
    bad = dict(overloaded([50] * 4 + [200], {"503 overloaded": 2}, [3, 11], 51).rows())
    assert len([text for text in bad.values() if "missed" in text]) == 4


# -- the processes ---------------------------------------------------------------------------------


def test_a_process_is_told_with_its_memory_and_its_children():
    import os
    import subprocess

    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    try:
        assert child.pid in usage.descendants(os.getpid())
        assert usage.rss_mib(os.getpid()) > 5
        assert usage.cpu_s(os.getpid()) > 0
    finally:
        child.communicate(b"\n")


def test_a_stream_is_one_kind_of_load():
    assert Stream("a", concurrency=3).pacer(0).next_at(3, 7) > 7
    assert Stream("a", concurrency=3).pacer(0).next_at(2, 7) == 7
    assert Stream("a", pulse=10).pacer(SECOND).next_at(99, 0) == SECOND
    assert Stream("a", rate=10).pacer(SECOND).next_at(99, 0) > SECOND
    assert Stream("a", burst=2, every_s=3).pacer(SECOND).next_at(0, 0) == 4 * SECOND


@pytest.mark.parametrize("name", tenants.EXPERIMENTS)
def test_every_experiment_is_described_where_it_is_chosen(name):
    assert tenants.__doc__ is not None and f"\n{name} " in tenants.__doc__
