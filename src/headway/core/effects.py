"""What the core wants done, in the imperative. Each has an answering event, its failure included."""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from headway.core.ids import BatchId, BatchKey, PartRef, RequestId, Tenant, VersionId, WorkerId
from headway.core.outcomes import Outcome
from headway.core.record import record
from headway.core.units import Duration


class Reason(Enum):
    """Why a batch left. The first that fires, in this order."""

    FULL = "full"
    """A cap in rows, padded tokens or predicted time is reached."""
    DEADLINE = "deadline"
    """The latest safe start of a member has come."""
    IDLE = "idle"
    """A worker is free and waiting for company would not pay."""
    LINGER = "linger"
    """The oldest member has waited the queue delay."""
    DRAIN = "drain"
    """The version or the server is draining."""
    MEMORY = "memory"
    """The host is short of memory: flush."""
    RETRY = "retry"
    """It is tried again, with a group of its own; checked before all others."""


@record
class DispatchBatch:
    """Run these parts together. Answered by BatchCompleted, BatchFailed or WorkerLost."""

    worker: WorkerId
    batch: BatchId
    key: BatchKey
    parts: tuple[PartRef, ...]
    reason: Reason


@record
class WithdrawPart:
    """Do not run it if its batch, which is staged, has not begun: its outcome is already given.
    Answered by the batch's own answer. position: in DispatchBatch.parts."""

    worker: WorkerId
    batch: BatchId
    position: int


@record
class WithdrawBatch:
    """Do not run it if it, which is staged, has not begun: its worker is suspected, and its parts wait for whoever is
    there first. An answer to it that comes all the same is late, and is ignored."""

    worker: WorkerId
    batch: BatchId
    cause: str


@record
class AdmitSequence:
    """Start this request in an engine. Answered by TokensEmitted*, then SequenceFinished,
    SequenceFailed, SequenceReturned or WorkerLost.

    counter: of its tenant, for an engine to order by; see UpdateCounters.
    paid: tokens of its prompt that are not to be charged again.
    """

    worker: WorkerId
    request: RequestId
    attempt: int
    key: BatchKey
    counter: int = 0
    paid: int = 0


@record
class UpdateCounters:
    """What the virtual counters are, once the engine's report of that number is in them: it orders by them, and by what
    it has not reported. Without what is charged in advance for prompts that are under way there. Nothing answers it."""

    worker: WorkerId
    number: int
    counters: tuple[tuple[Tenant, int], ...]


@record
class TakeBack:
    """Give this sequence back if it waits: another engine has room for it. Answered by SequenceReturned; by a report
    that has heard of this, where it has begun; or by whatever ends it."""

    worker: WorkerId
    request: RequestId
    attempt: int


@record
class AbortSequence:
    """Stop computing it; its outcome is already given. The room that it held is free once
    SequenceFinished or SequenceFailed (or WorkerLost) answers."""

    worker: WorkerId
    request: RequestId
    attempt: int


@record
class DeliverTokens:
    """Results first .. first + count - 1 of this request are current: pass them to the client."""

    request: RequestId
    attempt: int
    first: int
    count: int


@record
class ResolveRequest:
    """The one outcome of this request. retry_after: when trying again may help; 0 = not known."""

    request: RequestId
    outcome: Outcome
    detail: str = ""
    retry_after: Duration = 0


@record
class ReportStarvation:
    """For the log and the metrics; nothing answers it.

    received, owed: device nanoseconds of the tenant in the `window` that is over; about half of it or more: it starves
        no longer.
    ahead: who is furthest ahead of it, and may borrow no room until it no longer starves ("" = nobody).
    """

    device: str
    tenant: Tenant
    starves: bool
    received: int
    owed: int
    window: Duration
    ahead: Tenant = ""


class Remedy(Enum):
    """How parts are tried again."""

    AGAIN = "again"
    """As before, with whoever it pays."""
    ALONE = "alone"
    """Each by itself, and one at a time."""
    HALVES = "halves"
    """With half of those that were in the batch that failed."""


@record
class RetryParts:
    """For the log and the metrics; nothing answers it. They wait again; cause: why they have to."""

    version: VersionId
    parts: tuple[PartRef, ...]
    how: Remedy
    cause: str


@record
class QuarantineRequest:
    """Remember the content of this request, which is resolved in this very call: it kills what runs it.
    Answered by ContentQuarantined."""

    version: VersionId
    request: RequestId


@record
class ReportCircuit:
    """For the log and the metrics; nothing answers it. open: the version is refused, for `lasts`; else it is served
    again."""

    version: VersionId
    open: bool
    lasts: Duration = 0
    cause: str = ""


@record
class ReportMemoryCap:
    """For the log and the metrics; nothing answers it. Batches of the version have so many tokens at most from now on,
    as a larger one took more memory than there was; 0: as many as the operator lets them. failed: tokens of the batch
    that was too large; 0: it is tried with more again."""

    version: VersionId
    tokens: int
    failed: int = 0


@record
class SuspectWorker:
    """Given no new work until it answers, which ClearWorker says, or is given up, which KillWorker does. Another may be
    started beside it meanwhile: ReliefReported tells. batch: that it has."""

    worker: WorkerId
    batch: BatchId
    cause: str


@record
class ClearWorker:
    """It was suspected and has answered after all: it is given work as before. Nothing answers it."""

    worker: WorkerId


@record
class KillWorker:
    """It is given up. Answered by WorkerLost."""

    worker: WorkerId
    batch: BatchId
    cause: str


Effect: TypeAlias = (
    DispatchBatch
    | WithdrawPart
    | WithdrawBatch
    | AdmitSequence
    | AbortSequence
    | UpdateCounters
    | TakeBack
    | DeliverTokens
    | ResolveRequest
    | ReportStarvation
    | RetryParts
    | QuarantineRequest
    | ReportCircuit
    | ReportMemoryCap
    | SuspectWorker
    | ClearWorker
    | KillWorker
)
