"""What must hold at every call of the core, whatever the world does. A breach raises OracleViolation.

Safety: one outcome per request, each with a cause; capacity; caps; nothing twice, nothing for the
dead. Liveness: what is due is done in this very call, and nobody idles beside work.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

from headway.core.effects import (
    AbortSequence,
    AdmitSequence,
    ClearWorker,
    DeliverTokens,
    DispatchBatch,
    Effect,
    KillWorker,
    QuarantineRequest,
    Reason,
    ReportCircuit,
    ReportMemoryCap,
    ReportStarvation,
    ResolveRequest,
    RetryParts,
    SuspectWorker,
    TakeBack,
    UpdateCounters,
    WithdrawBatch,
    WithdrawPart,
)
from headway.core.events import Event
from headway.core.ids import BatchId, PartRef, RequestId
from headway.core.outcomes import Outcome
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, Instant
from headway.core.views import VersionView
from headway.sim import gauges
from headway.sim.bookkeeping import Bookkeeper
from headway.sim.engine_books import too_long, wrongly_admitted, wrongly_taken
from headway.sim.idleness import Idleness
from headway.sim.ledger import Ledger, TrackedBatch, TrackedRequest, TrackedVersion, TrackedWorker
from headway.sim.overtaking import overtaking

STORY = 12
"""Calls that a violation quotes."""


class OracleViolation(AssertionError):
    """The core broke a promise. The message says which, and quotes the last calls."""


class Oracle:
    """An observer that judges every call. `finish` judges the end."""

    def __init__(self) -> None:
        self.ledger = Ledger()
        self.outcomes: dict[Outcome, int] = {}
        self._books = Bookkeeper(self.ledger)
        self._idleness = Idleness(self.ledger, self._books.retrials)
        self._calls: deque[tuple[Instant, list[Event], list[Effect]]] = deque(maxlen=STORY)
        self._used_batches: set[BatchId] = set()
        self._deadlines: list[tuple[Instant, RequestId]] = []
        self._started: list[tuple[TrackedRequest, int]] = []
        self._now: Instant = 0
        self._judge: dict[type[Effect], Callable[[Any], None]] = {
            DispatchBatch: self._dispatched,
            WithdrawPart: self._withdrawn,
            WithdrawBatch: lambda effect: None,
            AdmitSequence: self._admitted,
            AbortSequence: self._aborted,
            UpdateCounters: lambda effect: None,
            TakeBack: self._taken_back,
            DeliverTokens: self._delivered,
            ReportStarvation: lambda effect: self._require(not effect.starves, f"{effect}"),
            ResolveRequest: self._resolved,
            RetryParts: lambda effect: None,
            QuarantineRequest: self._quarantined,
            ReportCircuit: self._circuit,
            ReportMemoryCap: self._memory,
            SuspectWorker: self._suspected,
            ClearWorker: self._cleared,
            KillWorker: self._suspected,
        }

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        self._now = now
        self._calls.append((now, events, effects))
        self._started.clear()
        self._apply(events, effects, now)
        for request in self._books.arrived.values():
            heappush(self._deadlines, (request.event.deadline, request.event.request))
        views = scheduler.views()
        for view in views:
            self._learn_delay(view)
        for effect in effects:
            self._judge[type(effect)](effect)
        self._everything_due_was_done()
        self._order_among_equals()
        for version in self.ledger.versions.values():
            idles = self._idleness.wrong(version, now, scheduler.next_wakeup())
            self._require(not idles, idles)
        self._suspects()
        self._timers(scheduler)
        self._bounds()
        for view in views:
            disagreement = gauges.disagreement(view, self.ledger.versions[view.version])
            self._require(not disagreement, disagreement)
        scheduler.check()
        self._require(scheduler.is_idle() == self._idle(), f"is_idle() says {scheduler.is_idle()}")

    def _apply(self, events: list[Event], effects: list[Effect], now: Instant) -> None:
        try:
            self._books.apply(events, effects, now)
        except AssertionError as error:
            self.fail(str(error))

    def finish(self, scheduler: Scheduler) -> None:
        """After everything was given time to end: nothing is left anywhere."""
        self._require(not self.ledger.open, f"requests {list(self.ledger.open)[:5]} never got an outcome")
        self._require(self._idle() and scheduler.is_idle(), "not idle at the end")
        self._require(scheduler.next_wakeup() == NEVER, "idle, and yet a timer is set")

    def fail(self, what: str) -> None:
        story = "\n".join(f"  at {now}: {events} ->\n      {effects}" for now, events, effects in self._calls)
        raise OracleViolation(f"{what}\nthe last calls were\n{story}")

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            self.fail(what)

    # -- outcomes -------------------------------------------------------------------------------------

    def _resolved(self, effect: ResolveRequest) -> None:
        request, outcome, ledger = effect.request, effect.outcome, self.ledger
        if request in ledger.owed:
            allowed = ledger.owed.pop(request)
            self._require(outcome in allowed, f"request {request}: expected one of {allowed}, came {outcome}")
        elif request in ledger.open:
            self._require(self._may_give_up(ledger.open[request], outcome), f"{effect} without a cause")
            ledger.close(ledger.open[request])
        else:
            self.fail(f"{effect}: it has an outcome already, or never arrived")
        self.outcomes[outcome] = self.outcomes.get(outcome, 0) + 1
        tracked = ledger.closing[request]
        if outcome is Outcome.COMPLETED:
            self._require(tracked.delivered == tracked.emitted, f"request {request} completed with results undelivered")

    def _quarantined(self, effect: QuarantineRequest) -> None:
        allowed = self.ledger.owed.get(effect.request, ())
        self._require(Outcome.POISON_REQUEST in allowed, f"{effect}: it has not killed workers")

    def _circuit(self, effect: ReportCircuit) -> None:
        circuit = self.ledger.versions[effect.version].circuit
        self._require(not effect.open or circuit.opened == self._now, f"{effect}: {circuit}")

    def _memory(self, effect: ReportMemoryCap) -> None:
        """Nobody is held back for memory that was never short; once it was, batches are half as large at most."""
        version = self.ledger.versions[effect.version]
        if effect.failed:
            self._require(effect.failed in version.too_large, f"{effect}: {list(version.too_large)} were too many")
            self._require(2 * effect.tokens <= max(2, effect.failed), f"{effect}: not half of it")
        version.memory = effect.tokens

    def _suspected(self, effect: SuspectWorker | KillWorker) -> None:
        """Nobody before he had time, and to be killed twice as long."""
        worker = self.ledger.workers.get(effect.worker)
        running = None if worker is None else next(iter(worker.batches.items()), None)
        if worker is None or running is None or running[0] != effect.batch:
            self.fail(f"{effect}: its worker does not run that")
            return
        floor = self.ledger.versions[worker.version].policy.hang_floor
        least = 2 * floor if isinstance(effect, KillWorker) else floor
        worker.suspected = effect.batch
        self._require(self._now - running[1].started >= least, f"{effect} after {self._now - running[1].started} ns")

    def _cleared(self, effect: ClearWorker) -> None:
        """It has answered what it was suspected for."""
        self._require(effect.worker in self._books.cleared, f"{effect}: it has not answered, or was not suspected")
        del self._books.cleared[effect.worker]

    def _suspects(self) -> None:
        """Who has answered is told so, and behind one that has not nothing stays that another could run."""
        answered = list(self._books.cleared)
        self._require(not answered, f"workers {answered} have answered, and are not said to be well again")
        for worker in self.ledger.workers.values():
            if not worker.is_suspected:
                continue
            stays = list(worker.batches)[worker.capacity.batch_slots :]
            idempotent = self.ledger.versions[worker.version].policy.idempotent
            self._require(not (stays and idempotent), f"batches {stays} stay behind what hangs: {worker}")

    def _may_give_up(self, request: TrackedRequest, outcome: Outcome) -> bool:
        """What the core decides by itself: nobody serves it, or there is not the time left to run it."""
        if outcome is Outcome.NO_WORKER:
            return not self.ledger.versions[request.version].has_live_worker
        if outcome is Outcome.TOO_LARGE:
            return bool(request.waiting) and too_long(self.ledger.versions[request.version], request)
        timed = request.event.deadline != NEVER and bool(request.waiting)
        return timed and outcome is Outcome.DEADLINE_UNMEETABLE and self._others_wait(request)

    def _others_wait(self, request: TrackedRequest) -> bool:
        """Only for somebody else's sake is a request given up that has time left, however little."""
        waiting = self.ledger.versions[request.version].waiting
        return len(request.waiting) > 1 or any(other is not request for other in waiting.values())

    def _everything_due_was_done(self) -> None:
        self._require(not self.ledger.owed, f"owed in this call and not given: {self.ledger.owed}")
        undelivered = [r.event.request for r in self._books.emitting.values() if r.emitted != r.delivered]
        undelivered = [request for request in undelivered if request in self.ledger.open]
        self._require(not undelivered, f"results of {undelivered} were emitted and not delivered")
        for request in self.ledger.closing.values():
            if request.engine is not None:
                self._require(self._is_aborting(request), f"request {request.event.request} still runs in its engine")
        self.ledger.closing.clear()

    def _is_aborting(self, request: TrackedRequest) -> bool:
        assert request.engine is not None
        worker, attempt = request.engine
        tracked = self.ledger.workers.get(worker)
        return tracked is None or tracked.sequences.get((request.event.request, attempt), True)

    # -- batches --------------------------------------------------------------------------------------

    def _dispatched(self, effect: DispatchBatch) -> None:
        version = self.ledger.versions[effect.key.version_id]
        worker = self._able_worker(effect.worker, version, str(effect))
        room = worker.capacity.batch_slots + version.policy.idempotent  # one may be staged, if it can be taken back
        self._require(len(worker.batches) < room, f"{effect}: worker {worker} has no free slot")
        self._require(effect.batch not in self._used_batches, f"{effect}: the batch id was used before")
        self._require(bool(effect.parts), f"{effect}: an empty batch")
        wrong = self._books.retrials.dispatched(effect, version, self._now)
        self._require(not wrong, wrong)
        self._cores(effect, version, worker)
        self._used_batches.add(effect.batch)
        self._reason(effect, version)
        for ref in effect.parts:
            self._part_starts(ref, effect)
        tokens = self._caps(effect, version)
        worker.batches[effect.batch] = TrackedBatch(effect.parts, self._now, tokens)

    def _cores(self, effect: DispatchBatch, version: TrackedVersion, worker: TrackedWorker) -> None:
        """No batch begins without the cores that it takes, and nobody's goes first by being small."""
        device, limits = version.policy.device, dict(self.ledger.policy.devices)
        if worker.batches or device not in limits:
            return
        need, cores = self.ledger.need(version), limits[device]
        used, surely = self.ledger.in_use(device), self.ledger.in_use(device, surely=True)
        story = f"{effect}: {need} of {cores} cores of {device}, and {used} are in use"
        self._require(surely + need <= cores and used <= 2 * cores, story)

    def _withdrawn(self, effect: WithdrawPart) -> None:
        """Only what was handed over, is not answered, and has its outcome otherwise."""
        worker = self.ledger.workers.get(effect.worker)
        batch = None if worker is None else worker.batches.get(effect.batch)
        parts = self._books.ended.get((effect.worker, effect.batch)) if batch is None else batch.parts
        if parts is None:
            self.fail(f"{effect}: its worker does not have that batch, and had not before this call")
        assert parts is not None
        request = parts[effect.position].request
        self._require(request not in self.ledger.open, f"{effect}: request {request} has no outcome yet")

    def _able_worker(self, worker: int, version: TrackedVersion, effect: str) -> TrackedWorker:
        tracked = version.workers.get(worker)
        if tracked is None or not tracked.ready or tracked.draining or tracked.is_suspected:
            self.fail(f"{effect}: worker {worker} cannot take it: {tracked}")
        assert tracked is not None
        return tracked

    def _part_starts(self, ref: PartRef, effect: DispatchBatch) -> None:
        request = self.ledger.open.get(ref.request)
        if request is None:
            self.fail(f"{effect}: request {ref.request} has an outcome already, or never arrived")
        assert request is not None
        self._require(request.event.key == effect.key, f"{effect}: {ref} has the key {request.event.key}")
        self._require(ref.part in request.waiting, f"{effect}: {ref} is not waiting")
        self.ledger.start(request, ref.part, effect.batch)
        self._started.append((request, ref.part))

    def _caps(self, effect: DispatchBatch, version: TrackedVersion) -> int:
        """Returns the tokens of the batch."""
        parts = [self.ledger.open[ref.request].event.parts[ref.part] for ref in effect.parts]
        rows = sum(part.rows for part in parts)
        longest, real = max(part.length for part in parts), sum(part.rows * part.length for part in parts)
        size = sum(self.ledger.open[ref.request].bytes_of(ref.part) for ref in effect.parts)
        policy = version.policy
        tokens = real if policy.unpadded else rows * longest
        if len(parts) > 1:  # one alone may have been admitted under wider caps than today's
            self._require(rows <= (policy.max_batch_size or rows), f"{effect}: {rows} rows")
            self._require(tokens <= (policy.max_batch_tokens or tokens), f"{effect}: {tokens} padded tokens")
            self._require(size <= (policy.max_batch_bytes or size), f"{effect}: {size} bytes")
        if len(parts) > 1 and effect.reason is not Reason.RETRY:
            self._require(not version.memory or tokens <= version.memory, f"{effect}: memory is for {version.memory}")
        lengths = {part.length for part in parts}
        self._require(len(lengths) == 1 or not policy.equal_lengths, f"{effect}: lengths {sorted(lengths)}")
        return rows * -(-real // rows) if policy.unpadded else tokens

    def _reason(self, effect: DispatchBatch, version: TrackedVersion) -> None:
        draining = version.draining or self.ledger.draining
        if effect.reason is Reason.IDLE:
            self._require(not version.policy.hold, f"{effect}: a held batch does not leave because a worker is idle")
        elif effect.reason is Reason.RETRY:
            apart = self._books.retrials.apart
            self._require(all(ref in apart for ref in effect.parts), f"{effect}: it was never tried by itself")
        elif effect.reason is Reason.DRAIN:
            self._require(draining, f"{effect}: nothing drains")
        elif effect.reason is Reason.MEMORY:
            self._require(self.ledger.memory_high, f"{effect}: memory is not short")
        elif effect.reason is Reason.LINGER:
            waited = self._now - self._idleness.oldest(version, effect.key.signature)
            self._require(waited >= version.delay, f"{effect}: the oldest has waited only {waited} ns")
        elif effect.reason is Reason.DEADLINE:
            timed = any(self._deadline_of(ref) != NEVER for ref in effect.parts)
            released = version.policy.hold and self._any_deadline(version, effect.key.signature)
            self._require(timed or released, f"{effect}: no member has a deadline")

    def _any_deadline(self, version: TrackedVersion, signature: str) -> bool:
        """A member's latest safe start lets a held key go, though the batch that leaves may be without that member."""
        same_key = (r for r in version.waiting.values() if r.event.key.signature == signature)
        return any(request.event.deadline != NEVER for request in same_key)

    def _deadline_of(self, ref: PartRef) -> Instant:
        request = self.ledger.open.get(ref.request)
        return NEVER if request is None else request.event.deadline

    # -- sequences --------------------------------------------------------------------------------------

    def _admitted(self, effect: AdmitSequence) -> None:
        version = self.ledger.versions[effect.key.version_id]
        worker = self._able_worker(effect.worker, version, str(effect))
        request = self.ledger.open.get(effect.request)
        if request is None or request.engine is not None or not request.waiting:
            self.fail(f"{effect}: it is not waiting: {request}")
        assert request is not None
        self._require(version.is_sequence, f"{effect}: not an engine")
        wrong = wrongly_admitted(effect, worker, request)
        self._require(not wrong, wrong)
        self._require(request.event.key == effect.key, f"{effect}: its key is {request.event.key}")
        request.engine = (effect.worker, effect.attempt)
        request.begun = True
        request.waiting.clear()
        del version.waiting[effect.request]
        worker.sequences[effect.request, effect.attempt] = False
        self._started.append((request, 0))

    def _taken_back(self, effect: TakeBack) -> None:
        worker = self.ledger.workers.get(effect.worker)
        request = self.ledger.open.get(effect.request)
        if worker is None or request is None:
            self.fail(f"{effect}: its worker is gone, or it has its outcome")
        assert worker is not None and request is not None
        wrong = wrongly_taken(effect, self.ledger.versions[request.version], worker)
        self._require(not wrong, wrong)

    def _aborted(self, effect: AbortSequence) -> None:
        self._require(effect.request not in self.ledger.open, f"{effect}: it has no outcome yet")
        if (effect.worker, effect.request, effect.attempt) in self._books.left:
            return  # it was given up and came to its end in the same call
        worker = self.ledger.workers.get(effect.worker)
        asked = None if worker is None else worker.sequences.get((effect.request, effect.attempt))
        self._require(asked is False, f"{effect}: not running there, or aborted before")
        assert worker is not None
        worker.sequences[effect.request, effect.attempt] = True

    def _delivered(self, effect: DeliverTokens) -> None:
        request = self.ledger.open.get(effect.request) or self.ledger.closing.get(effect.request)
        if request is None:
            self.fail(f"{effect}: it has an outcome already")
        assert request is not None
        self._require(effect.first == request.delivered, f"{effect}: the next is {request.delivered}")
        request.delivered += effect.count
        self._require(request.delivered <= request.emitted, f"{effect}: only {request.emitted} were emitted")

    # -- order and work conservation ----------------------------------------------------------------------

    def _order_among_equals(self) -> None:
        overtook = overtaking(self._started, self.ledger, self._books.retrials)
        self._require(not overtook, overtook)

    def _learn_delay(self, view: VersionView) -> None:
        """One that is derived is the core's own matter, within the SLO."""
        version = self.ledger.versions[view.version]
        policy, delay = version.policy, view.max_queue_delay
        if policy.derive_delay and policy.slo and not version.is_sequence:
            self._require(0 <= delay < policy.slo, f"{view.version} may wait for {delay} ns, its SLO is {policy.slo}")
        else:
            self._require(delay == policy.max_queue_delay, f"{view.version} may wait for {delay} ns: {policy}")
        version.delay = delay

    # -- timers, bounds, idleness ---------------------------------------------------------------------------

    def _timers(self, scheduler: Scheduler) -> None:
        wakeup = scheduler.next_wakeup()
        self._require(wakeup > self._now, f"next_wakeup() is {wakeup}: it would spin at {self._now}")
        while self._deadlines and self._deadlines[0][1] not in self.ledger.open:
            heappop(self._deadlines)
        if self._deadlines:
            first, request = self._deadlines[0]
            self._require(wakeup <= first, f"next_wakeup() is {wakeup}: request {request} expires at {first}")

    def _bounds(self) -> None:
        policy = self.ledger.policy
        self._require(self.ledger.bytes <= policy.max_queued_bytes, f"{self.ledger.bytes} bytes are held")

    def _idle(self) -> bool:
        running = any(worker.batches or worker.sequences for worker in self.ledger.workers.values())
        return not self.ledger.open and not running
