"""Memory of a worker: what warm-up measured is shown, caps batches, and a batch that is too large is only a batch."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.client import ask, in_a_loop, infer_body
from tests.e2e.server import put, running
from tests.e2e.test_explain import explain, values
from tests.models import affine

pytestmark = pytest.mark.e2e

ROUNDS = 5
"""Batches of 24 rows are halved until 4 or fewer are left: three times, and one more in which nothing fails."""

HUNGRY = """
class Model:
    inputs = {"x": ("FP32", [-1, 4])}
    outputs = {"y": ("FP32", [-1, 4])}

    def execute(self, requests):
        if sum(request.rows for request in requests) > 4:
            raise MemoryError("no room for so many")
        return [{"y": request["x"] * 2} for request in requests]
"""


@in_a_loop
async def test_a_batch_without_room_is_halved_until_there_is_room_and_later_ones_are_smaller(tmp_path: Path) -> None:
    put(tmp_path, "models/hungry/1/model.py", HUNGRY)
    put(tmp_path, "models/hungry/model.toml", "[batching]\nmax_queue_delay_ms = 50\nhold = true\n")
    with running(tmp_path) as server:
        workers = server.workers()
        bodies = [infer_body([("x", "FP32", [1, 4], [n, 0, 0, 0])]) for n in range(24)]
        for _ in range(ROUNDS):
            replies = await asyncio.gather(*(ask(server.address, "/v2/models/hungry/infer", body) for body in bodies))
            assert {reply.status for reply in replies} == {200}, "a batch that is too large is tried again in halves"
        assert [reply.outputs["y"][0] for reply in replies] == [2 * n for n in range(24)]
        assert server.workers() == workers, "the worker lives on"
        told = (await ask(server.address, "/v2/models/hungry/explain", method="GET")).json
        cap, decider = values(told)["max_batch_tokens"]
        assert (1 <= cap <= 4, decider) == (True, "the worker's memory")
        assert "ran out of memory with a batch of" in "\n".join(server.printed)


@in_a_loop
async def test_what_batches_take_is_measured_shown_and_kept_within_the_memory_that_is_set(tmp_path: Path) -> None:
    affine(tmp_path / "models" / "affine" / "1")
    put(tmp_path, "models/affine/model.toml", "memory_mb = 1\n")
    with running(tmp_path) as server:
        told = (await ask(server.address, "/v2/models/affine/explain", method="GET")).json
        memory = told["memory"]
        assert memory["limit"] == 1 << 20
        assert [point[:2] for point in memory["points"]] == [[rows, 1] for rows in (1, 2, 4, 8, 16, 32)]
        assert all(point[2] <= memory["fixed"] + memory["per_token"] * point[0] for point in memory["points"])
        cap, _ = values(told)["max_batch_tokens"]
        assert cap == memory["max_batch_tokens"]
        shown = explain(server, "affine")
        assert "memory of a batch at its peak, beside the loaded model:" in shown.stdout
