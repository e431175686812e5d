"""What a model's settings let in beyond its declaration: how long a request may be, what values an input may have."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headway.config.settings import Bounds
from headway.gateway.errors import BadRequest


def check_length(name: str, length: int, most: int) -> None:
    """most: 0 = any. Raises BadRequest."""
    if most and length > most:
        raise BadRequest(
            f"input {name!r} has length {length} along its padded axis, the model takes at most {most}", param=name
        )


def check_values(name: str, datatype: str, array: npt.NDArray[Any], bounds: Bounds) -> None:
    """array: as `json_tensors.read` gives it. Raises BadRequest, naming the first value outside."""
    if datatype == "BF16":
        array = (array.astype(np.uint32) << 16).view(np.float32)
    low, high = bounds.minimum, bounds.maximum
    if not array.size or ((low is None or array.min() >= low) and (high is None or array.max() <= high)):
        return
    flat = array.reshape(-1)
    outside = np.zeros(flat.size, bool)
    if low is not None:
        outside |= flat < low
    if high is not None:
        outside |= flat > high
    at = int(np.argmax(outside))
    raise BadRequest(
        f"input {name!r}: {flat[at]} at position {at} is out of bounds, the model takes {allowed(bounds)}", param=name
    )


def allowed(bounds: Bounds) -> str:
    """In words: "0 to 30521"."""
    if bounds.minimum is None:
        return f"at most {bounds.maximum:.15g}"
    if bounds.maximum is None:
        return f"at least {bounds.minimum:.15g}"
    return f"{bounds.minimum:.15g} to {bounds.maximum:.15g}"
