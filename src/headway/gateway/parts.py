"""Cutting a request into parts, and putting the outputs of the parts together again."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from headway.core.ids import Part
from headway.gateway.errors import ModelBroke
from headway.wire.messages import PartPayload
from headway.wire.tensors import Tensor, byte_elements, check_size, to_numpy


def rows_within(cap: int, inputs: list[Tensor], rows: int) -> int:
    """So many of the rows have, by their number, a share of at most `cap` of all bytes. At least one."""
    return max(1, cap * rows // max(1, sum([len(tensor.data) for tensor in inputs])))


def cut(inputs: list[Tensor], rows: int, length: int, most: int) -> tuple[list[Part], list[PartPayload], int]:
    """Runs of at most `most` rows: their sizes, their tensors (slices, not copies), all bytes together."""
    size = sum([len(tensor.data) for tensor in inputs])
    if rows <= most:
        return [Part(rows, length)], [PartPayload(inputs)], size
    slices = [_rows(tensor, rows, most) for tensor in inputs]
    firsts = range(0, rows, most)
    parts = [Part(min(most, rows - first), length) for first in firsts]
    payload = [
        PartPayload(
            [
                Tensor(tensor.name, tensor.datatype, (part.rows, *tensor.shape[1:]), pieces[number])
                for tensor, pieces in zip(inputs, slices, strict=True)
            ]
        )
        for number, part in enumerate(parts)
    ]
    return parts, payload, size


def _rows(tensor: Tensor, rows: int, most: int) -> list[memoryview]:
    """The bytes of each run of at most `most` rows."""
    view = memoryview(tensor.data)
    ends = [*range(most, rows, most), rows]
    if tensor.datatype == "BYTES":
        elements = byte_elements(tensor.name, view)
        width = (len(elements) - 1) // rows
        cuts = [0, *(elements[end * width] for end in ends)]
    else:
        width = len(view) // rows
        cuts = [0, *(end * width for end in ends)]
    return [view[begin:end] for begin, end in pairwise(cuts)]


def join(outputs: list[list[Tensor]], name: str, rows: int) -> tuple[str, npt.NDArray[Any]]:
    """Datatype and rows of one output, over all parts in their order.

    Raises ModelBroke when a part lacks it, or when the parts do not fit together.
    """
    found = _of_all_parts(outputs, name)
    try:
        arrays = [to_numpy(tensor) for tensor in found]
        array = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    except ValueError as error:
        raise _do_not_fit(name, found, str(error)) from None
    _check_rows(name, array.shape, rows)
    return found[0].datatype, array


def join_raw(
    outputs: list[list[Tensor]], name: str, rows: int
) -> tuple[str, tuple[int, ...], list[bytes | bytearray | memoryview]]:
    """As `join`, but shape and bytes (a buffer per part) in place of an array: nothing is copied."""
    found = _of_all_parts(outputs, name)
    shape = found[0].shape
    if len(found) > 1:
        if any(tensor.shape[1:] != shape[1:] for tensor in found):
            raise _do_not_fit(name, found, "they differ beyond the rows")
        shape = (sum(tensor.shape[0] if tensor.shape else 0 for tensor in found), *shape[1:])
    for tensor in found:
        try:
            check_size(tensor)
        except ValueError as error:
            raise _do_not_fit(name, found, str(error)) from None
    _check_rows(name, shape, rows)
    return found[0].datatype, shape, [tensor.data for tensor in found]


def _of_all_parts(outputs: list[list[Tensor]], name: str) -> list[Tensor]:
    if not outputs:
        raise ModelBroke(f"output {name!r} is missing: there is no result at all")
    found = [_named(tensors, name) for tensors in outputs]
    datatype = found[0].datatype
    if len(found) > 1 and any(tensor.datatype != datatype for tensor in found):
        raise ModelBroke(f"output {name!r} is {datatype} in one part and another datatype in the next")
    return found


def _do_not_fit(name: str, found: list[Tensor], why: str) -> ModelBroke:
    shapes = ", ".join(str(list(tensor.shape)) for tensor in found[:8])
    return ModelBroke(f"output {name!r}: the parts do not fit together (shapes {shapes}): {why}")


def _check_rows(name: str, shape: tuple[int, ...], rows: int) -> None:
    if not shape or shape[0] != rows:
        raise ModelBroke(f"output {name!r} has shape {list(shape)}, the request has {rows} rows")


def _named(tensors: list[Tensor], name: str) -> Tensor:
    for tensor in tensors:
        if tensor.name == name:
            return tensor
    had = ", ".join(tensor.name for tensor in tensors) or "none"
    raise ModelBroke(f"the model gave no output {name!r}; it gave: {had}")
