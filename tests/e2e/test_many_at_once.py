"""Many requests at once to real models: each gets its own right answer, and the books balance."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
from tokenizers import Tokenizer

from tests.e2e.books import books
from tests.e2e.client import Reply, ask, in_a_loop, infer_body, until
from tests.e2e.server import Server, running
from tests.models import MASKED_MEAN_TOML, masked_mean

pytestmark = pytest.mark.e2e

MINILM = "all-MiniLM-L6-v2"
REPOSITORY = Path(__file__).parents[2] / ".headway" / "models"
CONFIG = f"""
[models."{MINILM}".warm_up]
rows = [1, 4]
lengths = [8, 64]
repeats = 1
"""
WORDS = ("a", "vehicle", "leaves", "when", "it", "is", "full", "or", "its", "time", "has", "come")
TEXTS = 200


def texts() -> list[str]:
    """Of 1 to 60 words, no two alike."""
    chance = random.Random(5)
    return [
        " ".join([str(number), *chance.choices(WORDS, k=chance.choice((0, 3, 8, 20, 59)))]) for number in range(TEXTS)
    ]


@cache
def one_by_one() -> npt.NDArray[np.float32]:
    """What the model's file says of each text alone, without any server."""
    folder = REPOSITORY / MINILM / "1"
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.no_padding()
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # beside a server on few cores, more of them wait for each other
    session = onnxruntime.InferenceSession(str(folder / "model.onnx"), options)
    vectors = []
    for text in texts():
        encoded = tokenizer.encode(text)
        made = {"input_ids": encoded.ids, "attention_mask": encoded.attention_mask, "token_type_ids": encoded.type_ids}
        feed = {entry.name: np.array([made[entry.name]], np.int64) for entry in session.get_inputs()}
        vectors.append(session.run(["embedding"], feed)[0][0])
    return np.stack(vectors)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("many")
    masked_mean(root / "models" / "masked_mean" / "1")
    (root / "models" / "masked_mean" / "model.toml").write_text(MASKED_MEAN_TOML)
    config = ""
    if (REPOSITORY / MINILM / "1" / "model.onnx").exists():
        (root / "models" / MINILM).symlink_to(REPOSITORY / MINILM)
        config = CONFIG
    with running(root, config) as server:
        yield server


@pytest.fixture
def minilm(server: Server) -> Server:
    if not (server.root / "models" / MINILM).exists():
        pytest.skip(f"{MINILM} is not exported here; `make ready-dev` does that")
    return server


def embeddings(reply: Reply) -> npt.NDArray[np.float64]:
    assert reply.status == 200, reply
    data: list[dict[str, Any]] = reply.json["data"]
    assert [entry["index"] for entry in data] == list(range(len(data)))
    return np.array([entry["embedding"] for entry in data])


@in_a_loop
async def test_each_of_1000_concurrent_requests_of_mixed_lengths_gets_its_own_right_answer(server: Server) -> None:
    chance = np.random.default_rng(7)
    rows = [chance.normal(size=length).round(3) for length in chance.integers(1, 200, 1000)]
    bodies = [
        infer_body(
            [
                ("values", "FP32", [1, len(row)], row.tolist()),
                ("mask", "INT64", [1, len(row)], [1] * len(row)),
            ],
            id=str(number),
        )
        for number, row in enumerate(rows)
    ]
    before = await books(server.address)
    replies = await asyncio.gather(*(ask(server.address, "/v2/models/masked_mean/infer", body) for body in bodies))
    for number, (row, reply) in enumerate(zip(rows, replies, strict=True)):
        assert reply.json["id"] == str(number)
        np.testing.assert_allclose(reply.outputs["mean"], [row.mean()], atol=1e-5)
        np.testing.assert_allclose(reply.outputs["centred"], row - row.mean(), atol=1e-5)
    after = await books(server.address)
    after.assert_just_what_clients_saw()
    assert (after.outcomes() - before.outcomes()) == {"completed": 1000}


@in_a_loop
async def test_each_of_200_concurrent_texts_gets_the_vector_that_the_model_gives_it_alone(minilm: Server) -> None:
    bodies = [{"model": MINILM, "input": text} for text in texts()]
    replies = await asyncio.gather(*(ask(minilm.address, "/v1/embeddings", body) for body in bodies))
    np.testing.assert_allclose(np.concatenate([embeddings(reply) for reply in replies]), one_by_one(), atol=1e-5)


@in_a_loop
async def test_one_request_of_200_mixed_texts_equals_200_requests_of_one(minilm: Server) -> None:
    together = await ask(minilm.address, "/v1/embeddings", {"model": MINILM, "input": texts()})
    np.testing.assert_allclose(embeddings(together), one_by_one(), atol=1e-5)


@in_a_loop
async def test_the_books_balance_after_answers_errors_expiries_and_clients_that_went_away(server: Server) -> None:
    good = infer_body([("values", "FP32", [1, 2], [1, 2]), ("mask", "INT64", [1, 2], [1, 1])])
    bad = infer_body([("values", "FP32", [1, 2], [1, 2])])
    at_once = {"x-request-timeout-ms": "0.001"}
    before = await books(server.address)
    path = "/v2/models/masked_mean/infer"
    calls = [
        ask(server.address, path, body, headers) for body, headers in [(good, {}), (bad, {}), (good, at_once)] * 50
    ]
    replies = await asyncio.gather(*calls)
    assert [reply.status for reply in replies] == [200, 400, 504] * 50

    async def idle() -> bool:
        return (await books(server.address)).in_flight() == 0

    await until(idle, "nothing in flight")
    assert (await books(server.address)).outcomes() - before.outcomes() == {"completed": 50, "expired": 50}
