"""What a model's settings let in beyond its declaration: how long a request may be, what values an input may have."""

from __future__ import annotations

import numpy as np

from headway.config.settings import Bounds
from headway.gateway.errors import BadRequest
from headway.wire.bfloat16 import to_float32
from headway.wire.tensors import Tensor, to_numpy


def check_length(name: str, length: int, most: int) -> None:
    """most: 0 = any. Raises BadRequest."""
    if most and length > most:
        raise BadRequest(
            f"input {name!r} has length {length} along its padded axis, the model takes at most {most}", param=name
        )


def check_values(tensor: Tensor, bounds: Bounds) -> None:
    """Raises BadRequest, naming the first value outside. NaN, which binary data can have, is outside."""
    array = to_numpy(tensor)
    if tensor.datatype == "BF16":
        array = to_float32(array)
    low, high = bounds.minimum, bounds.maximum
    if not array.size or ((low is None or array.min() >= low) and (high is None or array.max() <= high)):
        return
    flat = array.reshape(-1)
    outside = np.zeros(flat.size, bool)
    if low is not None:
        outside |= ~(flat >= low)
    if high is not None:
        outside |= ~(flat <= high)
    at = int(np.argmax(outside))
    raise BadRequest(
        f"input {tensor.name!r}: {flat[at]} at position {at} is out of bounds, the model takes {allowed(bounds)}",
        param=tensor.name,
    )


def allowed(bounds: Bounds) -> str:
    """In words: "0 to 30521"."""
    if bounds.minimum is None:
        return f"at most {bounds.maximum:.15g}"
    if bounds.maximum is None:
        return f"at least {bounds.minimum:.15g}"
    return f"{bounds.minimum:.15g} to {bounds.maximum:.15g}"
