"""What others may see of a version: plain values, for metrics, readiness and the curious."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import TYPE_CHECKING

from headway.core.cost import KNEES, STEPS
from headway.core.device import Device
from headway.core.engine_views import EngineDetail, engines
from headway.core.failure_views import FailureView, failures
from headway.core.ids import VersionId, WorkerId
from headway.core.linger import Linger
from headway.core.policy import BatchPolicy
from headway.core.pool import Pool
from headway.core.rate import WINDOW, RateMeter
from headway.core.record import record
from headway.core.tenant_views import ForecastDetail, TenantDetail, forecast, tenants
from headway.core.units import NEVER, SECOND, Duration, Instant
from headway.core.workers import WorkerState

if TYPE_CHECKING:
    from headway.core.scheduler import Scheduler

BASE_TERMS = ("fixed", "row", "length", "token", "attention")
"""The first terms of the cost model, in its order: per batch, per row, per token of the longest row, per
padded token, per padded token and token of the longest row."""


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
    virtual_time, counters: of the fair order of its device, which all versions on it share; in nanoseconds x cores /
        weight.
    cost_error, cost_coverage: of the cost model: mean |log(actual / median)|, part within the upper quantile.
    max_queue_delay: in force: fixed, or derived from the SLO.
    probes: batches made larger than would pay, to see what a size takes that was not run of late."""

    version: VersionId
    state: VersionState
    waiting_requests: int
    waiting_parts: int
    waiting_rows: int
    oldest: Instant
    running_batches: int
    running_sequences: int
    waiting_sequences: int
    """Of the running ones, those that wait in engines: no step has begun with them, or they have lost their blocks."""
    workers: dict[WorkerId, WorkerState]
    virtual_time: int
    counters: dict[str, int]
    cost_error: float
    cost_coverage: float
    max_queue_delay: Duration
    probes: int
    clears_in: Duration
    """When what waits will have been worked off, at the rate of the last seconds."""
    failures: FailureView


def view(pool: Pool) -> VersionView:
    oldest = min((queue.oldest() for queue in pool.keys.values()), default=NEVER)
    return VersionView(
        version=pool.version,
        state=_state(pool),
        waiting_requests=pool.queued,
        waiting_parts=pool.waiting,
        waiting_rows=pool.rows,
        oldest=oldest,
        running_batches=sum(len(w.batches) for w in pool.placement.workers.values()),
        running_sequences=sum(len(w.sequences) for w in pool.placement.workers.values()),
        waiting_sequences=sum(len(w.engine.waiting) for w in pool.placement.workers.values() if w.engine is not None),
        workers={w.id: w.state for w in pool.placement.workers.values()},
        virtual_time=pool.fair.virtual_time,
        counters={a.tenant: a.counter for a in pool.fair.accounts.values()},
        cost_error=pool.cost.error,
        cost_coverage=pool.cost.coverage,
        max_queue_delay=pool.max_queue_delay,
        probes=pool.cost.probes.count,
        clears_in=pool.rate.time_for(pool.waiting, pool.now),
        failures=failures(pool),
    )


def _state(pool: Pool) -> VersionState:
    if pool.draining:
        return VersionState.DRAINING
    states = [w.state for w in pool.placement.workers.values()]
    if WorkerState.READY in states:
        return VersionState.READY
    return VersionState.LOADING if WorkerState.STARTING in states else VersionState.UNAVAILABLE


@record
class DeviceView:
    """What versions share.  cores: that may be in use at once; 0 = no limit.  in_use: taken by batches that run.

    trouble: why it is lost; "" = it is not.
    versions: those on it, in the order in which they were configured.
    """

    name: str
    cores: int
    in_use: int
    versions: tuple[VersionId, ...]
    trouble: str


def devices(scheduler: Scheduler) -> list[DeviceView]:
    """In the order of their first use. A version that shares none has one of its own, named after it."""
    return [_device_view(device) for device in scheduler._state.devices.values()]


def _device_view(device: Device) -> DeviceView:
    return DeviceView(device.name, device.cores, device.in_use, tuple(device.pools), device.trouble)


# -- for the curious: more than a scrape should pay for ----------------------------------------


@record
class CostTerm:
    """One term of the cost model that counts for something.

    name: one of BASE_TERMS, or "step" (once a batch has `at` rows) or "knee" (per padded token beyond `at`).
    weight: nanoseconds per unit, at the device's present speed.
    """

    name: str
    at: int
    weight: float


@record
class SizeSeen:
    """Batches of about one size that the cost model remembers. took: their mean, at the present speed."""

    rows: float
    length: float
    batches: int
    took: Duration


