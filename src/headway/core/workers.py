"""Workers: their lifecycle, what they hold, whether they have room."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Any

from headway.core.engine import Engine
from headway.core.errors import InvariantViolation
from headway.core.ids import BatchId, BatchKey, Capacity, RequestId, WorkerId
from headway.core.requests import QueuedPart
from headway.core.units import NEVER, Duration, Instant

if TYPE_CHECKING:
    from headway.core.fairness import Account
    from headway.core.pool import Pool


class WorkerState(Enum):
    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    STOPPED = "stopped"
    LOST = "lost"


WORKER_LIFECYCLE: dict[WorkerState, tuple[WorkerState, ...]] = {
    WorkerState.STARTING: (WorkerState.READY, WorkerState.DRAINING, WorkerState.STOPPED, WorkerState.LOST),
    WorkerState.READY: (WorkerState.DRAINING, WorkerState.STOPPED, WorkerState.LOST),
    WorkerState.DRAINING: (WorkerState.STOPPED, WorkerState.LOST),
    WorkerState.STOPPED: (),
    WorkerState.LOST: (),  # a restarted worker is a new worker
}


class RunningBatch:
    """A batch that a worker has.

    charges: what each account was charged for it, as predicted.
    started: when it was dispatched; for one that was staged, when the one before it ended.
    waits: it is staged, and what its worker runs has not ended.
    withdrawn: some of it may not have been run.
    apart: the group that is tried again in it (see QueuedPart); 0: none.
    is_probe: it is larger than would pay by the cost model, for what is to be learned from it.
    """

    __slots__ = (
        "apart",
        "charges",
        "id",
        "is_probe",
        "key",
        "length",
        "members",
        "predicted",
        "rows",
        "staged",
        "started",
        "waits",
        "withdrawn",
    )

    def __init__(
        self,
        id: BatchId,
        key: BatchKey,
        members: list[QueuedPart],
        rows: int,
        length: int,
        started: Instant,
        predicted: Duration,
        charges: list[tuple[Account, int]],
        staged: bool,
    ) -> None:
        self.id = id
        self.key = key
        self.members = members
        self.rows = rows
        self.length = length
        self.started = started
        self.predicted = predicted
        self.charges = charges
        self.staged = self.waits = staged
        self.withdrawn = False
        self.is_probe = False
        self.apart = members[0].apart

    @property
    def is_suspect(self) -> bool:
        """It may kill its worker."""
        return self.apart < 0


class RunningSequence:
    """A sequence that a worker has. It outlives its request when that is given up, until the worker lets go.

    Where the worker is an engine:
    order: number of the order by which it was handed over.  recalled: of the one that takes it back; 0: there is none.
    begun: the engine has told of having begun with it.
    reserved: what its account is charged in advance until then, in units of the counter.
    """

    __slots__ = ("account", "attempt", "begun", "order", "part", "recalled", "reserved")

    def __init__(self, part: QueuedPart, attempt: int, account: Account) -> None:
        self.part = part
        self.attempt = attempt
        self.account = account
        self.order = self.recalled = self.reserved = 0
        self.begun = False

    @property
    def tokens(self) -> int:
        """That are known: its prompt, and what it has produced."""
        return self.part.length + self.part.request.emitted


class Worker:
    """One incarnation of a worker process.

    batches, sequences: what it holds, in the order it was given them. A sequence stays here after
    its request was given up, until the worker says that its room is free.
    engine: where it is one; None before it is ready.
    ends_at: when what it runs is expected to end (NEVER: nobody knows).
    stage_at, overdue_at: from when until when the next batch may be handed over behind it.
    free_at: from when until then its cores count as free, for a batch that another worker is handed.
    watch_at: when it is suspected, or, once it is, given up, if nothing comes of what it runs.
    patience: how long that is from the beginning, and again from the suspicion.
    pace: how long it takes for what takes the pool's workers 1 (2 = half as fast).
    """

    __slots__ = (
        "batches",
        "capacity",
        "ends_at",
        "engine",
        "entry",
        "free_at",
        "id",
        "is_suspected",
        "overdue_at",
        "pace",
        "patience",
        "pool",
        "sequences",
        "stage_at",
        "state",
        "watch_at",
    )

    def __init__(self, id: WorkerId, pool: Pool) -> None:
        self.id = id
        self.pool = pool
        self.state = WorkerState.STARTING
        self.capacity = Capacity(0, 0, 0)
        self.batches: dict[BatchId, RunningBatch] = {}
        self.sequences: dict[RequestId, RunningSequence] = {}
        self.engine: Engine | None = None
        self.ends_at: Instant = 0
        self.stage_at: Instant = NEVER
        self.overdue_at: Instant = NEVER
        self.free_at: Instant = NEVER
        self.watch_at: Instant = NEVER
        self.patience: Duration = 0
        self.is_suspected = False
        self.pace = 1.0
        self.entry: tuple[Any, ...] | None = None

    def can_hold(self, capacity: Capacity) -> None:
        """As it reports."""
        self.capacity = capacity
        if self.engine is not None:
            self.engine.capacity = capacity
        elif capacity.block_size:
            self.engine = Engine(capacity)

    @property
    def has_room(self) -> bool:
        """Of an engine: for some; each request is a matter of its own."""
        if self.state is not WorkerState.READY:
            return False
        if self.engine is not None:
            return True
        capacity = self.capacity
        return len(self.batches) < capacity.batch_slots or len(self.sequences) < capacity.sequences

    def frees(self, now: Instant) -> bool:
        """It is about to end what it runs, and nothing is staged behind that."""
        return self.free_at <= now <= self.overdue_at and len(self.batches) == 1

    def become(self, state: WorkerState) -> None:
        if state not in WORKER_LIFECYCLE[self.state]:
            raise InvariantViolation(f"worker {self.id} of {self.pool.version}: {self.state.value} -> {state.value}")
        self.state = state
