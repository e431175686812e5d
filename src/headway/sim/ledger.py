"""A second, naive set of books: what the world knows about every request and worker.

The oracles compare the core with it. It is written to be obviously right rather than fast, it
shares no code with the core, and it applies events in their order, as the core promises to.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from fractions import Fraction
from typing import TYPE_CHECKING

from headway.core.events import RequestArrived
from headway.core.ids import BatchId, Capacity, PartRef, RequestId, VersionId, WorkerId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.units import SECOND, Duration, Instant

if TYPE_CHECKING:
    from headway.sim.engine_books import EngineBook

NO_ROOM = Capacity(batch_slots=0)


@dataclass(slots=True)
class TrackedRequest:
    """A request without an outcome.

    due: arrival plus the patience of its class. waiting: parts not yet dispatched.
    running: part -> its batch. undone: parts without a result. begun: something of it was handed to a worker.
    moved: how often an engine gave it back.
    """

    event: RequestArrived
    arrived: Instant
    due: Instant
    waiting: dict[int, None]
    running: dict[int, BatchId] = field(default_factory=dict)
    undone: int = 0
    emitted: int = 0
    delivered: int = 0
    engine: tuple[WorkerId, int] | None = None
    begun: bool = False
    moved: int = 0

    @property
    def version(self) -> VersionId:
        return self.event.key.version_id

    @property
    def waiting_rows(self) -> int:
        return sum(self.event.parts[part].rows for part in self.waiting)

    @property
    def waiting_bytes(self) -> int:
        return sum(self.bytes_of(part) for part in self.waiting)

    def bytes_of(self, part: int) -> int:
        """Its share of the payload: its rows x length of those of all parts, rounded down; all of a single one's."""
        parts, size = self.event.parts, self.event.bytes
        of_all = sum(rows * length for rows, length in parts)
        return size if len(parts) == 1 else math.floor(Fraction(parts[part].rows * parts[part].length, of_all) * size)


@dataclass(slots=True)
class TrackedBatch:
    """tokens: as many as its rows have at the length that each counts as."""

    parts: tuple[PartRef, ...]
    started: Instant
    tokens: int


@dataclass(slots=True)
class TrackedWorker:
    """sequences: (request, attempt) -> has AbortSequence been asked for.  suspected: while it has this batch.
    engine: where it is one: what it has said, and was sent."""

    worker: WorkerId
    version: VersionId
    ready: bool = False
    draining: bool = False
    capacity: Capacity = NO_ROOM
    batches: dict[BatchId, TrackedBatch] = field(default_factory=dict)
    sequences: dict[tuple[RequestId, int], bool] = field(default_factory=dict)
    suspected: BatchId | None = None
    engine: EngineBook | None = None

    @property
    def is_suspected(self) -> bool:
        return self.suspected in self.batches

    @property
    def keeps_cores(self) -> bool:
        return bool(self.batches) and not self.is_suspected

    @property
    def has_free_slot(self) -> bool:
        if not self.ready or self.draining:
            return False
        return len(self.batches) < self.capacity.batch_slots or len(self.sequences) < self.capacity.sequences


@dataclass(slots=True)
class Circuit:
    """deaths: of a version's workers that what they ran may be to blame for, since a batch came back.
    times: that it opened in a row.  until: when it may be tried again.  opened: when it did so last.
    """

    deaths: int = 0
    times: int = 0
    until: Instant = -1
    opened: Instant = -1

    def dies(self, now: Instant) -> bool:
        """Whether it opens by that: at the eighth death, and at each at which it was tried again."""
        self.deaths += 1
        if self.deaths < 8 or now < self.until:
            return False
        self.until = now + min(300, 10 * 2**self.times) * SECOND
        self.times += 1
        self.opened = now
        return True

    def lives(self) -> None:
        self.deaths, self.times, self.until = 0, 0, -1


