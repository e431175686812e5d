"""bfloat16 without a library for it: the upper half of a float32, kept as uint16.

numpy has no such dtype. A Python model that takes or gives BF16 converts with these two.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

QUIET = np.uint32(0x40)
"""What makes a NaN of the upper half whose only bits were in the lower one."""


def to_float32(bits: npt.NDArray[Any]) -> npt.NDArray[np.float32]:
    """bits: uint16, any shape. Exact."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def from_float32(values: npt.NDArray[Any]) -> npt.NDArray[np.uint16]:
    """values: any real dtype, any shape; rounded to the nearest, ties to even. What rounds up past the largest number
    becomes infinite, as in hardware; a NaN stays one."""
    bits = np.ascontiguousarray(values, np.float32).reshape(np.shape(values)).view(np.uint32)
    upper = bits >> 16
    rounded = (bits + 0x7FFF + (upper & 1)) >> 16
    return np.where((bits & 0x7FFFFFFF) > 0x7F800000, upper | QUIET, rounded).astype(np.uint16)
