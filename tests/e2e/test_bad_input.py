"""Bad input over real sockets: a 4xx that names what was expected and what came, and nothing else suffers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest

from tests.e2e.client import ask, in_a_loop, infer_body
from tests.e2e.server import Server, running
from tests.models import LOOKUP_TOML, lookup, repository

pytestmark = pytest.mark.e2e

AFFINE = "/v2/models/affine/infer"
LOOKUP = "/v2/models/lookup/infer"
MEAN = "/v2/models/masked_mean/infer"


def affine(datatype: Any = "FP32", shape: Any = (1, 4), data: Any = (1, 2, 3, 4), name: Any = "x", **more: Any) -> Any:
    return infer_body([(name, datatype, shape, data)], **more)


def ids(*values: int) -> Any:
    return infer_body([("ids", "INT64", (1, len(values)), values)])


class Bad(NamedTuple):
    """says: what the error must name."""

    path: str
    body: Any
    says: tuple[str, ...]
    status: int = 400
    headers: dict[str, str] = {}
    method: str = ""


TABLE = {
    "no JSON": Bad(AFFINE, b"{nonsense", ("infer request", "JSON")),
    "an empty body": Bad(AFFINE, b"", ("infer request",)),
    "a list instead of an object": Bad(AFFINE, [1], ("object", "array")),
    "no inputs": Bad(AFFINE, {}, ("inputs",)),
    "inputs that are empty": Bad(AFFINE, {"inputs": []}, ("'x' is missing",)),
    "an unknown input": Bad(AFFINE, affine(name="y"), ("'y'", "x")),
    "an input twice": Bad(AFFINE, {"inputs": affine()["inputs"] * 2}, ("'x'", "twice")),
    "a missing input": Bad(MEAN, infer_body([("values", "FP32", [1, 1], [1])]), ("'mask' is missing", "values")),
    "another datatype": Bad(AFFINE, affine("FP64"), ("FP32", "FP64")),
    "no datatype at all": Bad(AFFINE, affine("float"), ("FP32", "'float'", "not a datatype")),
    "too few dimensions": Bad(AFFINE, affine(shape=[4]), ("[-1, 4]", "1 dimensions")),
    "a wrong dimension": Bad(AFFINE, affine(shape=[2, 2]), ("[-1, 4]", "[2, 2]")),
    "no rows": Bad(AFFINE, affine(shape=[0, 4], data=[]), ("at least 1", "[0, 4]")),
    "a negative dimension": Bad(AFFINE, affine(shape=[-1, 4]), ("integers from 0", "-1")),
    "a dimension in text": Bad(AFFINE, affine(shape=["1", 4]), ("integers", "'1'")),
    "too few values": Bad(AFFINE, affine(data=[1, 2, 3]), ("needs 4", "has 3")),
    "too many values": Bad(AFFINE, affine(data=[1, 2, 3, 4, 5]), ("needs 4", "has 5")),
    "nesting other than the shape": Bad(AFFINE, affine(data=[[1, 2], [3, 4]]), ("[1, 4]", "axis 0")),
    "text among numbers": Bad(AFFINE, affine(data=[1, 2, "3", 4]), ("FP32", "str")),
    "null among numbers": Bad(AFFINE, affine(data=[1, 2, None, 4]), ("FP32", "null")),
    "a number too large": Bad(AFFINE, affine(data=[1, 2, 1e39, 4]), ("1e+39", "position 2", "FP32")),
    "data that is no list": Bad(AFFINE, affine(data="1234"), ("array", '"1234"')),
    "no data": Bad(AFFINE, {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4]}]}, ("'x' has no data",)),
    "two lengths": Bad(
        MEAN, infer_body([("values", "FP32", [1, 2], [1, 2]), ("mask", "INT64", [1, 1], [1])]), ("length 2", "1")
    ),
    "two numbers of rows": Bad(
        MEAN, infer_body([("values", "FP32", [2, 1], [1, 2]), ("mask", "INT64", [1, 1], [1])]), ("2 rows", "1")
    ),
    "a fraction for an integer": Bad(
        MEAN, infer_body([("values", "FP32", [1, 1], [1]), ("mask", "INT64", [1, 1], [0.5])]), ("INT64", "float")
    ),
    "an index that the model has not": Bad(LOOKUP, ids(0, 99_999_999), ("'ids'", "99999999", "position 1", "0 to 4")),
    "an index below the first": Bad(LOOKUP, ids(0, 1, -3), ("'ids'", "-3", "position 2", "0 to 4")),
    "a request longer than the model takes": Bad(LOOKUP, ids(*[1] * 7), ("'ids'", "length 7", "at most 6")),
    "a parameter beyond 64 bits": Bad(AFFINE, affine(parameters={"p": 2**64}), ("'p'", "64 bits", str(2**64))),
    "an unknown output": Bad(AFFINE, affine(outputs=[{"name": "z"}]), ("'z'", "y")),
    "a parameter that is an object": Bad(AFFINE, affine(parameters={"p": {}}), ("'p'", "an object")),
    "a timeout in text": Bad(AFFINE, affine(parameters={"timeout": "soon"}), ("microseconds", "'soon'")),
    "a timeout header in words": Bad(
        AFFINE, affine(), ("x-request-timeout-ms", "number", "'soon'"), headers={"x-request-timeout-ms": "soon"}
    ),
    "a priority below 0": Bad(AFFINE, affine(parameters={"priority": -1}), ("priority", "-1")),
    "an unknown model": Bad("/v2/models/afine/infer", affine(), ("'afine'", "affine"), 404),
    "an unknown version": Bad("/v2/models/affine/versions/3/infer", affine(), ("version 3", "1, 2"), 404),
    "an unknown path": Bad("/v2/model/affine/infer", affine(), ("/v2/model/affine/infer",), 404),
    "a wrong method": Bad(AFFINE, None, ("GET", "POST"), 405),
    "a body too large": Bad(AFFINE, b" " * ((1 << 20) + 1), (str((1 << 20) + 1), str(1 << 20)), 413),
    "a stream of what does not stream": Bad("/v2/models/affine/generate", {}, ("does not stream", "infer")),
    "embeddings of another kind of model": Bad(
        "/v1/embeddings", {"model": "affine", "input": "text"}, ("affine", "embeddings")
    ),
    "an unknown compression": Bad(AFFINE, affine(), ("gzip",), 415, headers={"content-encoding": "br"}),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("bad")
    repository(root / "models")
    lookup(root / "models" / "lookup" / "1")
    (root / "models" / "lookup" / "model.toml").write_text(LOOKUP_TOML)
    with running(root, "[limits]\nmax_body_mb = 1\n") as server:
        yield server


@pytest.fixture(scope="module")
def workers(server: Server) -> list[int]:
    """As they were before all bad input."""
    return server.workers()


def test_an_index_that_the_model_has_not_does_not_fail_its_neighbours(server: Server) -> None:
    """Inside the model it would fail the whole batch."""

    @in_a_loop
    async def scenario() -> None:
        bodies = [ids(0, 4), ids(7), ids(3, 2, 1), ids(*[1] * 9)] * 8
        replies = await asyncio.gather(*[ask(server.address, LOOKUP, body) for body in bodies])
        assert [reply.status for reply in replies] == [200, 400, 200, 400] * 8
        assert [reply.outputs["found"] for reply in replies[::2]] == [[0, 40], [30, 20, 10]] * 8

    scenario()


@pytest.mark.parametrize("bad", TABLE.values(), ids=TABLE)
def test_bad_input_is_a_4xx_that_names_what_was_expected_and_what_came(
    server: Server, workers: list[int], bad: Bad
) -> None:
    @in_a_loop
    async def scenario() -> None:
        reply = await ask(server.address, bad.path, bad.body, bad.headers, bad.method)
        assert reply.status == bad.status, reply
        error = json.loads(reply.body)["error"]
        message = error["message"] if isinstance(error, dict) else error
        assert [word for word in bad.says if word not in message] == [], message
        assert reply.headers.get("x-request-id")
        good = await ask(server.address, AFFINE, affine())
        assert good.outputs["y"] == [102, 104, 106, 108]
        assert server.workers() == workers

    scenario()
