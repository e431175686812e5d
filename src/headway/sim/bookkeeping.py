"""Applies one call's events to the ledger and notes what each of them makes due."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from itertools import takewhile
from typing import Any

from headway.core import events as ev
from headway.core.effects import AdmitSequence, DispatchBatch, Effect, ResolveRequest, SuspectWorker, WithdrawBatch
from headway.core.ids import BatchId, Part, PartRef, RequestId, WorkerId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.core.units import NEVER, Instant
from headway.sim.allowances import Allowances
from headway.sim.engine_books import opened, too_long
from headway.sim.ledger import Ledger, TrackedRequest, TrackedVersion, TrackedWorker
from headway.sim.lending import NO_ROOM, Lending
from headway.sim.retrials import BLAMED, Retrials

WHEN_ITS_TURN_CAME = "it would take"
"""How the reason of a request begins that was let in, and given up when its turn came; in the same call, maybe."""
AT_ARRIVAL = (Outcome.CIRCUIT_OPEN, Outcome.RATE_LIMITED, Outcome.DEADLINE_UNMEETABLE, Outcome.OVERLOADED)
"""What a request that there is room for may be refused with at once."""
NEVER_LET_IN = (
    Outcome.UNKNOWN_VERSION,
    Outcome.DRAINING,
    Outcome.DEADLINE_EXCEEDED,
    Outcome.TOO_LARGE,
    Outcome.POISON_REQUEST,
    Outcome.CIRCUIT_OPEN,
)
"""What comes before the tenant's limits."""


