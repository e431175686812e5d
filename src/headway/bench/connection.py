"""One keep-alive connection: writes a request, tells its owner how it was answered."""

from __future__ import annotations

import asyncio
import json
from typing import Protocol, cast

import httptools

from headway.bench.load import Shot

LOST = "connection_lost"


class Owner(Protocol):
    def answered(self, connection: Connection, shot: Shot, error: str | None, body: bytes, reusable: bool) -> None:
        """The whole answer has come. error: None when it is 2xx; body: of an error, else empty.
        reusable: the connection takes another request."""

    def lost(self, connection: Connection, shot: Shot | None, fault: str) -> None:
        """The connection is gone. shot: the request that it leaves unanswered; fault: what to count it as."""


class Connection(asyncio.Protocol):
    def __init__(self, owner: Owner) -> None:
        self.shot: Shot | None = None
        self._owner = owner
        self._transport: asyncio.WriteTransport | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._framed = False
        self._headers_done = False
        self._error_body: list[bytes] = []
        self._fault = LOST

    def send(self, shot: Shot, wire: bytes, now: int) -> None:
        assert self._transport is not None
        self.shot = shot
        shot.sent = now
        self._transport.write(wire)

    def close(self, fault: str = LOST) -> None:
        """fault: what a request still on it is counted as."""
        self._fault = fault
        if self._transport is not None:
            self._transport.abort()

    # -- asyncio ------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError:
            self.close("malformed_answer")

    def connection_lost(self, exc: Exception | None) -> None:
        ended_by_close = exc is None and self._headers_done and not self._framed and self._fault == LOST
        if ended_by_close and self.shot is not None:
            shot, self.shot = self.shot, None
            self._owner.answered(self, shot, self._error(), b"".join(self._error_body), False)
        self._owner.lost(self, self.shot, self._fault)

    # -- httptools ----------------------------------------------------------------------------

    def on_message_begin(self) -> None:
        self._framed = self._headers_done = False
        self._error_body.clear()

    def on_header(self, name: bytes, value: bytes) -> None:
        if name.lower() in (b"content-length", b"transfer-encoding"):
            self._framed = True

    def on_headers_complete(self) -> None:
        self._headers_done = True

    def on_body(self, body: bytes) -> None:
        if self._parser.get_status_code() >= 300:
            self._error_body.append(body)

    def on_message_complete(self) -> None:
        shot = self.shot
        if shot is None or self._parser.get_status_code() < 200:
            return  # an interim answer, or one that nobody asked for
        self.shot = None
        self._headers_done = False
        reusable = bool(self._parser.should_keep_alive())
        self._owner.answered(self, shot, self._error(), b"".join(self._error_body), reusable)
        if not reusable:
            self.close()

    def _error(self) -> str | None:
        status: int = self._parser.get_status_code()
        if 200 <= status < 300:
            return None
        return f"{status} {error_code(b''.join(self._error_body))}".rstrip()


def error_code(body: bytes) -> str:
    """The machine-readable code in an error's body, in either of the shapes it has; "" when there is none."""
    try:
        value = json.loads(body)
    except ValueError:
        return ""
    if isinstance(value, dict) and isinstance(value.get("error"), dict):
        value = value["error"]
    code = value.get("code") if isinstance(value, dict) else None
    return str(code) if code else ""
