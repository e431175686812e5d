"""What the core is told, in the past tense. Events carry no time: `handle(events, now)` does.

Everything that a worker reports names the worker (a restarted worker is a new `WorkerId`) and the
batch or the attempt, so that an answer to something already given up is recognised and ignored.
"""

from __future__ import annotations

from enum import Enum
from typing import TypeAlias

from headway.core.ids import BatchId, BatchKey, Capacity, Measurement, Part, RequestId, Tenant, VersionId, WorkerId
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.record import record
from headway.core.units import NEVER, Duration, Instant

# -- configuration ---------------------------------------------------------------------------


@record
class ServerConfigured:
    policy: ServerPolicy


@record
class VersionConfigured:
    """A version exists (again) with these rules. Known already: the rules change, nothing is lost.

    Style and device are for good.
    """

    version: VersionId
    policy: BatchPolicy


@record
class VersionDrained:
    """No new requests for this version; what waits is flushed."""

    version: VersionId


@record
class DrainStarted:
    """The server is going down: refuse what comes, flush what waits."""


@record
class MemoryPressureChanged:
    """Host memory crossed its high or low water mark."""

    high: bool


# -- requests --------------------------------------------------------------------------------


@record
class RequestArrived:
    """request: never used before.
    parts: at least one; each fits a batch of its own.
    bytes: payload held for it until its outcome.
    deadline: when its answer is worthless, in the time of `now`.
    priority: class, 0 = most urgent; an index into ServerPolicy.patience (clamped).
    content: what all of its inputs hash to; 0: not known, and only needed where some content is in quarantine.
    prefix: what beginnings of a prompt hash to, as (tokens, hash), the longest last: an engine that has computed one
        of them is sought for it. A few, as each is remembered.
    """

    request: RequestId
    tenant: Tenant
    key: BatchKey
    parts: tuple[Part, ...]
    bytes: int = 0
    deadline: Instant = NEVER
    priority: int = 1
    content: int = 0
    prefix: tuple[tuple[int, int], ...] = ()


@record
class RequestCancelled:
    """The client went away. Unknown or already resolved: nothing happens."""

    request: RequestId


@record
class RequestSatisfied:
    """Its client has all that it wants of the stream, as where a stop string has come: it is completed. Unknown or
    already resolved: nothing happens."""

    request: RequestId


@record
class ReplyWritten:
    """The reply has left. overhead: time spent outside queue and worker, for the linger's budget.

    version: that answered; None: not told, and nothing is learned."""

    request: RequestId
    overhead: Duration
    version: VersionId | None = None


@record
class ContentQuarantined:
    """Requests of this content kill what runs them: none is let in for the version's `quarantine`."""

    version: VersionId
    content: int


@record
class QuarantineLifted:
    """content: 0: all that the version has in quarantine."""

    version: VersionId
    content: int = 0


# -- workers ---------------------------------------------------------------------------------


@record
class WorkerStarting:
    """A process is being started (or its restart is scheduled). expected: until it is ready."""

    worker: WorkerId
    version: VersionId
    expected: Duration = 0


@record
class WorkerReady:
    """It has loaded and warmed up. measurements: of the warm-up grid, for the cost model."""

    worker: WorkerId
    capacity: Capacity = Capacity()
    measurements: tuple[Measurement, ...] = ()


@record
class WorkerDraining:
    """It takes nothing new and will stop after what it runs."""

    worker: WorkerId


@record
class WorkerStopped:
    """It ended as it was asked to."""

    worker: WorkerId


@record
class WorkerLost:
    """It died, hung, or broke the protocol; whatever it ran is unanswered. cause: for people to read."""

    worker: WorkerId
    cause: str = ""
    loss: Loss = Loss.CRASHED


class Relief(Enum):
    """What becomes of the help for a worker that is suspected."""

    STARTED = "started"
    """Another worker of the version is started beside it."""
    REFUSED = "refused"
    """None is: there is no memory for it, or nobody knows."""
    TOOK_OVER = "took_over"
    """The suspected one is gone, and the relief is in its place."""
    RETIRED = "retired"
    """The suspected one is well again, and the relief goes."""
    LOST = "lost"
    """The relief itself ended, or could not load."""


