"""More than a device can do, with deadlines: what is answered in time, what is refused, and whether rightly.

Whether a refusal was right is found out by playing the very same run again. Two questions:

    alone     this one request is let in anyway, all else as it was: was it in time? Exact for the request, and what
              it would have cost the others is not counted.
    nobody    nobody is refused at arrival: was it in time? What a server without admission would have made of it.

Who is let in anyway keeps its deadline, its class and its place in every order; only the judgement at arrival is
left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import repeat
from random import Random

from headway.core import admission, scheduler
from headway.core.effects import Effect, ResolveRequest
from headway.core.events import Event, RequestArrived
from headway.core.ids import RequestId
from headway.core.outcomes import Kind, Outcome
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.state import State
from headway.core.tenancy import TenantPolicy
from headway.core.units import NEVER, SECOND, Duration, Instant, ms, seconds
from headway.sim.costs import COSTS
from headway.sim.tenants import TenantLoad, TenantScenario, lengths, requests, simulate_tenants
from headway.sim.workloads import poisson

SATURATING = 200


@dataclass(frozen=True, slots=True)
class Overload:
    """times: of what the device can do.  patience: every request's deadline, if `is_deadline`; else its SLO.
    tenants: that share the load equally."""

    shape: str = "cpu"
    times: float = 1.5
    patience: Duration = SECOND
    is_deadline: bool = True
    duration: Duration = 60 * SECOND
    noise: float = 0.0
    tenants: int = 2
    seed: int = 1


@dataclass(slots=True)
class Ends:
    """An observer: what became of each request. at_once: refused in the call in which it came."""

    arrived: dict[RequestId, Instant] = field(default_factory=dict)
    ends: dict[RequestId, tuple[Outcome, Instant]] = field(default_factory=dict)
    at_once: dict[RequestId, Outcome] = field(default_factory=dict)

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        came: dict[RequestId, None] = {}
        for event in events:
            if type(event) is RequestArrived:
                self.arrived[event.request] = now
                came[event.request] = None
        for effect in effects:
            if type(effect) is ResolveRequest:
                self.ends[effect.request] = (effect.outcome, now)
                if effect.request in came and effect.outcome.kind is Kind.REFUSED:
                    self.at_once[effect.request] = effect.outcome

    def in_time(self, request: RequestId, patience: Duration) -> bool:
        outcome, at = self.ends[request]
        return outcome is Outcome.COMPLETED and at - self.arrived[request] <= patience


@dataclass(frozen=True, slots=True)
class Outcomes:
    """Of requests per second: capacity of the device without deadlines, offered, goodput in time.

    at_once: part of what came that was refused in the call in which it came.  at_dispatch: that was given up later,
    before its deadline, as it could no longer be met.
    late: part of the admitted that was not answered in time, whatever became of it.
    """

    overload: Overload
    capacity: float
    offered: float
    goodput: float
    at_once: float
    at_dispatch: float
    late: float
    ends: Ends

    @property
    def of_capacity(self) -> float:
        return self.goodput / self.capacity


@dataclass(frozen=True, slots=True)
class Precision:
    """asked: refused requests that were looked at.  alone, nobody: parts of them that were rightly refused."""

    asked: int
    alone: float
    nobody: float


def overload(case: Overload) -> Outcomes:
    ends = play(case)
    span = case.duration / seconds(1)
    in_time = [request for request in ends.ends if ends.in_time(request, case.patience)]
    admitted = len(ends.ends) - len(ends.at_once)
    given_up = sum(o is Outcome.DEADLINE_UNMEETABLE for o, _ in ends.ends.values()) - sum(
        outcome is Outcome.DEADLINE_UNMEETABLE for outcome in ends.at_once.values()
    )
    total = max(1, len(ends.ends))
    return Outcomes(
        case,
        capacity(case.shape),
        len(ends.ends) / span,
        len(in_time) / span,
        len(ends.at_once) / total,
        given_up / total,
        1 - len(in_time) / max(1, admitted),
        ends,
    )


def precision(case: Overload, base: Ends, sample: int) -> Precision | None:
    """Of refusals for want of time. None: there are none. sample: so many of them are played again, one by one."""
    judged = (Outcome.DEADLINE_UNMEETABLE, Outcome.OVERLOADED)
    refused = [request for request, outcome in base.at_once.items() if outcome in judged]
    if not refused:
        return None
    chosen = Random(f"{case.seed} sample").sample(refused, min(sample, len(refused)))
    alone = sum(not _alone(case, request, base) for request in chosen)
    everybody = play(case, lambda request: True)
    nobody = sum(not everybody.in_time(request, case.patience) for request in refused)
    return Precision(len(chosen), alone / len(chosen), nobody / len(refused))


def _alone(case: Overload, request: RequestId, base: Ends) -> bool:
    """Whether it would have been in time. Played until a while after its deadline, which is enough to know."""
    known = base.arrived[request] + 2 * case.patience
    ends = play(replace(case, duration=min(case.duration, known)), lambda other: other == request)
    return ends.in_time(request, case.patience)


def play(case: Overload, anyway: Callable[[RequestId], bool] = lambda request: False) -> Ends:
    """anyway: who is let in whatever admission would say."""
    ends = Ends()
    with admitted_anyway(anyway):
        simulate_tenants(_scenario(case), (ends,))
    return ends


@contextmanager
def admitted_anyway(chosen: Callable[[RequestId], bool]) -> Iterator[None]:
    """Inside, requests that are chosen are not judged at arrival."""
    judged = scheduler._APPLY[RequestArrived]

    def arrived(state: State, event: RequestArrived, now: Instant) -> None:
        if not chosen(event.request):
            judged(state, event, now)
            return
        pool = state.pools[event.key.version_id]
        admission.admit(state, pool, admission.Candidate(event), now)

    scheduler._APPLY[RequestArrived] = arrived
    try:
        yield
    finally:
        scheduler._APPLY[RequestArrived] = judged


@cache
def capacity(shape: str) -> float:
    """Requests per second of one worker that never lacks work, in batches that nobody is late by."""
    rng = Random("capacity")
    lasts = seconds(60) if shape == "cpu" else seconds(2)
    load = TenantLoad("one", requests(repeat(0), lengths(rng)), clients=SATURATING)
    report = simulate_tenants(TenantScenario((load,), duration=lasts, cost=COSTS[shape]))
    return report.overall.throughput_per_s


def _scenario(case: Overload) -> TenantScenario:
    policy = TenantPolicy(slos=() if case.is_deadline else (("", case.patience),))
    rate = case.times * capacity(case.shape) / case.tenants
    return TenantScenario(
        tuple(_load(f"tenant-{number}", rate, policy, case) for number in range(case.tenants)),
        duration=case.duration,
        policy=BatchPolicy(slo=0 if case.is_deadline else case.patience),
        cost=COSTS[case.shape],
        noise=case.noise,
        seed=case.seed,
    )


def _load(tenant: str, rate: float, policy: TenantPolicy, case: Overload) -> TenantLoad:
    rng = Random(f"{case.seed} {tenant}")
    patience = case.patience if case.is_deadline else NEVER
    return TenantLoad(tenant, requests(poisson(rng, rate), lengths(rng), patience=patience), policy)


CASES: Sequence[Overload] = (
    Overload(times=1.5),
    Overload(times=3),
    Overload(times=1.5, noise=0.2),
    Overload(shape="gpu", times=1.5, patience=ms(50), duration=seconds(2)),
    Overload(shape="gpu", times=3, patience=ms(50), duration=seconds(2)),
    Overload(times=3, is_deadline=False),
)
