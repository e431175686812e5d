"""A model that batching would change is served so that it does not, and the operator can see it."""

from __future__ import annotations

import asyncio
import json
import struct
import subprocess
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.e2e.client import Reply, ask, in_a_loop, infer_body
from tests.e2e.server import HEADWAY, Server, put, running
from tests.models import TINY_ENCODER_TOML, tiny_encoder
from tests.safety_models import MODELS
from tests.safety_models import put as put_model

pytestmark = pytest.mark.e2e

REQUESTS = 300
AT_ONCE = 24


def headway(*arguments: str | Path) -> tuple[int, str, str]:
    done = subprocess.run([str(HEADWAY), *map(str, arguments)], capture_output=True, text=True, check=False, timeout=90)
    return done.returncode, done.stdout, done.stderr


def of_lengths(name: str, count: int, longest: int = 40) -> list[dict[str, Any]]:
    random = Random(name)
    bodies = []
    for _ in range(count):
        size = random.randint(1, longest)
        bodies.append([("ids", "INT64", [1, size], [random.randint(0, 49) for _ in range(size)])])
    return [infer_body(inputs) for inputs in bodies]


async def all_at_once(server: Server, path: str, bodies: list[dict[str, Any]]) -> list[Reply]:
    room = asyncio.Semaphore(AT_ONCE)

    async def one(body: dict[str, Any]) -> Reply:
        async with room:
            return await ask(server.address, path, body)

    return await asyncio.gather(*(one(body) for body in bodies))


def rows_per_batch(metrics: str, model: str) -> tuple[int, int]:
    """Rows and batches that ran."""
    found = {}
    for line in metrics.splitlines():
        for what in ("sum", "count"):
            if line.startswith(f"headway_batch_rows_{what}{{") and f'model="{model}"' in line:
                found[what] = int(float(line.split()[-1]))
    return found["sum"], found["count"]


@in_a_loop
async def test_each_request_to_a_model_that_padding_changes_is_answered_as_if_it_were_alone(tmp_path: Path) -> None:
    put_model(tmp_path / "models", "padded_mean")
    path = "/v2/models/padded_mean/infer"
    bodies = of_lengths("padded_mean", REQUESTS, longest=6)
    with running(tmp_path) as server:
        alone = [(await ask(server.address, path, body)).outputs for body in bodies[:60]]
        together = [reply.outputs for reply in await all_at_once(server, path, bodies)]
        assert [close(one["vector"], other["vector"]) for one, other in zip(alone, together, strict=False)] == [
            True
        ] * 60
        metrics = server.request("GET", "/metrics")[1]
        rows, batches = rows_per_batch(metrics, "padded_mean")
        assert rows == REQUESTS + 60
        assert batches < rows, "rows of one length still share batches"
        line = 'headway_batch_safety{mode="equal_lengths",model="padded_mean",verdict="unsafe",version="1"} 1.0'
        assert line in metrics.splitlines()
        assert "served in batches of equal length" in server.wait_for("warning: batch safety")
        code, told, _ = headway("explain", "padded_mean", "--url", server.address)
        assert code == 0
        assert "answers in batches, as found at load:" in told
        assert "  not safe, served in batches of equal length" in told.splitlines()
        assert any(line.split()[:2] == ["equal_lengths", "true"] for line in told.splitlines())


@in_a_loop
async def test_a_model_whose_answers_depend_on_company_gets_none_even_within_one_request(tmp_path: Path) -> None:
    put_model(tmp_path / "models", "batch_norm_in_training")
    path = "/v2/models/batch_norm_in_training/infer"
    body = infer_body([("x", "FP32", [5, 6], [float(i * i % 7) for i in range(30)])])
    with running(tmp_path) as server:
        replies = await all_at_once(server, path, [body] * 40)
        assert {tuple(reply.outputs["y"]) for reply in replies} == {(0.0,) * 30}, "what one row has when it is alone"
        rows, batches = rows_per_batch(server.request("GET", "/metrics")[1], "batch_norm_in_training")
        assert (rows, batches) == (200, 200)
        told = json.loads(headway("explain", "batch_norm_in_training", "--url", server.address, "--json")[1])
        assert told["batch_safety"]["mode"] == "unbatched"
        values = {value["name"]: (value["value"], value["origin"]) for value in told["values"]}
        assert values["max_batch_size"] == (1, "batch safety")


