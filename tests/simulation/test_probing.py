"""What is believed of sizes that are not run is found out, and finding out costs next to nothing."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from random import Random
from statistics import mean

import pytest

from headway.core.effects import DispatchBatch, Effect
from headway.core.events import Event, ServerConfigured, VersionConfigured
from headway.core.ids import Part
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.probing import Probes
from headway.core.scheduler import Scheduler
from headway.core.units import MILLISECOND, NEVER, SECOND, Duration, Instant, ms, us
from headway.sim.clients import Clients
from headway.sim.costs import Cost, cpu, warm_up
from headway.sim.driver import Driver
from headway.sim.fleet import Fleet
from headway.sim.regimes import Ends
from headway.sim.scenario import KEY, VERSION
from headway.sim.sim_worker import Model
from headway.sim.workloads import Arrival, lognormal_length, poisson

Device = Callable[[Instant, int, int], Duration]
"""(now, rows, padded length) -> run time: one that changes."""


def rows_cost(rows: int, length: int) -> Duration:
    return ms(4) * rows


def rows_are_free(rows: int, length: int) -> Duration:
    return ms(4)


def tokens_cost(rows: int, length: int) -> Duration:
    return us(50) + us(50) * rows * length


def all_is_free(rows: int, length: int) -> Duration:
    return ms(4) + us(1) * rows


def always(cost: Cost) -> Device:
    return lambda now, rows, length: cost(rows, length)


@dataclass
class Played:
    """waits: from arrival to answer in ms, in order of arrival.  rows: of each batch."""

    waits: list[float]
    rows: list[int]
    probes: int

    def last(self, part: int = 5) -> float:
        """Mean waiting of the last one in so many."""
        return mean(self.waits[-len(self.waits) // part :])


@dataclass
class Sizes:
    """An observer: parts of each batch."""

    rows: list[int] = field(default_factory=list)

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        self.rows += [len(effect.parts) for effect in effects if isinstance(effect, DispatchBatch)]


def play(
    device: Device,
    believed: Cost,
    rate: float,
    count: int,
    *,
    length: int = 0,
    patience: Duration = NEVER,
    policy: BatchPolicy | None = None,
    tenants: int = 1,
) -> Played:
    """One worker, warmed up on what was `believed`. length: of all requests; 0 = mixed."""
    rng, now, arrivals = Random("probing"), 0, []
    for i, gap in zip(range(count), poisson(rng, rate), strict=False):
        now += gap
        part = Part(1, length or lognormal_length(rng))
        arrivals.append(Arrival(now, KEY, (part,), patience=patience, tenant=f"t{i % tenants}"))
    ends, sizes = Ends([NEVER] * count), Sizes()
    driver = Driver(Scheduler(), (ends, sizes))
    model = Model(lambda rows, length: device(driver.now, rows, length), measurements=warm_up(believed, 32, 256))
    fleet = Fleet(driver, {VERSION: model}, Random("fleet"))
    driver.tell(ServerConfigured(ServerPolicy()))
    driver.tell(VersionConfigured(VERSION, policy or BatchPolicy()))
    fleet.start()
    Clients(driver, Random("clients")).open_loop(arrivals)
    driver.run()
    answered = [(end - a.at) / MILLISECOND for end, a in zip(ends.ends, arrivals, strict=True) if end != NEVER]
    (view,) = driver.scheduler.views()
    return Played(answered, sizes.rows, view.probes)


def without_probing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Probes, "is_due", lambda self: False)


def test_rows_that_cost_nothing_though_warm_up_said_otherwise_are_found_out() -> None:
    """At 92 % of what one row after the other makes of it."""
    played = play(always(rows_are_free), rows_cost, 230, 8000, length=32)
    assert played.last() < 6
    assert played.probes < 20


def test_without_probing_nobody_would_ever_know(monkeypatch: pytest.MonkeyPatch) -> None:
    without_probing(monkeypatch)
    played = play(always(rows_are_free), rows_cost, 230, 8000, length=32)
    assert set(played.rows) == {1}
    assert played.last() > 15


def rows_are_free_later(now: Instant, rows: int, length: int) -> Duration:
    """After 20 s, when the larger sizes have not been run for long."""
    return (rows_cost if now < 20 * SECOND else rows_are_free)(rows, length)


@pytest.mark.parametrize("tenants", [1, 3])
def test_larger_sizes_that_have_become_cheap_long_after_they_were_tried_are_found_out(tenants: int) -> None:
    played = play(rows_are_free_later, rows_cost, 240, 12000, length=32, tenants=tenants)
    assert played.last() < 6


def test_without_probing_they_would_not_be(monkeypatch: pytest.MonkeyPatch) -> None:
    without_probing(monkeypatch)
    played = play(rows_are_free_later, rows_cost, 240, 12000, length=32)
    assert set(played.rows) == {1}
    assert played.last() > 20


@pytest.mark.parametrize(("rate", "at_most"), [(300, 8), (400, 12)])
def test_a_device_of_another_speed_makes_all_sizes_doubtful_at_once(rate: float, at_most: float) -> None:
    """Singles alone show that the device is not the one that was warmed up: what is known need not age first."""
    assert mean(play(always(all_is_free), tokens_cost, rate, 4000).waits) < at_most


def test_where_singles_collapse_before_that_is_known_the_queue_is_worked_off_all_the_same() -> None:
    waits = play(always(all_is_free), tokens_cost, 500, 4000).waits
    assert mean(waits[-1000:]) < 8


@cache
def undisturbed(cost: Cost, rate: float, count: int) -> float:
    with pytest.MonkeyPatch.context() as patch:
        without_probing(patch)
        return mean(play(always(cost), cost, rate, count).waits)


@pytest.mark.parametrize(("cost", "rate"), [(tokens_cost, 250), (cpu, 66), (cpu, 85)], ids=["75 %", "cpu 70 %", "90 %"])
def test_where_company_does_not_pay_probing_costs_hardly_two_per_cent_of_the_waiting(cost: Cost, rate: float) -> None:
    played = play(always(cost), cost, rate, 12000)
    assert played.probes > 5
    assert mean(played.waits) < 1.02 * undisturbed(cost, rate, 12000)


def test_who_has_a_tight_deadline_is_not_probed_with() -> None:
    """In 12 ms two would be in time together, but not if that took four times as long."""
    played = play(always(rows_cost), rows_cost, 150, 8000, length=32, patience=ms(12))
    assert set(played.rows) == {1}
    assert played.probes == 0


def test_held_batches_are_not_probed_with() -> None:
    policy = BatchPolicy(hold=True, max_queue_delay=ms(1), max_batch_size=4)
    assert play(always(rows_cost), rows_cost, 200, 4000, length=32, policy=policy).probes == 0
