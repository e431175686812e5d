"""Judges that nobody idles beside work: what waits beside a worker with room has a reason, and a timer."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.ids import WorkerId
from headway.core.units import NEVER, Instant
from headway.sim.engine_books import may_have
from headway.sim.ledger import Ledger, TrackedRequest, TrackedVersion, TrackedWorker
from headway.sim.retrials import Retrials


@dataclass(slots=True)
class Idleness:
    ledger: Ledger
    retrials: Retrials

    def wrong(self, version: TrackedVersion, now: Instant, wakeup: Instant) -> str:
        """What is wrong after a call; "" = nothing. wakeup: when the core wants to be called again."""
        if not version.waiting:
            return ""
        free = [worker for worker in version.workers.values() if _is_free(worker, version)]
        if not free:
            return "" if version.has_live_worker else f"{list(version.waiting)[:5]} wait, and nobody runs this version"
        if self._waits_for_cores(version):
            return ""
        if apart := self.retrials.may_run(version):
            return f"worker {free[0].worker} idles beside {apart}, which are tried again"
        if not any(self.retrials.ordinary(request) for request in version.waiting.values()):
            return ""
        held = version.policy.hold and not (version.draining or self.ledger.draining or self.ledger.memory_high)
        if not held or version.is_sequence:
            return self._keeps_waiting(version, free[0].worker, wakeup)
        signatures = dict.fromkeys(request.event.key.signature for request in version.waiting.values())
        return next(filter(None, (self._is_held(version, signature, now) for signature in signatures)), "")

    def oldest(self, version: TrackedVersion, signature: str) -> Instant:
        """When the first of what waits of that signature, and may run with anybody, came; NEVER: none waits."""
        return min((request.arrived for request in self._alike(version, signature)), default=NEVER)

    def _alike(self, version: TrackedVersion, signature: str) -> list[TrackedRequest]:
        same_key = (request for request in version.waiting.values() if request.event.key.signature == signature)
        return [request for request in same_key if self.retrials.ordinary(request)]

    def _waits_for_cores(self, version: TrackedVersion) -> bool:
        """Its own device has none left for it, or for one of its neighbours that may be ahead of it."""
        device = version.policy.device
        if device not in self.ledger.contended or not version.policy.cores:
            return False
        neighbours = [v for v in self.ledger.versions.values() if v.policy.device == device and v.waiting]
        left = self.ledger.contended[device] - self.ledger.in_use(device)
        return any(self.ledger.need(v) > left for v in neighbours)

    def _keeps_waiting(self, version: TrackedVersion, idle: WorkerId, wakeup: Instant) -> str:
        """Work may wait beside an idle worker only while another is busy, with a timer, up to the queue delay."""
        story = f"worker {idle} idles beside the waiting {list(version.waiting)[:5]}"
        if version.is_sequence or not any(worker.batches for worker in version.workers.values()):
            return story
        ordinary = self.retrials.ordinary
        ends = version.delay + min(request.arrived for request in version.waiting.values() if ordinary(request))
        return "" if wakeup <= ends else f"{story} until {wakeup}, not {ends}"

    def _is_held(self, version: TrackedVersion, signature: str, now: Instant) -> str:
        policy = version.policy
        waited = now - self.oldest(version, signature)
        if waited >= version.delay:
            return f"{signature!r} was held for {waited} ns beside an idle worker"
        if policy.equal_lengths:
            return ""  # no queue of one length need be full when all of them together are
        waiting = self._alike(version, signature)
        parts = [(request, part) for request in waiting for part in self.retrials.ordinary(request)]
        size = sum(request.bytes_of(part) for request, part in parts)
        if 0 < policy.max_batch_bytes <= size:
            return f"{signature!r} has {size} bytes waiting and is held beside an idle worker"
        rows = sum(request.event.parts[part].rows for request, part in parts)
        if policy.max_batch_size and not policy.max_batch_tokens and rows >= policy.max_batch_size:
            return f"{signature!r} has {rows} rows waiting and is held beside an idle worker"
        return ""


def _is_free(worker: TrackedWorker, version: TrackedVersion) -> bool:
    """For whatever is next. An engine may be too small or too full for the one whose turn it is, and nobody passes
    that one: it should have taken something only if it could have had any of those that wait."""
    if worker.engine is None:
        return worker.has_free_slot
    return worker.ready and not worker.draining and all(may_have(worker, each) for each in version.waiting.values())