@record
class ReliefReported:
    """For the trace and the metrics: nothing is decided by it.

    worker: that is or was suspected.  relief: the worker that is started beside it; 0: there is none.
    cause: for people to read.
    """

    version: VersionId
    worker: WorkerId
    what: Relief
    relief: WorkerId = 0
    cause: str = ""


@record
class CapacityChanged:
    worker: WorkerId
    capacity: Capacity


@record
class DeviceLost:
    """Its workers are lost with it, and none is started there before DeviceRecovered. Told again when it was tried in
    vain. tried_in: until it is tried again.  cause: for people to read."""

    device: str
    cause: str
    tried_in: Duration = 0


@record
class DeviceRecovered:
    """It was tried, and works. Workers are started there again."""

    device: str


# -- answers ---------------------------------------------------------------------------------


@record
class PartFailure:
    """One part of a batch failed by itself; the others are fine. position: in DispatchBatch.parts."""

    position: int
    outcome: Outcome
    detail: str


@record
class BatchCompleted:
    """duration: the worker's own, from having the batch to having the answer."""

    worker: WorkerId
    batch: BatchId
    duration: Duration
    failures: tuple[PartFailure, ...] = ()


@record
class BatchFailed:
    """The whole batch has no answer, and the worker lives on."""

    worker: WorkerId
    batch: BatchId
    duration: Duration
    outcome: Outcome
    detail: str


@record
class TokensEmitted:
    """A sequence moved on by `count` results, the first of which has the index `first`.

    service: device time to charge for them; 0 of an engine, which tells of it in EngineReported.
    """

    worker: WorkerId
    request: RequestId
    attempt: int
    first: int
    count: int
    service: Duration


@record
class SequenceFinished:
    worker: WorkerId
    request: RequestId
    attempt: int


@record
class SequenceFailed:
    worker: WorkerId
    request: RequestId
    attempt: int
    outcome: Outcome
    detail: str


@record
class Served:
    """service: device time that a tenant was given in an engine and that was not reported before: by what tokens cost,
        as measured. What is computed again is nobody's.
    owed: the same, of the prompts under way, that is yet to be computed.
    """

    tenant: Tenant
    service: Duration
    owed: Duration = 0


@record
class EngineReported:
    """An engine has made a step, or has nothing to make one with.

    number: of the report, counted from 1: an earlier one that comes late is void.
    heard: how many AdmitSequence and TakeBack it had received by then, of all that it was ever sent.
    sequences, kv_blocks: free then, and not needed by what runs for its next step.
    prefilling: tokens of prompts under way that are yet to be computed.
    served: each tenant that has something there, or had and was not reported since.
    waiting: (request, attempt) of what waits there: it holds no blocks.
    forgot: hashes of prefixes that its cache no longer holds.
    Before what of the same step answers a sequence: who leaves by that is still there to be charged.
    """

    worker: WorkerId
    number: int
    heard: int
    sequences: int
    kv_blocks: int
    prefilling: int = 0
    served: tuple[Served, ...] = ()
    waiting: tuple[tuple[RequestId, int], ...] = ()
    forgot: tuple[int, ...] = ()


@record
class SequenceReturned:
    """It was taken back, and the engine has nothing of it any more. paid: tokens of its prompt that were charged."""

    worker: WorkerId
    request: RequestId
    attempt: int
    paid: int


Event: TypeAlias = (
    ServerConfigured
    | VersionConfigured
    | VersionDrained
    | DrainStarted
    | MemoryPressureChanged
    | RequestArrived
    | RequestCancelled
    | RequestSatisfied
    | ReplyWritten
    | ContentQuarantined
    | QuarantineLifted
    | WorkerStarting
    | WorkerReady
    | WorkerDraining
    | WorkerStopped
    | WorkerLost
    | ReliefReported
    | DeviceLost
    | DeviceRecovered
    | CapacityChanged
    | BatchCompleted
    | BatchFailed
    | TokensEmitted
    | SequenceFinished
    | SequenceFailed
    | EngineReported
    | SequenceReturned
)
