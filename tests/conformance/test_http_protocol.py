"""HTTP/1 itself: connections, order, framing, limits of time, draining (C60; limits of size are in test_http_abuse)."""

from __future__ import annotations

import asyncio
import socket

import pytest

from headway.config.settings import Limits
from headway.wire.messages import Cancel, Submit, Written
from tests.conformance.http_world import GOOD, FakeRuntime, done, echo, message, run, within, world, x

INFER = "/v2/models/add/infer"


def test_a_connection_serves_one_request_after_the_other() -> None:
    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            for number in range(5):
                client.send(message("POST", INFER, x(id=str(number))))
                assert (await client.answer()).json["id"] == str(number)

    run(scenario())


def test_pipelined_requests_are_answered_in_their_order_even_when_results_come_in_another() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client = await w.connect()
            client.send(b"".join(message("POST", INFER, x(id=str(number))) for number in range(8)))
            submitted = [await runtime.next(Submit) for _ in range(8)]
            for submit in reversed(submitted):
                runtime.deliver(echo(submit))
            assert [(await client.answer()).json["id"] for _ in range(8)] == [str(number) for number in range(8)]

    run(scenario())


def test_a_refusal_waits_for_the_replies_before_it() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client = await w.connect()
            client.send(message("POST", INFER, GOOD) + b"garbage\r\n\r\n")
            runtime.deliver(echo(await runtime.next(Submit)))
            assert (await client.answer()).status == 200
            assert (await client.answer()).status == 400
            assert await client.closed()

    run(scenario())


def test_no_more_than_sixteen_requests_of_a_connection_are_in_work_at_once() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client = await w.connect()
            client.send(b"".join(message("POST", INFER, x(id=str(number))) for number in range(100)))
            first = [await runtime.next(Submit) for _ in range(16)]
            assert (await w.ask("GET", "/health")).status == 200
            assert len(runtime.all(Submit)) == 16
            runtime.answer = echo
            for submit in first:
                runtime.deliver(echo(submit))
            assert [(await client.answer()).json["id"] for _ in range(100)] == [str(number) for number in range(100)]

    run(scenario())


def test_a_request_may_arrive_byte_by_byte() -> None:
    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            client.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for byte in message("POST", INFER, GOOD):
                client.send(bytes([byte]))
                await client.writer.drain()
            assert (await client.answer()).status == 200

    run(scenario())


def test_a_body_may_come_in_chunks_with_extensions_and_trailers() -> None:
    async def scenario() -> None:
        async with world() as w:
            body = message("POST", INFER, GOOD).partition(b"\r\n\r\n")[2]
            client = await w.connect()
            client.send(b"POST /v2/models/add/infer HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")
            for at in range(0, len(body), 10):
                client.send(b"%x;a=b\r\n%b\r\n" % (len(body[at : at + 10]), body[at : at + 10]))
            client.send(b"0\r\nX-Trailer: a\r\n\r\n")
            assert (await client.answer()).status == 200

    run(scenario())


def test_expect_100_continue_is_answered_before_the_body_comes() -> None:
    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            head, _, body = message("POST", INFER, GOOD, Expect="100-continue").partition(b"\r\n\r\n")
            client.send(head + b"\r\n\r\n")
            assert await client.head() == (100, {})
            client.send(body)
            assert (await client.answer()).status == 200

    run(scenario())


def test_continue_waits_for_the_replies_before_it() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client = await w.connect()
            head, _, body = message("POST", INFER, GOOD, Expect="100-continue").partition(b"\r\n\r\n")
            client.send(message("POST", INFER, GOOD) + head + b"\r\n\r\n")
            runtime.deliver(echo(await runtime.next(Submit)))
            assert (await client.answer()).status == 200
            assert (await client.head())[0] == 100
            client.send(body)
            runtime.deliver(echo(await runtime.next(Submit)))
            assert (await client.answer()).status == 200

    run(scenario())


