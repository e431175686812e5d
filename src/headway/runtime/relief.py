"""Another worker beside one that is suspected, so that the others of its version need not wait for what may never end.

One at most for each slot, where there is memory for it. Whichever way the suspicion ends one of the two is left: where
the suspected one is gone the relief has its place, and where it is well again the relief goes, when it has answered
what it was given. It is always the relief that goes: then all is as it was before, and nobody has to compare the two
at the very moment at which work is handed to both.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING

from headway.core.events import Relief
from headway.core.units import Duration
from headway.registry.spec import VersionSpec
from headway.runtime.worker_process import WorkerProcess

if TYPE_CHECKING:
    from headway.runtime.slot import Slot
    from headway.runtime.supervisor import Supervisor

log = logging.getLogger("headway.runtime")

UNLOAD_GRACE_S = 5.0
"""For a relief that is not needed any more, once it has answered all that it was given."""


class ReliefPost:
    """Of one slot.  worker: the relief; None where there is none.

    One that takes over is the slot's own from then on; `ended` says when its process is gone.
    """

    def __init__(self, slot: Slot, supervisor: Supervisor, spec: VersionSpec, threads: int) -> None:
        self.worker: WorkerProcess | None = None
        self._slot = slot
        self._supervisor = supervisor
        self._spec = spec
        self._threads = threads
        self._suspect: WorkerProcess | None = None
        self._asks: asyncio.Task[None] | None = None
        self._runs: dict[WorkerProcess, asyncio.Task[None]] = {}

    def begin(self, suspect: WorkerProcess, expected: Duration) -> None:
        """It is suspected. expected: how long a start takes."""
        self._suspect = suspect
        if self.worker is None:
            self._asks = self._supervisor.spawn(self._start(suspect, expected))

    def cleared(self, suspect: WorkerProcess) -> None:
        """It is well again."""
        if suspect is not self._suspect:
            return
        worker, self.worker, self._suspect = self.worker, None, None
        if worker is not None:
            self._tell(suspect, Relief.RETIRED, worker)
            worker.retire(self._supervisor.crew.has_work, UNLOAD_GRACE_S)

    def takes_over(self, lost: WorkerProcess) -> WorkerProcess | None:
        """From the suspected one, which is gone. None: nobody does."""
        worker, self.worker, self._suspect = self.worker, None, None
        if worker is not None:
            self._tell(lost, Relief.TOOK_OVER, worker)
        return worker

    def lost(self, worker: WorkerProcess) -> None:
        """The relief itself. The slot goes on with whom it has, and it counts against nobody."""
        if worker is self.worker and self._suspect is not None:
            self.worker = None
            self._tell(self._suspect, Relief.LOST, worker, worker.cause)
        else:  # it was not needed any more, and has not ended as it was asked to
            log.info("%s: lost (%s), %s", worker.name, worker.loss.value, worker.cause)

    def runs(self, worker: WorkerProcess) -> bool:
        """It was started here: it is, or was, a relief."""
        return worker in self._runs

    async def ended(self, worker: WorkerProcess) -> None:
        """Returns when its process is gone."""
        await self._runs[worker]
        self._runs.pop(worker, None)

    def stop(self, grace_s: float) -> None:
        self._suspect = None
        if self._asks is not None:
            self._asks.cancel()
        for worker in list(self._runs):
            worker.stop(grace_s)

    def _forget(self, worker: WorkerProcess) -> None:
        """Its process is gone. For the slot's own somebody waits, or is about to."""
        if worker is not self._slot.worker:
            self._runs.pop(worker, None)

    async def _start(self, suspect: WorkerProcess, expected: Duration) -> None:
        supervisor = self._supervisor
        pids = supervisor.pids(self._slot.version)
        device = self._spec.settings.device
        problem = await supervisor.headroom.lacks(pids, device)
        if not supervisor.devices.works(device):
            return  # it goes down with it
        if suspect is not self._suspect or suspect.over or self.worker is not None or supervisor.draining:
            return  # meanwhile
        if problem:
            self._tell(suspect, Relief.REFUSED, None, problem)
            return
        worker = self.worker = supervisor.new_worker(self._spec, self._threads, self._slot)
        supervisor.headroom.promise(worker.id, pids)
        supervisor.crew.worker_starting(worker, expected)
        self._tell(suspect, Relief.STARTED, worker)
        self._runs[worker] = supervisor.spawn(worker.run(supervisor.address, supervisor.settings.start_timeout_s))
        self._runs[worker].add_done_callback(lambda run: self._forget(worker))

    def _tell(self, suspect: WorkerProcess, what: Relief, relief: WorkerProcess | None, cause: str = "") -> None:
        name = relief.name if relief is not None else ""
        if what is Relief.STARTED:
            log.warning("%s: %s is started beside it, as it does not answer", suspect.name, name)
        elif what is Relief.REFUSED:
            log.warning("%s: no other is started beside it: %s", suspect.name, cause)
        elif what is Relief.TOOK_OVER:
            log.warning("%s: %s, which was started beside it, is in its place", suspect.name, name)
        elif what is Relief.RETIRED:
            log.info("%s: it is well again, and %s, which was started beside it, goes", suspect.name, name)
        else:
            log.warning("%s: %s, which was started beside it, is lost; no other is: %s", suspect.name, name, cause)
        self._supervisor.crew.relief_reported(suspect, what, relief, cause)
