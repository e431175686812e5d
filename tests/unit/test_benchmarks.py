"""The arithmetic of the benchmarks: what is compared with what, and how it is counted."""

from __future__ import annotations

import sys
from itertools import islice
from pathlib import Path
from random import Random

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path[:0] = [str(BENCHMARKS), str(BENCHMARKS / "peers")]

import cost_model  # noqa: E402
import direct  # noqa: E402
import idle  # noqa: E402
import minilm  # noqa: E402
import sim_vs_real  # noqa: E402
import timers  # noqa: E402
from lab import forms  # noqa: E402
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
from headway.core.ids import BatchKey, Measurement, Part, PartRef, VersionId  # noqa: E402
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


GRID = [(rows, length) for rows in (1, 2, 8) for length in (8, 32, 128)]


def took(sizes, cost) -> list[Measurement]:
    return [Measurement(rows, length, round(cost(rows, length))) for rows, length in sizes]


def test_sizes_that_the_warm_up_runs_are_left_out_of_what_judges_it():
    assert cost_model.left_out([(1, 8), (1, 9), (3, 8), (2, 32)], (1, 2), (8, 32)) == [(1, 9), (3, 8)]


def test_a_plain_form_finds_a_cost_that_has_its_form_and_only_that():
    runs = took(GRID, lambda r, n: 2 * MS + 0.1 * MS * r + 0.01 * MS * r * n)
    assert forms.fitted(forms.affine, runs)(5, 60) == pytest.approx(5.5 * MS, rel=0.01)
    runs = took(GRID, lambda r, n: 2 * MS + 1000 * r * n * n)
    assert forms.fitted(forms.attention, runs)(5, 60) == pytest.approx(20 * MS, rel=0.01)
    assert forms.fitted(forms.affine, runs)(5, 60) != pytest.approx(20 * MS, rel=0.1)


def test_rows_that_are_filled_up_to_a_kernel_are_a_form_of_their_own():
    runs = took(GRID, lambda r, n: 1000 * n * (1 if r == 1 else 8))
    assert forms.fitted(forms.kernels, runs, forms.OF_KERNELS)(5, 60) == pytest.approx(0.48 * MS, rel=0.05)
    assert forms.modelled(runs).median(5, 60) != pytest.approx(0.48 * MS, rel=0.05)


def test_a_plain_form_has_no_negative_weights_as_the_cost_model_has_none():
    predict = forms.fitted(forms.affine, took(GRID, lambda r, n: 1000 * (r * n - 7)))
    assert predict(1, 1) > 0


def test_the_nearest_size_is_near_by_ratio_and_stands_for_the_median_of_its_runs():
    runs = [Measurement(1, 8, 10), Measurement(1, 32, 40), Measurement(1, 32, 44), Measurement(1, 32, 900)]
    predict = forms.looked_up(runs)
    assert predict(1, 15) == 10
    assert predict(1, 17) == 44
    assert forms.looked_up([Measurement(2, 8, 10), Measurement(8, 8, 40)])(5, 8) == 40


def test_the_error_of_a_shape_leaves_a_common_factor_out():
    truth = {(rows, 1): 100.0 * rows for rows in range(1, 11)}
    found = forms.errors(lambda rows, length: 120.0 * rows, truth)
    assert (found["p50"], found["p90"]) == (pytest.approx(0.2), pytest.approx(0.2))
    assert (found["shape_p50"], found["shape_p90"]) == (pytest.approx(0.0), pytest.approx(0.0))


def test_one_size_in_ten_may_be_off_before_nine_of_ten_are():
    truth = {(rows, 1): 100.0 for rows in range(1, 11)}
    assert forms.errors(lambda rows, length: 300.0 if rows == 10 else 100.0, truth)["p90"] == 0.0
    assert forms.errors(lambda rows, length: 300.0 if rows >= 9 else 100.0, truth)["p90"] == 2.0


