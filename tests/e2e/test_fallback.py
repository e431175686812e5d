"""A declared fallback at a server that runs: more than fits one model's queue is answered by the other."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.client import ask, in_a_loop, infer_body
from tests.e2e.server import put, running
from tests.models import affine

pytestmark = pytest.mark.e2e

BODY = infer_body([("x", "FP32", [1, 4], [1, 2, 3, 4])])
GATE = """
import pathlib
import time

class Model:
    inputs = {"x": ("FP32", [-1, 4])}
    outputs = {"y": ("FP32", [-1, 4])}

    def execute(self, requests):
        while not pathlib.Path("GATE").exists():
            time.sleep(0.01)  # another process opens the gate, and has no event to share with a model
        return [{"y": request["x"]} for request in requests]
"""
SETTINGS = """
fallback = "affine"
batch_safety = "off"
[warm_up]
enabled = false
[batching]
max_batch_size = 1
max_queued_requests = 2
"""


@in_a_loop
async def test_what_finds_no_room_is_answered_by_the_fallback_and_counted(tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    affine(tmp_path / "models" / "affine" / "1")
    put(tmp_path, "models/held/1/model.py", GATE.replace("GATE", str(gate)))
    put(tmp_path, "models/held/model.toml", SETTINGS)
    with running(tmp_path) as server:
        asked = [asyncio.create_task(ask(server.address, "/v2/models/held/infer", BODY)) for _ in range(12)]
        done, waiting = set(), set(asked)
        while len(done) < 8:  # at most one runs, one is staged, and two wait: the others cannot but be answered
            now, waiting = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            done |= now
        assert all(task.result().headers["x-headway-served-by"] == "affine/1" for task in done)
        assert all(task.result().outputs["y"] == [3, 5, 7, 9] for task in done)
        gate.touch()
        rest = [await task for task in waiting]
        assert next(reply.outputs["y"] for reply in rest if "x-headway-served-by" not in reply.headers) == [1, 2, 3, 4]
        by_fallback = sum("x-headway-served-by" in task.result().headers for task in asked)
        page = (await ask(server.address, "/metrics")).body.decode()
        assert f'headway_fallback_replies_total{{fallback="affine",model="held"}} {float(by_fallback)}' in page
        refused = 'outcome="refused",tenant="default",version="1"'
        assert f'headway_requests_total{{code="queue_full",model="held",{refused}}} {float(by_fallback)}' in page
