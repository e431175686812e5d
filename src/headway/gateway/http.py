"""The HTTP server: listening, the table of connections, time limits, draining."""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from email.utils import formatdate
from pathlib import Path
from secrets import token_hex
from typing import cast

from headway.config.settings import Limits
from headway.gateway.budget import BodyBudget
from headway.gateway.connection import Connection
from headway.gateway.edge import Edge
from headway.gateway.errors import HeadwayError, TooManyConnections
from headway.gateway.exchange import Handler, Request, Response
from headway.gateway.listening import address_of, bind_unix, identity

BACKLOG = 1024
MAX_REQUEST_ID = 128
COMPRESSOR_THREADS = 1
SWEEPS_PER_TIMEOUT = 4
LONGEST_SWEEP_S = 0.5


PLAIN = Edge()


class HttpServer:
    """handler: answers each request, never raises. on_error: the reply to what could not become a request.

    clock: monotonic nanoseconds. Timeouts are kept by one sweep over all connections, not by a timer per
    request, so they are late by up to `sweep_s`, never early.
    """

    def __init__(
        self,
        limits: Limits,
        handler: Handler,
        on_error: Callable[[HeadwayError, Request], Response],
        clock: Callable[[], int] = time.monotonic_ns,
        edge: Edge = PLAIN,
    ) -> None:
        self.limits = limits
        self.handler = handler
        self.on_error = on_error
        self.clock = clock
        self.edge = edge
        self.bodies = BodyBudget(int(limits.max_queued_mb * (1 << 20)))
        self.draining = False
        self.now = 0.0
        self.date = b""
        shortest = min(limits.idle_timeout_s, limits.header_timeout_s, limits.body_timeout_s)
        self.sweep_s = min(LONGEST_SWEEP_S, shortest / SWEEPS_PER_TIMEOUT)
        self._connections: dict[Connection, None] = {}
        self.replies: dict[int, int] = {}
        """How many replies were begun, by status; those to what never became a request among them."""
        self._server: asyncio.Server | None = None
        self._socket_file: tuple[Path, tuple[int, int] | None] | None = None
        """The socket's file, and which it was when we made it."""
        self._compressor: ThreadPoolExecutor | None = None
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._empty: asyncio.Event = asyncio.Event()
        self._id_prefix = token_hex(6)
        self._ids = 0

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """The address it is bound to. Raises OSError where that can not be had."""
        loop = asyncio.get_running_loop()
        self._sweep()
        patience = self.limits.header_timeout_s if tls is not None else None
        self._server = await loop.create_server(
            self._connection, host, port, backlog=BACKLOG, ssl=tls, ssl_handshake_timeout=patience
        )
        return address_of(self._server)

    async def start_unix(self, path: Path, mode: int) -> None:
        """mode: the socket's permissions. Raises OSError where it can not be had."""
        self._sweep()
        bound = bind_unix(path, mode)
        self._socket_file = path, identity(path)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connection, sock=bound, backlog=BACKLOG)

    def _connection(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, Connection(self))

    async def drain(self) -> None:
        """Stop accepting, finish what is in flight, close. Returns when the last connection is gone."""
        self.draining = True
        self._stop_listening()
        for connection in tuple(self._connections):
            connection.drain()
        if self._connections:
            await self._empty.wait()

    def close(self) -> None:
        """At once; whoever still waits is disconnected."""
        self._stop_listening()
        if self._compressor is not None:
            self._compressor.shutdown(wait=False, cancel_futures=True)
        for connection in tuple(self._connections):
            connection.abort()
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()

    def _stop_listening(self) -> None:
        if self._server is not None:
            self._server.close()
        if self._socket_file is not None:
            (path, made), self._socket_file = self._socket_file, None
            if made is not None and identity(path) == made:  # not one that another server has made since
                path.unlink(missing_ok=True)

    @property
    def unix(self) -> bool:
        """Whether it listens on a unix socket."""
        return self._socket_file is not None

    @property
    def connections(self) -> int:
        """Open now."""
        return len(self._connections)

    # -- for the connections ----------------------------------------------------------------------

    def opened(self, connection: Connection) -> HeadwayError | None:
        """Why the connection can not be served, if so."""
        self._connections[connection] = None
        self._empty.clear()
        count = len(self._connections)
        if count > 2 * self.limits.max_connections:
            connection.abort()  # so many that even saying why costs too much
        elif count > self.limits.max_connections:
            return TooManyConnections(f"more than {self.limits.max_connections} connections", retry_after=1_000_000_000)
        return None

    def closed(self, connection: Connection) -> None:
        self._connections.pop(connection, None)
        if not self._connections:
            self._empty.set()

    def request_id(self, request: Request) -> str:
        """The client's own, if it can stand in a header and a log line; otherwise a new one."""
        given = request.headers.get(b"x-request-id", b"")
        if 0 < len(given) <= MAX_REQUEST_ID and all(33 <= byte <= 126 for byte in given):
            return given.decode("ascii")
        self._ids += 1
        return f"{self._id_prefix}-{self._ids}"

    def off_loop(self, work: Callable[[], Response], then: Callable[[Response], None]) -> None:
        """Do it in a thread; `then` gets the result, in the loop."""
        loop = asyncio.get_running_loop()
        if self._compressor is None:
            self._compressor = ThreadPoolExecutor(COMPRESSOR_THREADS, thread_name_prefix="headway-compressor")
        done = loop.run_in_executor(self._compressor, work)
        done.add_done_callback(lambda finished: None if finished.cancelled() else then(finished.result()))

    def _sweep(self) -> None:
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        self.date = b"date: %b\r\n" % formatdate(usegmt=True).encode()
        for connection in tuple(self._connections):
            connection.check_time(self.now)
        self._sweep_timer = loop.call_later(self.sweep_s, self._sweep)