def test_a_run_is_judged_before_the_model_is_told_of_it():
    model = forms.modelled(took(GRID, lambda r, n: MS * r))
    found = forms.in_service(model, [Measurement(2, 32, 2 * MS), Measurement(2, 32, 100 * MS)])
    assert found["within_upper"] == 0.5
    assert found["p50"] == pytest.approx(0.0, abs=0.01)
    assert found["p90"] == pytest.approx(0.98, abs=0.01)


def test_a_run_that_takes_more_than_the_upper_run_time_is_not_covered():
    model = forms.modelled(took(GRID, lambda r, n: MS * r))
    above = Measurement(2, 32, model.upper(2, 32) + 1)
    assert forms.in_service(model, [above])["within_upper"] == 0.0


def test_how_a_model_leans_is_told_for_each_band_of_rows_alone():
    truth = {(1, 8): 100.0, (4, 8): 100.0, (5, 8): 100.0, (32, 8): 100.0}
    found = cost_model.leaning(lambda rows, length: {1: 80.0, 4: 110.0, 5: 120.0}.get(rows, 150.0), truth)
    assert found == {k: pytest.approx(v) for k, v in {"1 row": -0.2, "2 to 8 rows": 0.15, "9 to 32 rows": 0.5}.items()}


def test_a_warm_up_and_runs_of_a_device_that_is_affine_leave_no_error_and_no_leaning():
    sizes = [(3, 20), (5, 100), (12, 60), (1, 50)]
    cost = lambda r, n: 2 * MS + 0.01 * MS * r * n  # noqa: E731
    rounds = [cost_model.Round(took(GRID, cost), took(sizes, cost)) for _ in range(4)]
    found = cost_model.judged(rounds)
    for name in (cost_model.OURS, "affine", "with attention", "with kernels"):
        assert found["alone"][name]["p90"] < 0.02
        assert found["told"][name]["p90"] < 0.02
    assert found["told"]["nearest size"]["p90"] == 0.0
    assert found["alone"]["nearest size"]["p50"] > 0.05
    assert found["noise"] == 0.0
    assert found["in_service"]["within_upper"] == 1.0
    assert list(found["leans"]) == ["1 row", "2 to 8 rows", "9 to 32 rows"]


def test_every_other_round_is_told_and_the_rest_judge_so_that_a_drift_hits_both():
    size = [(3, 20)]
    fast, slow = (cost_model.Round(took(GRID, c), took(size, c)) for c in (lambda r, n: MS, lambda r, n: 2 * MS))
    found = cost_model.judged([fast, slow, fast, slow])
    assert found["told"]["nearest size"]["p50"] == pytest.approx(0.5)
    assert cost_model.judged([fast, fast, slow, slow])["told"]["nearest size"]["p50"] == pytest.approx(0.0)


def test_the_stepped_model_takes_as_long_for_two_rows_as_its_kernel_of_eight(tmp_path):
    device = cost_model.stepped(tmp_path)
    shapes = []
    session = sys.modules["headway_model_stepped_1"].onnxruntime.InferenceSession
    ran = session.run

    def run(self, names, feeds):
        shapes.append(feeds["ids"].shape)
        return ran(self, names, feeds)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(session, "run", run)
        for rows in (1, 2, 8, 9):
            device.run(rows, 5)
    assert shapes == [(1, 5), (8, 5), (8, 5), (32, 5)]


def test_the_table_of_forms_names_a_device_once_and_gives_two_figures_a_cell():
    each = {"p50": 0.0123, "p90": 0.5, "shape_p50": 0.01, "shape_p90": 0.02}
    result = {"device": "d", "alone": {cost_model.OURS: each, "affine": each}}
    lines = cost_model.table([{**result, "told": result["alone"]}]).splitlines()[2:]
    assert [line.startswith("| d ") for line in lines] == [True, False]
    assert "1.2, 50.0" in lines[1]
