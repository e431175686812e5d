"""Service-time shapes: how long a worker runs a batch of `rows` rows padded to `length`."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TypeAlias

from headway.core.ids import Measurement
from headway.core.units import Duration, ms, us

Cost: TypeAlias = Callable[[int, int], Duration]
"""(rows, padded length in tokens) -> nanoseconds, at least 1."""


def cpu(rows: int, length: int) -> Duration:
    """Two CPU cores and a small encoder: linear in padded tokens, 14 % less for each in company."""
    per_token = 0.175 if rows == 1 else 0.175 * 0.86
    return ms(0.4 + per_token * rows * length)


def gpu(rows: int, length: int) -> Duration:
    """A large floor and a gentle slope: batching nearly always pays."""
    return ms(2) + 600 * rows * length


def kernels(rows: int, length: int) -> Duration:
    """Kernels for 1, 8 and 32 rows: two rows cost as much as eight."""
    size = next((size for size in (1, 8, 32) if rows <= size), rows)
    return ms(1) + us(20) * size + 800 * size * length


def launch(rows: int, length: int) -> Duration:
    """Launch-bound: what is in the batch hardly matters."""
    return ms(3) + us(5) * rows + 10 * rows * length


COSTS: dict[str, Cost] = {"cpu": cpu, "gpu": gpu, "kernels": kernels, "launch": launch}


def noisy(cost: Cost, rng: Random, sigma: float) -> Cost:
    """`cost` times a lognormal factor with median 1."""
    return lambda rows, length: max(1, round(cost(rows, length) * rng.lognormvariate(0, sigma)))


def on_grid(cost: Cost, grid: Duration) -> Cost:
    """`cost` rounded up to a multiple of `grid`, so that answers tie with arrivals."""
    return lambda rows, length: -(-cost(rows, length) // grid) * grid


def warm_up(cost: Cost, max_rows: int, max_length: int) -> tuple[Measurement, ...]:
    """What a worker would have measured while it warmed up: powers of two up to both bounds."""
    return tuple(
        Measurement(rows, length, cost(rows, length))
        for rows in _powers_of_two(max_rows)
        for length in _powers_of_two(max_length)
    )


def _powers_of_two(bound: int) -> list[int]:
    return [1 << n for n in range(bound.bit_length()) if 1 << n <= bound]
