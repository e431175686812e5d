"""Two tenants that always have work share the device by weight, whatever their lengths."""

from __future__ import annotations

from random import Random

import pytest

from headway.core.ids import Part
from headway.core.policy import ServerPolicy
from headway.core.tenancy import TenantPolicy
from headway.core.units import seconds
from headway.sim.costs import COSTS, cpu
from headway.sim.scenario import KEY, Scenario, simulate
from headway.sim.workloads import Arrival, lognormal_length


def backlog(tenant: str, count: int, length: int | None, patience: int) -> list[Arrival]:
    rng = Random(tenant)
    lengths = [length or lognormal_length(rng) for _ in range(count)]
    return [Arrival(0, KEY, (Part(1, each),), tenant, patience=patience) for each in lengths]


@pytest.mark.parametrize(("weight", "share"), [(1.0, 0.5), (3.0, 0.75)])
def test_backlogged_tenants_get_device_time_in_proportion_to_their_weights(weight: float, share: float) -> None:
    """Equal lengths: completed requests are device time. Those unserved after 20 s expire."""
    arrivals = backlog("small", 3000, 40, seconds(20)) + backlog("large", 3000, 40, seconds(20))
    policy = ServerPolicy(tenants=(("large", TenantPolicy(weight=weight)), ("small", TenantPolicy())))
    report = simulate(Scenario(arrivals, server=policy))
    large, small = report.tenants["large"].count, report.tenants["small"].count
    assert large / (large + small) == pytest.approx(share, abs=0.02)


def test_a_tenant_with_long_requests_does_not_take_the_device_from_one_with_short_ones() -> None:
    arrivals = backlog("long", 2000, 200, seconds(30)) + backlog("short", 6000, 20, seconds(30))
    report = simulate(Scenario(arrivals))
    long_time = report.tenants["long"].count * cpu(1, 200)
    short_time = report.tenants["short"].count * cpu(1, 20)
    assert 0.7 < long_time / short_time < 1.4


@pytest.mark.parametrize("cost", COSTS)
def test_a_newcomer_is_served_soon_beside_a_long_backlog(cost: str) -> None:
    arrivals = backlog("greedy", 3000, None, seconds(3600))
    newcomer = Arrival(seconds(1), KEY, (Part(1, 40),), "newcomer")
    report = simulate(Scenario([*arrivals, newcomer], cost=COSTS[cost]))
    assert report.tenants["newcomer"].count == 1
    assert report.tenants["newcomer"].p99_ms < 500
