"""Which worker: who has room, who will have it next, and how fast each is.

A worker holds what it runs and at most one staged batch, handed over so shortly before the running
one is expected to end (its lower quantile, less what the hand-over takes) that the device does not
idle between them, and that the batch can grow until then. Where the running one is overdue nobody
knows when it will end: nothing is staged behind it, what waits goes on growing. Once its worker is
suspected what was staged is taken back; what must not run twice is never staged.
"""

from __future__ import annotations

from itertools import islice
from math import exp, log

from headway.core.cost import CostModel
from headway.core.ids import WorkerId
from headway.core.lazy import Agenda
from headway.core.units import NEVER, Duration, Instant
from headway.core.workers import RunningBatch, Worker, WorkerState

LOOK_AT_WORKERS = 8
"""Of the free ones, those that are compared by pace: the longest free."""
FOLLOW_PACE, CLIP_PACE = 0.1, 0.5
"""A batch moves log(pace) by so much of its error, which counts up to CLIP_PACE."""
FORGET_PACE = 0.999
"""What is common to all workers belongs to the cost model: each pace tends back to 1."""
FOLLOW_OVERHEAD = 1 / 8
SURELY = 10
"""So many times its upper quantile no batch takes that will be answered at all."""
UNSEEN = 6
"""A size that was never run is given so many times as long."""
WORTH_STAGING = 1 / 200
"""A hand-over of less than this part of the run is not worth fixing a batch early."""


def _returns(worker: Worker) -> tuple[Instant, WorkerId] | None:
    """Priority among those that run a batch and have none staged: who is expected back first. One that is suspected is
    not expected at all."""
    if worker.state is not WorkerState.READY or not worker.batches or worker.is_suspected:
        return None
    return (worker.ends_at, worker.id) if len(worker.batches) == worker.capacity.batch_slots else None


class Placement:
    """The workers of one pool.

    free: those with room now, longest free first; an index of what `Worker.has_room` says.
    busy: those with a batch.
    watch_at: when one of them may have to be suspected or given up.
    overhead: what a batch spends between scheduler and worker, both ways together, as measured.
    """

    __slots__ = ("_running", "busy", "free", "overhead", "watch_at", "workers")

    def __init__(self) -> None:
        self.workers: dict[WorkerId, Worker] = {}
        self.free: dict[WorkerId, Worker] = {}
        self.busy: dict[WorkerId, Worker] = {}
        self.overhead: Duration = 0
        self.watch_at: Instant = NEVER
        self._running: Agenda[Worker] = Agenda(_returns)

    def refresh(self, worker: Worker) -> None:
        """What it holds, or whether it has room, may have changed."""
        if worker.batches:
            self.busy[worker.id] = worker
        else:
            self._rests(worker)
        if worker.has_room:
            self.free.setdefault(worker.id, worker)
        else:
            self.free.pop(worker.id, None)
        self._running.update(worker)

    def retire(self, worker: Worker) -> None:
        """It is gone for good."""
        self.workers.pop(worker.id, None)
        self.free.pop(worker.id, None)
        self._rests(worker)
        self._running.remove(worker)

    def _rests(self, worker: Worker) -> None:
        """It has no batch: where nobody has one nobody is waited for."""
        self.busy.pop(worker.id, None)
        if not self.busy:
            self.watch_at = NEVER

    @property
    def has_worker(self) -> bool:
        """Somebody runs this version, or is about to."""
        for worker in self.workers.values():
            if worker.state is WorkerState.READY or worker.state is WorkerState.STARTING:
                return True
        return False

    @property
    def is_ready(self) -> bool:
        return any(worker.state is WorkerState.READY for worker in self.workers.values())

    def pick(self, now: Instant) -> Worker | None:
        """The fastest of those that have been free longest; else one that a batch may be staged for."""
        if self.free:
            return min(islice(self.free.values(), LOOK_AT_WORKERS), key=_pace)
        worker = self._back_first(now)
        return worker if worker is not None and worker.stage_at <= now else None

    def next_stage(self, now: Instant) -> Instant:
        """When a batch may first be staged. NEVER: it will be an answer that frees a worker."""
        worker = self._back_first(now)
        if worker is None:
            return NEVER
        others_turn = worker.overdue_at + 1 if len(self.busy) > 1 else NEVER
        return min(worker.stage_at, others_turn)

    def next_free(self, now: Instant) -> Worker | None:
        """The busy worker that is expected to be free first; None where nobody knows."""
        worker = self._back_first(now)
        return worker if worker is not None and worker.ends_at < NEVER else None

    def _back_first(self, now: Instant) -> Worker | None:
        """Who is expected back first, the overdue last: every question passes here, so none is answered from before."""
        while (worker := self._running.first()) is not None and worker.overdue_at < now:
            worker.ends_at = worker.stage_at = worker.free_at = worker.overdue_at = NEVER
        return worker

    def began(self, worker: Worker, batch: RunningBatch, cost: CostModel, now: Instant) -> None:
        """It runs this batch from now on, as far as one can tell."""
        batch.started = now
        batch.waits = False
        worker.ends_at = now + int(worker.pace * batch.predicted)
        worker.stage_at = worker.free_at = NEVER
        worker.overdue_at = now + int(worker.pace * cost.upper(batch.rows, batch.length)) + self.overhead
        self._watch(worker, batch, cost, now)
        if self.overhead > WORTH_STAGING * batch.predicted:
            lower = int(worker.pace * cost.lower(batch.rows, batch.length))
            may_stage = now + max(0, lower - self.overhead)
            worker.free_at = max(may_stage, worker.ends_at - self.overhead)
            # what must not run twice could not be taken back if the worker hung: it might wake up and run it
            worker.stage_at = may_stage if worker.pool.policy.idempotent else NEVER

    def _watch(self, worker: Worker, batch: RunningBatch, cost: CostModel, now: Instant) -> None:
        """From when on nothing said is too long. What was never run may have to be compiled first."""
        worker.is_suspected = False
        floor = worker.pool.policy.hang_floor
        if not floor:
            worker.watch_at = NEVER
            return
        known = cost.probes.was_run(batch.rows, batch.length)
        worker.patience = max(floor, int(SURELY * worker.pace * cost.upper(batch.rows, batch.length)))
        worker.patience *= 1 if known else UNSEEN
        worker.watch_at = now + worker.patience
        self.watch_at = min(self.watch_at, worker.watch_at)

    def ended(self, worker: Worker, batch: RunningBatch, duration: Duration, cost: CostModel, now: Instant) -> None:
        """The batch is off the worker: what it tells of hand-over and pace, and who runs next.

        duration: 0 where it tells nothing, for it failed or not all of it was run.
        """
        if not batch.staged and duration > 0:
            overhead = max(0, now - batch.started - duration)
            follow = FOLLOW_OVERHEAD if self.overhead else 1  # where all others are staged the first is all there is
            self.overhead += int(follow * (overhead - self.overhead))
        if len(self.workers) > 1 and batch.predicted > 0 and duration > 0:
            off = log(duration / (worker.pace * batch.predicted))
            worker.pace = worker.pace**FORGET_PACE * exp(FOLLOW_PACE * max(-CLIP_PACE, min(CLIP_PACE, off)))
        worker.is_suspected, worker.watch_at = False, NEVER
        following = next(iter(worker.batches.values()), None)
        if following is not None:
            self.began(worker, following, cost, now)
        self.refresh(worker)


def _pace(worker: Worker) -> int:
    """In steps of a quarter, so that noise does not order equals; of equals the longest free comes first."""
    return round(4 * log(worker.pace, 2))