def test_a_body_declared_too_large_is_refused_before_it_is_sent() -> None:
    async def scenario() -> None:
        async with world(limits=Limits(max_body_mb=1)) as w:
            client = await w.connect()
            head = b"POST /v2/models/add/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 1048577\r\n"
            client.send(head + b"Expect: 100-continue\r\n\r\n")
            answer = await client.answer()
            assert answer.status == 413
            assert "1048577" in answer.json["error"] and "1048576" in answer.json["error"]

    run(scenario())


def test_the_refusal_of_a_large_body_arrives_although_the_client_goes_on_sending() -> None:
    async def scenario() -> None:
        async with world(limits=Limits(max_body_mb=0.01)) as w:
            client = await w.connect()
            client.send(b"POST /v2/models/add/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 5000000\r\n\r\n")
            client.send(b" " * 2_000_000)
            assert (await client.answer()).status == 413

    run(scenario())


def test_head_has_the_headers_of_get_and_no_body() -> None:
    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            client.send(message("HEAD", "/v2") + message("GET", "/v2"))
            head = await client.answer(head=True)
            get = await client.answer()
            assert head.status == get.status == 200
            assert int(head.headers["content-length"]) == len(get.body) > 0

    run(scenario())


def test_connection_close_is_honoured() -> None:
    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            client.send(message("GET", "/health", Connection="close"))
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            assert await client.closed()

    run(scenario())


def test_what_follows_a_last_request_is_not_answered() -> None:
    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            client.send(message("GET", "/health", Connection="close") + message("GET", "/health"))
            assert (await client.answer()).status == 200
            assert await client.closed()

    run(scenario())


