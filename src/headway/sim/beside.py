"""A polite tenant beside an aggressor that always has hundreds of requests outstanding, both of weight 1."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from itertools import repeat
from random import Random

from headway.core.policy import BatchPolicy
from headway.core.units import Duration, ms, seconds
from headway.sim.costs import COSTS
from headway.sim.tenant_report import TenantsReport
from headway.sim.tenants import TenantLoad, TenantScenario, lengths, requests, simulate_tenants
from headway.sim.workloads import Arrival, poisson

SATURATING = 200
"""Clients of one tenant that keep a device busy with the best batches it can make."""


@dataclass(frozen=True, slots=True)
class Device:
    """max_batch: time of one batch, at most.  duration: of a run, so long that p99 is of some hundred requests."""

    shape: str
    max_batch: Duration
    duration: Duration
    workers: int = 1
    hand_over: Duration = 0


DEVICES = (
    Device("cpu", ms(100), seconds(60)),
    Device("cpu", ms(100), seconds(40), workers=2, hand_over=ms(1)),
    Device("gpu", ms(10), seconds(3)),
    Device("gpu", ms(10), seconds(2), workers=2, hand_over=ms(0.5)),
)


@dataclass(frozen=True, slots=True)
class Beside:
    """share: of its fair half that polite asks for.  alone, beside: without and with the aggressor.
    p99s in ms, throughputs per second, of polite. regained: batches of others that ran before one of polite's, after
    it came back from idleness, at most.
    idle: part of the workers' time that nobody used beside the aggressor.
    """

    device: Device
    outstanding: int
    share: float
    asked_per_s: float
    got_per_s: float
    p99_alone: float
    p99_beside: float
    refused: int
    regained: int
    idle: float

    @property
    def added(self) -> float:
        """To its p99, in units of the longest batch (goal: at most 2)."""
        return (self.p99_beside - self.p99_alone) * ms(1) / self.device.max_batch


def beside(device: Device, outstanding: int, share: float, seed: int = 1) -> Beside:
    """polite sends as a Poisson process."""
    rate = share * capacity(device) / 2
    alone = simulate_tenants(_scenario(device, (_polite(rate, seed),), seed))
    both = simulate_tenants(_scenario(device, (_polite(rate, seed), _aggressor(outstanding, seed)), seed))
    mine = both.tenants["polite"]
    return Beside(
        device,
        outstanding,
        share,
        mine.requests * seconds(1) / device.duration,
        mine.throughput_per_s,
        alone.tenants["polite"].p99_ms,
        mine.p99_ms,
        sum(mine.refusals.values()),
        mine.reclaim_batches,
        1 - both.utilisation,
    )


def both_backlogged(device: Device, outstanding: int, seed: int = 1, as_one: bool = False) -> TenantsReport:
    """polite has 50 outstanding all the time.  as_one: the same clients under one name."""
    polite = TenantLoad("polite", _endless(Random(f"polite {seed}")), clients=50)
    scenario = _scenario(device, (polite, _aggressor(outstanding, seed)), seed)
    return simulate_tenants(replace(scenario, as_one=as_one))


@cache
def capacity(device: Device) -> float:
    """Requests per second of one tenant that always has enough of them waiting."""
    loads = (TenantLoad("one", _endless(Random("capacity")), clients=SATURATING),)
    report = simulate_tenants(_scenario(device, loads, 1))
    return report.tenants["one"].completed / (report.overall.duration_s)


def _scenario(device: Device, loads: tuple[TenantLoad, ...], seed: int) -> TenantScenario:
    return TenantScenario(
        loads,
        duration=device.duration,
        policy=BatchPolicy(max_batch_time=device.max_batch),
        cost=COSTS[device.shape],
        workers=device.workers,
        hand_over=device.hand_over,
        seed=seed,
    )


def _polite(rate: float, seed: int) -> TenantLoad:
    rng = Random(f"polite {seed}")
    return TenantLoad("polite", requests(poisson(rng, rate), lengths(rng)))


def _aggressor(outstanding: int, seed: int) -> TenantLoad:
    return TenantLoad("aggressor", _endless(Random(f"aggressor {seed}")), clients=outstanding)


def _endless(rng: Random) -> Iterator[Arrival]:
    return requests(repeat(0), lengths(rng))
