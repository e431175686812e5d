"""The official client with compressed bodies (C42): the header's length counts the JSON as it is uncompressed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

import pytest
import tritonclient.http as http
import tritonclient.http.aio as aio

from tests.e2e.kinds import NAMES, assert_equal, put_model
from tests.e2e.server import Server, running
from tests.e2e.test_tritonclient import every_kind

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(find_spec("headway.gateway.compression") is None, reason="bodies are not compressed yet"),
]

CODINGS = ("gzip", "deflate")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root: Path = tmp_path_factory.mktemp("compressed")
    put_model(root)
    with running(root) as server:
        yield server


@pytest.mark.parametrize("coding", CODINGS)
@pytest.mark.parametrize("binary", [True, False], ids=["binary", "mixed"])
def test_every_datatype_goes_there_and_back_in_compressed_bodies(server: Server, coding: str, binary: bool) -> None:
    with http.InferenceServerClient(urlsplit(server.address).netloc) as client:
        result = client.infer(
            "kinds",
            every_kind(http, binary),
            request_compression_algorithm=coding,
            response_compression_algorithm=coding,
        )
        for name in NAMES:
            assert_equal(name, result.as_numpy(f"{name}_out"))


@pytest.mark.parametrize("coding", CODINGS)
def test_the_asyncio_client_compresses_too(server: Server, coding: str) -> None:
    async def scenario() -> None:
        async with aio.InferenceServerClient(urlsplit(server.address).netloc) as client:
            result = await client.infer(
                "kinds",
                every_kind(aio, True),
                request_compression_algorithm=coding,
                response_compression_algorithm=coding,
            )
            for name in NAMES:
                assert_equal(name, result.as_numpy(f"{name}_out"))

    asyncio.run(scenario())
