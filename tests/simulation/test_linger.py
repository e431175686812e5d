"""The wait for company that is derived from the SLO, in virtual time, beside the fixed 5 ms."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from random import Random

from headway.core.effects import DispatchBatch, Effect, ResolveRequest
from headway.core.events import Event, RequestArrived
from headway.core.ids import RequestId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import Duration, Instant, ms, seconds
from headway.sim.costs import Cost, noisy
from headway.sim.scenario import KEY, Scenario, simulate
from headway.sim.shapes import launch
from headway.sim.workloads import Arrival, Mix, open_loop, poisson

SLO = ms(100)
OUTSIDE = ms(2)
DERIVED = BatchPolicy(slo=SLO, derive_delay=True, hold=True)
FIXED = BatchPolicy(slo=SLO, max_queue_delay=ms(5), hold=True)


@dataclass(slots=True)
class Log:
    """An observer: (instant, latency in the core) of each answer, rows of each batch, the ceiling whenever it moves."""

    arrived: dict[RequestId, Instant] = field(default_factory=dict)
    answers: list[tuple[Instant, Duration]] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    ceilings: list[tuple[Instant, Duration]] = field(default_factory=list)
    now: Instant = 0

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        self.now = now
        for event in events:
            if isinstance(event, RequestArrived):
                self.arrived[event.request] = now
        for effect in effects:
            if isinstance(effect, DispatchBatch):
                self.rows.append(len(effect.parts))
            elif isinstance(effect, ResolveRequest) and effect.outcome is Outcome.COMPLETED:
                self.answers.append((now, now - self.arrived.pop(effect.request)))
        for view in scheduler.views():
            if not self.ceilings or self.ceilings[-1][1] != view.max_queue_delay:
                self.ceilings.append((now, view.max_queue_delay))

    def mean_rows(self) -> float:
        return sum(self.rows) / len(self.rows)

    def in_time(self, since: Instant, until: Instant) -> float:
        """Share of the answers between two instants that were within the SLO, all that is outside included."""
        took = [latency for at, latency in self.answers if since <= at < until]
        return sum(latency + OUTSIDE <= SLO for latency in took) / len(took)

    def ceiling_at(self, when: Instant) -> Duration:
        return [ceiling for at, ceiling in self.ceilings if at <= when][-1]

    def lowest_between(self, since: Instant, until: Instant) -> Duration:
        return min([self.ceiling_at(since), *(ceiling for at, ceiling in self.ceilings if since <= at < until)])


def steady(rate: float, count: int, start: Instant = 0) -> list[Arrival]:
    rng = Random(f"{rate} {start}")
    arrivals = list(open_loop(rng, poisson(rng, rate), Mix((KEY,)), count))
    for arrival in arrivals:
        arrival.at += start
    return arrivals


def play(
    policy: BatchPolicy, arrivals: list[Arrival], cost: Cost = launch, log: Log | None = None, checked: bool = False
) -> Log:
    log = log or Log()
    simulate(Scenario(arrivals, policy, cost=cost, overhead=OUTSIDE, checked=checked), (log,))
    return log


def slower(log: Log, since: Instant, until: Instant, times: float) -> Cost:
    """A launch-bound device that takes so many times as long for a while."""
    return lambda rows, length: round((times if since <= log.now < until else 1) * launch(rows, length))


def test_batches_grow_beyond_those_of_a_fixed_delay_and_answers_stay_within_the_slo() -> None:
    arrivals = steady(300, 6000)
    derived, fixed = play(DERIVED, arrivals), play(FIXED, arrivals)
    assert derived.mean_rows() > 4 * fixed.mean_rows()
    assert derived.in_time(0, seconds(60)) >= 0.99
    assert len(derived.rows) < len(fixed.rows) / 4, "the device is left alone for as much longer"


def test_an_slo_with_little_to_spare_is_kept_on_a_device_of_uneven_pace() -> None:
    policy = BatchPolicy(slo=ms(40), derive_delay=True, hold=True)
    log = play(policy, steady(300, 6000), noisy(launch, Random("noise"), 0.3))
    late = [latency + OUTSIDE > ms(40) for at, latency in log.answers if at > seconds(5)]
    assert sum(late) <= 0.01 * len(late)
    assert log.mean_rows() > 4


def test_when_the_device_slows_down_the_ceiling_falls_and_when_it_is_over_it_comes_back() -> None:
    log = Log()
    cost = slower(log, seconds(20), seconds(40), 6)
    play(DERIVED, steady(150, 9000), cost, log, checked=True)
    before, after = log.ceiling_at(seconds(20)), log.ceiling_at(seconds(60))
    assert log.lowest_between(seconds(20), seconds(40)) < 0.6 * before
    assert after > 0.9 * before
    assert log.in_time(seconds(25), seconds(40)) >= 0.99, "once it has adapted, on the slow device too"
    assert log.in_time(seconds(45), seconds(60)) >= 0.99


def test_an_overload_is_not_made_worse_and_is_recovered_from() -> None:
    arrivals = [*steady(300, 1200), *steady(8000, 16_000, seconds(4)), *steady(300, 6000, seconds(10))]
    arrivals.sort(key=lambda arrival: arrival.at)
    derived, fixed = (play(replace(policy, shed=False), arrivals) for policy in (DERIVED, FIXED))
    done = [sum(seconds(4) <= at < seconds(7) for at, _ in log.answers) for log in (derived, fixed)]
    assert done[0] >= 0.99 * done[1], "as many are served while the queue grows"
    assert derived.in_time(seconds(4), seconds(7)) < 0.5, "it was an overload"
    assert derived.ceiling_at(seconds(30)) > ms(50)
    assert derived.in_time(seconds(13), seconds(30)) >= 0.99


def test_an_operators_fixed_delay_stays_in_a_world_where_everything_is_late() -> None:
    log = play(FIXED, steady(300, 1000), lambda rows, length: ms(150))
    assert log.in_time(0, seconds(600)) == 0
    assert log.ceilings == [(0, ms(5))]
