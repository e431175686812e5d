"""Running an ONNX session that takes or gives BF16, which numpy does not have: as uint16, through values of its own.

Slower than a plain run by some microseconds per tensor; only sessions with a BF16 tensor go this way.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
import onnxruntime

from headway.worker.executor import Array

BFLOAT16 = 16
"""Of ONNX's TensorProto.DataType."""


def run(session: Any, outputs: Sequence[str], feeds: Mapping[str, Array], bf16: frozenset[str]) -> list[Array]:
    """As session.run. bf16: names of the inputs that are BF16, given as uint16; outputs that are come likewise."""
    values = {name: _to_value(array, name in bf16) for name, array in feeds.items()}
    return [_to_array(value) for value in session.run_with_ort_values(list(outputs), values)]


def _to_value(array: Array, bf16: bool) -> Any:
    array = np.ascontiguousarray(array)
    if bf16:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(array, BFLOAT16)
    return onnxruntime.OrtValue.ortvalue_from_numpy(array)


def _to_array(value: Any) -> Array:
    """A copy: the value's memory ends with it."""
    if value.element_type() != BFLOAT16:
        plain: Array = value.numpy()
        return plain
    shape = tuple(value.shape())
    count = prod(shape)
    if not count:
        return np.empty(shape, np.uint16)
    memory = (ctypes.c_uint16 * count).from_address(
        value.data_ptr()
    )  # outputs of a run without binding are on the host
    return np.frombuffer(memory, np.uint16).reshape(shape).copy()