class Bookkeeper:
    """Of this call: requests that arrived, and those whose sequence moved on.

    retrials: what may become of those whose execution came to nothing.
    cleared: workers that were suspected and have answered.
    left: (worker, request, attempt) of the sequences that ended, or whose worker did.
    ended: the parts of batches that ended, or whose worker did.
    """

    def __init__(self, ledger: Ledger) -> None:
        self.arrived: dict[RequestId, TrackedRequest] = {}
        self.emitting: dict[RequestId, TrackedRequest] = {}
        self.cleared: dict[WorkerId, None] = {}
        self.left: dict[tuple[WorkerId, RequestId, int], None] = {}
        self.ended: dict[tuple[WorkerId, BatchId], tuple[PartRef, ...]] = {}
        self._ledger = ledger
        self._lending = Lending(ledger)
        self._allowances = Allowances(ledger)
        self.retrials = Retrials(ledger)
        self._refused: dict[RequestId, Outcome] = {}
        self._now: Instant = 0
        self._apply: dict[type[ev.Event], Callable[[Any], None]] = {
            ev.ServerConfigured: self._server_configured,
            ev.VersionConfigured: self._version_configured,
            ev.VersionDrained: self._version_drained,
            ev.DrainStarted: self._drain_started,
            ev.MemoryPressureChanged: self._memory_pressure_changed,
            ev.RequestArrived: self._request_arrived,
            ev.RequestCancelled: self._request_cancelled,
            ev.RequestSatisfied: self._request_satisfied,
            ev.ReplyWritten: self._reply_written,
            ev.ContentQuarantined: self._content_quarantined,
            ev.QuarantineLifted: self._quarantine_lifted,
            ev.WorkerStarting: self._worker_starting,
            ev.WorkerReady: self._worker_ready,
            ev.WorkerDraining: self._worker_draining,
            ev.WorkerStopped: self._worker_ended,
            ev.WorkerLost: self._worker_ended,
            ev.ReliefReported: self._relief_reported,
            ev.DeviceLost: self._told_of_a_device,
            ev.DeviceRecovered: self._told_of_a_device,
            ev.CapacityChanged: self._capacity_changed,
            ev.BatchCompleted: self._batch_completed,
            ev.BatchFailed: self._batch_failed,
            ev.TokensEmitted: self._tokens_emitted,
            ev.SequenceFinished: self._sequence_finished,
            ev.SequenceFailed: self._sequence_failed,
            ev.EngineReported: self._engine_reported,
            ev.SequenceReturned: self._sequence_returned,
        }

    def apply(self, events: list[ev.Event], effects: list[Effect], now: Instant) -> None:
        """effects: what came of them: who is let into a full room, and who makes place for it, is the core's choice,
        which is judged here. Raises AssertionError."""
        self._now = now
        before_turns = takewhile(lambda effect: not isinstance(effect, DispatchBatch | AdmitSequence), effects)
        outcomes = [(effect.request, effect.outcome) for effect in before_turns if type(effect) is ResolveRequest]
        self._refused = {request: outcome for request, outcome in outcomes if outcome in (*NO_ROOM, *AT_ARRIVAL)}
        for effect in effects:
            if type(effect) is ResolveRequest and effect.detail.startswith(WHEN_ITS_TURN_CAME):
                self._refused.pop(effect.request, None)  # it was let in first, maybe into room that others lost
        self.retrials.begin(effects)
        self._lending.reclaimed = deque(request for request, outcome in outcomes if outcome is Outcome.RECLAIMED)
        self.arrived.clear()
        self.emitting.clear()
        self.cleared.clear()
        self.left.clear()
        self.ended.clear()
        for event in events:
            self._apply[type(event)](event)
        self._expire()
        self._take_back(effects)
        self.retrials.end()

    def _expire(self) -> None:
        """After all events: an answer that comes at the very deadline is in time."""
        for request in [r.event.request for r in self._ledger.open.values() if r.event.deadline <= self._now]:
            self._ledger.owe(request, Outcome.DEADLINE_EXCEEDED)

    def _take_back(self, effects: list[Effect]) -> None:
        """From those that come to be suspected in this call, what has not begun. Raises AssertionError."""
        suspected = {effect.worker for effect in effects if isinstance(effect, SuspectWorker)}
        for effect in effects:
            if not isinstance(effect, WithdrawBatch):
                continue
            assert effect.worker in suspected, f"{effect}: its worker was not found to hang"
            worker = self._ledger.workers[effect.worker]
            first = next(iter(worker.batches))
            assert effect.batch in worker.batches and effect.batch != first, f"{effect}: it is not staged there"
            self.ended[effect.worker, effect.batch] = worker.batches[effect.batch].parts
            self.retrials.taken_back(worker, effect)

    # -- configuration --------------------------------------------------------------------------------

    def _server_configured(self, event: ev.ServerConfigured) -> None:
        self._ledger.policy = event.policy

    def _version_configured(self, event: ev.VersionConfigured) -> None:
        known = self._ledger.versions.get(event.version)
        if known is None:
            self._ledger.versions[event.version] = TrackedVersion(event.version, event.policy)
        else:
            known.policy = event.policy
            known.draining = False

    def _version_drained(self, event: ev.VersionDrained) -> None:
        self._ledger.versions[event.version].draining = True

    def _drain_started(self, event: ev.DrainStarted) -> None:
        self._ledger.draining = True

    def _memory_pressure_changed(self, event: ev.MemoryPressureChanged) -> None:
        self._ledger.memory_high = event.high

    # -- requests -------------------------------------------------------------------------------------

    def _request_arrived(self, event: ev.RequestArrived) -> None:
        patience = self._ledger.policy.patience
        due = self._now + patience[min(event.priority, len(patience) - 1)]
        waiting = dict.fromkeys(range(len(event.parts)))
        request = TrackedRequest(event, self._now, due, waiting, undone=len(event.parts))
        self.arrived[event.request] = request
        refusals = self._refusals(request)
        refused = self._refused.get(event.request)
        if refused is not Outcome.CIRCUIT_OPEN and not any(reason in NEVER_LET_IN for reason in refusals):
            self._allowances.judge(request, refused, self._now)
        if refused in AT_ARRIVAL and self._may_refuse(request, refused):
            refusals.append(refused)
        elif refused in NO_ROOM:
            self._lending.refuse(request)
        elif all(reason in NO_ROOM for reason in refusals) and not self._ledger.memory_high:
            self._lending.make_room(request)
            refusals = []
        if refusals:
            self._ledger.refuse(request, *refusals)
        else:
            self._allowances.admit(request, self._now)
            self._ledger.admit(request)

    def _may_refuse(self, request: TrackedRequest, outcome: Outcome) -> bool:
        """For its tenant's limits; or because it would be late, which nobody is for whom a worker is free at once."""
        policy, version = self._ledger.policy, self._ledger.versions.get(request.version)
        tenant = dict(policy.tenants).get(request.event.tenant, policy.others)
        if outcome is Outcome.CIRCUIT_OPEN:
            return version is not None and version.circuit.until >= 0
        if outcome is Outcome.RATE_LIMITED:
            return any(limit.covers(max(part.length for part in request.event.parts)) for limit in tenant.limits)
        if version is None or not version.policy.shed:
            return False
        if not version.waiting and any(worker.has_free_slot for worker in version.workers.values()):
            return False
        timed = request.event.deadline < NEVER
        return timed if outcome is Outcome.DEADLINE_UNMEETABLE else bool(version.policy.slo or tenant.slos)

    def _refusals(self, request: TrackedRequest) -> list[Outcome]:
        """Every reason not to let it in. NO_WORKER is not among them: that is judged after all events."""
        event, ledger = request.event, self._ledger
        version = ledger.versions.get(request.version)
        if version is None:
            return [Outcome.UNKNOWN_VERSION]
        policy = version.policy
        rows = sum(waiting.waiting_rows for waiting in version.waiting.values()) + request.waiting_rows
        full = len(version.waiting) >= policy.max_queued_requests or rows > policy.max_queued_rows
        reasons = {
            Outcome.DRAINING: ledger.draining or version.draining,
            Outcome.DEADLINE_EXCEEDED: event.deadline <= self._now,
            Outcome.POISON_REQUEST: version.quarantine.get(event.content, 0) > self._now and event.content != 0,
            Outcome.CIRCUIT_OPEN: self._now < version.circuit.until,
            Outcome.TOO_LARGE: any(
                _exceeds(part, request.bytes_of(index), policy) for index, part in enumerate(event.parts)
            )
            or request.waiting_rows > policy.max_queued_rows
            or too_long(version, request)
            or event.bytes > ledger.policy.max_queued_bytes,
            Outcome.OVERLOADED: ledger.memory_high or ledger.bytes + event.bytes > ledger.policy.max_queued_bytes,
            Outcome.QUEUE_FULL: full,
            Outcome.TENANT_QUEUE_FULL: full and any(r.event.tenant == event.tenant for r in version.waiting.values()),
        }
        return [outcome for outcome, holds in reasons.items() if holds]

    def _request_cancelled(self, event: ev.RequestCancelled) -> None:
        self._ledger.owe(event.request, Outcome.CANCELLED)

    def _request_satisfied(self, event: ev.RequestSatisfied) -> None:
        self._ledger.owe(event.request, Outcome.COMPLETED)

    def _reply_written(self, event: ev.ReplyWritten) -> None:
        """Of no consequence to any promise."""

    def _content_quarantined(self, event: ev.ContentQuarantined) -> None:
        version = self._ledger.versions[event.version]
        version.quarantine[event.content] = self._now + version.policy.quarantine

    def _quarantine_lifted(self, event: ev.QuarantineLifted) -> None:
        quarantine = self._ledger.versions[event.version].quarantine
        for content in [event.content] if event.content else list(quarantine):
            quarantine.pop(content, None)

    # -- workers --------------------------------------------------------------------------------------

    def _worker_starting(self, event: ev.WorkerStarting) -> None:
        worker = TrackedWorker(event.worker, event.version)
        self._ledger.workers[event.worker] = worker
        self._ledger.versions[event.version].workers[event.worker] = worker

    def _worker_ready(self, event: ev.WorkerReady) -> None:
        worker = self._ledger.workers.get(event.worker)
        if worker is not None:
            worker.ready = True
            worker.capacity = event.capacity
            opened(worker, event.capacity)

    def _worker_draining(self, event: ev.WorkerDraining) -> None:
        worker = self._ledger.workers.get(event.worker)
        if worker is not None:
            worker.draining = True

    def _relief_reported(self, event: ev.ReliefReported) -> None:
        """Its worker has events of its own."""

    def _told_of_a_device(self, event: ev.DeviceLost | ev.DeviceRecovered) -> None:
        """Its workers have events of their own."""

    def _capacity_changed(self, event: ev.CapacityChanged) -> None:
        worker = self._ledger.workers.get(event.worker)
        if worker is not None:
            worker.capacity = event.capacity

    def _worker_ended(self, event: ev.WorkerLost | ev.WorkerStopped) -> None:
        worker = self._ledger.remove_worker(event.worker)
        if worker is None:
            return
        for request, attempt in worker.sequences:
            self.left[event.worker, request, attempt] = None
        self.ended.update(((event.worker, number), batch.parts) for number, batch in worker.batches.items())
        self.retrials.worker_ended(worker, event, self._now)
        version = self._ledger.versions[worker.version]
        if isinstance(event, ev.WorkerLost) and event.loss in BLAMED and version.circuit.dies(self._now):
            for request in list(version.waiting):
                self._ledger.owe(request, Outcome.CIRCUIT_OPEN)

    # -- answers: anything not running where it says is late, and changes nothing ---------------------

    def _batch_completed(self, event: ev.BatchCompleted) -> None:
        self._note_hand_over(event)
        parts = self._take_batch(event.worker, event.batch)
        self._comes_back(event.worker, parts)
        if len(event.failures) < len(parts):
            self.retrials.batch_completed(self._ledger.workers[event.worker].version)
        failures: dict[RequestId, list[Outcome]] = {}
        for failure in event.failures if parts else ():
            failures.setdefault(parts[failure.position].request, []).append(failure.outcome)
        for request, outcomes in failures.items():
            self._ledger.owe(request, *outcomes)
        for ref in parts:
            self._part_done(ref)

    def _note_hand_over(self, event: ev.BatchCompleted) -> None:
        worker = self._ledger.workers.get(event.worker)
        batch = None if worker is None else worker.batches.get(event.batch)
        if worker is not None and batch is not None and self._now - batch.started > event.duration:
            self._ledger.versions[worker.version].hands_over = True

    def _part_done(self, ref: PartRef) -> None:
        request = self._ledger.open.get(ref.request)
        if request is not None:
            del request.running[ref.part]
            request.undone -= 1
            if request.undone == 0:
                self._ledger.owe(ref.request, Outcome.COMPLETED)

    def _batch_failed(self, event: ev.BatchFailed) -> None:
        worker = self._ledger.workers.get(event.worker)
        tokens = worker.batches[event.batch].tokens if worker is not None and event.batch in worker.batches else 0
        parts = self._take_batch(event.worker, event.batch)
        self._comes_back(event.worker, parts)
        if worker is not None and parts:
            self.retrials.batch_failed(self._ledger.versions[worker.version], parts, tokens, event)

    def _comes_back(self, worker: WorkerId, parts: tuple[PartRef, ...]) -> None:
        if parts:
            self._ledger.versions[self._ledger.workers[worker].version].circuit.lives()

    def _take_batch(self, worker: WorkerId, batch: int) -> tuple[PartRef, ...]:
        tracked = self._ledger.workers.get(worker)
        running = None if tracked is None else tracked.batches.pop(batch, None)
        if tracked is None or running is None:
            return ()
        if tracked.suspected == batch:
            tracked.suspected = None
            self.cleared[worker] = None
        self.ended[worker, batch] = running.parts
        return running.parts

    def _tokens_emitted(self, event: ev.TokensEmitted) -> None:
        request = self._ledger.open.get(event.request)
        current = request is not None and request.engine == (event.worker, event.attempt)
        if request is not None and current and event.first == request.emitted:
            request.emitted += event.count
            self.emitting[event.request] = request

    def _sequence_finished(self, event: ev.SequenceFinished) -> None:
        if self._take_sequence(event.worker, event.request, event.attempt):
            self._ledger.owe(event.request, Outcome.COMPLETED)

    def _sequence_failed(self, event: ev.SequenceFailed) -> None:
        if self._take_sequence(event.worker, event.request, event.attempt):
            self._ledger.owe(event.request, event.outcome)

    def _take_sequence(self, worker: WorkerId, request: RequestId, attempt: int) -> bool:
        tracked = self._ledger.workers.get(worker)
        if tracked is None or tracked.sequences.pop((request, attempt), None) is None:
            return False
        if tracked.engine is not None:
            tracked.engine.over((request, attempt))
        self.left[worker, request, attempt] = None
        self._ledger.versions[tracked.version].circuit.lives()
        return True

    def _engine_reported(self, event: ev.EngineReported) -> None:
        worker = self._ledger.workers.get(event.worker)
        if worker is not None and worker.engine is not None:
            worker.engine.reported(event)

    def _sequence_returned(self, event: ev.SequenceReturned) -> None:
        if not self._take_sequence(event.worker, event.request, event.attempt):
            return
        request = self._ledger.open.get(event.request)
        if request is not None:
            request.moved += 1
            self._ledger.wait_again(request, 0)


def _exceeds(part: Part, size: int, policy: BatchPolicy) -> bool:
    """A single row is always let in, alone if need be: it cannot be cut."""
    tokens = part.rows * part.length
    over = (
        part.rows > policy.max_batch_size or 0 < policy.max_batch_tokens < tokens or 0 < policy.max_batch_bytes < size
    )
    return over and part.rows > 1
