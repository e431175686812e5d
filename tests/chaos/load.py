"""Clients that ask one thing after the other, and try again as they are told to."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from random import Random
from typing import Any, TypeAlias
from urllib.parse import urlsplit

from tests.chaos.ledger import WORTH_ANOTHER_TRY, Chain, Ledger, Sent
from tests.chaos.models import Ask
from tests.e2e.client import Exchange

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.05, 5
"""Of a client that is not told when to try again, doubled each time; and of all."""

Next: TypeAlias = Callable[[Random], Ask]


class NoReply(Exception):
    """The connection ended, or nothing came for too long."""


class Line:
    """A connection that is kept, with one request on it at a time. patience_s: more than any deadline; nobody waits as
    long but for a reply that does not come."""

    def __init__(self, address: str, patience_s: float) -> None:
        self._at = urlsplit(address)
        self._patience_s = patience_s
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def ask(self, number: int, ask: Ask) -> tuple[int, int, dict[str, str], dict[str, Any]]:
        """Whose reply it is, its status, headers and body. Raises NoReply."""
        try:
            async with asyncio.timeout(self._patience_s):
                reader, writer = await self.connect()
                writer.write(self._request(number, ask))
                reply = await Exchange(reader, writer).reply()
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            self.cut()
            raise NoReply(f"{type(error).__name__}: {error}") from None
        return int(reply.headers["x-request-id"]), reply.status, reply.headers, reply.json

    async def send(self, number: int, ask: Ask) -> None:
        """And do not wait."""
        _, writer = await self.connect()
        writer.write(self._request(number, ask))
        await writer.drain()

    async def end(self) -> bytes:
        """What came that nobody has waited for."""
        if self._reader is None or self._writer is None:
            return b""
        try:
            async with asyncio.timeout(self._patience_s):
                self._writer.write_eof()
                return await self._reader.read()
        except (OSError, TimeoutError):
            return b""
        finally:
            self.cut()

    def cut(self) -> None:
        if self._writer is not None:
            self._writer.transport.abort()
        self._reader = self._writer = None

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Does nothing where it is. Raises OSError."""
        if self._reader is None or self._writer is None:
            self._reader, self._writer = await asyncio.open_connection(self._at.hostname, self._at.port)
        return self._reader, self._writer

    def _request(self, number: int, ask: Ask) -> bytes:
        body = json.dumps(ask.body).encode()
        timeout = f"x-request-timeout-ms: {ask.timeout_ms}\r\n" if ask.timeout_ms else ""
        return (
            f"POST {ask.path} HTTP/1.1\r\nhost: {self._at.netloc}\r\nx-request-id: {number}\r\n{timeout}"
            f"content-length: {len(body)}\r\n\r\n"
        ).encode() + body


class Client:
    """One of many, on a line of its own."""

    def __init__(self, address: str, ledger: Ledger, rng: Random, patience_s: float) -> None:
        self._patience_s = patience_s
        self._new_line: Callable[[], Line] = lambda: Line(address, patience_s)
        self._line = self._new_line()
        self._ledger = ledger
        self._rng = rng

    async def keep_asking(self, next: Next, pause_s: float, over: asyncio.Event) -> None:
        """pause_s: between two requests, on average."""
        while not over.is_set():
            ask = next(self._rng)
            await (self.see_through(ask) if ask.leaves_after_s is None else self.leave(ask))
            await asyncio.sleep(self._rng.expovariate(1 / pause_s))
        await self.end()

    async def end(self) -> None:
        rest = await self._line.end()
        if rest:
            self._ledger.strange.append(f"nobody has asked for {rest[:300]!r}")

    async def see_through(self, ask: Ask) -> Chain:
        """Until there is an answer, or no sense in trying again."""
        chain = self._ledger.begins(ask)
        began = _now()
        pause = FIRST_PAUSE_S
        while not chain.tries or (chain.last in WORTH_ANOTHER_TRY and _now() < began + self._patience_s):
            if chain.tries:
                await asyncio.sleep(pause * self._rng.uniform(1, 1.2))
            headers = await self._once(self._ledger.sends(chain, _now()))
            told = int(headers.get("retry-after-ms", 0)) / 1000
            pause = min(LONGEST_PAUSE_S, told or 2 * pause)
        chain.took = _now() - began
        chain.over = True
        return chain

    async def _once(self, sent: Sent) -> dict[str, str]:
        try:
            number, status, headers, told = await self._line.ask(sent.number, sent.ask)
        except NoReply as error:
            self._ledger.strange.append(f"request {sent.number} ({sent.ask.kind}): {error}")
            return {}
        if number != sent.number:
            self._ledger.strange.append(f"to request {sent.number} came the reply to {number}: {told}")
            self._line.cut()
            return {}
        self._ledger.hears(sent, status, told)
        return headers

    async def leave(self, ask: Ask) -> None:
        """Asks, and goes away before or after there is a reply, on a line that nobody else uses."""
        line = self._new_line()
        chain = self._ledger.begins(ask)
        sent = self._ledger.sends(chain, _now())
        sent.left = chain.over = True
        await line.send(sent.number, ask)
        await asyncio.sleep(ask.leaves_after_s or 0)
        line.cut()


def _now() -> float:
    return asyncio.get_running_loop().time()
