"""Traces of real traffic as requests to a language model."""

from __future__ import annotations

import os
from itertools import islice, pairwise
from pathlib import Path

import pytest

from headway.core.units import ms, seconds
from headway.sim.llm import traces
from headway.sim.llm.arrivals import Arrival, Piece, prompt
from headway.sim.llm.presets import PRESETS
from headway.sim.llm.simulation import LlmScenario, simulate

ROOT = Path(__file__).parents[2]
TRACES = Path(os.environ.get("HEADWAY_TRACES") or ROOT.parent / "shared" / "data" / "traces")
CONV, CODE, MOONCAKE = "azure-llm-2023-conv.csv", "azure-llm-2023-code.csv", "mooncake-conversation.jsonl"


def read(name: str, count: int) -> list[Arrival]:
    path = TRACES / name
    if not path.exists():
        pytest.skip(f"no {name} in {TRACES}; HEADWAY_TRACES names the folder that has the public traces")
    return list(islice(traces.read(path), count))


def test_the_first_rows_of_azure_are_what_the_file_says() -> None:
    first, second = read(CONV, 2)
    assert (first.at, first.prompt_tokens, first.output) == (0, 374, 44)
    assert (second.at, second.prompt_tokens, second.output) == (4_314_579_000, 396, 109)
    assert prompt(first.pieces)[:16] != prompt(second.pieces)[:16]
    code = read(CODE, 2)
    assert [(a.prompt_tokens, a.output) for a in code] == [(4808, 10), (3180, 8)]


def test_the_first_rows_of_mooncake_share_the_prefix_that_their_hashes_say() -> None:
    first, second = read(MOONCAKE, 2)
    assert (first.prompt_tokens, first.output, first.pieces[0]) == (6758, 500, Piece(0, 512))
    assert len(first.pieces) == 14
    one, two = prompt(first.pieces), prompt(second.pieces)
    assert (len(one), len(two)) == (6758, 7322)
    assert one[:512] == two[:512]
    assert one[512:528] != two[512:528]


@pytest.mark.parametrize(("name", "rows"), [(CONV, 19_366), (CODE, 8_819), (MOONCAKE, 12_031)])
def test_a_trace_is_read_whole_without_making_its_prompts(name: str, rows: int) -> None:
    arrivals = read(name, 1 << 30)
    assert len(arrivals) == pytest.approx(rows, abs=1)
    assert all(one.at <= two.at for one, two in pairwise(arrivals))
    assert all(arrival.prompt_tokens >= 1 <= arrival.output for arrival in arrivals)


def test_hashes_that_do_not_cover_the_prompt_are_filled_up_with_tokens_of_its_own(tmp_path: Path) -> None:
    path = tmp_path / "small.jsonl"
    path.write_text(
        '{"timestamp": 0, "input_length": 600, "output_length": 0, "hash_ids": [5]}\n'
        '{"timestamp": 9, "input_length": 100, "output_length": 2, "hash_ids": [5, 6]}\n',
        encoding="utf-8",
    )
    first, second = traces.read(path)
    assert [piece.tokens for piece in first.pieces] == [512, 88]
    assert second.pieces == (Piece(5, 100),)
    assert (first.output, second.at) == (1, ms(9))


def test_tenants_are_dealt_out_by_their_parts_and_by_the_seed(tmp_path: Path) -> None:
    path = tmp_path / "small.csv"
    path.write_text("".join(f"2023-11-16 18:17:03.{n:07d},10,10\n" for n in range(1000)), encoding="utf-8")
    names = [a.tenant for a in traces.read(path, (("a", 3.0), ("b", 1.0)), seed=1)]
    assert names == [a.tenant for a in traces.read(path, (("a", 3.0), ("b", 1.0)), seed=1)]
    assert names != [a.tenant for a in traces.read(path, (("a", 3.0), ("b", 1.0)), seed=2)]
    assert names.count("a") == pytest.approx(750, abs=60)


def test_a_conversation_has_one_tenant(tmp_path: Path) -> None:
    path = tmp_path / "small.jsonl"
    row = '{{"timestamp": {}, "input_length": 1200, "output_length": 1, "hash_ids": [0, {}, {}]}}\n'
    path.write_text("".join(row.format(n, 1 + n % 7, 100 + n) for n in range(70)), encoding="utf-8")
    tenants: dict[int, set[str]] = {}
    for arrival in traces.read(path, (("a", 1.0), ("b", 1.0)), seed=1):
        tenants.setdefault(arrival.pieces[1].key, set()).add(arrival.tenant)
    assert [len(names) for names in tenants.values()] == [1] * 7
    assert set.union(*tenants.values()) == {"a", "b"}


def test_a_trace_is_played_at_the_rate_that_is_wanted() -> None:
    load = [Arrival(seconds(2 * n), (Piece(n, 10),), 1, 1) for n in range(11)]
    assert traces.rate(load) == 0.5
    faster = list(traces.paced(load, 4 / traces.rate(load)))
    assert traces.rate(faster) == pytest.approx(4)
    assert traces.lengths(load) == (10, 1)
    with pytest.raises(ValueError, match="no rate"):
        traces.rate(load[:1])


def test_the_prefix_cache_finds_what_the_hashes_of_mooncake_repeat() -> None:
    """Slow enough that nothing is evicted: what was there before is found, in whole blocks."""
    load = read(MOONCAKE, 60)
    seen: set[tuple[int, ...]] = set()
    repeated = 0
    for arrival in load:
        keys = tuple(piece.key for piece in arrival.pieces)
        whole = [n for n in range(1, len(keys) + 1) if keys[:n] in seen and arrival.pieces[n - 1].tokens == 512]
        repeated += 512 * max(whole, default=0)
        seen.update(keys[:n] for n in range(1, len(keys) + 1))
    report = simulate(LlmScenario(PRESETS["h100x8-70b"]), traces.paced(load, 0.5))
    found = report.cache_hit_rate * sum(arrival.prompt_tokens for arrival in load)
    assert found == pytest.approx(repeated, rel=0.02)
    assert found > 0


@pytest.mark.parametrize("name", [CONV, CODE, MOONCAKE])
def test_real_traffic_ends_whole(name: str) -> None:
    load = read(name, 150)
    preset = PRESETS["h100x8-70b"]
    speed = 0.7 * preset.capacity(*traces.lengths(load)) / traces.rate(load)
    report = simulate(LlmScenario(preset), traces.paced(load, speed))
    assert report.ends == {"stop": 150}
    assert report.tenants["default"].output_tokens == sum(arrival.output for arrival in load)
