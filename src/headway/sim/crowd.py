"""Does a longer queue ever make it slower? Completions per second with 10, 100 and 1,000 waiting."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from random import Random

from headway.core.ids import Part
from headway.core.policy import BatchPolicy
from headway.sim.scenario import KEY, Scenario, simulate
from headway.sim.shapes import SHAPES
from headway.sim.workloads import Arrival, lognormal_length

WAITING = (10, 100, 1000)
ROUNDS = 10
"""Requests of each client, on average."""
AT_LEAST = 4000


@dataclass(frozen=True, slots=True)
class Crowd:
    """rates: how many wait -> completions per second, all that time."""

    shape: str
    workers: int
    rates: dict[int, float] = field(default_factory=dict)

    @property
    def collapses(self) -> bool:
        return self.rates[WAITING[-1]] < self.rates[WAITING[0]]


def crowds(shapes: Sequence[str] | None, workers: Sequence[int] | None) -> Iterator[Crowd]:
    for shape, number in product(shapes or SHAPES, workers or (1, 4)):
        yield Crowd(shape, number)


def serve_crowd(crowd: Crowd, policy: BatchPolicy | None = None) -> Crowd:
    """A closed loop of that many clients beyond what the workers hold keeps them waiting."""
    return replace(crowd, rates={waiting: _rate(crowd, waiting, policy or BatchPolicy()) for waiting in WAITING})


def _rate(crowd: Crowd, waiting: int, policy: BatchPolicy) -> float:
    """Over what completes while every client still sends."""
    rng = Random("crowd")
    count = max(AT_LEAST, ROUNDS * waiting)
    arrivals = [Arrival(0, KEY, (Part(1, lognormal_length(rng)),)) for _ in range(count)]
    scenario = Scenario(arrivals, policy=policy, cost=SHAPES[crowd.shape], workers=crowd.workers, clients=waiting)
    return simulate(scenario).throughput_per_s
