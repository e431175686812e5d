"""The fair order in virtual time: bounds over random worlds, and the cases that naive rules get wrong."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import repeat
from random import Random

import pytest

from headway.core.effects import Effect
from headway.core.events import Event
from headway.core.fairness import MAX_DEBTORS
from headway.core.ids import Part
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.tenancy import TenantPolicy
from headway.core.units import SECOND, Duration, ms, seconds
from headway.sim.costs import COSTS, gpu
from headway.sim.driver import Observer
from headway.sim.fair_oracle import FairOracle
from headway.sim.fair_worlds import run_fair_world
from headway.sim.gaps import Gaps
from headway.sim.scenario import KEY, Scenario, simulate
from headway.sim.tenant_report import TenantsReport
from headway.sim.tenants import TenantLoad, TenantScenario, requests, simulate_tenants
from headway.sim.workloads import Arrival, poisson


@pytest.mark.parametrize("seed", [1, 2, 4, 5, 6, 8, 9, 16, 24, 26, 48, 59])
def test_backlogged_tenants_stay_within_the_bound_whatever_the_device_weights_and_lengths(seed: int) -> None:
    assert run_fair_world(seed).of_bound <= 1


@pytest.mark.parametrize("seed", [1, 2, 9, 15, 34, 40, 51])
def test_they_do_with_deadlines_which_promote_within_the_share(seed: int) -> None:
    assert run_fair_world(seed, deadlines=True).of_bound <= 1


def test_the_largest_gap_is_that_over_all_intervals_in_which_both_were_backlogged() -> None:
    """Against every interval, one by one."""
    rng, gaps = Random(7), Gaps()
    names, open_since, histories = ["a", "b", "c"], dict[str, int](), dict[tuple[str, str], list[float]]()
    best: dict[tuple[str, str], float] = {}
    received = dict.fromkeys(names, 0.0)
    for now in range(400):
        tenant = rng.choice(names)
        if rng.random() < 0.1:
            if tenant in open_since:
                gaps.close(tenant)
                del open_since[tenant]
                histories = {pair: seen for pair, seen in histories.items() if tenant not in pair}
            else:
                gaps.open(tenant, now)
                open_since[tenant] = now
                for other in (other for other in open_since if other != tenant):
                    one, two = sorted((tenant, other))
                    histories[one, two] = [received[one] - received[two]]
            continue
        batch = {name: float(rng.randint(0, 9)) for name in rng.sample(names, rng.randint(1, 3))}
        gaps.add(batch, now)
        for name, service in batch.items():
            received[name] += service
        for (one, two), seen in histories.items():
            seen.append(received[one] - received[two])
            widest = max(abs(end - start) for at, start in enumerate(seen) for end in seen[at:])
            best[one, two] = max(best.get((one, two), 0.0), widest)
    assert {pair: gap.service for pair, gap in gaps.largest.items()} == {p: g for p, g in best.items() if g}


# -- cases that naive rules get wrong -------------------------------------------------------------------


def closed(
    tenant: str, clients: int, length: int = 40, rows: int = 1, weight: float = 1, start: Duration = 0
) -> TenantLoad:
    arrivals = requests(repeat(0), lambda: length, rows=rows)
    return TenantLoad(tenant, arrivals, TenantPolicy(weight), clients=clients, start=start)


def play(*loads: TenantLoad, also: tuple[Observer, ...] = (), lasts: Duration = 3 * SECOND, **more: object):  # type: ignore[no-untyped-def]
    scenario = TenantScenario(loads, duration=lasts, cost=gpu, **more)  # type: ignore[arg-type]
    return simulate_tenants(scenario, also)


def test_who_fills_the_room_that_anothers_parts_leave_does_not_get_ahead_by_it_without_end() -> None:
    """Twenty rows of one tenant leave room for twelve, of which none of its own fits: whose turn it is stays behind."""
    report: TenantsReport = play(closed("wide", 20, length=5, rows=20), closed("narrow", 100, length=5))
    assert report.tenants["wide"].share == pytest.approx(0.5, abs=0.02)
    assert report.gap_ms < 10


def test_who_has_filled_batches_that_others_led_owes_nobody_for_it() -> None:
    """One always waits, ten come and go and lead nearly every batch. When one of them stays, both get half."""
    lights = [
        TenantLoad(f"light-{number}", requests(poisson(Random(number), 200), lambda: 40), stop=seconds(2))
        for number in range(10)
    ]
    stays = closed("light-0", 100, start=seconds(2))
    report: TenantsReport = play(closed("steady", 100), *lights, stays, lasts=seconds(3), since=seconds(2))
    assert report.tenants["steady"].share == pytest.approx(0.5, abs=0.02)
    assert report.gap_ms < 10


def test_a_promoted_request_moves_no_time_on_for_those_who_come() -> None:
    oracle = FairOracle()
    report: TenantsReport = play(
        TenantLoad("tight", requests(poisson(Random(1), 400), lambda: 40, patience=ms(8)), TenantPolicy(0.1)),
        closed("steady", 60, weight=5),
        *(TenantLoad(f"comes-{n}", requests(poisson(Random(n), 100), lambda: 40)) for n in range(4)),
        also=(oracle,),
    )
    assert all(report.tenants[f"comes-{n}"].p99_ms < 20 for n in range(4))


def test_tight_deadlines_gain_nothing_beyond_the_share() -> None:
    def shares(patience: Duration) -> float:
        abuses = TenantLoad("abuses", requests(repeat(0), lambda: 40, patience=patience), clients=100)
        report: TenantsReport = play(
            abuses, closed("plain", 100), policy=BatchPolicy(max_batch_time=ms(10)), lasts=seconds(1)
        )
        return report.tenants["abuses"].share

    assert shares(ms(12)) <= 0.52
    assert shares(seconds(3600)) == pytest.approx(0.5, abs=0.02)


def test_the_top_class_gains_nothing_beyond_the_share() -> None:
    abuses = TenantLoad("abuses", requests(repeat(0), lambda: 40, priority=0), clients=100)
    low = TenantLoad("plain", requests(repeat(0), lambda: 40, priority=2), clients=100)
    report: TenantsReport = play(abuses, low, lasts=seconds(1))
    assert report.tenants["abuses"].share == pytest.approx(0.5, abs=0.01)


@pytest.mark.parametrize("cost", COSTS)
def test_weights_that_change_hold_from_then_on(cost: str) -> None:
    lasts = seconds(1) if cost != "cpu" else seconds(40)
    scenario = TenantScenario(
        (closed("one", 60), closed("two", 60)),
        duration=lasts,
        since=lasts // 2,
        changes=((lasts // 2, "two", TenantPolicy(3.0)),),
        cost=COSTS[cost],
    )
    oracle = FairOracle()
    assert simulate_tenants(scenario, (oracle,)).tenants["two"].share == pytest.approx(0.75, abs=0.02)


class Sizes:
    """An observer: the most that the core kept per tenant, of each kind. A look at every account is a rare one."""

    def __init__(self) -> None:
        self.calls = 0
        self.most = {"accounts": 0, "holdings": 0, "lanes": 0, "tallies": 0}

    def observe(self, now: int, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        state = scheduler._state
        self.calls += 1
        for device in state.devices.values():
            self.keeps("accounts", len(device.fair.accounts))
            self.keeps("tallies", len(device.fair.clock.tallies.by_tenant))
            if self.calls % 1000 == 0:
                self.keeps("lanes", max((len(account.lanes) for account in device.fair.accounts.values()), default=0))
        for pool in state.pools.values():
            self.keeps("holdings", len(pool.room.holdings) + len(state.room.holdings))

    def keeps(self, kind: str, number: int) -> None:
        self.most[kind] = max(self.most[kind], number)


def test_a_hundred_thousand_tenants_that_come_once_leave_nothing_behind() -> None:
    """Beside one that always waits, so that the device never idles, which would have it forget everybody."""

    def arrivals() -> Iterator[Arrival]:
        for number in range(100_000):
            at = number * ms(0.1)
            if number % 20 == 0:
                yield Arrival(at, KEY, (Part(32, 8),), "stays")
            yield Arrival(at, KEY, (Part(1, 8),), f"stranger-{number}")

    sizes = Sizes()
    report = simulate(Scenario(arrivals(), cost=lambda rows, length: ms(1) + rows * 20_000), (sizes,))
    assert report.outcomes == {"completed": 105_000}
    assert sizes.most["accounts"] < MAX_DEBTORS + 1000
    assert sizes.most["holdings"] < 2000
    assert sizes.most["tallies"] == 1, "of all strangers together"
    assert 0 < sizes.most["lanes"] <= 4
