"""How long the inputs are, in tokens: `lognormal:MEDIAN:MAX[:SIGMA]`, `fixed:N`, `choices:A,B,...`."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import TypeAlias

Sampler: TypeAlias = Callable[[random.Random], int]

SHORTEST = 3  # a start mark, one word, an end mark
DEFAULT_SIGMA = 0.8


def parse_lengths(spec: str) -> Sampler:
    """Raises ValueError that names the spec and the forms there are."""
    kind, _, rest = spec.partition(":")
    fields = rest.split(":") if rest else []
    try:
        if kind == "lognormal" and len(fields) in (2, 3):
            sigma = float(fields[2]) if len(fields) == 3 else DEFAULT_SIGMA
            return _lognormal(_size(fields[0]), _size(fields[1]), sigma)
        if kind == "fixed" and len(fields) == 1:
            return _choices([_size(fields[0])])
        if kind == "choices" and len(fields) == 1:
            return _choices([_size(item) for item in fields[0].split(",")])
    except ValueError as error:
        raise ValueError(f"lengths {spec!r}: {error}") from None
    raise ValueError(f"lengths {spec!r}: expected lognormal:MEDIAN:MAX[:SIGMA], fixed:N or choices:A,B,...")


def _size(text: str) -> int:
    if not text.isdigit() or int(text) < SHORTEST:
        raise ValueError(f"expected a whole number of tokens, at least {SHORTEST}, not {text!r}")
    return int(text)


def _lognormal(median: int, longest: int, sigma: float) -> Sampler:
    mu = math.log(median)
    return lambda rng: max(SHORTEST, min(longest, round(rng.lognormvariate(mu, sigma))))


def _choices(sizes: list[int]) -> Sampler:
    return lambda rng: rng.choice(sizes)
