"""The client over real sockets, against a tiny server that does as the request's body says."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator

import pytest
from click.testing import CliRunner

from headway.bench.run import Plan, run
from headway.cli.bench import bench


class TinyServer:
    """Answers by the body: "ok", "full" (503), "drop" (hangs up), "once" (Connection: close),
    "endless" (no length, ends with the connection), "never" (no answer), "chunked". Counts what it saw."""

    def __init__(self) -> None:
        self.requests = 0
        self.connections = 0
        self.port = 0
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> TinyServer:
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    def _serve(self) -> None:
        server = self._loop.run_until_complete(asyncio.start_server(self._talk, "127.0.0.1", 0))
        self.port = server.sockets[0].getsockname()[1]
        self._up.set()
        self._loop.run_forever()
        server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))

    async def _talk(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while head := await self._head(reader):
            size = int(head.lower().split(b"content-length:")[1].split(b"\r\n")[0]) if b"POST" in head else 0
            self.requests += 1
            if not await self._answer(head, await reader.readexactly(size), writer):
                break
        writer.close()

    async def _head(self, reader: asyncio.StreamReader) -> bytes:
        try:
            return await reader.readuntil(b"\r\n\r\n")
        except (asyncio.IncompleteReadError, ConnectionError):
            return b""

    async def _answer(self, head: bytes, body: bytes, writer: asyncio.StreamWriter) -> bool:
        """Whether the connection goes on."""
        if b"/v1/models" in head:
            body = b'{"data": [{"id": "only"}]}'
        if body == b"drop":
            return False
        if body == b"never":
            await asyncio.Event().wait()
        if body == b"endless":
            writer.write(b"HTTP/1.1 200 OK\r\n\r\nsome")
            return False
        if body == b"chunked":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n")
            return True
        if body == b"full":
            text = b'{"error": "full", "code": "queue_full"}'
            writer.write(b"HTTP/1.1 503 Busy\r\nContent-Length: %d\r\n\r\n%s" % (len(text), text))
            return True
        close = b"Connection: close\r\n" if body == b"once" else b""
        writer.write(b"HTTP/1.1 200 OK\r\n%sContent-Length: %d\r\n\r\n%s" % (close, len(body), body))
        return not close


@pytest.fixture
def server() -> Iterator[TinyServer]:
    with TinyServer() as tiny:
        yield tiny


def post(body: bytes) -> bytes:
    return b"POST / HTTP/1.1\r\nHost: t\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)


def test_a_closed_loop_sends_exactly_the_requests_asked_for_over_kept_alive_connections(server):
    plan = Plan(concurrency=4, requests=200, warmup=0)
    results = run(plan, "127.0.0.1", server.port, [post(b"ok"), post(b"chunked")]).results
    assert len(results.latencies) == 200 and results.errors == {}
    assert server.requests == 200 and server.connections == 4


def test_an_open_loop_sends_every_request_that_was_due(server):
    plan = Plan(rate=2000, poisson=False, requests=100, warmup=0)
    results = run(plan, "127.0.0.1", server.port, [post(b"ok")]).results
    assert len(results.latencies) == 100 == server.requests
    assert min(results.lags) >= 0


def test_errors_are_counted_by_status_and_code_and_have_no_latency(server):
    wires = [post(b"ok"), post(b"full")]
    results = run(Plan(requests=20, warmup=0), "127.0.0.1", server.port, wires).results
    assert len(results.latencies) == 10 and results.errors == {"503 queue_full": 10}
    assert b"queue_full" in results.examples["503 queue_full"]


def test_a_connection_that_the_server_drops_is_an_error_and_is_replaced(server):
    wires = [post(b"ok"), post(b"drop")]
    results = run(Plan(requests=10, warmup=0), "127.0.0.1", server.port, wires).results
    assert len(results.latencies) == 5 and results.errors == {"connection_lost": 5}


@pytest.mark.parametrize("body", [b"once", b"endless"])
def test_an_answer_that_ends_with_its_connection_is_a_good_answer(server, body):
    results = run(Plan(requests=10, warmup=0), "127.0.0.1", server.port, [post(body)]).results
    assert len(results.latencies) == 10 and results.errors == {}
    assert server.connections >= 10


def test_a_request_that_is_never_answered_is_given_up_and_the_run_ends(server):
    plan = Plan(concurrency=3, requests=3, warmup=0, timeout=0.05)
    results = run(plan, "127.0.0.1", server.port, [post(b"never")]).results
    assert results.errors == {"timeout": 3}


def test_a_request_that_finds_no_free_connection_waits_and_its_clock_runs(server):
    plan = Plan(rate=1000, poisson=False, requests=3, warmup=0, timeout=0.1, connections=1)
    results = run(plan, "127.0.0.1", server.port, [post(b"never")]).results
    assert results.errors == {"timeout": 3}
    assert len(results.lags) < 3  # those that were never sent have no moment of sending


def bench_cli(*arguments: str) -> tuple[int, str]:
    outcome = CliRunner().invoke(bench, list(arguments))
    return outcome.exit_code, outcome.output


def test_the_command_posts_a_file_to_any_server_and_writes_its_figures(server, tmp_path):
    (tmp_path / "body").write_bytes(b"ok")
    url, figures = f"http://127.0.0.1:{server.port}/any", tmp_path / "figures.json"
    code, output = bench_cli(
        url, "--body", str(tmp_path / "body"), "--requests", "5", "--warmup", "0", "--json", str(figures)
    )
    assert code == 0, output
    assert "ok           5 of 5" in output and "p99.9" in output
    assert json.loads(figures.read_text())["ok"] == 5


@pytest.mark.parametrize("endpoint", ["embeddings", "infer"])
def test_the_command_asks_the_server_for_its_model_when_none_is_named(server, endpoint):
    url = f"127.0.0.1:{server.port}"
    code, output = bench_cli(url, "--endpoint", endpoint, "--requests", "3", "--warmup", "0")
    assert code == 0, output
    assert ("/v1/embeddings" if endpoint == "embeddings" else "/v2/models/only/infer") in output


def test_a_server_that_is_not_there_is_a_clear_error():
    code, output = bench_cli("http://127.0.0.1:1", "--model", "m")
    assert code == 1 and "127.0.0.1:1 cannot be reached" in output


@pytest.mark.parametrize(
    "arguments",
    [
        ["ftp://x"],
        ["http://x", "--rate", "5", "--concurrency", "2"],
        ["http://x", "--duration", "5", "--requests", "2"],
        ["http://x", "--lengths", "long"],
        ["http://x", "--model", "m", "--header", "nocolon"],
    ],
)
def test_a_command_line_that_contradicts_itself_is_refused_with_exit_code_2(arguments):
    assert bench_cli(*arguments)[0] == 2
