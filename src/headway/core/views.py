"""What others may see of a version: plain values, for metrics, readiness and the curious."""

from __future__ import annotations

from enum import Enum

from headway.core.ids import VersionId, WorkerId
from headway.core.pool import Pool
from headway.core.record import record
from headway.core.units import NEVER, Duration, Instant
from headway.core.workers import WorkerState


class VersionState(Enum):
    """Derived from the workers, never kept."""

    LOADING = "loading"
    READY = "ready"
    DRAINING = "draining"
    UNAVAILABLE = "unavailable"
    """Nothing runs it, and nothing is starting."""


@record
class VersionView:
    """oldest: arrival of the part that has waited longest, NEVER when none waits.
    virtual_time, counters: of the fair order, in device nanoseconds / weight.
    cost_error, cost_coverage: of the cost model: mean |log(actual / median)|, part within the upper quantile."""

    version: VersionId
    state: VersionState
    waiting_requests: int
    waiting_parts: int
    waiting_rows: int
    oldest: Instant
    running_batches: int
    running_sequences: int
    workers: dict[WorkerId, WorkerState]
    virtual_time: int
    counters: dict[str, int]
    cost_error: float
    cost_coverage: float
    clears_in: Duration
    """When what waits will have been worked off, at the rate of the last seconds."""


def view(pool: Pool) -> VersionView:
    oldest = min((queue.oldest() for queue in pool.keys.values()), default=NEVER)
    return VersionView(
        version=pool.version,
        state=_state(pool),
        waiting_requests=pool.queued,
        waiting_parts=pool.waiting,
        waiting_rows=pool.rows,
        oldest=oldest,
        running_batches=sum(len(w.batches) for w in pool.workers.values()),
        running_sequences=sum(len(w.sequences) for w in pool.workers.values()),
        workers={w.id: w.state for w in pool.workers.values()},
        virtual_time=pool.fair.virtual_time,
        counters={a.tenant: a.counter for a in pool.fair.accounts.values()},
        cost_error=pool.cost.error,
        cost_coverage=pool.cost.coverage,
        clears_in=pool.rate.time_for(pool.waiting, pool.now),
    )


def _state(pool: Pool) -> VersionState:
    if pool.draining:
        return VersionState.DRAINING
    states = [w.state for w in pool.workers.values()]
    if WorkerState.READY in states:
        return VersionState.READY
    return VersionState.LOADING if WorkerState.STARTING in states else VersionState.UNAVAILABLE
