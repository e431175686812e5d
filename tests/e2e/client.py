"""A small HTTP client on bare asyncio: many requests at once, streams, and connections that are cut off."""

from __future__ import annotations

import asyncio
import functools
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable
from typing import Any, ParamSpec
from urllib.parse import urlsplit

from headway.core.outcomes import Outcome

PATIENCE_S = 100
POLL_S = 0.02
POLLS = 2000

P = ParamSpec("P")

ANSWERED: defaultdict[str, Counter[str]] = defaultdict(Counter)
"""Address -> what this client was told there, by class of outcome: the books of the other side."""

_CLASSES = {outcome.value: outcome.kind.value for outcome in Outcome}


def _note(address: str, path: str, reply: Reply) -> None:
    """Only what is said of a request that the scheduler had, and not what is said of it once more."""
    if not path.endswith(("/infer", "/generate", "/v1/embeddings")) or "idempotency-replayed" in reply.headers:
        return
    if reply.status == 200:
        ANSWERED[address]["completed"] += 1
    elif reply.status >= 400:
        error = reply.json["error"]
        code = error["code"] if isinstance(error, dict) else reply.json["code"]
        if code in _CLASSES:
            ANSWERED[address][_CLASSES[code]] += 1


class Reply:
    """headers: lower-case name -> value."""

    def __init__(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.status = status
        self.headers = headers
        self.body = body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def outputs(self) -> dict[str, list[Any]]:
        """Of an answer in the inference protocol: name -> data."""
        assert self.status == 200, self
        return {output["name"]: output["data"] for output in self.json["outputs"]}

    def __repr__(self) -> str:
        return f"{self.status} {self.headers} {self.body[:500].decode('utf-8', 'replace')}"


class Exchange:
    """One connection with one request on it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}

    async def head(self) -> None:
        """Reads status and headers."""
        lines = (await self._reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        self.status = int(lines[0].split()[1])
        pairs = (line.partition(":") for line in lines[1:] if line)
        self.headers = {name.lower(): value.strip() for name, _, value in pairs}

    async def chunks(self) -> AsyncIterator[bytes]:
        while size := int(await self._reader.readline(), 16):
            yield (await self._reader.readexactly(size + 2))[:size]
        await self._reader.readexactly(2)

    async def body(self) -> bytes:
        if self.headers.get("transfer-encoding") == "chunked":
            return b"".join([chunk async for chunk in self.chunks()])
        return await self._reader.readexactly(int(self.headers["content-length"]))

    async def events(self) -> AsyncIterator[Any]:
        """Server-sent events, as the JSON that each carries."""
        held = b""
        async for chunk in self.chunks():
            held += chunk
            *whole, held = held.split(b"\n\n")
            for event in whole:
                assert event.startswith(b"data: "), event
                yield json.loads(event.removeprefix(b"data: "))
        assert held == b""

    async def reply(self) -> Reply:
        await self.head()
        return Reply(self.status, self.headers, await self.body())

    def cut(self) -> None:
        """Away at once, like a client that died."""
        self._writer.transport.abort()


async def send(
    address: str, path: str, body: Any = None, headers: dict[str, str] | None = None, method: str = ""
) -> Exchange:
    """Sends a request; body: bytes as they are, anything else as JSON. Its answer is read from what is returned."""
    at = urlsplit(address)
    reader, writer = await asyncio.open_connection(at.hostname, at.port, limit=1 << 22)
    raw = b"" if body is None else body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = {"host": at.netloc, "connection": "close", "content-length": str(len(raw)), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    writer.write(f"{method or ('GET' if body is None else 'POST')} {path} HTTP/1.1\r\n{head}\r\n".encode() + raw)
    return Exchange(reader, writer)


async def ask(
    address: str, path: str, body: Any = None, headers: dict[str, str] | None = None, method: str = ""
) -> Reply:
    exchange = await send(address, path, body, headers, method)
    try:
        reply = await exchange.reply()
        _note(address, path, reply)
        return reply
    finally:
        exchange.cut()


def infer_body(inputs: Iterable[tuple[str, str, list[int], list[Any]]], **more: Any) -> dict[str, Any]:
    """inputs: name, datatype, shape, data of each."""
    named = [dict(zip(("name", "datatype", "shape", "data"), entry, strict=True)) for entry in inputs]
    return {"inputs": named, **more}


async def until(true: Callable[[], Coroutine[Any, Any, Any]], what: str) -> Any:
    """Asks until the answer is true, and returns it; gives up after a set number of times."""
    for _ in range(POLLS):
        if answer := await true():
            return answer
        await asyncio.sleep(POLL_S)
    raise AssertionError(f"asked {POLLS} times and still not: {what}")


def in_a_loop(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Runs an asynchronous test; one that hangs fails."""

    @functools.wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **kwargs), PATIENCE_S))

    return run
