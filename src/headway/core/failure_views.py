"""What others may see of a version's failures: plain values, for readiness, metrics and the curious."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.core.breaker import Circuit
from headway.core.budget import AT_LEAST, WINDOW
from headway.core.ids import VersionId, WorkerId
from headway.core.pool import Pool
from headway.core.record import record
from headway.core.units import NEVER, SECOND, Instant
from headway.core.workers import WorkerState

if TYPE_CHECKING:
    from headway.core.scheduler import Scheduler


@record
class FailureView:
    """deaths: of workers in a row, that what they ran may be to blame for.
    refused_until: NEVER while the circuit is closed; once it has come, single requests are let in to try.
    suspected: workers that have not answered for too long.
    quarantine: content that is refused -> until when.
    retries, retries_left: executions in a window that may be repeated because workers were lost, and what is left of
        them until `renewed_at`.
    """

    deaths: int
    refused_until: Instant
    suspected: tuple[WorkerId, ...]
    quarantine: dict[int, Instant]
    retries: int
    retries_left: int
    renewed_at: Instant

    def circuit(self, now: Instant) -> Circuit:
        if self.refused_until == NEVER:
            return Circuit.CLOSED
        return Circuit.OPEN if now < self.refused_until else Circuit.HALF_OPEN

    def left(self, now: Instant) -> int:
        """Executions that may be repeated. A window after which nothing was told has all it is sure to have."""
        return self.retries_left if now < self.renewed_at else AT_LEAST

    def refused(self, now: Instant) -> dict[int, Instant]:
        """The content that is in quarantine now."""
        return {content: until for content, until in self.quarantine.items() if until > now}


def failures(pool: Pool) -> FailureView:
    budget = pool.budget
    return FailureView(
        deaths=pool.breaker.deaths,
        refused_until=pool.breaker.until,
        suspected=tuple(_suspected(pool)),
        quarantine=dict(pool.quarantine),
        retries=budget.limit,
        retries_left=max(0, budget.limit - budget.spent),
        renewed_at=budget.began + WINDOW,
    )


def stalls(scheduler: Scheduler, now: Instant) -> dict[VersionId, str]:
    """Versions that have workers which are ready and none that gets anywhere, and why. Cheap: asked at every probe.

    One whose circuit is half open is none of them: it wants a request to try, and who is not ready gets none.
    """
    found = {version: _stall(pool, now) for version, pool in scheduler._state.pools.items()}
    return {version: why for version, why in found.items() if why}


def _stall(pool: Pool, now: Instant) -> str:
    breaker = pool.breaker
    if breaker.circuit(now) is Circuit.OPEN:
        left = (breaker.until - now) / SECOND
        return f"{breaker.deaths} workers died in a row, it is tried again in {left:.0f} s"
    ready = [worker for worker in pool.placement.workers.values() if worker.state is WorkerState.READY]
    suspected = _suspected(pool)
    if ready and len(suspected) == len(ready):
        return f"none of {len(ready)} workers has answered for far longer than was predicted"
    return ""


def _suspected(pool: Pool) -> list[WorkerId]:
    workers = pool.placement.workers.values()
    return [worker.id for worker in workers if worker.is_suspected and worker.state is WorkerState.READY]
