"""Keeps worker processes alive: one per version and instance, restarted with backoff."""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import shutil
import tempfile
from collections.abc import Callable
from typing import Protocol

from headway.config.settings import Workers
from headway.core.ids import VersionId, WorkerId
from headway.core.units import SECOND, Duration, Instant, seconds
from headway.registry.spec import VersionSpec
from headway.runtime.channel import Channel
from headway.runtime.clock import Clock
from headway.runtime.worker_process import State, WorkerProcess
from headway.wire.frames import ProtocolViolation
from headway.wire.messages import PROTOCOL_VERSION, FromWorker, Hello

log = logging.getLogger("headway.runtime")

STABLE: Duration = seconds(10)
"""A worker that was ready this long did not fail by starting."""

FIRST_GUESS: Duration = seconds(2)
"""How long a start takes, before one was seen."""


class Crew(Protocol):
    """Who works with the workers."""

    def worker_starting(self, worker: WorkerProcess, expected: Duration) -> None:
        """A process is about to be started, or will be after its backoff. expected: until it is ready."""

    def worker_changed(self, worker: WorkerProcess) -> None:
        """After each change of state; when lost and started again, before the `worker_starting` of the next."""

    def worker_message(self, worker: WorkerProcess, message: FromWorker, data: memoryview) -> None: ...

    def slot_given_up(self, version: VersionId) -> None:
        """One instance will not be started again."""


class Slot:
    """One instance of a version, over all its incarnations."""

    def __init__(self, supervisor: Supervisor, spec: VersionSpec, threads: int) -> None:
        self.version = VersionId(spec.model, spec.version)
        self.given_up = False
        self.last_cause = ""
        self._supervisor = supervisor
        self._settings = supervisor.settings
        self._spec = spec
        self._threads = threads
        self._failures = 0
        self._start_duration = FIRST_GUESS
        self._ready_expected_at: Instant = 0
        self._stopping = asyncio.Event()
        self.worker = self._next_worker(0)

    async def keep_alive(self) -> None:
        """Runs until it is stopped or given up."""
        settings = self._settings
        while True:
            worker = self.worker
            await worker.run(self._supervisor.address, settings.start_timeout_s)
            if worker is self.worker:
                return  # no successor: stopped, or given up
            delay_s = self._backoff_s()
            if await _happens_within(self._stopping, delay_s):
                self.worker.stopped_before_start()
                return

    def stop(self, grace_s: float) -> None:
        self._stopping.set()
        self.worker.stop(grace_s)

    def succeeded(self) -> None:
        """It answered something."""
        self._failures = 0

    def expected_wait(self, now: Instant) -> Duration:
        """Until it is ready, as far as one can tell."""
        return max(0, self._ready_expected_at - now)

    # -- owner of its worker -------------------------------------------------------------------

    def worker_changed(self, worker: WorkerProcess) -> None:
        crew = self._supervisor.crew
        if worker.state is State.READY:
            self._start_duration = worker.start_duration
            log.info("%s: ready after %.2f s", worker.name, worker.start_duration / SECOND)
        elif worker.state is State.LOST:
            self._count_failure(worker)
        crew.worker_changed(worker)
        if worker.over:
            self._supervisor.forget(worker)
        if worker.state is State.LOST and not self._stopping.is_set():
            self._succeed(worker)

    def worker_message(self, worker: WorkerProcess, message: FromWorker, data: memoryview) -> None:
        self._supervisor.crew.worker_message(worker, message, data)

    def _count_failure(self, worker: WorkerProcess) -> None:
        self.last_cause = worker.cause
        if worker.ready is not None and self._supervisor.clock() - worker.ready_at >= STABLE:
            self._failures = 0
        self._failures += 1
        log.warning("%s: lost, %s", worker.name, worker.cause)

    def _succeed(self, lost: WorkerProcess) -> None:
        limit = self._settings.max_failures
        if limit and self._failures >= limit:
            self.given_up = True
            log.error("%s: given up after %d failures in a row, last: %s", self.version, self._failures, lost.cause)
            self._supervisor.crew.slot_given_up(self.version)
        else:
            self.worker = self._next_worker(seconds(self._backoff_s()))

    def _next_worker(self, delay: Duration) -> WorkerProcess:
        worker = self._supervisor.new_worker(self._spec, self._threads, self)
        expected = delay + self._start_duration
        self._ready_expected_at = self._supervisor.clock() + expected
        self._supervisor.crew.worker_starting(worker, expected)
        return worker

    def _backoff_s(self) -> float:
        settings = self._settings
        doublings = min(max(0, self._failures - 1), 30)
        return min(settings.backoff_s * 2.0**doublings, settings.max_backoff_s)


class Supervisor:
    """address: where workers connect, valid after start()."""

    def __init__(self, settings: Workers, crew: Crew, clock: Clock) -> None:
        self.settings = settings
        self.crew = crew
        self.clock = clock
        self.address = ""
        self.slots: dict[VersionId, list[Slot]] = {}
        self._workers: dict[WorkerId, tuple[WorkerProcess, Slot]] = {}
        self._last_id: WorkerId = 0
        self._directory = ""
        self._server: asyncio.Server | None = None
        self._strangers: dict[Channel, None] = {}
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        """Opens the socket that workers connect to, in a directory of its own that others cannot enter."""
        self._directory = tempfile.mkdtemp(prefix="headway-")
        path = os.path.join(self._directory, "workers")
        self._server = await asyncio.get_running_loop().create_unix_server(lambda: Channel(self), path)
        self.address = f"unix:{path}"

    def add(self, spec: VersionSpec, threads: int, failed: Callable[[BaseException], None]) -> None:
        """Starts the version's instances. failed: called if supervising itself breaks, which is a bug."""
        version = VersionId(spec.model, spec.version)
        slots = self.slots[version] = []
        for _ in range(spec.settings.instances):
            slot = Slot(self, spec, threads)
            slots.append(slot)
            task = asyncio.get_running_loop().create_task(slot.keep_alive())
            task.add_done_callback(lambda done: _report(done, failed))
            self._tasks.append(task)

    def channel(self, worker: WorkerId) -> Channel | None:
        """None: not connected, or gone."""
        known = self._workers.get(worker)
        return known[0].channel if known is not None else None

    def succeeded(self, worker: WorkerId) -> None:
        known = self._workers.get(worker)
        if known is not None:
            known[1].succeeded()

    async def stop(self, grace_s: float) -> None:
        """Stops every worker and leaves nothing behind: no process, no socket."""
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

    # -- for slots -----------------------------------------------------------------------------

    def new_worker(self, spec: VersionSpec, threads: int, slot: Slot) -> WorkerProcess:
        self._last_id += 1
        worker = WorkerProcess(self._last_id, spec, threads, slot, self.clock)
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


async def _happens_within(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True


def _report(task: asyncio.Task[None], failed: Callable[[BaseException], None]) -> None:
    error = None if task.cancelled() else task.exception()
    if error is not None:
        log.critical("supervising a worker failed", exc_info=error)
        failed(error)
