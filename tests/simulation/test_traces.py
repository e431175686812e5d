"""Hours of real traffic, in virtual time, judged by the oracles at every step."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path
from random import Random

import pytest

from headway.core.ids import Part
from headway.core.units import seconds
from headway.sim.costs import Cost, cpu, gpu
from headway.sim.report import Report
from headway.sim.scenario import KEY, Scenario, simulate
from headway.sim.workloads import Mix, read_trace, traced

ROOT = Path(__file__).parents[2]
TRACES = Path(os.environ.get("HEADWAY_TRACES") or ROOT.parent / "shared" / "data" / "traces")
REQUESTS = 1000


def trace(name: str) -> Path:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"no {name} in {TRACES}; HEADWAY_TRACES names the folder that has the public traces")
    return path


def play(name: str, speed: float, patience: int, cost: Cost = gpu, requests: int = REQUESTS) -> Report:
    mix = Mix((KEY,), (("chat", 2.0), ("batch", 1.0)), patience)
    arrivals = traced(Random(1), islice(read_trace(trace(name)), requests), mix, speed)
    return simulate(Scenario(arrivals, cost=cost, workers=2, checked=True))


@pytest.mark.parametrize("name", ["azure-llm-2023-conv.csv", "azure-llm-2023-code.csv", "mooncake-conversation.jsonl"])
def test_a_real_trace_completes_when_deadlines_are_far(name: str) -> None:
    report = play(name, speed=20, patience=seconds(3600))
    assert report.outcomes == {"completed": REQUESTS}
    assert set(report.tenants) == {"chat", "batch"}


def test_a_real_trace_played_far_too_fast_still_gives_every_request_one_outcome() -> None:
    report = play("azure-llm-2023-conv.csv", speed=5000, patience=seconds(0.2), cost=cpu, requests=400)
    assert sum(report.outcomes.values()) == 400
    assert report.outcomes["deadline_exceeded"] > 0
    assert report.outcomes["completed"] > 0


def test_an_azure_trace_is_read_from_its_first_request_on(tmp_path: Path) -> None:
    path = tmp_path / "small.csv"
    path.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n"
        "2023-11-16 18:17:03.9799600,4808,10\n"
        "2023-11-16 18:17:04.0319600,80,8\n",
        encoding="utf-8",
    )
    first, second = traced(Random(1), read_trace(path), Mix((KEY,)))
    assert (first.at, first.parts, first.outputs) == (0, (Part(1, 256),), 10)
    assert (second.at, second.parts, second.outputs) == (52_000_000, (Part(1, 10),), 8)


def test_a_mooncake_trace_is_read_in_milliseconds(tmp_path: Path) -> None:
    path = tmp_path / "small.jsonl"
    path.write_text(
        '{"timestamp": 27000, "input_length": 160, "output_length": 500, "hash_ids": [0]}\n'
        '{"timestamp": 30000, "input_length": 1, "output_length": 3, "hash_ids": [0]}\n',
        encoding="utf-8",
    )
    assert [(r.at, r.length, r.outputs) for r in read_trace(path)] == [(0, 20, 500), (seconds(3), 1, 3)]


def test_a_row_that_does_not_parse_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.csv"
    path.write_text("TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,2\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"broken.csv:2: not a row of a trace"):
        list(read_trace(path))


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"expected a trace that ends in .csv"):
        list(read_trace(tmp_path / "trace.parquet"))