@record
class CostDetail:
    """The cost model in words and numbers.

    measured: batches and warm-up runs it has seen; 0 = its guess is not worth anything.
    scale: the present speed against that of the fit; above 1 = slower.
    predict: (rows, longest length) -> lower, median, upper run time.
    """

    measured: int
    terms: list[CostTerm]
    scale: float
    lower_ratio: float
    upper_ratio: float
    error: float
    coverage: float
    seen: list[SizeSeen]
    predict: Callable[[int, int], tuple[Duration, Duration, Duration]]


@record
class LingerDetail:
    """How the ceiling of waiting for company is derived: fraction * (slo - run_time - outside).

    run_time: upper prediction for a batch of `rows` rows, the longest of `length`; the dearest of the last window.
    outside: running upper quantile of what requests spend outside queue and worker; 0 = not measured.
    answers, late: of the window that is under way, and of them those beyond the SLO.
    """

    rows: int
    length: int
    run_time: Duration
    outside: Duration
    fraction: float
    ceiling: Duration
    answers: int
    late: int


@record
class VersionDetail:
    """What is in force for one version, and what the scheduler has learned of it.

    completed_per_second: parts, over the last two seconds.
    arrived_per_second: parts; None where arrivals are not counted.
    paces: worker -> how long it takes for what takes the pool's workers 1; empty where they are not told apart.
    overhead: what a batch spends between scheduler and worker, both ways; None where it is not measured.
    linger: None where the ceiling of waiting for company is fixed.
    takes: cores of the device, while a batch runs: what the policy says, or all there are where that is less.
    forecast: None where nobody is refused by one.
    tenants: of each that is named, and last of all others together.
    engines: of the version's workers, those that are.
    """

    view: VersionView
    policy: BatchPolicy
    cost: CostDetail
    completed_per_second: float
    arrived_per_second: float | None
    paces: dict[WorkerId, float]
    overhead: Duration | None
    linger: LingerDetail | None
    device: DeviceView
    takes: int
    forecast: ForecastDetail | None
    tenants: list[TenantDetail]
    engines: list[EngineDetail]


def detail(scheduler: Scheduler, version: VersionId, now: Instant) -> VersionDetail | None:
    """None for a version that is not configured. Changes nothing."""
    pool = scheduler._state.pools.get(version)
    if pool is None:
        return None
    return VersionDetail(
        view=view(pool),
        policy=pool.policy,
        cost=_cost_detail(pool),
        completed_per_second=_per_second(pool.rate, now),
        arrived_per_second=SECOND / gap if (gap := pool.arrivals.gap(now)) else 0.0,
        paces={worker.id: worker.pace for worker in pool.placement.workers.values()},
        overhead=pool.placement.overhead,
        linger=None if pool.linger is None else _linger_detail(pool.linger),
        device=_device_view(pool.device),
        takes=pool.device.need(pool),
        forecast=forecast(pool),
        tenants=tenants(scheduler._state, pool, now),
        engines=engines(pool),
    )


def _linger_detail(linger: Linger) -> LingerDetail:
    return LingerDetail(
        rows=linger.rows,
        length=linger.length,
        run_time=linger.run_time,
        outside=linger.outside,
        fraction=linger.fraction,
        ceiling=linger.ceiling,
        answers=linger.answers,
        late=linger.late,
    )


def _cost_detail(pool: Pool) -> CostDetail:
    cost = pool.cost
    return CostDetail(
        measured=cost.measured,
        terms=_terms(cost.weights, cost.scale),
        scale=cost.scale,
        lower_ratio=cost.lower_ratio,
        upper_ratio=cost.upper_ratio,
        error=cost.error,
        coverage=cost.coverage,
        seen=[SizeSeen(c.rows, c.length, c.count, int(c.took * cost.scale)) for c in cost.sizes()],
        predict=lambda rows, length: (cost.lower(rows, length), cost.median(rows, length), cost.upper(rows, length)),
    )


def _terms(weights: list[float], scale: float) -> list[CostTerm]:
    names = [(name, 0) for name in BASE_TERMS] + [("step", at) for at in STEPS] + [("knee", at) for at in KNEES]
    return [CostTerm(name, at, w * scale) for (name, at), w in zip(names, weights, strict=True) if w]


def _per_second(meter: RateMeter, now: Instant) -> float:
    """Read from outside of `handle`, so without moving the meter's windows on."""
    since, count, before, _ = meter.snapshot()
    age = now - since
    if age >= 2 * WINDOW:
        return 0.0
    if age >= WINDOW:
        count, before, age = 0, count, age - WINDOW
    return (count + before * (WINDOW - age) / WINDOW) * SECOND / WINDOW
