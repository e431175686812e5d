"""`headway bench` against a real server: its figures are the server's own."""

from __future__ import annotations

import asyncio
import json
import subprocess
from pathlib import Path

import pytest

from tests.e2e.books import books
from tests.e2e.client import in_a_loop, infer_body
from tests.e2e.server import HEADWAY, running
from tests.models import affine

pytestmark = pytest.mark.e2e

REQUESTS = 200
LOOPS = {"closed": ["--concurrency", "8"], "open": ["--rate", "400", "--arrivals", "constant"]}


@in_a_loop
async def test_what_bench_counts_is_what_the_server_counts(tmp_path: Path) -> None:
    affine(tmp_path / "models" / "affine" / "1")
    body, figures = tmp_path / "body.json", tmp_path / "figures.json"
    body.write_text(json.dumps(infer_body([("x", "FP32", [1, 4], [1, 2, 3, 4])])))
    with running(tmp_path) as server:
        url = f"{server.address}/v2/models/affine/infer"
        for done, loop in enumerate(LOOPS.values(), start=1):
            command = [HEADWAY, "bench", url, "--body", body, "--json", figures, "--warmup", "0", *loop]
            command += ["--requests", str(REQUESTS)]
            ended = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True)
            assert ended.returncode == 0, ended.stdout + ended.stderr
            told = json.loads(figures.read_text())
            assert (told["ok"], told["failed"]) == (REQUESTS, 0)
            assert 0 < told["latency_ms"]["p50"] <= told["latency_ms"]["p99"] <= told["latency_ms"]["max"]
            assert (await books(server.address)).outcomes() == {"completed": done * REQUESTS}


def test_bench_of_a_server_that_is_not_there_says_so_and_ends_with_code_1() -> None:
    ended = subprocess.run(
        [HEADWAY, "bench", "http://127.0.0.1:1", "--model", "any"], capture_output=True, text=True, check=False
    )
    assert ended.returncode == 1
    assert "127.0.0.1:1 cannot be reached" in ended.stderr
