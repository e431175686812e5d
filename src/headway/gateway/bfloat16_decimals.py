"""The shortest decimal that reads back as the same BF16: two to four digits, where its FP32 twin would print up to ten.

There are 32,640 magnitudes: each is worked out when it is first met, and kept.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headway.wire.bfloat16 import to_float32

Doubles = npt.NDArray[np.float64]

SIGN, INFINITE = 0x8000, 0x7F80
DIGITS = (1, 2, 3, 4)
"""Significant ones. Four always suffice."""

_decimals: Doubles = np.zeros(SIGN)
_known = np.zeros(SIGN, bool)
"""By the bits of the magnitude."""
_known[0] = True
_known[INFINITE:] = True
_decimals[INFINITE], _decimals[INFINITE + 1 :] = np.inf, np.nan


def decimals(bits: npt.NDArray[Any]) -> Doubles:
    """bits: uint16, one dimension. The doubles that JSON writers print as those decimals."""
    magnitude = bits & (SIGN - 1)
    new = ~_known[magnitude]
    if new.any():
        _work_out(np.unique(magnitude[new]))
    found: Doubles = _decimals[magnitude]
    return np.where(bits & SIGN, -found, found)


def _work_out(bits: npt.NDArray[Any]) -> None:
    """A decimal will do if its FP32 lies nearer to the value than to its neighbours: however a reader rounds then, by
    way of FP32 or at once, it comes back."""
    values = to_float32(bits).astype(np.float64)
    below = to_float32(bits - 1).astype(np.float64)
    above = np.where(bits + 1 < INFINITE, to_float32(bits + 1).astype(np.float64), 2 * values - below)
    best = np.zeros(len(bits))
    open_ = np.ones(len(bits), bool)
    for digits in DIGITS:
        at = np.flatnonzero(open_)
        tried = np.array([float(f"{value:.{digits - 1}e}") for value in values[at].tolist()])
        read = tried.astype(np.float32).astype(np.float64)
        good = ((values[at] + below[at]) / 2 < read) & (read < (values[at] + above[at]) / 2)
        best[at[good]] = tried[good]
        open_[at[good]] = False
    assert not open_.any(), "four digits always suffice"
    _decimals[bits] = best
    _known[bits] = True
