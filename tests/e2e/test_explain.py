"""`headway explain` against a real server."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.client import ask, in_a_loop, infer_body
from tests.e2e.server import HEADWAY, Server, running
from tests.models import affine

pytestmark = pytest.mark.e2e

CONFIG = "[models.affine]\nslo_ms = 50\n"
MANIFEST = "[batching]\nmax_batch_size = 8\n"


def explain(server: Server, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [str(HEADWAY), "explain", "--url", server.address, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def values(told: dict[str, Any]) -> dict[str, tuple[Any, str]]:
    return {entry["name"]: (entry["value"], entry["origin"]) for entry in told["values"]}


@in_a_loop
async def test_a_served_model_is_explained_with_who_decided_what(tmp_path: Path) -> None:
    affine(tmp_path / "models" / "affine" / "1")
    (tmp_path / "models" / "affine" / "model.toml").write_text(MANIFEST)
    with running(tmp_path, CONFIG) as server:
        for _ in range(3):
            body = infer_body([("x", "FP32", [1, 4], [1, 2, 3, 4])])
            assert (await ask(server.address, "/v2/models/affine/infer", body)).status == 200
        asked = explain(server, "affine", "--json")
        assert asked.returncode == 0, asked.stderr
        told = json.loads(asked.stdout)
        assert (told["model"], told["version"], told["state"], told["default"]) == ("affine", 1, "ready", True)
        assert values(told)["max_batch_size"] == (8, str(tmp_path / "models" / "affine" / "model.toml"))
        assert values(told)["slo_ms"] == (50, str(tmp_path / "headway.toml"))
        assert values(told)["max_batch_ms"] == (25, "automatic")
        assert told["cost"]["measured"] >= 3
        assert [p["rows"] for p in told["cost"]["predictions"]][-1] == 8
        assert told["phases"]["requests"] == 3
        assert told["slo"]["outside"]["requests"] == 3
        linger = told["slo"]["linger"]
        assert 0 < linger["outside_ms"] < 50, "replies that were written are told to the core"
        assert values(told)["max_queue_delay_ms"] == (linger["ceiling_ms"], "slo_ms")
        shown = explain(server, "affine", "--version", "1")
        assert (shown.returncode, shown.stdout.splitlines()[0][:17]) == (0, "affine/1 is ready")
        assert "what the SLO leaves for waiting" in shown.stdout
        unknown = explain(server, "affin")
        assert (unknown.returncode, "no model 'affin' here" in unknown.stderr) == (1, True)


def test_a_server_that_is_not_there_is_said_not_to_answer() -> None:
    command = [str(HEADWAY), "explain", "any", "--url", "http://127.0.0.1:1"]
    asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (asked.returncode, "127.0.0.1:1 does not answer" in asked.stderr) == (1, True)
