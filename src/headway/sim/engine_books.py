"""What an engine may be handed and asked for, told once more and naively; the core is held against it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from headway.core.effects import AdmitSequence, TakeBack
from headway.core.events import EngineReported
from headway.core.ids import Capacity, RequestId
from headway.sim.ledger import TrackedRequest, TrackedVersion, TrackedWorker

Key: TypeAlias = tuple[RequestId, int]
"""A sequence: request and attempt."""


@dataclass(slots=True)
class Order:
    """What an engine was sent: its number, and the sequence that it is about."""

    number: int
    request: TrackedRequest


@dataclass(slots=True)
class EngineBook:
    """handed, asked: what it was sent, by sequence.  waits: by its last report.  sequences, blocks: free by that."""

    sequences: int
    blocks: int
    report: int = 0
    heard: int = 0
    sent: int = 0
    handed: dict[Key, Order] = field(default_factory=dict)
    asked: dict[Key, int] = field(default_factory=dict)
    waits: tuple[Key, ...] = ()

    def reported(self, event: EngineReported) -> None:
        if event.number <= self.report:
            return
        self.report, self.heard, self.waits = event.number, event.heard, event.waiting
        self.sequences, self.blocks = event.sequences, event.kv_blocks
        self.asked = {key: number for key, number in self.asked.items() if number > event.heard}

    def over(self, key: Key) -> None:
        self.handed.pop(key, None)
        self.asked.pop(key, None)

    def there(self) -> list[TrackedRequest]:
        """What waits in it: as it has said, and what it cannot have heard of when it said that."""
        return [order.request for key, order in self.handed.items() if order.number > self.heard or key in self.waits]


def opened(worker: TrackedWorker, capacity: Capacity) -> None:
    """It has said what it is."""
    if capacity.block_size and worker.engine is None:
        worker.engine = EngineBook(capacity.sequences, capacity.kv_blocks)


def tokens(request: TrackedRequest) -> int:
    return request.event.parts[0].length + request.emitted


def can_ever(worker: TrackedWorker, request: TrackedRequest) -> bool:
    capacity = worker.capacity
    most = min(capacity.kv_blocks * capacity.block_size, capacity.max_context)
    return tokens(request) + 1 <= most


def too_long(version: TrackedVersion, request: TrackedRequest) -> bool:
    """None of its engines could ever hold it, and there are some."""
    engines = [worker for worker in version.workers.values() if worker.engine and worker.ready and not worker.draining]
    return bool(engines) and not any(can_ever(worker, request) for worker in engines)


def has_room(worker: TrackedWorker, request: TrackedRequest) -> bool:
    """For one more, beside all that waits there."""
    assert worker.engine is not None
    size = worker.capacity.block_size
    everybody = [*worker.engine.there(), request]
    blocks = sum((tokens(each) + size - 1) // size for each in everybody)
    return len(everybody) <= worker.engine.sequences and blocks <= worker.engine.blocks


def may_have(worker: TrackedWorker, request: TrackedRequest) -> bool:
    """Whether the engine may be handed it now: nothing as urgent waits there, or that is less than a step and there is
    room."""
    assert worker.engine is not None
    ahead = [each for each in worker.engine.there() if each.event.priority <= request.event.priority]
    less_than_a_step = sum(tokens(each) for each in ahead) < worker.capacity.step_tokens
    return can_ever(worker, request) and (not ahead or (less_than_a_step and has_room(worker, request)))


def wrongly_admitted(effect: AdmitSequence, worker: TrackedWorker, request: TrackedRequest) -> str:
    """In words; "" = it may be handed over. It is entered into the book."""
    book = worker.engine
    if book is None:
        return "" if len(worker.sequences) < worker.capacity.sequences else f"{effect}: the worker is full: {worker}"
    if not may_have(worker, request):
        return f"{effect}: there is no room for it and others wait there already, or never will be: {worker}"
    book.sent += 1
    book.handed[effect.request, effect.attempt] = Order(book.sent, request)
    return ""


def wrongly_taken(effect: TakeBack, version: TrackedVersion, worker: TrackedWorker | None) -> str:
    """In words; "" = it may be asked for. It is entered into the book."""
    key = (effect.request, effect.attempt)
    book = None if worker is None else worker.engine
    if worker is None or book is None or worker.sequences.get(key) is not False:
        return f"{effect}: it is not there, or was aborted"
    if key not in book.waits or book.handed[key].number > book.heard:
        return f"{effect}: it is not known to wait there"
    if version.waiting:
        return f"{effect}: others wait, whose the room is that there is"
    if any(other.engine.asked for other in version.workers.values() if other.engine):
        return f"{effect}: something is on its way back already"
    others = [w for w in version.workers.values() if w is not worker and w.engine and w.ready and not w.draining]
    if not any(has_room(other, book.handed[key].request) for other in others):
        return f"{effect}: nobody has room for it"
    book.sent += 1
    book.asked[key] = book.sent
    return ""
