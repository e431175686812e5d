"""A client that has closed its half and reads on, told apart from one that is gone."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from headway.config.settings import Limits
from headway.gateway import presence
from headway.wire.messages import Cancel, Submit
from tests.conformance.http_world import GOOD, Client, FakeRuntime, done, echo, message, run, within, world, x

INFER = "/v2/models/add/infer"
STREAM = "/v2/models/talk/generate_stream"
QUICK = Limits(header_timeout_s=0.1)
"""Sweeps every 25 ms."""


async def final(client: Client) -> Any:
    """The answer, after what comes before it."""
    while True:
        status, headers = await client.head()
        if status != 100:
            body = await within(client.reader.readexactly(int(headers["content-length"])))
            return status, headers, body


def test_a_client_that_closes_its_half_gets_all_its_answers_and_then_the_end() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, limits=QUICK) as w:
            client = await w.connect()
            client.send(message("POST", INFER, x(id="a")) + message("POST", INFER, x(id="b")))
            client.close_half()
            submits = [await runtime.next(Submit) for _ in range(2)]
            assert (await client.head())[0] == 100  # the probe
            await asyncio.sleep(3 * presence.LOOK_AFTER_S)  # several looks find it still there
            assert not runtime.all(Cancel)
            for submit in submits:
                runtime.deliver(echo(submit))
            assert [(await final(client))[0] for _ in range(2)] == [200, 200]
            assert await client.closed()

    run(scenario())


def test_the_last_answer_to_a_half_closed_connection_says_close() -> None:
    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            client.send(message("GET", "/health"))
            client.close_half()
            status, headers, _ = await final(client)
            assert status == 200
            assert headers.get("connection", "close") == "close"
            assert await client.closed()

    run(scenario())


def test_a_whole_close_cancels_although_it_looks_like_half_a_one_at_first() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client = await w.connect()
            client.send(message("POST", INFER, GOOD))
            request = (await runtime.next(Submit)).request
            client.close()
            assert (await runtime.next(Cancel)).request == request

    run(scenario())


def test_a_client_that_closes_half_and_leaves_later_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.gateway.connection.PROBE_EVERY_S", 0.1)

    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, limits=QUICK) as w:
            client = await w.connect()
            client.send(message("POST", INFER, GOOD))
            client.close_half()
            await runtime.next(Submit)
            assert (await client.head())[0] == 100
            client.close()
            await runtime.next(Cancel)

    run(scenario())


def test_a_disconnect_is_noticed_while_pipelined_requests_keep_the_server_from_reading() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, limits=QUICK) as w:
            client = await w.connect()
            client.send(message("POST", INFER, GOOD) * 40)
            first = [(await runtime.next(Submit)).request for _ in range(16)]
            client.close()
            assert [(await runtime.next(Cancel)).request for _ in range(16)] == first
            assert len(runtime.all(Submit)) == 16, "nobody computes what nobody will read"

    run(scenario())


def test_half_a_close_behind_pipelined_requests_loses_none_of_them() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, limits=QUICK) as w:
            client = await w.connect()
            client.send(message("POST", INFER, GOOD) * 40)
            client.close_half()
            first = [await runtime.next(Submit) for _ in range(16)]
            assert (await client.head())[0] == 100
            await asyncio.sleep(3 * presence.LOOK_AFTER_S)
            runtime.answer = echo
            for submit in first:
                runtime.deliver(echo(submit))
            assert [(await final(client))[0] for _ in range(40)] == [200] * 40
            assert await client.closed()

    run(scenario())


def test_a_reader_of_a_stream_that_leaves_between_two_results_is_noticed() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client = await w.connect()
            client.send(message("POST", STREAM, {"text_input": "a"}))
            request = (await runtime.next(Submit)).request
            runtime.chunk(request, 0, "one")
            assert (await client.head())[0] == 200
            await client.chunk()
            client.close()
            assert (await runtime.next(Cancel)).request == request

    run(scenario())


def test_a_half_closed_reader_of_a_stream_gets_it_all() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client = await w.connect()
            client.send(message("POST", STREAM, {"text_input": "a"}))
            request = (await runtime.next(Submit)).request
            runtime.chunk(request, 0, "one")
            assert (await client.head())[0] == 200
            assert await client.chunk() == b'data: "one"\n\n'
            client.close_half()
            assert await client.chunk() == presence.COMMENT
            runtime.chunk(request, 1, "two")
            assert await client.chunk() == b'data: "two"\n\n'
            runtime.deliver(done(request))
            assert await client.chunk() == b""
            assert await client.closed()

    run(scenario())


@pytest.mark.parametrize(
    ("sent", "says"),
    [
        (b"GET /health HTTP/1.1\r\nHost: a\r\n", ["headers"]),
        (message("POST", INFER, b"x" * 50)[:-20], ["30", "50"]),
        (b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nabc", ["3 bytes"]),
    ],
)
def test_a_request_that_ends_too_early_is_told_so(sent: bytes, says: list[str]) -> None:
    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            client.send(sent)
            client.close_half()
            answer = await client.answer()
            assert (answer.status, answer.json["code"]) == (400, "malformed_http")
            for word in says:
                assert word in answer.json["error"]
            assert await client.closed()

    run(scenario())


def test_an_idle_connection_that_is_closed_by_half_is_closed() -> None:
    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            client.close_half()
            assert await client.closed()

    run(scenario())


def test_http_1_0_is_not_probed_and_gets_its_answer() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, limits=QUICK) as w:
            client = await w.connect()
            client.send(message("POST", INFER, GOOD).replace(b"HTTP/1.1", b"HTTP/1.0"))
            client.close_half()
            submit = await runtime.next(Submit)
            await asyncio.sleep(3 * presence.LOOK_AFTER_S)
            runtime.deliver(echo(submit))
            assert (await client.answer()).status == 200

    run(scenario())


def test_at_a_unix_socket_too(tmp_path: Path) -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, unix=tmp_path / "s") as w:
            gone, half = await w.connect(), await w.connect()
            gone.send(message("POST", INFER, GOOD))
            first = (await runtime.next(Submit)).request
            half.send(message("POST", INFER, GOOD))
            second = await runtime.next(Submit)
            half.close_half()
            gone.close()
            assert (await runtime.next(Cancel)).request == first
            runtime.deliver(echo(second))
            assert (await final(half))[0] == 200

    run(scenario())


def test_in_tls_the_end_is_the_end() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, secured=True) as w:
            client = await w.connect()
            client.send(message("POST", INFER, GOOD))
            request = (await runtime.next(Submit)).request
            client.close()
            assert (await runtime.next(Cancel)).request == request

    run(scenario())
