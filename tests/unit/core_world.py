"""A scheduler with one version, and short names for what tests tell it."""

from __future__ import annotations

from dataclasses import replace

from headway.core.effects import DispatchBatch, Effect, ResolveRequest
from headway.core.events import (
    BatchCompleted,
    Event,
    RequestArrived,
    ServerConfigured,
    VersionConfigured,
    WorkerReady,
    WorkerStarting,
)
from headway.core.ids import BatchKey, Capacity, Measurement, Part, VersionId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, Duration, Instant, ms

V = VersionId("m", 1)
A = BatchKey("m", 1, "a")
B = BatchKey("m", 1, "b")

FLAT = tuple(Measurement(rows, length, ms(10)) for rows in (1, 8, 32) for length in (8, 256))
"""A device on which 32 cost as much as one."""
LINEAR = tuple(
    Measurement(rows, length, ms(0.01) + ms(0.2) * rows * length) for rows in (1, 2, 8, 32) for length in (8, 64, 256)
)
"""A device on which every padded token costs the same, and a batch next to nothing."""


class World:
    """tell(...) hands events to the scheduler, checks all invariants, returns the effects."""

    def __init__(
        self,
        policy: BatchPolicy | None = None,
        *,
        workers: int = 1,
        capacity: Capacity = Capacity(1),  # noqa: B008 - an immutable tuple
        cost: tuple[Measurement, ...] = FLAT,
        server: ServerPolicy | None = None,
        watched: bool = False,
    ) -> None:
        """watched: workers that say nothing are suspected; else no timer is set for that."""
        self.scheduler = Scheduler()
        self.now: Instant = 0
        self.cost = cost
        policy = policy or BatchPolicy()
        if not watched:
            policy = replace(policy, hang_floor=0)
        self.tell(ServerConfigured(server or ServerPolicy()), VersionConfigured(V, policy))
        for worker in range(workers):
            self.tell(WorkerStarting(worker, V), WorkerReady(worker, capacity, cost))

    def tell(self, *events: Event, at: Instant | None = None) -> list[Effect]:
        self.now = self.now if at is None else at
        effects = self.scheduler.handle(events, self.now)
        self.scheduler.check()
        return effects

    def complete(self, dispatch: DispatchBatch, at: Instant | None = None, took: Duration = 10_000_000) -> list[Effect]:
        return self.tell(BatchCompleted(dispatch.worker, dispatch.batch, took), at=at)


def arrive(
    request: int,
    *,
    key: BatchKey = A,
    tenant: str = "t",
    length: int = 8,
    rows: int = 1,
    parts: tuple[Part, ...] = (),
    deadline: Instant = NEVER,
    priority: int = 1,
    size: int = 0,
) -> RequestArrived:
    return RequestArrived(request, tenant, key, parts or (Part(rows, length),), size, deadline, priority)


def dispatches(effects: list[Effect]) -> list[DispatchBatch]:
    return [effect for effect in effects if isinstance(effect, DispatchBatch)]


def members(effects: list[Effect]) -> list[list[int]]:
    """The request ids of each dispatched batch."""
    return [[ref.request for ref in batch.parts] for batch in dispatches(effects)]


def outcomes(effects: list[Effect]) -> dict[int, Outcome]:
    return {effect.request: effect.outcome for effect in effects if isinstance(effect, ResolveRequest)}
