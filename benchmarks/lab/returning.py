"""When a tenant that was away comes back: how many batches pass it by, from a server's own recording."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from headway.core.effects import DispatchBatch, ResolveRequest
from headway.core.events import BatchCompleted, BatchFailed, RequestArrived
from headway.core.ids import BatchId, PartRef, RequestId
from headway.core.units import MILLISECOND, Instant
from headway.runtime.codec import Call


@dataclass
class Return:
    """at: its first request came.  in_hand: batches that workers had then.  passed: that left after it without it.
    served_at: the first batch with it left; 0 = never.  tokens, of_all: of the batches from then on that left while it
    still had something waiting.
    """

    at: Instant
    in_hand: int
    passed: int = 0
    served_at: Instant = 0
    tokens: int = 0
    of_all: int = 0

    @property
    def waited_ms(self) -> float:
        return (self.served_at - self.at) / MILLISECOND

    @property
    def share(self) -> float:
        return self.tokens / self.of_all if self.of_all else 0.0


@dataclass
class Books:
    """lengths: of all parts, in tokens.  waiting: the tenant's parts that are in no batch yet."""

    tenant: str
    returns: list[Return] = field(default_factory=list)
    lengths: dict[PartRef, int] = field(default_factory=dict)
    owner: dict[RequestId, str] = field(default_factory=dict)
    waiting: dict[PartRef, None] = field(default_factory=dict)
    in_hand: dict[BatchId, None] = field(default_factory=dict)
    unanswered: dict[RequestId, None] = field(default_factory=dict)

    def tell(self, call: Call) -> None:
        for event in call.events:
            if isinstance(event, RequestArrived):
                self._arrived(event, call.now)
            elif isinstance(event, (BatchCompleted, BatchFailed)):
                self.in_hand.pop(event.batch, None)
        for effect in call.effects:
            if isinstance(effect, DispatchBatch):
                self._left(effect, call.now)
            elif isinstance(effect, ResolveRequest):
                self._resolved(effect.request)

    def _arrived(self, event: RequestArrived, now: Instant) -> None:
        self.owner[event.request] = event.tenant
        for index, part in enumerate(event.parts):
            self.lengths[PartRef(event.request, index)] = part.rows * part.length
        if event.tenant != self.tenant:
            return
        if not self.unanswered:
            self.returns.append(Return(now, len(self.in_hand)))
        self.unanswered[event.request] = None
        self.waiting.update((PartRef(event.request, index), None) for index in range(len(event.parts)))

    def _left(self, batch: DispatchBatch, now: Instant) -> None:
        self.in_hand[batch.batch] = None
        own = [part for part in batch.parts if self.owner[part.request] == self.tenant]
        if self.waiting:
            current = self.returns[-1]
            if own and not current.served_at:
                current.served_at = now
            current.passed += not current.served_at
            if current.served_at:
                current.tokens += sum(self.lengths[part] for part in own)
                current.of_all += sum(self.lengths[part] for part in batch.parts)
        for part in own:
            self.waiting.pop(part, None)

    def _resolved(self, request: RequestId) -> None:
        if self.unanswered.pop(request, 0) is None:
            for part in [part for part in self.waiting if part.request == request]:
                del self.waiting[part]


def returns(calls: Iterable[Call], tenant: str) -> list[Return]:
    """Each time that it came with nothing unanswered, and was served."""
    books = Books(tenant)
    for call in calls:
        books.tell(call)
    return [found for found in books.returns if found.served_at]
