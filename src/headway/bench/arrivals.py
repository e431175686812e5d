"""When requests are due in an open loop."""

from __future__ import annotations

import random
from collections.abc import Iterator

SECOND = 1_000_000_000


def constant(rate: float, start: int) -> Iterator[int]:
    """Every 1/rate seconds from `start` (nanoseconds) on; computed from the count, so errors do not add up."""
    count = 0
    while True:
        yield start + round(count * SECOND / rate)
        count += 1


def poisson(rate: float, start: int, rng: random.Random) -> Iterator[int]:
    """A Poisson process of `rate` per second from `start` (nanoseconds) on."""
    at = 0.0
    while True:
        at += rng.expovariate(rate) * SECOND
        yield start + round(at)
