"""Parts into one array per input, and the rows of an output back to their parts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headway.wire.bfloat16 import from_float32
from headway.wire.messages import InputMeta
from headway.worker.errors import ResultError
from headway.worker.executor import Array, PartArrays, PartOutput


def stack(arrays: Sequence[Array], meta: InputMeta, rows: int) -> Array:
    """All rows of `arrays` in order, padded along meta.pad_axis to the longest, the last repeated up to `rows`.

    Allocates once; one array that needs neither is returned as it is. Raises ValueError where sizes differ
    along an axis that is not padded.
    """
    axis = meta.pad_axis
    filled = sum(map(len, arrays))
    if filled == rows and (axis is None or len({array.shape[axis] for array in arrays}) == 1):
        # ONNX Runtime and others read memory in words: bytes from the channel may begin anywhere
        return np.concatenate(arrays) if len(arrays) > 1 or not arrays[0].flags.aligned else arrays[0]
    shape = [rows, *arrays[0].shape[1:]]
    if axis is not None:
        shape[axis] = max(array.shape[axis] for array in arrays)
    whole = np.full(shape, _fill(meta, arrays[0].dtype), dtype=arrays[0].dtype)
    at = 0
    for array in arrays:
        place = cut(whole[at : at + len(array)], axis, 0 if axis is None else array.shape[axis])
        if place.shape != array.shape:
            raise ValueError(
                f"input {meta.name!r}: shapes {list(arrays[0].shape)} and {list(array.shape)} in one batch"
            )
        place[...] = array
        at += len(array)
    whole[at:] = whole[at - 1]
    return whole


def _fill(meta: InputMeta, dtype: np.dtype[Any]) -> Any:
    """What the padding is made of, in the dtype that the tensor has here."""
    if meta.datatype == "BF16":
        return from_float32(np.array(meta.pad_value))
    return "" if dtype.kind == "O" else meta.pad_value


def cut(array: Array, axis: int | None, length: int) -> Array:
    """The first `length` along `axis`: a view."""
    if axis is None or array.shape[axis] == length:
        return array
    return array[(slice(None),) * axis + (slice(length),)]


def check_rows(model: str, declared: Sequence[InputMeta], outputs: Sequence[Array], rows: int) -> None:
    """Raises ResultError where an output has not one row for each that was fed."""
    for meta, output in zip(declared, outputs, strict=True):
        came = output.shape[0] if output.ndim else 0
        if came != rows:
            raise ResultError(f"model {model} returned {came} rows in output {meta.name!r} for {rows} rows")


def slice_back(
    declared: Sequence[InputMeta], outputs: Sequence[Array], parts: Sequence[PartArrays]
) -> list[PartOutput]:
    """To each part its rows of each output, padding cut off: views. Rows beyond those of the parts are nobody's."""
    results: list[PartOutput] = []
    at = 0
    for part in parts:
        end = at + part.rows
        results.append(
            {
                meta.name: cut(output[at:end], meta.pad_axis, part.length)
                for meta, output in zip(declared, outputs, strict=True)
            }
        )
        at = end
    return results
