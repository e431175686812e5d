"""Several models on fewer cores than they have workers: they take turns."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterable
from itertools import accumulate
from pathlib import Path

import pytest

from tests.e2e.client import ask, in_a_loop, infer_body
from tests.e2e.server import put, running
from tests.e2e.witness import Witness, pauses

pytestmark = pytest.mark.e2e

MODELS = ("one", "two", "three")
CLIENTS, REQUESTS = 4, 12
"""Of each model, and of each client."""
CORES = 2
CONFIG = f"[server]\nthreads = {CORES}\n"

BUSY = """
import time


class Model:
    inputs = {"x": ("FP32", [-1, 1])}
    outputs = {"y": ("FP32", [-1, 1])}

    def load(self, context):
        self.log = context.settings.options["log"]

    def execute(self, requests):
        begin = time.monotonic_ns()
        while time.monotonic_ns() < begin + 20_000_000:
            pass
        with open(self.log, "a") as log:
            log.write(f"{begin} {time.monotonic_ns()}\\n")
        return [{"y": request["x"]} for request in requests]
"""


def busy(root: Path, name: str) -> Path:
    """A model that computes for 20 ms per batch of one. Returns the file with when each began and ended."""
    log = root / f"{name}.log"
    put(root, f"models/{name}/1/model.py", BUSY)
    put(root, f"models/{name}/model.toml", f'[batching]\nmax_batch_size = 1\n[options]\nlog = "{log}"\n')
    return log


async def asked(address: str, name: str) -> list[float]:
    reply = await ask(address, f"/v2/models/{name}/infer", infer_body([("x", "FP32", [1, 1], [7])]))
    return reply.outputs["y"]


def share_of_time(logs: Iterable[Path], count: int) -> float:
    """Of all time in which any ran, the part in which at least so many did."""
    runs = [tuple(map(int, line.split())) for log in logs for line in log.read_text().splitlines()]
    assert len(runs) == len(MODELS) * CLIENTS * REQUESTS
    changes = sorted([(begin, 1) for begin, _ in runs] + [(end, -1) for _, end in runs])
    at_once = list(accumulate(change for _, change in changes))
    spans = [(after - at, many) for (at, _), (after, _), many in zip(changes, changes[1:], at_once, strict=False)]
    return sum(span for span, many in spans if many >= count) / sum(span for span, many in spans if many)


@in_a_loop
async def test_no_more_batches_run_at_once_than_there_are_cores_whatever_models_they_are_of(tmp_path: Path) -> None:
    logs = [busy(tmp_path, name) for name in MODELS]
    with running(tmp_path, CONFIG) as server:

        async def client(name: str) -> None:
            for _ in range(REQUESTS):
                assert await asked(server.address, name) == [7]

        await asyncio.gather(*(client(name) for name in MODELS for _ in range(CLIENTS)))
        told = json.loads((await ask(server.address, "/v2/models/one/explain")).body)
        page = (await ask(server.address, "/metrics")).body.decode()
    cores = min(CORES, len(os.sched_getaffinity(0)))
    assert share_of_time(logs, cores + 1) < 0.4, "only while one is handed over before another has ended"
    expected = {"name": "cpu", "cores": cores, "in_use": 0, "takes": 1, "trouble": ""}
    expected["shared_with"] = ["three/1", "two/1"]
    assert told["device"] == expected
    assert f'headway_device_cores{{device="cpu"}} {cores}.0' in page
    assert 'headway_device_cores_in_use{device="cpu"} 0.0' in page


@in_a_loop
async def test_a_model_that_waits_for_something_else_keeps_no_core_from_the_others(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    busy(tmp_path, "one")
    async with pauses() as held:
        with running(tmp_path, "[server]\nthreads = 1\n") as server:
            waits = asyncio.create_task(witness.ask(server.address, 5, hold=held.port))
            pause = await held.begun()
            assert await asked(server.address, "one") == [7]
            assert not waits.done()
            await pause.end()
            assert (await waits).outputs["sum"] == [5]
