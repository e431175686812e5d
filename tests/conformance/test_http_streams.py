"""generate_stream and generate: results as they come, errors before and after the first, clients that leave."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from headway.core.ids import Part
from headway.core.outcomes import Outcome
from headway.wire.messages import Cancel, Submit, Written
from tests.conformance.http_world import Client, FakeRuntime, done, failed, message, run, within, world

STREAM = "/v2/models/talk/generate_stream"
WHOLE = "/v2/models/talk/generate"
BODY = {"text_input": "hello", "parameters": {"max_tokens": 3}}


async def begin(w: Any, data: bytes) -> tuple[Client, int]:
    """A client whose stream the runtime has."""
    client = await w.connect()
    client.send(data)
    return client, (await w.runtime.next(Submit)).request


async def event(client: Client) -> Any:
    data = await client.chunk()
    assert data.startswith(b"data: ") and data.endswith(b"\n\n")
    return json.loads(data[6:])


def test_each_result_is_one_event_as_soon_as_it_comes() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client, request = await begin(w, message("POST", STREAM, BODY))
            runtime.chunk(request, 0, {"text_output": "a"})
            status, headers = await client.head()
            assert (status, headers["content-type"]) == (200, "text/event-stream")
            assert headers["cache-control"] == "no-cache"
            assert await event(client) == {"text_output": "a"}
            runtime.chunk(request, 1, {"text_output": "b\nc"})
            assert await event(client) == {"text_output": "b\nc"}
            assert not runtime.all(Written)
            runtime.deliver(done(request))
            assert await client.chunk() == b""
            assert (await runtime.next(Written)).request == request
            client.send(message("GET", "/health"))
            assert (await client.answer()).status == 200

    run(scenario())


def test_the_model_gets_the_body_as_it_is_as_one_part() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=lambda submit: done(submit.request))
        async with world(runtime, now=lambda: 0) as w:
            answer = await w.ask("POST", STREAM, BODY, X_Request_Timeout_Ms="100", X_Priority="1")
            assert (answer.status, answer.body) == (200, b"")
            submit = await runtime.next(Submit)
            assert submit.body == BODY
            assert submit.parts == [Part(1, 1)] and submit.payload[0].tensors == []
            assert (submit.deadline, submit.priority) == (100_000_000, 0)

    run(scenario())


def test_an_error_before_the_first_result_is_a_plain_error_reply() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=lambda submit: failed(submit.request, Outcome.QUEUE_FULL, "full", 10))
        async with world(runtime) as w:
            answer = await w.ask("POST", STREAM, BODY)
            assert (answer.status, answer.json["code"]) == (503, "queue_full")
            assert answer.headers["retry-after"] == "1"

    run(scenario())


def test_an_error_after_the_first_result_is_an_event_and_the_end() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client, request = await begin(w, message("POST", STREAM, BODY))
            runtime.chunk(request, 0, 1)
            runtime.deliver(failed(request, Outcome.WORKER_LOST, "it died"))
            assert (await client.head())[0] == 200
            assert await event(client) == 1
            error = await event(client)
            assert (error["error"], error["code"], error["retryable"]) == ("it died", "worker_lost", True)
            assert await client.chunk() == b""

    run(scenario())


def test_a_disconnect_cancels_the_stream() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client, request = await begin(w, message("POST", STREAM, BODY))
            runtime.chunk(request, 0, "first")
            await client.head()
            assert await event(client) == "first"
            client.close()
            assert (await runtime.next(Cancel)).request == request
            runtime.chunk(request, 1, "late")
            runtime.deliver(failed(request, Outcome.CANCELLED))
            assert w.gateway.in_flight == 0

    run(scenario())


def test_a_reader_too_slow_is_given_up_once_a_megabyte_waits_for_it() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client, request = await begin(w, message("POST", STREAM, BODY))
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            sent = 0
            while not runtime.all(Cancel):
                runtime.chunk(request, sent, "x" * 100_000)
                sent += 1
                assert sent < 1000, "an unread stream must not grow without end"
                await w.ask("GET", "/health")
            assert runtime.all(Cancel)[0].request == request

    run(scenario())


def test_a_burst_beyond_the_buffer_reaches_a_reader_that_reads() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client, request = await begin(w, message("POST", STREAM, BODY))
            for index in range(40):
                runtime.chunk(request, index, "x" * 100_000)
                if index == 0:
                    await client.head()
                assert len(await client.chunk()) > 100_000
            runtime.deliver(done(request))
            assert await client.chunk() == b""

    run(scenario())


def test_over_http_1_0_the_end_of_the_connection_is_the_end_of_the_stream() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            raw = message("POST", STREAM, BODY).replace(b"HTTP/1.1", b"HTTP/1.0", 1)
            client, request = await begin(w, raw)
            runtime.chunk(request, 0, 1)
            runtime.chunk(request, 1, 2)
            runtime.deliver(done(request))
            answer = await client.answer()
            assert answer.headers["connection"] == "close"
            assert "transfer-encoding" not in answer.headers
            assert answer.body == b"data: 1\n\ndata: 2\n\n"

    run(scenario())


def test_a_stream_waits_for_its_turn_on_a_pipelined_connection() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client, first = await begin(w, message("POST", STREAM, BODY) * 2)
            second = (await runtime.next(Submit)).request
            runtime.chunk(second, 0, "second")
            runtime.deliver(done(second))
            runtime.chunk(first, 0, "first")
            runtime.deliver(done(first))
            assert (await client.answer()).body == b'data: "first"\n\n'
            assert (await client.answer()).body == b'data: "second"\n\n'

    run(scenario())


def test_line_separators_that_some_readers_split_on_are_escaped() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client, request = await begin(w, message("POST", STREAM, BODY))
            runtime.chunk(request, 0, "a\u2028b\u2029c")
            await client.head()
            data = await client.chunk()
            assert len(data.decode().splitlines()) == 2
            assert json.loads(data[6:]) == "a\u2028b\u2029c"

    run(scenario())


def test_generate_joins_pieces_of_text() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client, request = await begin(w, message("POST", WHOLE, BODY))
            for index, piece in enumerate(["Hel", "lo"]):
                runtime.chunk(request, index, {"text_output": piece})
            runtime.deliver(done(request))
            assert (await client.answer()).json == {
                "model_name": "talk",
                "model_version": "1",
                "text_output": "Hello",
            }

    run(scenario())


def test_generate_lists_results_that_are_not_text() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client, request = await begin(w, message("POST", "/v2/models/talk/versions/1/generate", BODY))
            runtime.chunk(request, 0, {"text_output": 1})
            runtime.chunk(request, 1, [2])
            runtime.deliver(done(request))
            assert (await client.answer()).json["outputs"] == [{"text_output": 1}, [2]]

    run(scenario())


def test_generate_that_fails_half_way_is_an_error_reply() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client, request = await begin(w, message("POST", WHOLE, BODY))
            runtime.chunk(request, 0, {"text_output": "half"})
            runtime.deliver(failed(request, Outcome.MODEL_ERROR, "it raised"))
            answer = await client.answer()
            assert (answer.status, answer.json["error"]) == (500, "it raised")

    run(scenario())


def test_a_drain_lets_a_stream_finish() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client, request = await begin(w, message("POST", STREAM, BODY))
            runtime.chunk(request, 0, 1)
            await client.head()
            draining = asyncio.ensure_future(w.gateway.drain())
            await asyncio.sleep(0)
            runtime.chunk(request, 1, 2)
            runtime.deliver(done(request))
            assert [await event(client), await event(client), await client.chunk()] == [1, 2, b""]
            assert await client.closed()
            await within(draining)

    run(scenario())
