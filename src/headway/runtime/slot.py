"""One instance of a version over all its incarnations.

One that dies while it serves is started again, with backoff, for ever: whether requests may come in meanwhile the core
decides. One that cannot load is given up after enough failures in a row, and tried again once in a while; at once and
for good where it never could and the same files must fail again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from headway.core.ids import VersionId
from headway.core.losses import Loss
from headway.core.units import SECOND, Duration, Instant, seconds
from headway.registry.placement import CPU
from headway.registry.spec import VersionSpec
from headway.runtime.relief import ReliefPost
from headway.runtime.worker_process import State, WorkerProcess
from headway.wire.messages import FromWorker

if TYPE_CHECKING:
    from headway.runtime.supervisor import Supervisor

log = logging.getLogger("headway.runtime")

STABLE: Duration = seconds(10)
"""A worker that was ready this long did not fail by starting."""

FIRST_GUESS: Duration = seconds(2)
"""How long a start takes, before one was seen."""


class Slot:
    """given_up: it failed to load too often, and has not loaded since.  last_cause: why it was lost last.
    worker: its present incarnation; beside it may be another while it is suspected.
    """

    def __init__(self, supervisor: Supervisor, spec: VersionSpec, threads: int) -> None:
        self.version = VersionId(spec.model, spec.version)
        self.given_up = False
        self.last_cause = ""
        self._supervisor = supervisor
        self._settings = supervisor.settings
        self._spec = spec
        self._threads = threads
        self._device = spec.settings.device
        self._deaths = 0
        """In a row, nothing answered in between, none of them from outside."""
        self._refusals = 0
        """Failures to load, in a row."""
        self._again_s = self._settings.retry_given_up_s
        self._was_ready = False
        self._grounded = False
        """Its device is lost, and it waits until that works again."""
        self._delay_s = 0.0
        self._start_duration = FIRST_GUESS
        self._ready_expected_at: Instant = 0
        self._stopping = asyncio.Event()
        self._relief = ReliefPost(self, supervisor, spec, threads)
        self.worker = self._next_worker(0)

    @property
    def is_out(self) -> bool:
        """Nobody is there, nor is about to be: it was given up, or its device is lost."""
        return self.given_up or self._grounded

    async def keep_alive(self) -> None:
        """Runs until it is stopped, or given up for good."""
        while True:
            worker = self.worker
            if self._relief.runs(worker):
                await self._relief.ended(worker)
            elif not worker.over:  # lost with its device before it was started
                await worker.run(self._supervisor.address, self._settings.start_timeout_s)
            if worker is self.worker:  # it has no successor
                if not await self._until_tried_again():
                    return
                self.worker = self._next_worker(0)
            elif self._relief.runs(self.worker):
                continue  # it was there before this one was gone
            elif await _happens_within(self._stopping, self._delay_s):
                self.worker.stopped_before_start()
                return

    async def _until_tried_again(self) -> bool:
        """False: it never is."""
        if self.given_up:
            if not self._again_s or await _happens_within(self._stopping, self._again_s):
                return False
            log.info("%s: tried again, %g s after it was given up", self.version, self._again_s)
        elif not self._grounded:
            return False
        if not await _comes_before(self._supervisor.devices.until_it_works(self._device), self._stopping):
            return False
        self._grounded = False
        return True

    def stop(self, grace_s: float) -> None:
        self._stopping.set()
        self._relief.stop(grace_s)
        self.worker.stop(grace_s)

    def suspected(self, worker: WorkerProcess) -> None:
        """It does not answer. Who is itself a relief is not relieved."""
        if worker is self.worker and not self._stopping.is_set():
            self._relief.begin(worker, self._start_duration)

    def cleared(self, worker: WorkerProcess) -> None:
        """It has answered after all."""
        self._relief.cleared(worker)

    def succeeded(self) -> None:
        """It answered something."""
        self._deaths = 0

    def expected_wait(self, now: Instant) -> Duration:
        """Until it is ready, as far as one can tell; 0: it is overdue, or never will be."""
        tried_at = self._supervisor.devices.tried_at(self._device)
        ready_at = (
            max(tried_at + self._start_duration, self._ready_expected_at) if tried_at else self._ready_expected_at
        )
        return max(0, ready_at - now)

    # -- owner of its worker -------------------------------------------------------------------

    def worker_changed(self, worker: WorkerProcess) -> None:
        crew = self._supervisor.crew
        if worker.state is State.READY:
            self._was_ready = True
            self.given_up = False
            self._refusals = 0
            self._start_duration = worker.start_duration
            log.info("%s: ready after %.2f s", worker.name, worker.start_duration / SECOND)
        lost = worker.state is State.LOST
        if lost and worker is not self.worker:
            self._relief.lost(worker)
        elif lost:
            self._count_failure(worker)
        if lost and worker.loss is Loss.DEVICE_LOST:
            self._supervisor.device_lost(worker)
        followed = lost and worker is self.worker and not self._stopping.is_set()
        if followed and (relief := self._relief.takes_over(worker)) is not None:
            self.worker, followed = relief, False
            self._ready_expected_at = self._supervisor.clock() + self._start_duration
        if worker.state is not State.STARTING:
            self._supervisor.headroom.keep(worker.id)
        crew.worker_changed(worker)
        if worker.over:
            self._supervisor.forget(worker)
        if followed:
            self._succeed(worker)

    def worker_message(self, worker: WorkerProcess, message: FromWorker, data: memoryview) -> None:
        self._supervisor.crew.worker_message(worker, message, data)

    def _count_failure(self, worker: WorkerProcess) -> None:
        self.last_cause = worker.cause
        if worker.ready is not None and self._supervisor.clock() - worker.ready_at >= STABLE:
            self._deaths = 0
        self._delay_s = self._settings.backoff_s
        if worker.loss is not Loss.KILLED and not (worker.loss is Loss.DEVICE_LOST and self._device != CPU):
            # for those neither it nor what it ran can be blamed
            self._deaths += 1
            self._refusals += worker.ready is None
            self._delay_s = self._backoff_s()
        log.warning("%s: lost (%s), %s", worker.name, worker.loss.value, worker.cause)

    def _succeed(self, lost: WorkerProcess) -> None:
        limit = self._settings.max_failures
        if not self._supervisor.devices.works(self._device):
            self._grounded = True
            self._supervisor.crew.slot_given_up(self.version)
        elif lost.final and not self._was_ready:  # what was loaded once may be in the middle of being replaced
            self._again_s = 0.0
            self._give_up("not tried again, for it would fail the same way", lost.cause)
        elif limit and self._refusals >= limit:
            self._give_up(f"given up after {self._refusals} failures to load in a row, last", lost.cause)
        else:
            self.worker = self._next_worker(seconds(self._delay_s))

    def _give_up(self, why: str, cause: str) -> None:
        self.given_up = True
        expected = seconds(self._again_s) + self._start_duration
        self._ready_expected_at = self._supervisor.clock() + expected if self._again_s else 0
        log.error("%s: %s: %s", self.version, why, cause)
        self._supervisor.crew.slot_given_up(self.version)

    def _next_worker(self, delay: Duration) -> WorkerProcess:
        worker = self._supervisor.new_worker(self._spec, self._threads, self)
        expected = delay + self._start_duration
        self._ready_expected_at = self._supervisor.clock() + expected
        self._supervisor.crew.worker_starting(worker, expected)
        return worker

    def _backoff_s(self) -> float:
        settings = self._settings
        doublings = min(max(0, self._deaths - 1), 30)
        return min(settings.backoff_s * 2.0**doublings, settings.max_backoff_s)


async def _comes_before(awaited: Coroutine[Any, Any, None], event: asyncio.Event) -> bool:
    """False: the event came first."""
    tasks = [asyncio.ensure_future(awaited), asyncio.ensure_future(event.wait())]
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()
    return not event.is_set()


async def _happens_within(event: asyncio.Event, timeout_s: float) -> bool:
    try:
        await asyncio.wait_for(event.wait(), timeout_s)
    except TimeoutError:
        return False
    return True
