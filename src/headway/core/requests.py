"""A request and its parts, as the scheduler keeps them."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from headway.core.ids import BatchKey, PartRef, RequestId, Tenant
from headway.core.units import Duration, Instant

if TYPE_CHECKING:
    from headway.core.limits import Meter
    from headway.core.pool import Pool


class PartState(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    GONE = "gone"
    """Given up: its request has an outcome already. An answer that still comes is ignored."""


PART_LIFECYCLE: dict[PartState, tuple[PartState, ...]] = {
    PartState.WAITING: (PartState.RUNNING, PartState.GONE),
    PartState.RUNNING: (PartState.DONE, PartState.GONE),
    PartState.DONE: (),
    PartState.GONE: (),
}

WAITING, RUNNING, DONE, GONE = PartState.WAITING, PartState.RUNNING, PartState.DONE, PartState.GONE


class Request:
    """One client call without an outcome. It is forgotten when it gets one.

    unfinished: parts that are not DONE.  waiting: parts that are WAITING.
    emitted: results of a sequence that were passed on.
    moved: how often an engine gave it back for another.  paid: tokens of its prompt that its tenant has paid for.
    prefix: what beginnings of its prompt hash to: (tokens, hash), the longest last.
    begun: something of it was handed to a worker; whatever becomes of that, its room is not taken back any more.
    doubling: of the length of its longest part: the range of lengths that it counts in.
    foreseen: from its arrival until it is answered, as was expected then; 0: nobody asked.
    meters: of the limits that it counts on.
    parts: in order; empty once it has its outcome.
    """

    __slots__ = (
        "arrived",
        "attempt",
        "begun",
        "bytes",
        "deadline",
        "doubling",
        "emitted",
        "foreseen",
        "id",
        "key",
        "meters",
        "moved",
        "paid",
        "parts",
        "pool",
        "prefix",
        "priority",
        "tenant",
        "unfinished",
        "waiting",
    )

    def __init__(
        self,
        id: RequestId,
        tenant: Tenant,
        key: BatchKey,
        pool: Pool,
        size: int,
        deadline: Instant,
        priority: int,
        arrived: Instant,
    ) -> None:
        self.id = id
        self.tenant = tenant
        self.key = key
        self.pool = pool
        self.bytes = size
        self.deadline = deadline
        self.priority = priority
        self.arrived = arrived
        self.parts: list[QueuedPart] = []
        self.unfinished = 0
        self.waiting = 0
        self.attempt = 0
        self.begun = False
        self.emitted = 0
        self.doubling = 0
        self.foreseen: Duration = 0
        self.meters: tuple[Meter, ...] = ()
        self.moved = self.paid = 0
        self.prefix: tuple[tuple[int, int], ...] = ()


class QueuedPart:
    """One part of a request.

    bytes: its share of the request's payload.
    due: when it ought to start; earliest first: its class's patience after its arrival, or its
        latest safe start, whichever is sooner.
    latest_start: when it must start to be in time, as far as was known at its arrival (NEVER: no deadline).
    seq: order of arrival over all parts, and the last word in every tie.
    tight: it is its deadline that makes it due; no more once it has come too near for a tenant beyond its share.
    lane: its class, or TIGHT where it is its deadline that makes it due.
    work: what it would take alone, in device nanoseconds, as far as was known at its arrival.
    apart: it is tried again, with nobody but others of this number; a negative one: and while no other such group
        runs. 0: with whoever it pays.
    deaths: of workers that ran it alone.
    spoiled: device time of batches with it that came to nothing, and that nobody was charged for.
    """

    __slots__ = (
        "apart",
        "bytes",
        "deaths",
        "due",
        "index",
        "lane",
        "latest_start",
        "length",
        "request",
        "rows",
        "seq",
        "spoiled",
        "state",
        "tight",
        "work",
    )

    def __init__(
        self,
        request: Request,
        index: int,
        rows: int,
        length: int,
        size: int,
        due: Instant,
        latest_start: Instant,
        seq: int,
        work: Duration,
        lane: int,
    ) -> None:
        self.request = request
        self.index = index
        self.rows = rows
        self.length = length
        self.bytes = size
        self.due = due
        self.latest_start = latest_start
        self.seq = seq
        self.work = work
        self.tight = due == latest_start
        self.lane = lane
        self.state = WAITING
        self.apart = 0
        self.deaths = 0
        self.spoiled: Duration = 0

    def again(self, apart: int) -> QueuedPart:
        """For another try, in the same place of every order: a late answer to this one can then mean no other."""
        part = QueuedPart(
            self.request,
            self.index,
            self.rows,
            self.length,
            self.bytes,
            self.due,
            self.latest_start,
            self.seq,
            self.work,
            self.lane,
        )
        part.apart = apart
        part.tight = self.tight and not apart
        part.deaths, part.spoiled = self.deaths, self.spoiled
        return part

    def __lt__(self, other: QueuedPart) -> bool:
        """A heap may hold a part twice, once put back: equal entries then compare the parts."""
        return self.seq < other.seq

    @property
    def ref(self) -> PartRef:
        return PartRef(self.request.id, self.index)
