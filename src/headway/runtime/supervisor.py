"""Keeps worker processes alive: one per version and instance, restarted with backoff."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from typing import Any, Protocol, cast

from headway.config.settings import Workers
from headway.core.events import Relief
from headway.core.ids import VersionId, WorkerId
from headway.core.losses import Loss
from headway.core.units import Duration
from headway.registry.placement import CPU
from headway.registry.spec import VersionSpec
from headway.runtime.channel import Channel
from headway.runtime.clock import Clock
from headway.runtime.devices import Devices
from headway.runtime.headroom import Headroom
from headway.runtime.oom import OutOfMemoryKills
from headway.runtime.slot import Slot
from headway.runtime.worker_process import WorkerProcess
from headway.wire.frames import ProtocolViolation
from headway.wire.messages import PROTOCOL_VERSION, FromWorker, Hello

log = logging.getLogger("headway.runtime")

LONGEST_PARENT = 75
"""Bytes of a path that leave room for a private folder and the socket in it."""


class Crew(Protocol):
    """Who works with the workers."""

    def worker_starting(self, worker: WorkerProcess, expected: Duration) -> None:
        """A process is about to be started, or will be after its backoff. expected: until it is ready."""

    def worker_changed(self, worker: WorkerProcess) -> None:
        """After each change of state; when lost and started again, before the `worker_starting` of the next."""

    def worker_message(self, worker: WorkerProcess, message: FromWorker, data: memoryview) -> None: ...

    def slot_given_up(self, version: VersionId) -> None:
        """One instance will not be started again, or not before its device works."""

    def relief_reported(self, suspect: WorkerProcess, what: Relief, relief: WorkerProcess | None, cause: str) -> None:
        """What became of the help for one that is suspected."""

    def has_work(self, worker: WorkerId) -> bool:
        """It was given what it has not answered."""

    def device_lost(self, device: str, cause: str, tried_in: Duration) -> None:
        """No worker is started there for so long at least. Also told each time that it was tried in vain."""

    def device_recovered(self, device: str) -> None:
        """Workers are about to be started there again."""


class Supervisor:
    """address: where workers connect, valid after start().  draining: no more workers than there are."""

    def __init__(self, settings: Workers, crew: Crew, clock: Clock) -> None:
        self.settings = settings
        self.crew = crew
        self.clock = clock
        self.address = ""
        self.draining = False
        self.headroom = Headroom()
        self.devices = Devices(settings, crew, clock, self.spawn)
        self.slots: dict[VersionId, list[Slot]] = {}
        self._workers: dict[WorkerId, tuple[WorkerProcess, Slot]] = {}
        self._last_id: WorkerId = 0
        self._kills = OutOfMemoryKills()
        self._directory = ""
        self._server: asyncio.Server | None = None
        self._strangers: dict[Channel, None] = {}
        self._tasks: dict[asyncio.Task[None], None] = {}
        self._failed: Callable[[BaseException], None] = _raise

    async def start(self) -> None:
        """Opens the socket that workers connect to, in a directory of its own that others cannot enter."""
        self._directory = tempfile.mkdtemp(prefix="headway-", dir=socket_parent(tempfile.gettempdir()))
        path = os.path.join(self._directory, "workers")
        self._server = await asyncio.get_running_loop().create_unix_server(self._channel, path)
        self.address = f"unix:{path}"

    def _channel(self) -> asyncio.BaseProtocol:
        return cast(asyncio.BaseProtocol, Channel(self))

    def add(self, spec: VersionSpec, threads: int, failed: Callable[[BaseException], None]) -> None:
        """Starts the version's instances. failed: called if supervising itself breaks, which is a bug."""
        self._failed = failed
        version = VersionId(spec.model, spec.version)
        slots = self.slots[version] = []
        for _ in range(spec.settings.instances):
            slot = Slot(self, spec, threads)
            slots.append(slot)
            self.spawn(slot.keep_alive())

    def channel(self, worker: WorkerId) -> Channel | None:
        """None: not connected, or gone."""
        known = self._workers.get(worker)
        return known[0].channel if known is not None else None

    def succeeded(self, worker: WorkerId) -> None:
        known = self._workers.get(worker)
        if known is not None:
            known[1].succeeded()

    def give_up(self, worker: WorkerId, cause: str) -> None:
        """It hangs."""
        known = self._workers.get(worker)
        if known is not None:  # else it was lost a moment ago, and the core is about to hear of it
            known[0].give_up(cause)

    def suspected(self, worker: WorkerId) -> None:
        """It does not answer, and is given no new work."""
        known = self._workers.get(worker)
        if known is not None:
            known[1].suspected(known[0])

    def cleared(self, worker: WorkerId) -> None:
        """It has answered after all."""
        known = self._workers.get(worker)
        if known is not None:
            known[1].cleared(known[0])

    def device_lost(self, worker: WorkerProcess) -> None:
        """It has ended as on a device that is broken for all: those that have not noticed yet are ended too."""
        device = worker.spec.settings.device
        cause = f"{worker.name}: {worker.cause}"
        if device != CPU and self.devices.lost(device, cause):
            for other, _ in list(self._workers.values()):
                if other.spec.settings.device == device and other is not worker:
                    other.lose(f"device {device} is lost ({cause})", Loss.DEVICE_LOST)

    async def stop(self, grace_s: float) -> None:
        """Stops every worker and leaves nothing behind: no process, no socket."""
        self.devices.stop()
        for slots in self.slots.values():
            for slot in slots:
                slot.stop(grace_s)
        await asyncio.gather(*self._tasks, return_exceptions=True)  # failures have been reported by _report
        for stranger in list(self._strangers):
            stranger.close()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        if self._directory:
            shutil.rmtree(self._directory)
            self._directory = ""

    def abandon(self) -> None:
        """The process is about to end without `stop`: takes the socket away, which would outlive it."""
        if self._directory:
            shutil.rmtree(self._directory, ignore_errors=True)

    # -- for slots -----------------------------------------------------------------------------

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Supervises something; `stop` waits for its end."""
        task = asyncio.get_running_loop().create_task(coroutine)
        self._tasks[task] = None
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.pop(task, None)
        _report(task, self._failed)

    def pids(self, version: VersionId) -> list[int]:
        """Of the processes that run it."""
        workers = (worker for worker, _ in self._workers.values() if worker.version == version)
        return [pid for worker in workers if (pid := worker.pid) is not None]

    def new_worker(self, spec: VersionSpec, threads: int, slot: Slot) -> WorkerProcess:
        self._last_id += 1
        worker = WorkerProcess(self._last_id, spec, threads, slot, self.clock, self._kills)
        self._workers[worker.id] = (worker, slot)
        return worker

    def forget(self, worker: WorkerProcess) -> None:
        self._workers.pop(worker.id, None)

    # -- peer of channels that have not said hello ---------------------------------------------

    def connected(self, channel: Channel) -> None:
        self._strangers[channel] = None

    def closed(self, channel: Channel, cause: str) -> None:
        self._strangers.pop(channel, None)
        log.warning("a connection to the workers' socket ended before it said who it is: %s", cause)

    def received(self, channel: Channel, message: FromWorker, data: memoryview) -> None:
        if not isinstance(message, Hello):
            raise ProtocolViolation(f"{type(message).__name__} instead of Hello")
        worker, problem = self._identify(message)
        if worker is None:
            raise ProtocolViolation(f"refused: {problem}")
        self._strangers.pop(channel, None)
        worker.attach(channel, message)

    def _identify(self, hello: Hello) -> tuple[WorkerProcess | None, str]:
        if hello.protocol != PROTOCOL_VERSION:
            return None, f"protocol version {hello.protocol}, expected {PROTOCOL_VERSION}"
        known = self._workers.get(hello.worker)
        if known is None:
            return None, f"worker {hello.worker} is not expected (any more)"
        if not hmac.compare_digest(hello.token.encode(), known[0].token.encode()):
            return None, f"wrong token for worker {hello.worker}"
        if known[0].channel is not None:
            return None, f"worker {hello.worker} is connected already"
        return known[0], ""


def socket_parent(preferred: str) -> str:
    """A unix socket's path has room for about a hundred bytes; a long TMPDIR would take them all."""
    return preferred if len(os.fsencode(preferred)) <= LONGEST_PARENT else "/tmp"


def _raise(error: BaseException) -> None:
    raise error


def _report(task: asyncio.Task[None], failed: Callable[[BaseException], None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.critical("supervising a worker failed", exc_info=error)
        failed(error)
