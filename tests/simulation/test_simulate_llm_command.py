"""`headway simulate --llm` at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headway.cli.simulate import simulate


def run(*arguments: str) -> Result:
    return CliRunner().invoke(simulate, ("--llm", *arguments))


def shown(*arguments: str) -> dict[str, object]:
    result = run("--requests", "40", *arguments, "--json")
    assert result.exit_code == 0, result.output
    report = json.loads(result.output)
    assert isinstance(report, dict)
    return report


def test_it_prints_what_one_wants_to_know() -> None:
    result = run("--requests", "40", "--tenants", "a:1,b:2")
    assert result.exit_code == 0
    for word in (
        "first token",
        "between tokens",
        "end to end",
        "KV blocks",
        "preempted",
        "prefix cache",
        "largest gap",
    ):
        assert word in result.output
    assert result.output.splitlines()[-1].startswith("b ")


def test_the_same_seed_prints_the_same_and_another_does_not() -> None:
    assert shown("--seed", "5")["digest"] == shown("--seed", "5")["digest"] != shown("--seed", "6")["digest"]


def test_several_schedulers_are_compared() -> None:
    result = run("--requests", "40", "--scheduler", "headway", "--scheduler", "static")
    assert [line.split()[0] for line in result.output.splitlines()[1:]] == ["headway", "static"]
    assert shown("--scheduler", "headway", "--scheduler", "static").keys() == {"headway", "static"}


@pytest.mark.parametrize("preset", ["cpu-smollm2", "h100x4-70b"])
def test_load_is_in_terms_of_the_device(preset: str) -> None:
    low, high = (shown("--preset", preset, "--load", load)["duration_s"] for load in ("0.2", "2"))
    assert float(str(low)) > 1.5 * float(str(high))


def test_a_trace_brings_times_lengths_and_prefixes(tmp_path: Path) -> None:
    trace = tmp_path / "small.jsonl"
    rows = [{"timestamp": 100 * n, "input_length": 600, "output_length": 3, "hash_ids": [1, n]} for n in range(1, 21)]
    trace.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    report = shown("--trace", str(trace), "--speed", "1")
    assert report["ends"] == {"stop": 20}
    assert float(str(report["cache_hit_rate"])) > 0.7
    assert shown("--trace", str(trace), "--no-prefix-cache")["cache_hit_rate"] == 0


def test_settings_reach_the_planner() -> None:
    limited = shown("--max-sequences", "2", "--target-itl-ms", "30", "--admit", "worst_case", "--load", "1")
    assert float(str(limited["kv_peak"])) < float(str(shown("--load", "1")["kv_peak"]))
    assert shown("--first-token-ms", "1")["in_time"] == 0
    assert shown("--blocks", "8")["refused"]


def test_requests_ask_for_as_much_as_is_said() -> None:
    few, many = (shown("--requests", "20", "--max-tokens", tokens) for tokens in ("5", "500"))
    assert few["ends"] == {"length": 20}
    assert "stop" in many["ends"]  # type: ignore[operator]


def test_the_greedy_workload_has_two_tenants() -> None:
    report = shown("--workload", "greedy", "--preset", "h100-8b")
    assert report["tenants"].keys() == {"greedy", "polite"}  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--load", "1", "--rate", "2"), "exclude each other"),
        (("--speed", "2"), "--speed and --trace go together"),
        (("--max-sequences", "5000"), "must hold a token of each sequence"),
        (("--scheduler", "magic"), "is not one of"),
        (("--tenants", "a:1,b:1,a:2"), "'a' is named twice"),
        (("--workload", "greedy", "--max-tokens", "5"), "--max-tokens does not go with it"),
        (("--cost", "gpu"), "No such option"),
    ],
)
def test_wrong_usage_ends_in_exit_code_2(arguments: tuple[str, ...], complaint: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert complaint in result.output


def test_a_broken_trace_is_named(tmp_path: Path) -> None:
    trace = tmp_path / "broken.csv"
    trace.write_text("not,a,trace\n", encoding="utf-8")
    result = run("--trace", str(trace))
    assert result.exit_code == 2
    assert "broken.csv:1" in result.output


def test_its_help_is_its_own_and_the_other_names_it() -> None:
    assert "--preset" in run("--help").output
    assert "--llm" in CliRunner().invoke(simulate, ["--help"]).output


def test_charts_are_drawn_a_panel_for_each_scheduler(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    result = run("--requests", "30", "--scheduler", "headway", "--scheduler", "static", "--charts", str(tmp_path))
    assert result.exit_code == 0
    names = ["first-token.png", "kv.png", "queue.png", "received.png", "service.png"]
    assert [path.name for path in sorted(tmp_path.iterdir())] == names