def test_http_1_0_closes_unless_asked_to_keep_alive() -> None:
    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            client.send(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")
            assert (await client.answer()).headers["connection"] == "keep-alive"
            client.send(b"GET /health HTTP/1.0\r\n\r\n")
            assert (await client.answer()).headers["connection"] == "close"
            assert await client.closed()

    run(scenario())


def test_an_offer_to_upgrade_is_ignored_and_the_request_answered() -> None:
    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            offer = {"Connection": "Upgrade, HTTP2-Settings", "Upgrade": "h2c"}
            client.send(message("GET", "/health", **offer) + message("POST", INFER, GOOD, **offer))
            client.send(message("GET", "/v2"))
            assert [(await client.answer()).status for _ in range(3)] == [200, 200, 200]

    run(scenario())


def test_every_reply_names_its_request_by_the_clients_id_or_a_new_one() -> None:
    """C61."""

    async def scenario() -> None:
        async with world() as w:
            given = await w.ask("GET", "/health", X_Request_Id="abc-7")
            assert given.headers["x-request-id"] == "abc-7"
            failing = await w.ask("GET", "/nothing", X_Request_Id="abc-8")
            assert (failing.headers["x-request-id"], failing.json["request_id"]) == ("abc-8", "abc-8")
            first, second = await w.ask("GET", "/health"), await w.ask("GET", "/health")
            assert first.headers["x-request-id"] != second.headers["x-request-id"] != ""
            for unusable in ("a" * 129, "a b", "a\xe9"):
                answer = await w.ask("GET", "/health", X_Request_Id=unusable)
                assert answer.headers["x-request-id"] not in (unusable, "")

    run(scenario())


def test_a_reply_has_date_type_and_length() -> None:
    async def scenario() -> None:
        async with world() as w:
            headers = (await w.ask("GET", "/v2")).headers
            assert headers["date"].endswith("GMT")
            assert headers["content-type"] == "application/json"
            assert int(headers["content-length"]) > 0

    run(scenario())


def test_a_disconnect_cancels_what_is_in_flight() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client = await w.connect()
            client.send(message("POST", INFER, GOOD) * 2)
            first, second = await runtime.next(Submit), await runtime.next(Submit)
            client.close()
            cancelled = [(await runtime.next(Cancel)).request for _ in range(2)]
            assert cancelled == [first.request, second.request]
            assert w.gateway.in_flight == 0

    run(scenario())


def test_a_reply_for_a_client_that_is_gone_is_dropped_and_nobody_is_harmed() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            client = await w.connect()
            client.send(message("POST", INFER, GOOD))
            submit = await runtime.next(Submit)
            client.close()
            await runtime.next(Cancel)
            runtime.deliver(echo(submit))
            assert (await runtime.next(Cancel)).request == submit.request
            assert not runtime.all(Written)
            runtime.answer = echo
            assert (await w.infer("add", GOOD)).status == 200

    run(scenario())


def test_written_is_told_once_per_reply_after_the_bytes_were_handed_over() -> None:
    async def scenario() -> None:
        ticks = iter(range(1000, 2000))
        runtime = FakeRuntime()
        async with world(runtime, now=lambda: next(ticks)) as w:
            assert (await w.infer("add", GOOD)).status == 200
            submit, written = await runtime.next(Submit), await runtime.next(Written)
            assert written.request == submit.request
            assert written.at > submit.received
            assert len(runtime.all(Written)) == 1

    run(scenario())


def test_headers_that_do_not_come_in_time_are_given_up() -> None:
    async def scenario() -> None:
        async with world(limits=Limits(header_timeout_s=0.05)) as w:
            client = await w.connect()
            client.send(b"GET /health HTT")
            answer = await client.answer()
            assert (answer.status, answer.json["code"]) == (408, "request_timeout")
            assert await client.closed()

    run(scenario())


def test_a_trickle_of_header_bytes_does_not_prolong_the_time() -> None:
    async def scenario() -> None:
        async with world(limits=Limits(header_timeout_s=0.2)) as w:
            client = await w.connect()
            client.send(b"GET /health HTTP/1.1\r\nHost: a\r\n")

            async def trickle() -> None:
                for number in range(10_000):
                    client.send(b"X%d: a\r\n" % number)
                    await asyncio.sleep(0.02)

            sending = asyncio.ensure_future(trickle())
            assert (await client.answer()).status in (408, 431)
            sending.cancel()

    run(scenario())


def test_time_that_the_server_does_not_read_is_not_counted_against_the_client() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, limits=Limits(header_timeout_s=0.02, idle_timeout_s=0.02)) as w:
            client, idle = await w.connect(), await w.connect()
            client.send(message("POST", INFER, GOOD) * 17 + b"GET /health HTT")
            submitted = [await runtime.next(Submit) for _ in range(16)]
            assert await idle.closed()
            client.send(b"P/1.1\r\nHost: a\r\n\r\n")
            runtime.answer = echo
            for submit in submitted:
                runtime.deliver(echo(submit))
            assert [(await client.answer()).status for _ in range(18)] == [200] * 18

    run(scenario())


def test_a_body_that_does_not_come_in_time_is_given_up() -> None:
    async def scenario() -> None:
        async with world(limits=Limits(body_timeout_s=0.05)) as w:
            client = await w.connect()
            client.send(message("POST", INFER, GOOD)[:-3])
            assert (await client.answer()).status == 408
            assert await client.closed()

    run(scenario())


def test_an_idle_connection_is_closed_in_silence() -> None:
    async def scenario() -> None:
        async with world(limits=Limits(idle_timeout_s=0.05)) as w:
            fresh, used = await w.connect(), await w.connect()
            used.send(message("GET", "/health"))
            assert (await used.answer()).status == 200
            assert await fresh.closed()
            assert await used.closed()

    run(scenario())


def test_a_connection_that_waits_for_its_reply_is_not_idle() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, limits=Limits(idle_timeout_s=0.02, header_timeout_s=0.02)) as w:
            client = await w.connect()
            client.send(message("POST", INFER, GOOD))
            submit = await runtime.next(Submit)
            idle = await w.connect()
            assert await idle.closed()
            runtime.deliver(echo(submit))
            assert (await client.answer()).status == 200

    run(scenario())


def test_a_client_that_does_not_take_its_reply_is_given_up() -> None:
    async def scenario() -> None:
        async with world(limits=Limits(body_timeout_s=0.1), metrics=lambda: (b"text/plain", b"x" * 30_000_000)) as w:
            client = await w.connect()
            client.writer.transport.pause_reading()  # type: ignore[attr-defined]
            client.send(message("GET", "/metrics"))
            await within(w.gateway.drain())  # it would wait for ever for this client's reply to be taken

    run(scenario())


