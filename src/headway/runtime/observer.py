"""What the runtime shows to whoever measures it. The core does not know that it is watched.

Every method is called on the loop, synchronously, in the hot path: count and return. An observer
that raises is a bug of ours and takes the server down like any other.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from headway.core.effects import Effect, Reason
from headway.core.events import Event
from headway.core.ids import RequestId, VersionId, WorkerId
from headway.core.outcomes import Outcome
from headway.core.units import Duration, Instant
from headway.wire.engine import EngineCounts
from headway.wire.generation import Result
from headway.wire.messages import Submit, Timings


class ReplyInfo(msgspec.Struct):
    """One request that has its outcome. All durations in nanoseconds.

    rows: of all its parts.  received: monotonic instant of the request's last byte.
    timings: parse + queue + hand_over + execute + back = from `received` to the Reply message.
    reply: from the Reply message until its last byte was handed to the socket; None until then.
    """

    request: int
    model: str
    version: int
    tenant: str
    outcome: Outcome
    rows: int
    received: Instant
    timings: Timings
    reply: Duration | None = None


class BatchInfo(msgspec.Struct):
    """One batch that a worker has answered. Durations in nanoseconds, as the worker reports them.

    padded_tokens: rows x longest length.  real_tokens: sum of rows x length of the parts.
    hand_over + execute + finish: how long the worker was busy with it.
    round_trip: from the dispatch until the answer was read.
    """

    worker: WorkerId
    model: str
    version: int
    rows: int
    padded_tokens: int
    real_tokens: int
    hand_over: Duration
    execute: Duration
    finish: Duration
    round_trip: Duration
    reason: Reason
    failed: bool


class Observer(Protocol):
    """Implemented by telemetry."""

    def handled(self, now: Instant, events: Sequence[Event], effects: Sequence[Effect]) -> None:
        """The core was called once, and the effects are about to be carried out. Neither list changes later."""

    def replied(self, reply: ReplyInfo) -> None:
        """Once for each request, when its Reply message is handed to the gateway. `reply.reply` is None."""

    def written(self, reply: ReplyInfo) -> None:
        """The same object again, with `reply.reply` known. Does not happen where the client went away before."""

    def batch_done(self, batch: BatchInfo) -> None:
        """Once for each batch that was answered; not for one whose worker was lost."""

    def worker_state(self, worker: WorkerId, version: VersionId, state: str, cause: str) -> None:
        """state: "starting", "ready", "draining", "stopped" or "lost"; cause: why it was lost, else ""."""

    def asked(self, submit: Submit) -> None:
        """A request of a language model has come; the core is about to be told of it."""

    def generated(self, request: RequestId, values: Sequence[Result], now: Instant) -> None:
        """Results of a request that streams are passed on to the gateway; those of other models are any values."""

    def engine(self, worker: WorkerId, counts: EngineCounts) -> None:
        """What an engine says of itself, some times a second and when it has fallen idle."""


class NullObserver:
    """Watches nothing."""

    def handled(self, now: Instant, events: Sequence[Event], effects: Sequence[Effect]) -> None:
        pass

    def replied(self, reply: ReplyInfo) -> None:
        pass

    def written(self, reply: ReplyInfo) -> None:
        pass

    def batch_done(self, batch: BatchInfo) -> None:
        pass

    def worker_state(self, worker: WorkerId, version: VersionId, state: str, cause: str) -> None:
        pass

    def asked(self, submit: Submit) -> None:
        pass

    def generated(self, request: RequestId, values: Sequence[Result], now: Instant) -> None:
        pass

    def engine(self, worker: WorkerId, counts: EngineCounts) -> None:
        pass
