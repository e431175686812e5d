"""Drives a `Load` over real connections: a pool that is kept alive, one timer, one sweep for time-outs."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Sequence
from ssl import SSLContext

from headway.bench.alarm import Alarm
from headway.bench.connection import Connection
from headway.bench.load import NEVER, ClosedPacer, Load, Shot, Window

SWEEP_S = 0.05
RECONNECT_S = 0.1


class Client:
    """wires: encoded requests, sent in turn.  timeout: nanoseconds from the due moment.  connections: the most.
    tls: None = in the clear.  unix: path of a socket, instead of host and port.
    """

    def __init__(
        self,
        host: str,
        port: int,
        wires: Sequence[bytes],
        *,
        timeout: int,
        connections: int,
        tls: SSLContext | None = None,
        unix: str = "",
    ) -> None:
        self._host = host
        self._port = port
        self._tls = tls
        self._unix = unix
        self._wires = wires
        self._timeout = timeout
        self._limit = connections
        self._load = Load(ClosedPacer(0), Window(0, 0))
        self._idle: list[Connection] = []
        self._open: dict[Connection, None] = {}
        self._waiting: deque[Shot] = deque()
        self._opening: dict[asyncio.Task[None], None] = {}
        self._loop = asyncio.get_running_loop()
        self._over = asyncio.Event()
        self._alarm = Alarm(self._loop, self._pump)

    async def connect(self, count: int) -> None:
        """Open `count` connections before the clock starts. Raises OSError when the server does not answer."""
        for _ in range(min(count, self._limit)):
            self._idle.append(await self._connect())

    async def run(self, load: Load) -> None:
        """Until the load is over and everything is answered, lost or timed out. Once per client."""
        self._load = load
        sweeper = asyncio.create_task(self._sweep())
        try:
            self._pump()
            await self._over.wait()
        finally:
            self._alarm.stop()
            sweeper.cancel()
            for task in [*self._opening]:
                task.cancel()
            for connection in [*self._open]:
                connection.close()

    # -- what a connection tells -----------------------------------------------------------------

    def answered(self, connection: Connection, shot: Shot, error: str | None, body: bytes, reusable: bool) -> None:
        self._load.answered(shot, time.monotonic_ns(), error, body)
        if reusable:
            self._idle.append(connection)
        else:
            self._open.pop(connection, None)
        self._pump()

    def lost(self, connection: Connection, shot: Shot | None, fault: str) -> None:
        self._open.pop(connection, None)
        if connection in self._idle:
            self._idle.remove(connection)
        if shot is not None:
            self._load.answered(shot, time.monotonic_ns(), fault)
        self._pump()

    # -- sending ---------------------------------------------------------------------------------

    def _pump(self) -> None:
        """Send all that is due and for which there is a connection."""
        load = self._load
        now = time.monotonic_ns()
        while shot := load.take(now):
            self._waiting.append(shot)
        while self._waiting and self._idle:
            shot = self._waiting.popleft()
            self._idle.pop().send(shot, self._wires[shot.number % len(self._wires)], time.monotonic_ns())
        self._open_more()
        wake_at = load.wake_at(now)
        if wake_at != NEVER:
            self._alarm.set(wake_at)

    def _open_more(self) -> None:
        room = self._limit - len(self._open) - len(self._opening)
        for _ in range(min(room, len(self._waiting) - len(self._opening))):
            task = asyncio.create_task(self._open_one())
            self._opening[task] = None
            task.add_done_callback(self._opened)

    def _opened(self, task: asyncio.Task[None]) -> None:
        self._opening.pop(task)
        if not task.cancelled():
            task.result()
            self._pump()

    async def _open_one(self) -> None:
        try:
            self._idle.append(await self._connect())
        except OSError as error:
            if self._waiting:
                self._load.answered(self._waiting.popleft(), time.monotonic_ns(), f"connect: {type(error).__name__}")
            await asyncio.sleep(RECONNECT_S)  # the slot stays taken: a dead server is not stormed

    async def _connect(self) -> Connection:
        if self._unix:
            _, connection = await self._loop.create_unix_connection(lambda: Connection(self), self._unix)
        else:
            _, connection = await self._loop.create_connection(
                lambda: Connection(self), self._host, self._port, ssl=self._tls
            )
        self._open[connection] = None
        return connection

    # -- time ------------------------------------------------------------------------------------

    async def _sweep(self) -> None:
        while True:
            now = time.monotonic_ns()
            self._give_up(now - self._timeout, now)
            if self._load.is_over(now):
                self._over.set()
                return
            await asyncio.sleep(SWEEP_S)

    def _give_up(self, before: int, now: int) -> None:
        while self._waiting and self._waiting[0].intended < before:
            self._load.answered(self._waiting.popleft(), now, "timeout")
        for connection in [*self._open]:
            if connection.shot is not None and connection.shot.intended < before:
                connection.close("timeout")