def test_connections_beyond_the_limit_are_told_so_and_closed() -> None:
    async def scenario() -> None:
        async with world(limits=Limits(max_connections=2)) as w:
            first, second = await w.connect(), await w.connect()
            for client in (first, second):
                client.send(message("GET", "/health"))
                assert (await client.answer()).status == 200
            third = await w.connect()
            answer = await third.answer()
            assert (answer.status, answer.json["code"]) == (503, "too_many_connections")
            assert answer.headers["retry-after"] == "1"
            assert await third.closed()
            first.send(message("GET", "/health"))
            assert (await first.answer()).status == 200

    run(scenario())


def test_drain_finishes_what_is_in_flight_says_close_and_accepts_nobody_new() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            idle, busy = await w.connect(), await w.connect()
            idle.send(message("GET", "/health"))
            await idle.answer()
            busy.send(message("POST", INFER, x(id="a")) + message("POST", INFER, x(id="b")))
            submits = [await runtime.next(Submit), await runtime.next(Submit)]
            draining = asyncio.ensure_future(w.gateway.drain())
            assert await idle.closed()
            with pytest.raises(OSError):
                await w.connect()
            assert not draining.done()
            for submit in submits:
                runtime.deliver(echo(submit))
            first, second = await busy.answer(), await busy.answer()
            assert (first.json["id"], second.json["id"]) == ("a", "b")
            assert "connection" not in first.headers and second.headers["connection"] == "close"
            assert await busy.closed()
            await within(draining)

    run(scenario())


def test_a_request_half_sent_when_the_drain_begins_is_still_answered() -> None:
    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            whole = message("POST", INFER, GOOD)
            client.send(message("GET", "/health") + whole[:-5])
            assert (await client.answer()).status == 200
            draining = asyncio.ensure_future(w.gateway.drain())
            await asyncio.sleep(0)
            client.send(whole[-5:])
            answer = await client.answer()
            assert (answer.status, answer.headers["connection"]) == (200, "close")
            await within(draining)

    run(scenario())


def test_drain_without_connections_ends_at_once() -> None:
    async def scenario() -> None:
        async with world() as w:
            await within(w.gateway.drain())

    run(scenario())


def test_a_port_in_use_is_an_os_error() -> None:
    async def scenario() -> None:
        async with world() as w:
            with pytest.raises(OSError):
                await w.gateway.start("127.0.0.1", w.port)

    run(scenario())


def test_a_bug_in_a_handler_is_an_opaque_500_whose_id_is_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    def broken() -> tuple[bytes, bytes]:
        raise ZeroDivisionError("secret detail")

    async def scenario() -> None:
        async with world(metrics=broken) as w:
            answer = await w.ask("GET", "/metrics", X_Request_Id="find-me")
            assert (answer.status, answer.json["code"]) == (500, "internal")
            assert "secret" not in answer.json["error"] and "find-me" in answer.json["error"]
            assert "find-me" in caplog.text and "secret detail" in caplog.text

    run(scenario())


def test_bodies_and_credentials_are_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")

    async def scenario() -> None:
        runtime = FakeRuntime(answer=lambda submit: done(submit.request, []))  # no outputs: the reply fails
        async with world(runtime) as w:
            answer = await w.infer("add", x(id="body-word"), Authorization="Bearer credential-word")
            assert answer.status == 500
            assert "body-word" not in caplog.text and "credential-word" not in caplog.text

    run(scenario())


def test_a_thousand_offers_to_upgrade_in_one_read_are_a_thousand_requests() -> None:
    async def scenario() -> None:
        async with world() as w:
            client = await w.connect()
            client.send(message("GET", "/health", Connection="Upgrade", Upgrade="h2c") * 1000)
            for _ in range(1000):
                assert (await client.answer()).status == 200

    run(scenario())
