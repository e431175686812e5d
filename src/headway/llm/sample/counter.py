"""Random numbers without a generator: each is a hash of whose it is and which.

u = hash64(seed, choice, position, draw), every one of the four mixed in by a bijection of 64 bits (the finaliser of
splitmix64: Steele, Lea and Flood 2014), none of them added to another: seed 1, choice 1 is not seed 2, choice 0. So a
token's number depends neither on who shares its batch nor on how often its sequence was begun anew.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

_MASK = (1 << 64) - 1
_STEPS = (0x9E3779B97F4A7C15, 0xD1B54A32D192ED03, 0x8CB92BA72F3D8DD7, 0xAEF17502108EF2D9)
"""One odd constant for each of the four, so that equal values in different places do not cancel."""


def uniforms(
    seeds: Sequence[int], choices: Sequence[int], positions: Sequence[int], draw: int = 0
) -> NDArray[np.float64]:
    """One number in [0, 1) for each row, with all 53 bits. positions: of the token in its output, from 0.
    draw: which of several that one position needs."""
    state = np.zeros(len(seeds), np.uint64)
    for values, step in zip((seeds, choices, positions, [draw] * len(seeds)), _STEPS, strict=True):
        state = _mixed((state ^ np.array([value & _MASK for value in values], np.uint64)) + np.uint64(step))
    return (state >> np.uint64(11)).astype(np.float64) * 2.0**-53


def _mixed(z: NDArray[np.uint64]) -> NDArray[np.uint64]:
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return z ^ (z >> np.uint64(31))
