"""benchmarks/tenants.py runs from end to end, with servers, loads and a recording of its own, on a tiny model."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

pytestmark = pytest.mark.e2e

ROOT = Path(__file__).parents[2]
NAMES = ("input_ids", "attention_mask", "token_type_ids")
MODEL = f"""
import time

import numpy as np


class Model:
    inputs = {{name: ("INT64", [-1, -1]) for name in {NAMES!r}}}
    outputs = {{"embedding": ("FP32", [-1, 2])}}

    def execute(self, requests):
        time.sleep(0.002 * len(requests))
        return [{{"embedding": np.ones((len(request["input_ids"]), 2), np.float32)}} for request in requests]
"""


@pytest.fixture
def models(tmp_path: Path) -> Path:
    version = tmp_path / "models" / "all-MiniLM-L6-v2" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL)
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()  # type: ignore[assignment]
    tokenizer.save(str(version / "tokenizer.json"))
    padded = "".join(f"[inputs.{name}]\npad_axis = 1\n" for name in NAMES)
    (version.parent / "model.toml").write_text(f"[embeddings]\nmax_length = 256\n{padded}")
    return tmp_path / "models"


def measured(models: Path, experiment: str, *more: str) -> tuple[str, dict[str, Any]]:
    """What it prints, and what it writes."""
    written = models.parent / "figures.json"
    command = [sys.executable, str(ROOT / "benchmarks" / "tenants.py"), experiment, "--models", str(models)]
    tiny = ["--seconds", "0.5", "--warm-up", "0.3", "--rounds", "1", "--outstanding", "20", "--json", str(written)]
    ended = subprocess.run([*command, *tiny, *more], capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout, json.loads(written.read_text())[experiment]


def test_the_polite_tenant_is_measured_alone_beside_an_aggressor_and_coming_back(models: Path) -> None:
    told, figures = measured(models, "polite")
    assert [(run["share"], run["outstanding"]) for run in figures["beside"]] == [(0.5, 20), (1.0, 20)]
    for run in figures["beside"]:
        assert run["streams"]["polite"]["errors"] == {}
        assert run["streams"]["polite"]["answered"] > 0
        assert run["streams"]["aggressor"]["answered"] > 0
    assert [len(each["returns"]) > 0 for each in figures["returns"]] == [True]
    assert figures["max_batch_ms"] == 250
    assert "polite at half its share, beside 20" in told


def test_one_tenant_eight_tenants_and_first_come_are_measured_in_turns(models: Path) -> None:
    _, figures = measured(models, "cost")
    assert [run["server"] for run in figures["runs"]] == ["one tenant", "eight tenants", "first-come 32"]
    assert all(stream["answered"] > 0 for run in figures["runs"] for stream in run["streams"].values())
    assert len(figures["runs"][1]["streams"]) == 8


def test_an_overload_is_measured_with_what_was_before_and_after_it(models: Path) -> None:
    told, figures = measured(models, "overload", "--factors", "3")
    [load] = figures["loads"]
    assert load["run"]["streams"]["health"]["errors"] == {}
    assert load["run"]["streams"]["tenant-1"]["arrived"] > load["calm"]["streams"]["tenant-1"]["arrived"]
    assert load["before"]["streams"]["unhurried"]["errors"] == {}
    assert "3 times capacity" in told
