"""Cutting a request into parts, and putting the outputs of the parts together again."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from headway.core.ids import Part
from headway.gateway.errors import ModelBroke
from headway.gateway.json_tensors import buffer_of
from headway.wire.messages import PartPayload
from headway.wire.tensors import Tensor, pack_bytes, to_numpy


class InputData:
    """One input of a request, checked. data: an array of `shape`, or for BYTES the flat list of elements."""

    __slots__ = ("data", "datatype", "name", "shape")

    def __init__(self, name: str, datatype: str, shape: tuple[int, ...], data: npt.NDArray[Any] | list[Any]) -> None:
        self.name = name
        self.datatype = datatype
        self.shape = shape
        self.data = data


def rows_within(cap: int, inputs: list[InputData], rows: int) -> int:
    """So many of the rows have, by their number, a share of at most `cap` of all bytes. At least one."""
    return max(1, cap * rows // max(1, sum([_size(i.data) for i in inputs])))


def _size(data: npt.NDArray[Any] | list[Any]) -> int:
    return data.nbytes if not isinstance(data, list) else len(pack_bytes(data))


def cut(inputs: list[InputData], rows: int, length: int, most: int) -> tuple[list[Part], list[PartPayload], int]:
    """Runs of at most `most` rows: their sizes, their tensors (slices, not copies), all bytes together."""
    if rows <= most:
        tensors = [Tensor(i.name, i.datatype, i.shape, buffer_of(i.data)) for i in inputs]
        return [Part(rows, length)], [PartPayload(tensors)], sum([len(tensor.data) for tensor in tensors])
    buffers = [b"" if isinstance(i.data, list) else buffer_of(i.data) for i in inputs]
    parts: list[Part] = []
    payload: list[PartPayload] = []
    total = 0
    for first in range(0, rows, most):
        count = min(most, rows - first)
        tensors = [
            Tensor(i.name, i.datatype, (count, *i.shape[1:]), _rows(i, buffer, rows, first, count))
            for i, buffer in zip(inputs, buffers, strict=True)
        ]
        parts.append(Part(count, length))
        payload.append(PartPayload(tensors))
        total += sum(len(tensor.data) for tensor in tensors)
    return parts, payload, total


def _rows(source: InputData, buffer: bytes | memoryview, rows: int, first: int, count: int) -> bytes | memoryview:
    if isinstance(source.data, list):
        width = len(source.data) // rows
        return pack_bytes(source.data[first * width : (first + count) * width])
    width = len(buffer) // rows
    return memoryview(buffer)[first * width : (first + count) * width]


def join(outputs: list[list[Tensor]], name: str, rows: int) -> tuple[str, npt.NDArray[Any]]:
    """Datatype and rows of one output, over all parts in their order.

    Raises ModelBroke when a part lacks it, or when the parts do not fit together.
    """
    if not outputs:
        raise ModelBroke(f"output {name!r} is missing: there is no result at all")
    found = [_named(tensors, name) for tensors in outputs]
    datatype = found[0].datatype
    if any(tensor.datatype != datatype for tensor in found):
        raise ModelBroke(f"output {name!r} is {datatype} in one part and another datatype in the next")
    try:
        arrays = [to_numpy(tensor) for tensor in found]
        array = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
    except ValueError as error:
        shapes = ", ".join(str(list(tensor.shape)) for tensor in found[:8])
        raise ModelBroke(f"output {name!r}: the parts do not fit together (shapes {shapes}): {error}") from None
    if array.ndim == 0 or array.shape[0] != rows:
        raise ModelBroke(f"output {name!r} has shape {list(array.shape)}, the request has {rows} rows")
    return datatype, array


def _named(tensors: list[Tensor], name: str) -> Tensor:
    for tensor in tensors:
        if tensor.name == name:
            return tensor
    had = ", ".join(tensor.name for tensor in tensors) or "none"
    raise ModelBroke(f"the model gave no output {name!r}; it gave: {had}")
