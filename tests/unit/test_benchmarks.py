"""The arithmetic of the benchmarks: what is compared with what, and how it is counted."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from random import Random

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "peers")]

import direct  # noqa: E402
import idle  # noqa: E402
import minilm  # noqa: E402
import sim_vs_real  # noqa: E402
import timers  # noqa: E402
from lab.figures import markdown, quantiles_ms  # noqa: E402
from lab.loads import Point, texts  # noqa: E402

del sys.path[:2]

from headway.core.effects import DispatchBatch, Reason, ResolveRequest  # noqa: E402
from headway.core.events import (  # noqa: E402
    BatchCompleted,
    RequestArrived,
    ServerConfigured,
    VersionConfigured,
    WorkerReady,
)
from headway.core.ids import BatchKey, Part, PartRef, VersionId  # noqa: E402
from headway.core.outcomes import Outcome  # noqa: E402
from headway.core.policy import BatchPolicy, ServerPolicy  # noqa: E402
from headway.runtime.codec import FORMAT, Header, Snapshot, encode, encode_call  # noqa: E402

MS = 1_000_000


def test_a_window_is_sorted_by_length_and_cut_where_the_next_would_pass_the_token_budget():
    assert direct.cut([40, 10, 20, 256, 12], 60) == [[10, 12, 20], [40], [256]]


def test_without_a_budget_every_text_runs_alone():
    assert direct.cut([30, 10, 20], 0) == [[10], [20], [30]]


def test_windows_of_32_go_round_through_all_texts():
    first, second = islice(direct.windows(list(range(40))), 2)
    assert list(first) == list(range(32))
    assert list(second) == [*range(32, 40), *range(24)]


def test_every_server_gets_the_same_texts_and_their_lengths_are_known():
    one, other = texts(50, seed=3), texts(50, seed=3)
    assert one == other
    assert len(one.lengths) == len(one.bodies) == 50
    assert all(3 <= length <= 256 for length in one.lengths)


def test_each_turn_begins_with_another_server():
    assert [minilm.rotated(["a", "b", "c"], turn)[0] for turn in range(4)] == ["a", "b", "c", "a"]


def options(requests: int) -> minilm.Options:
    return minilm.Options(Path("models"), 1, 3, 10.0, requests, 60.0, minilm.IN_CLOSED, None)


def test_the_requests_of_a_point_are_shared_by_the_rounds_and_a_tenth_will_do_for_context():
    closed_32, half = minilm.CLOSED[1], Point(rate=40, label="open 50%")
    assert options(20_000).wanted(closed_32, minilm.HEADWAY) == 6_667
    assert options(20_000).wanted(closed_32, minilm.MOSEC_32) == 667
    assert options(20_000).wanted(half, minilm.MOSEC) == 6_667


def row(number: int, server: str, point: str = "closed 32", **figures: float) -> minilm.Row:
    return {"round": number, "server": server, "point": point, "rate": 0, **figures}


def test_a_ratio_is_taken_within_each_round_so_that_a_slow_round_hits_both():
    rows = [row(0, minilm.HEADWAY, ok_per_s=100), row(0, minilm.DIRECT, ok_per_s=100)]
    rows += [row(1, minilm.HEADWAY, ok_per_s=45), row(1, minilm.DIRECT, ok_per_s=50)]
    assert minilm.ratios(rows, "closed 32", minilm.DIRECT, "ok_per_s") == [1.0, 0.9]


def test_the_table_stands_a_server_that_answered_nothing_in_a_slice():
    rows = [row(0, minilm.FIRST_COME, ok_per_s=0.0, requests=0, failed=0)]
    assert "first-come 32" in minilm.table(rows)
    assert minilm.verdicts(rows) == []


def test_idle_time_is_from_the_end_of_a_batch_to_the_beginning_of_the_next():
    assert idle.gaps([(0, 10, 8), (11, 21, 8), (25, 35, 8)]) == [1, 4]


def test_the_model_of_the_idle_benchmark_takes_the_time_it_says_and_notes_it(tmp_path):
    notes = tmp_path / "notes"
    models = idle.repository(tmp_path, 2.0, notes)
    scope: dict[str, type] = {}
    exec((models / "device" / "1" / "model.py").read_text(), scope)
    model = scope["Model"]()
    model.load(None)
    assert [answer["embedding"].shape for answer in model.execute([{}, {}])] == [(1, 384)] * 2
    model.execute([{}])
    [(began, ended, rows)] = idle.RECORD.iter_unpack(notes.read_bytes())
    assert rows == 2
    assert ended - began >= 2 * MS


def test_a_cost_between_measured_sizes_lies_between_theirs_and_beyond_the_last_goes_on():
    grid = sim_vs_real.Grid({(1, 10): 100, (1, 20): 200, (3, 10): 300, (3, 20): 600})
    assert grid(1, 10) == 100
    assert grid(1, 15) == 150
    assert grid(2, 10) == 200
    assert grid(2, 15) == 300
    assert grid(1, 40) == 400
    assert grid(5, 10) == 500


def test_simulated_batches_take_the_grid_times_the_ratio_of_a_measured_batch_of_about_their_size():
    grid = sim_vs_real.Grid({(1, 10): 100, (1, 20): 200, (2, 10): 100, (2, 20): 200})
    small, large = [(100, 150 + n) for n in range(40)], [(200, 220 + n) for n in range(40)]
    cost = sim_vs_real.Costs(grid, sorted(small + large)).drawn(Random(1))
    assert {150 <= cost(1, 10) < 190 for _ in range(50)} == {True}
    assert {220 <= cost(1, 20) <= 2 * 190 for _ in range(50)} == {True}


def test_a_batch_that_was_handed_over_while_another_ran_began_when_that_one_had_ended(tmp_path):
    version, key = VersionId("m", 1), BatchKey("m", 1, "x")
    told = [ServerConfigured(ServerPolicy()), VersionConfigured(version, BatchPolicy()), WorkerReady(1)]
    requests = [RequestArrived(n, "t", key, (Part(1, 10 * n),)) for n in (1, 2)]
    batches = [DispatchBatch(1, n, key, (PartRef(n, 0),), Reason.IDLE) for n in (1, 2)]
    lines = [encode(Header(FORMAT, "0")), encode(Snapshot({}))]
    lines += [encode_call(100, [*told, *requests], batches)]
    lines += [encode_call(150, [BatchCompleted(1, 1, 45)], [ResolveRequest(1, Outcome.COMPLETED)])]
    lines += [encode_call(190, [BatchCompleted(1, 2, 35)], [ResolveRequest(2, Outcome.COMPLETED)])]
    (tmp_path / "trace-1.jsonl").write_bytes(b"".join(line + b"\n" for line in lines))
    run = sim_vs_real.read(tmp_path)
    assert run.batches == [(1, 10, 50), (1, 20, 40)]
    assert run.completed == {1: 150, 2: 190}


def test_figures_leave_the_warm_up_out():
    warm_up = round(sim_vs_real.WARM_UP_S * 1e9)
    latencies = [(0, 500 * MS)] + [(warm_up + n * 100 * MS, 10 * MS) for n in range(11)]
    found = sim_vs_real.figures(latencies)
    assert found["p99"] == 10.0
    assert found["per_s"] == pytest.approx(11 / 1.01)


def test_quantiles_are_in_milliseconds_and_a_table_has_a_line_per_row():
    assert quantiles_ms([n * MS for n in range(1, 101)]) == {"p50": 50, "p90": 90, "p95": 95, "p99": 99, "max": 100}
    assert markdown(["a", "bb"], [["ccc", "d"]]).splitlines() == ["| a   | bb |", "| --- | -- |", "| ccc | d  |"]


def test_the_table_of_timers_says_for_each_moment_whether_the_goal_is_met():
    late = {"p50": 0.1, "p90": 1.0, "p99": 4.0, "max": 9.0}
    rows = [{"batches": "sleep", "expired": 7, "decided_ms": late, "answered_ms": {**late, "p99": 6.0}}]
    decided, answered = timers.table(rows).splitlines()[2:]
    assert decided.rstrip(" |").endswith("yes")
    assert answered.rstrip(" |").endswith("no")
