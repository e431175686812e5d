"""The page of `headway explain`."""

from __future__ import annotations

import pytest
from click import ClickException

from headway.cli.explain import answer
from headway.cli.explain_columns import columns, figure
from headway.cli.explain_page import duration, page, worker
from headway.config.settings import Batching, ModelSettings
from headway.wire.safety import Difference, FixedCost, InvariantReport, SafetyReport
from tests.unit.test_telemetry_explain import beside, explained


def text(settings: ModelSettings | None = None, **how: bool) -> str:
    return "\n".join(page(explained(settings=settings, **how) | {"state": "ready", "reason": ""}))  # type: ignore[arg-type]


def test_the_page_tells_values_run_times_and_the_budget() -> None:
    shown = text(ModelSettings(slo_ms=50))
    assert shown.startswith("m/1 is ready, answers where no version is named")
    for line in ("max_batch_size", "for each padded token", "speed-up", "workers: 3 ready", "left for waiting"):
        assert line in shown.replace("leaves", "left"), line
    assert "over the cap in time" in shown
    assert all(line == line.rstrip() for line in shown.splitlines())


def test_the_page_tells_how_the_wait_for_company_is_derived_or_that_it_is_not() -> None:
    lines = text(ModelSettings(slo_ms=50)).splitlines()
    start = lines.index(next(line for line in lines if line.split() == ["50", "ms", "the", "SLO", "slo_ms"]))
    assert [line.split()[0] for line in lines[start + 1 : start + 6]] == ["-", "-", "=", "x", "="]
    assert "for 1 rows, the longest of 256" in lines[start + 1]
    assert "not measured yet" in lines[start + 2]
    assert "0.25" in lines[start + 4]
    fixed = text(ModelSettings(slo_ms=50, batching=Batching(max_queue_delay_ms=2)))
    assert "not derived from it: max_queue_delay_ms is set" in fixed


def test_probes_are_told_where_there_were_any() -> None:
    told = explained() | {"state": "ready", "reason": ""}
    assert told["cost"]["probes"] == 0
    assert "probes" not in "\n".join(page(told))
    told["cost"]["probes"] = 2
    assert "2 batches were probes" in "\n".join(page(told))


def test_a_streaming_models_page_has_no_batches() -> None:
    shown = text(streaming=True)
    assert "max_sequences" in shown
    assert "run time of a batch" not in shown


def test_the_page_tells_the_device_and_who_shares_it() -> None:
    assert "  0 of 4 cores of cpu are in use now, which it has to itself" in text().splitlines()
    told = explained(others=(beside(), beside("third"))) | {"state": "ready", "reason": ""}
    assert "  0 of 4 cores of cpu are in use now, shared with other/2, third/2" in list(page(told))
    free = explained(settings=ModelSettings(device="cuda:0", cores=0)) | {"state": "ready", "reason": ""}
    assert "  on cuda:0, of which no core is counted" in list(page(free))


def test_failures_are_told_where_there_were_any() -> None:
    told = explained() | {"state": "ready", "reason": ""}
    assert told["failures"]["circuit"]["state"] == "closed"
    assert "failures, since the start:" not in list(page(told))
    told["failures"]["losses"] = {"killed": 1}
    lines = list(page(told))
    assert lines[lines.index("failures, since the start:") + 1] == "  workers lost: 1 killed"


def test_a_version_that_is_not_ready_says_why() -> None:
    told = explained() | {"state": "unavailable", "reason": "signal SIGKILL"}
    assert next(page(told)).startswith("m/1 is unavailable: signal SIGKILL")


def test_columns_are_as_wide_as_they_must_be_and_figures_stand_to_the_right() -> None:
    assert list(columns(("n", "what"), [("1", "a"), ("100", "bc")])) == ["  n  what", "  1  a", "100  bc"]


@pytest.mark.parametrize(
    ("nanoseconds", "said"), [(0.4, "0.4 ns"), (172_000, "172 µs"), (5.7e6, "5.7 ms"), (2e9, "2 s")]
)
def test_a_duration_comes_in_its_natural_unit(nanoseconds: float, said: str) -> None:
    assert duration(nanoseconds) == said


def test_figures_have_no_exponents() -> None:
    assert [figure(value) for value in (0.123456, 12.345, 1234.5, -8953.2)] == ["0.123", "12.3", "1234", "-8953"]


def test_an_error_of_the_server_is_told_in_its_own_words() -> None:
    with pytest.raises(ClickException, match="h:1 answered 403: this route answers to this host only"):
        answer("h:1", 403, b'{"error": "this route answers to this host only", "code": "forbidden"}')


def test_an_answer_that_is_not_ours_is_told_too() -> None:
    with pytest.raises(ClickException, match="not a JSON object"):
        answer("h:1", 200, b"<html>")


def test_a_workers_pace_is_told_beside_others_only() -> None:
    told = {"worker": 4, "state": "ready", "pace": 1.5}
    assert worker(told, 1) == "4 ready"
    assert worker(told, 2) == "4 ready (takes 1.50 of what the others take)"
    assert worker(told | {"pace": None}, 2) == "4 ready"


def test_the_page_tells_what_batches_do_to_the_answers_and_who_lowered_the_cap() -> None:
    worst = Difference("y", (2,), "1", "1.5", 0.5, 1e-4, "2 rows, of which it was number 1")
    report = SafetyReport("unsafe", "unbatched", "its answers depend on their company", 6, 7, 7, 0.03, worst)
    told = explained(model_max=1, safety=report)
    assert told["batch_safety"]["worst"]["index"] == [2]
    shown = "\n".join(page(told | {"state": "ready", "reason": ""}))
    assert "  not safe, served row by row" in shown.splitlines()
    assert "output 'y' at [2]: 1 alone, 1.5 in 2 rows, of which it was number 1; 0.5 apart, 0.0001 is allowed" in shown
    values = {value["name"]: (value["value"], value["origin"]) for value in told["values"]}
    assert values["max_batch_size"] == (1, "batch safety")
    assert values["batch_safety"] == ("check", "default")


def test_the_page_tells_what_fixed_sizes_cost() -> None:
    costs = (FixedCost(16, 8, 12.0, 2.5),)
    report = SafetyReport(
        "safe", "equal_lengths", length_classes=(16, 32), invariant=InvariantReport((16,), (32,), 6, costs)
    )
    shown = "\n".join(page(explained(safety=report) | {"state": "ready", "reason": ""}))
    assert "safe, served at fixed sizes, rows padded to 16, 32" in shown
    assert "length 16: 12 ms for a batch of 8 rows, whatever is in it; 2.5 ms for one row as it comes" in shown
    assert "no time for lengths 32: rows of these run one by one" in shown
