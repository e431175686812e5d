"""The shortest decimal that reads back as the same FP32 or FP16 number.

JSON writers print doubles. The double nearest to that decimal is what makes them print it, so numbers are moved
there, all at once: round to n significant digits, keep it where it reads back, go on with n + 1 where not.
Very small and very large numbers, and short lists, go one by one through numpy's own printing.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

Doubles = npt.NDArray[np.float64]

_POWERS: Doubles = np.array([float(f"1e{n}") for n in range(23)])
"""All powers of ten that a double holds exactly: with them one division rounds right."""
_DIGITS = {4: range(6, 10), 2: range(3, 6)}
"""By item size: how many significant digits always survive, up to how many always suffice."""
_RANGE = {4: (1e-13, 1e5), 2: (1e-4, 100.0)}
"""By item size: magnitudes for which the powers needed lie in the table (and above the subnormals)."""
FEW = 48
"""Below this count one by one is faster."""


def shortest(values: npt.NDArray[Any]) -> list[float]:
    """values: float32 or float16, finite, one dimension."""
    if values.size < FEW:
        return [float(str(value)) for value in values]
    wide = values.astype(np.float64)
    size = np.abs(wide)
    low, high = _RANGE[values.dtype.itemsize]
    ordinary = (size >= low) & (size < high)
    for index in np.flatnonzero(~ordinary & (size != 0)).tolist():
        wide[index] = float(str(values[index]))
    if ordinary.all():
        wide = _rounded(values, wide, size)
    elif ordinary.any():
        wide[ordinary] = _rounded(values[ordinary], wide[ordinary], size[ordinary])
    result: list[float] = wide.tolist()
    return result


def _rounded(values: npt.NDArray[Any], wide: Doubles, size: Doubles) -> Doubles:
    """wide, size: the values and their magnitudes as doubles, all in the ordinary range."""
    exponents = np.floor(np.log10(size)).astype(np.intp)
    result = wide
    done: npt.NDArray[np.bool_] | None = None
    for digits in _DIGITS[values.dtype.itemsize]:
        scale = _POWERS[digits - 1 - exponents]
        candidate = np.rint(wide * scale) / scale
        good = candidate.astype(values.dtype) == values
        if done is None:
            result, done = np.where(good, candidate, wide), good
        else:
            result = np.where(done, result, np.where(good, candidate, wide))
            done |= good
        if done.all():
            break
    return result
