"""`headway simulate` at the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from headway.cli.simulate import simulate


def run(*arguments: str) -> Result:
    return CliRunner().invoke(simulate, arguments)


def test_it_prints_a_table() -> None:
    result = run("--requests", "200", "--cost", "gpu", "--rate", "2000")
    assert result.exit_code == 0
    assert "200 in" in result.output and "completed: 200" in result.output


def test_the_same_seed_prints_the_same_json() -> None:
    def report(seed: str) -> dict[str, object]:
        result = json.loads(run("--requests", "200", "--seed", seed, "--json").output)
        return {name: value for name, value in result.items() if "wall" not in name}

    assert report("5") == report("5") != report("6")


@pytest.mark.parametrize("arrivals", ["poisson", "burst", "on-off", "closed"])
def test_every_kind_of_arrival_completes_under_the_oracles(arrivals: str) -> None:
    result = run("--arrivals", arrivals, "--requests", "150", "--check", "--json", "--tenants", "a:1,b:2")
    report = json.loads(result.output)
    assert report["outcomes"] == {"completed": 150}
    assert set(report["tenants"]) == {"a", "b"}


def test_faults_end_and_everybody_is_answered() -> None:
    result = run("--faults", "--requests", "400", "--workers", "2", "--rate", "120", "--check", "--json")
    assert sum(json.loads(result.output)["outcomes"].values()) == 400


def test_a_held_batch_leaves_because_it_lingered() -> None:
    result = run("--hold", "--max-queue-delay-ms", "50", "--cost", "gpu", "--requests", "100", "--json")
    assert "linger" in json.loads(result.output)["reasons"]


def test_a_delay_that_is_derived_from_an_slo_makes_larger_batches_and_one_that_is_given_stays() -> None:
    def rows(*delay: str) -> float:
        held = ("--hold", "--cost", "gpu", "--rate", "200", "--requests", "1000", "--slo-ms", "100", "--json")
        return float(json.loads(run(*held, *delay).output)["mean_batch_size"])

    assert rows() > 2 * rows("--max-queue-delay-ms", "5")


def test_a_trace_brings_its_own_times_and_lengths(tmp_path: Path) -> None:
    trace = tmp_path / "small.jsonl"
    rows = [{"timestamp": 10 * n, "input_length": 400, "output_length": 1, "hash_ids": []} for n in range(20)]
    trace.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    result = run("--arrivals", "trace", "--trace", str(trace), "--json")
    assert json.loads(result.output)["outcomes"] == {"completed": 20}


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--arrivals", "trace"), "go together"),
        (("--tenants", "a:much"), "expected NAME:WEIGHT"),
        (("--tenants", "a:-1"), "a weight above 0"),
        (("--cost", "quantum"), "is not one of"),
        (("--rate", "0"), "--rate"),
    ],
)
def test_wrong_usage_ends_in_exit_code_2(arguments: tuple[str, ...], complaint: str) -> None:
    result = run(*arguments)
    assert result.exit_code == 2
    assert complaint in result.output


def test_a_broken_trace_is_named(tmp_path: Path) -> None:
    trace = tmp_path / "broken.csv"
    trace.write_text("not,a,trace\n", encoding="utf-8")
    result = run("--arrivals", "trace", "--trace", str(trace))
    assert result.exit_code == 2
    assert "broken.csv:1" in result.output
