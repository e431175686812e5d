"""The rules for executions that come to nothing, told once more and naively: what may become of each part.

It decides nothing. From each event it works out what the core may answer for every part whose execution ended without
a result, and holds against that what the core does say in the same call.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from headway.core.effects import DispatchBatch, Effect, Remedy, RetryParts, WithdrawBatch
from headway.core.events import BatchFailed, WorkerLost, WorkerStopped
from headway.core.ids import BatchId, PartRef, RequestId, VersionId
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from headway.core.units import NEVER, SECOND, Instant
from headway.sim.ledger import Ledger, TrackedBatch, TrackedRequest, TrackedVersion, TrackedWorker

Answer: TypeAlias = Remedy | Outcome

MINUTE = 60 * SECOND
REPEATS = 100
"""In a minute, that are always allowed."""
BLAMED = (Loss.CRASHED, Loss.HUNG, Loss.OUT_OF_MEMORY, Loss.PROTOCOL)
"""Losses that what ran may be to blame for."""
ALL_FAIL = 16
"""Batches in a row, none without a fault, after which the fault is the model's."""


@dataclass(slots=True)
class Retrials:
    """apart: the group that each part runs in, once it was tried by itself.  suspects: of those, who may kill a worker.
    alone: of parts, deaths of workers that ran nothing else.
    """

    ledger: Ledger
    apart: dict[PartRef, int] = field(default_factory=dict)
    suspects: dict[PartRef, None] = field(default_factory=dict)
    alone: dict[PartRef, int] = field(default_factory=dict)
    _said: dict[PartRef, RetryParts] = field(default_factory=dict)
    _numbers: dict[int, int] = field(default_factory=dict)
    _groups: int = 0
    _failed: dict[VersionId, int] = field(default_factory=dict)
    _repeats: dict[tuple[VersionId, int], int] = field(default_factory=dict)
    _dispatches: dict[tuple[VersionId, int], int] = field(default_factory=dict)

    def begin(self, effects: Iterable[Effect]) -> None:
        """A call. effects: what the core says in it."""
        self._said, self._numbers = {}, {}
        for effect in effects:
            if isinstance(effect, RetryParts):
                self._groups += 1
                self._numbers[id(effect)] = self._groups
                self._said.update(dict.fromkeys(effect.parts, effect))

    def end(self) -> None:
        """Raises AssertionError if the core tried parts again for nothing."""
        assert not self._said, f"{list(self._said)} are tried again, and did not come to nothing"

    # -- what happened ----------------------------------------------------------------------------

    def worker_ended(self, worker: TrackedWorker, event: WorkerLost | WorkerStopped, now: Instant) -> None:
        blamed = isinstance(event, WorkerLost) and event.loss in BLAMED
        version = self.ledger.versions[worker.version]
        for place, (number, batch) in enumerate(worker.batches.items()):
            open = [ref for ref in batch.parts if self._is_running(ref, number)]
            self._lost(version, batch, open, place > 0, blamed, now)
        for request, _ in worker.sequences:
            self._sequence_lost(version, request, blamed, now)

    def _lost(
        self,
        version: TrackedVersion,
        batch: TrackedBatch,
        open: list[PartRef],
        staged: bool,
        blamed: bool,
        now: Instant,
    ) -> None:
        """open: those of its parts that somebody still waits for."""
        policy = version.policy
        among_many = policy.idempotent and not staged and not any(ref in self.apart for ref in batch.parts)
        too_many = among_many and self._repeat(version, now)
        for ref in open:
            self.alone[ref] = self.alone.get(ref, 0) + (blamed and not staged and len(batch.parts) == 1)
            if not policy.idempotent:
                answer: Answer = Outcome.MAY_HAVE_RUN
            elif too_many:
                answer = Outcome.WORKER_LOST
            elif staged or not blamed:
                answer = Remedy.AGAIN
            else:
                answer = Remedy.ALONE if self.alone[ref] < policy.max_attempts else Outcome.POISON_REQUEST
            self._may(ref, answer, Outcome.WORKER_LOST)

    def taken_back(self, worker: TrackedWorker, effect: WithdrawBatch) -> None:
        """All of it that somebody waits for waits again, and nobody is given up by that."""
        version = self.ledger.versions[worker.version]
        assert version.policy.idempotent, f"{effect}: its worker may wake up, and run it twice"
        batch = worker.batches.pop(effect.batch)
        for ref in batch.parts:
            if self._is_running(ref, effect.batch):
                said = self._said.pop(ref, None)
                assert said is not None and said.how is Remedy.AGAIN, f"{effect}: {ref} should wait as before"
                self._enter(ref, said)

    def _sequence_lost(self, version: TrackedVersion, id: RequestId, blamed: bool, now: Instant) -> None:
        request = self.ledger.open.get(id)
        if request is None or request.engine is None:
            return
        attempt = request.engine[1] - request.moved
        ref = PartRef(id, 0)
        if not version.policy.idempotent:
            self._may(ref, Outcome.MAY_HAVE_RUN, Outcome.MAY_HAVE_RUN)
        elif request.emitted or (blamed and attempt >= version.policy.max_attempts):
            self._may(ref, Outcome.WORKER_LOST, Outcome.WORKER_LOST)
        else:
            self._may(ref, Outcome.WORKER_LOST if self._repeat(version, now) else Remedy.AGAIN, Outcome.WORKER_LOST)

    def batch_failed(
        self, version: TrackedVersion, parts: tuple[PartRef, ...], tokens: int, event: BatchFailed
    ) -> None:
        too_large = event.outcome is Outcome.OUT_OF_MEMORY
        self._failed[version.version] = failed = self._failed.get(version.version, 0) + (not too_large)
        if too_large:
            version.too_large[tokens] = None
        halves = [self._said[ref] for ref in parts if ref in self._said]
        most = max((len(half.parts) for half in halves), default=0)
        open = sum(ref.request in self.ledger.open for ref in parts)
        assert len(parts) == 1 or 2 * most <= open + 1, f"{halves} are no halves of {parts}"
        for ref in parts:
            answer: Answer = event.outcome
            if len(parts) > 1 and version.policy.idempotent and (too_large or failed < ALL_FAIL):
                answer = Remedy.HALVES
            elif len(parts) == 1 and ref in self.apart and event.outcome is Outcome.MODEL_ERROR:
                answer = Outcome.POISON_REQUEST
            self._may(ref, answer, event.outcome)

    def batch_completed(self, version: VersionId) -> None:
        """With at least one part without a fault."""
        self._failed[version] = 0

    def _repeat(self, version: TrackedVersion, now: Instant) -> bool:
        """One more execution is repeated. Whether too many were already: a tenth of all, and 100."""
        name, minute = version.version, now // MINUTE
        spent = self._repeats.get((name, minute), 0)
        ran = max(self._dispatches.get((name, minute), 0), self._dispatches.get((name, minute - 1), 0))
        if spent >= max(REPEATS, ran // 10):
            return True
        self._repeats[name, minute] = spent + 1
        return False

    def _may(self, ref: PartRef, answer: Answer, without_time: Outcome) -> None:
        """Holds the core's answer against what it may be, and enters it. Raises AssertionError."""
        said = self._said.pop(ref, None)
        request = self.ledger.open.get(ref.request)
        if said is not None:
            assert said.how is answer, f"{said}: {ref} should be {answer}"
            self._enter(ref, said)
        elif request is not None:
            if isinstance(answer, Remedy):
                assert request.event.deadline != NEVER, f"{ref} should be tried {answer}, and is not"
                answer = without_time
            self.ledger.owe(ref.request, answer)

    def _enter(self, ref: PartRef, said: RetryParts) -> None:
        if said.how is not Remedy.AGAIN:
            self.apart[ref] = self._numbers[id(said)]
            self.suspects.pop(ref, None)
        if said.how is Remedy.ALONE:
            assert len(said.parts) == 1, f"{said}: more than one, alone"
            self.suspects[ref] = None
        request = self.ledger.open.get(ref.request)
        if request is not None:
            self.ledger.wait_again(request, ref.part)

    def _is_running(self, ref: PartRef, batch: BatchId) -> bool:
        request = self.ledger.open.get(ref.request)
        return request is not None and request.running.get(ref.part) == batch

    # -- what follows from it ---------------------------------------------------------------------

    def dispatched(self, effect: DispatchBatch, version: TrackedVersion, now: Instant) -> str:
        """What is wrong with the company that it keeps; "" = nothing. Before the batch is the worker's."""
        minute = (version.version, now // MINUTE)
        self._dispatches[minute] = self._dispatches.get(minute, 0) + 1
        groups = {self.apart.get(ref, 0) for ref in effect.parts}
        if len(groups) > 1:
            return f"{effect}: of groups {groups}, which run each by itself"
        suspects = [ref for ref in effect.parts if ref in self.suspects]
        running = [ref for w in version.workers.values() for batch in w.batches.values() for ref in batch.parts]
        beside = [ref for ref in running if ref in self.suspects]
        if suspects and beside:
            return f"{effect}: {suspects} and {beside} might each kill a worker, and run at a time"
        return ""

    def ordinary(self, request: TrackedRequest) -> list[int]:
        """What waits of it and may run with anybody."""
        return [part for part in request.waiting if PartRef(request.event.request, part) not in self.apart]

    def may_run(self, version: TrackedVersion) -> list[PartRef]:
        """What waits apart, and for nobody else of its kind."""
        waiting = [PartRef(id, part) for id, request in version.waiting.items() for part in request.waiting]
        running = [ref for w in version.workers.values() for batch in w.batches.values() for ref in batch.parts]
        busy = any(ref in self.suspects for ref in running)
        return [ref for ref in waiting if ref in self.apart and not (busy and ref in self.suspects)]