@dataclass(slots=True)
class TrackedVersion:
    """delay: the ceiling of waiting for company that is in force, as the core shows it.
    memory: tokens that batches have at most for it, as the core says; too_large: of batches that were.
    hands_over: a batch of it came back later than it had run, so the next may be handed over before it is back.
    """

    version: VersionId
    policy: BatchPolicy
    delay: Duration = 0
    hands_over: bool = False
    draining: bool = False
    memory: int = 0
    too_large: dict[int, None] = field(default_factory=dict)
    quarantine: dict[int, Instant] = field(default_factory=dict)
    circuit: Circuit = field(default_factory=lambda: Circuit())
    workers: dict[WorkerId, TrackedWorker] = field(default_factory=dict)
    waiting: dict[RequestId, TrackedRequest] = field(default_factory=dict)

    @property
    def has_live_worker(self) -> bool:
        """Someone serves it, or will: what a refusal NO_WORKER denies."""
        return any(not worker.draining for worker in self.workers.values())

    @property
    def is_sequence(self) -> bool:
        return self.policy.style is Style.SEQUENCE


class Ledger:
    """open: requests without an outcome. owed: those that must get one in this very call."""

    def __init__(self) -> None:
        self.policy = ServerPolicy()
        self.draining = False
        self.memory_high = False
        self.versions: dict[VersionId, TrackedVersion] = {}
        self.workers: dict[WorkerId, TrackedWorker] = {}
        self.open: dict[RequestId, TrackedRequest] = {}
        self.owed: dict[RequestId, tuple[Outcome, ...]] = {}
        self.closing: dict[RequestId, TrackedRequest] = {}

    @property
    def contended(self) -> dict[str, int]:
        """Devices whose workers could use more cores than there are, and how many there are."""
        wanted: dict[str, int] = {}
        for version in self.versions.values():
            device = version.policy.device
            wanted[device] = wanted.get(device, 0) + self.need(version) * len(version.workers)
        return {name: cores for name, cores in self.policy.devices if wanted.get(name, 0) > cores}

    def need(self, version: TrackedVersion) -> int:
        """Cores of its device that a batch of the version takes."""
        limit = dict(self.policy.devices).get(version.policy.device, version.policy.cores)
        return min(limit, version.policy.cores)

    def in_use(self, device: str, surely: bool = False) -> int:
        """Cores of a device that are taken by what runs. surely: that cannot be about to end."""
        versions = [version for version in self.versions.values() if version.policy.device == device]
        counted = [version for version in versions if not (surely and version.hands_over)]
        return sum(self.need(v) for v in counted for worker in v.workers.values() if worker.keeps_cores)

    @property
    def bytes(self) -> int:
        return sum(request.event.bytes for request in self.open.values())

    def admit(self, request: TrackedRequest) -> None:
        self.open[request.event.request] = request
        self.versions[request.version].waiting[request.event.request] = request

    def refuse(self, request: TrackedRequest, *outcomes: Outcome) -> None:
        """It is not let in, for one of these reasons."""
        self.owed[request.event.request] = outcomes
        self.closing[request.event.request] = request

    def owe(self, request: RequestId, *outcomes: Outcome) -> None:
        """One of these outcomes is due in this call. The first cause counts; later ones change nothing."""
        tracked = self.open.get(request)
        if tracked is None:
            return
        self.owed[request] = outcomes
        self.close(tracked)

    def close(self, request: TrackedRequest) -> None:
        """It is no longer open; what still runs for it holds its place until it is answered."""
        self.closing[request.event.request] = request
        del self.open[request.event.request]
        self.versions[request.version].waiting.pop(request.event.request, None)

    def start(self, request: TrackedRequest, part: int, batch: BatchId) -> None:
        del request.waiting[part]
        request.begun = True
        request.running[part] = batch
        if not request.waiting:
            del self.versions[request.version].waiting[request.event.request]

    def wait_again(self, request: TrackedRequest, part: int) -> None:
        """Its execution came to nothing."""
        request.running.pop(part, None)
        request.engine = None
        request.waiting[part] = None
        self.versions[request.version].waiting[request.event.request] = request

    def remove_worker(self, worker: WorkerId) -> TrackedWorker | None:
        tracked = self.workers.pop(worker, None)
        if tracked is not None:
            del self.versions[tracked.version].workers[worker]
        return tracked