@in_a_loop
async def test_in_invariant_mode_an_answer_has_the_same_bits_however_busy_the_server_is(tmp_path: Path) -> None:
    tiny_encoder(tmp_path / "models" / "encoder" / "1")
    settings = "batch_invariant = true\n" + TINY_ENCODER_TOML + "[batching]\nmax_batch_size = 8\n"
    put(tmp_path, "models/encoder/model.toml", settings)
    path = "/v2/models/encoder/infer"
    bodies = [with_mask(body) for body in of_lengths("encoder", REQUESTS, longest=64)]
    with running(tmp_path) as server:
        alone = [bits(await ask(server.address, path, body)) for body in bodies[:100]]
        together = [bits(reply) for reply in await all_at_once(server, path, bodies * 2)]
        assert together[:100] == alone
        assert together[:REQUESTS] == together[REQUESTS:]
        rows, batches = rows_per_batch(server.request("GET", "/metrics")[1], "encoder")
        assert (rows, batches < rows) == (2 * REQUESTS + 100, True)
        told = headway("explain", "encoder", "--url", server.address)[1]
        assert "  safe, served at fixed sizes, rows padded to 16, 32, 64" in told.splitlines()
        assert "length 64: " in told and "for a batch of 8 rows, whatever is in it" in told


def with_mask(body: dict[str, Any]) -> dict[str, Any]:
    (ids,) = body["inputs"]
    return {"inputs": [ids, {**ids, "name": "mask", "data": [1] * len(ids["data"])}]}


def bits(reply: Reply) -> bytes:
    """JSON has each float32 in full, so equal text is equal bits."""
    values = reply.outputs["embedding"]
    return struct.pack(f"<{len(values)}d", *values)


def close(one: list[float], other: list[float]) -> bool:
    return all(abs(a - b) < 1e-6 for a, b in zip(one, other, strict=True))


# -- headway verify ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("verify")
    for name in MODELS:
        put_model(root, name)
    tiny_encoder(root / "encoder" / "1")
    (root / "encoder" / "model.toml").write_text("batch_invariant = true\n" + TINY_ENCODER_TOML)
    broken = "class Model:\n    inputs = {'x': ('FP32', [-1])}\n    outputs = {}\n    def execute(self, r): ...\n"
    put(root, "does_not_load/1/model.py", broken)
    put(root, "dies/1/model.py", "import os\nprint('so long')\nos._exit(9)\n")
    put(root, "streams/1/model.py", "class Model:\n    def stream(self, request):\n        yield 1\n")
    return root


@pytest.mark.parametrize(
    ("name", "code", "says"),
    [
        ("correct_tokens", 0, "correct_tokens/1: safe, served in batches as configured"),
        ("padded_mean", 1, "padded_mean/1: not safe, served in batches of equal length"),
        ("not_deterministic", 1, "not_deterministic/1: not deterministic, served row by row"),
        ("encoder", 0, "bit-equal in every company and place that was tried"),
        ("streams", 2, "a stream has no batches"),
        ("does_not_load", 2, "could not be judged: it does not load, see above (exit code 3)"),
        ("dies", 2, "could not be judged: it does not load, see above (exit code 9)"),
        ("corect_tokens", 2, "did you mean 'correct_tokens'?"),
    ],
)
def test_a_model_is_verified_without_a_server(repository: Path, name: str, code: int, says: str) -> None:
    ended, printed, complained = headway("verify", name, "--models", repository)
    assert (ended, says in printed + complained) == (code, True), printed + complained
    assert "Traceback" not in complained


def test_a_report_can_be_read_by_programs_also_where_the_model_prints(repository: Path) -> None:
    chatty = (repository / "correct_rows" / "1" / "model.py").read_text() + "        \nprint('hello from the model')\n"
    (repository / "correct_rows" / "1" / "model.py").write_text(chatty)
    ended, printed, complained = headway("verify", "correct_rows", "--models", repository, "--json")
    assert (ended, json.loads(printed)["verdict"], "hello from the model" in complained) == (0, "safe", True)
