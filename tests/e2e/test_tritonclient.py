"""The official client of the protocol (C64), unmodified: `tritonclient.http` and `tritonclient.http.aio`."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import pytest
import tritonclient.http as http
import tritonclient.http.aio as aio
from tritonclient.utils import InferenceServerException

from headway.wire.tensors import DATATYPES
from tests.e2e.kinds import NAMES, assert_equal, put_model, values
from tests.e2e.server import Server, put, running
from tests.models import affine, bfloat16_twice

pytestmark = pytest.mark.e2e

ONLY_BINARY = ("FP16", "BF16")
"""The client itself sends them in no other way."""
AS_TEXT = [
    datatype for datatype in DATATYPES if datatype not in (*ONLY_BINARY, "BYTES")
]  # of its bytes the client makes text itself


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("triton")
    put_model(root)
    affine(root / "models" / "affine" / "1")
    affine(root / "models" / "affine" / "2", shift=100)
    bfloat16_twice(root / "models" / "twice" / "1")
    put(root, "models/affine/model.toml", "[batching]\nmax_batch_size = 4\n")
    with running(root) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[http.InferenceServerClient]:
    with http.InferenceServerClient(urlsplit(server.address).netloc, concurrency=4) as client:
        yield client


def every_kind(module: Any, binary: bool) -> list[Any]:
    """One input per datatype. binary: all of them; else those that the client can write as JSON are."""
    inputs = []
    for datatype in DATATYPES:
        array = values(datatype)
        entry = module.InferInput(datatype.lower(), list(array.shape), datatype)
        entry.set_data_from_numpy(array, binary_data=binary or datatype not in AS_TEXT)
        inputs.append(entry)
    return inputs


def x_input(module: Any, rows: int, value: float = 0.5) -> list[Any]:
    entry = module.InferInput("x", [rows, 4], "FP32")
    entry.set_data_from_numpy(np.full((rows, 4), value, np.float32))
    return [entry]


@pytest.mark.parametrize("binary_in", [True, False], ids=["binary", "mixed"])
def test_every_datatype_goes_there_and_back_bit_for_bit(client: http.InferenceServerClient, binary_in: bool) -> None:
    result = client.infer("kinds", every_kind(http, binary_in))
    for name in NAMES:
        assert_equal(name, result.as_numpy(f"{name}_out"))


def test_each_output_comes_as_json_or_as_binary_as_it_was_asked_for(client: http.InferenceServerClient) -> None:
    outputs = [
        http.InferRequestedOutput(f"{datatype.lower()}_out", binary_data=datatype not in AS_TEXT)
        for datatype in reversed(DATATYPES)
    ]
    result = client.infer("kinds", every_kind(http, True), outputs=outputs, request_id="seven")
    told = result.get_response()
    assert [output["name"] for output in told["outputs"]] == [output.name() for output in outputs]
    assert told["id"] == "seven"
    for datatype, output in zip(reversed(DATATYPES), told["outputs"], strict=True):
        assert ("data" in output) == (datatype in AS_TEXT)
        assert_equal(datatype.lower(), result.as_numpy(output["name"]))


def test_a_request_of_more_rows_than_a_batch_has_one_answer(client: http.InferenceServerClient) -> None:
    result = client.infer("affine", x_input(http, 11), model_version="1")
    assert result.as_numpy("y").tolist() == [[2.0] * 4] * 11


def test_bf16_runs_through_an_onnx_model(client: http.InferenceServerClient) -> None:
    array = values("BF16")
    entry = http.InferInput("x", [2, 2], "BF16")
    entry.set_data_from_numpy(array)
    result = client.infer("twice", [entry])
    assert result.as_numpy("y").tobytes() == (array + array).tobytes()


def test_requests_at_once_are_each_answered_with_their_own(client: http.InferenceServerClient) -> None:
    asked = [client.async_infer("affine", x_input(http, 1, float(n)), model_version="2") for n in range(40)]
    for number, request in enumerate(asked):
        assert request.get_result().as_numpy("y").tolist() == [[2.0 * number + 100] * 4]


def test_the_server_and_its_models_say_what_they_are(client: http.InferenceServerClient) -> None:
    assert client.is_server_live() and client.is_server_ready()
    assert client.is_model_ready("affine") and client.is_model_ready("affine", "1")
    assert "binary_tensor_data" in client.get_server_metadata()["extensions"]
    assert client.get_model_metadata("affine")["versions"] == ["1", "2"]
    assert client.get_model_config("affine")["max_batch_size"] == 4
    index = client.get_model_repository_index()
    assert {(entry["name"], entry["state"]) for entry in index} == {
        ("affine", "READY"),
        ("kinds", "READY"),
        ("twice", "READY"),
    }


def test_statistics_count_requests_rows_and_batches_of_a_version(client: http.InferenceServerClient) -> None:
    before = stats(client)
    client.infer("affine", x_input(http, 3), model_version="1")
    client.infer("affine", x_input(http, 1), model_version="1")
    with pytest.raises(InferenceServerException):
        client.infer("affine", x_input(http, 1), model_version="1", timeout=1)  # a microsecond
    after = stats(client)
    assert after["inference_count"] - before["inference_count"] == 4
    assert after["execution_count"] - before["execution_count"] == 2
    served, earlier = after["inference_stats"], before["inference_stats"]
    assert served["success"]["count"] - earlier["success"]["count"] == 2
    assert served["fail"]["count"] - earlier["fail"]["count"] == 1
    assert after["last_inference"] > 1_600_000_000_000
    assert [entry["name"] for entry in client.get_inference_statistics()["model_stats"]].count("affine") == 2


def stats(client: http.InferenceServerClient) -> dict[str, Any]:
    """Of affine, version 1. C58, C59: its times and sums agree with each other at every moment."""
    (one,) = client.get_inference_statistics("affine", "1")["model_stats"]
    spent: dict[str, dict[str, int]] = one["inference_stats"]
    parts = ("queue", "compute_input", "compute_infer", "compute_output")
    assert sum(spent[part]["ns"] for part in parts) <= spent["success"]["ns"]
    assert all(spent[part]["count"] == spent["success"]["count"] for part in parts)
    sizes = one["batch_stats"]
    assert sum(size["batch_size"] * size["compute_infer"]["count"] for size in sizes) == one["inference_count"]
    assert sum(size["compute_infer"]["count"] for size in sizes) == one["execution_count"]
    return dict(one)


def test_what_is_wrong_is_an_error_of_the_client_with_the_servers_words(client: http.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="no model 'nobody'") as unknown:
        client.infer("nobody", x_input(http, 1))
    assert unknown.value.status() == "404"
    with pytest.raises(InferenceServerException, match="takes FP32, got 'FP64'") as wrong:
        entry = http.InferInput("x", [1, 4], "FP64")
        entry.set_data_from_numpy(np.zeros((1, 4)))
        client.infer("affine", [entry])
    assert wrong.value.status() == "400"
    with pytest.raises(InferenceServerException, match="not supported") as unloading:
        client.unload_model("affine")
    assert unloading.value.status() == "501"


def test_the_asyncio_client_works_too(server: Server) -> None:
    async def scenario() -> None:
        async with aio.InferenceServerClient(urlsplit(server.address).netloc) as client:
            assert await client.is_server_ready() and await client.is_model_ready("kinds")
            assert (await client.get_model_config("affine"))["name"] == "affine"
            assert (await client.get_inference_statistics("affine"))["model_stats"]
            assert len(await client.get_model_repository_index()) == 4
            for binary in (True, False):
                result = await client.infer("kinds", every_kind(aio, binary))
                for name in NAMES:
                    assert_equal(name, result.as_numpy(f"{name}_out"))
            results = await asyncio.gather(*(client.infer("affine", x_input(aio, 1, float(n))) for n in range(20)))
            assert [result.as_numpy("y")[0, 0] for result in results] == [2.0 * n + 100 for n in range(20)]
            with pytest.raises(InferenceServerException, match="unknown input 'bool'"):
                await client.infer("affine", every_kind(aio, True)[:1] + x_input(aio, 1))

    asyncio.run(scenario())


def test_the_same_request_a_thousand_times_at_once_has_one_answer(server: Server) -> None:
    """C62: however they were batched, and with however many rows beside them."""

    async def scenario() -> None:
        rng = np.random.default_rng(11)
        row = rng.standard_normal((1, 4)).astype(np.float32)

        async def ask(client: Any, rows: int) -> bytes:
            entry = aio.InferInput("x", [rows, 4], "FP32")
            entry.set_data_from_numpy(np.repeat(row, rows, axis=0))
            result = await client.infer("affine", [entry], model_version="1")
            return bytes(result.as_numpy("y")[0].tobytes())

        async with aio.InferenceServerClient(urlsplit(server.address).netloc, conn_limit=64) as client:
            answers = await asyncio.gather(*(ask(client, int(rows)) for rows in rng.integers(1, 5, 1000)))
        assert answers == [(row * np.float32(2) + np.float32(1)).tobytes()] * 1000

    asyncio.run(scenario())
