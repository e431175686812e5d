"""Tensors as they travel: a name, an Open Inference Protocol datatype, a shape, raw bytes.

Bytes are little-endian, row-major, without padding. A BYTES tensor is its elements in row-major
order, each a uint32 little-endian length followed by that many bytes (the protocol's binary form).
"""

from __future__ import annotations

import struct
from itertools import pairwise
from math import prod
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from headway.wire.headers import TensorHeader as TensorHeader

NUMPY_DTYPES: dict[str, str] = {
    "BOOL": "?",
    "UINT8": "<u1",
    "UINT16": "<u2",
    "UINT32": "<u4",
    "UINT64": "<u8",
    "INT8": "<i1",
    "INT16": "<i2",
    "INT32": "<i4",
    "INT64": "<i8",
    "FP16": "<f2",
    "FP32": "<f4",
    "FP64": "<f8",
}
"""Datatypes that numpy holds as they are. BYTES is an object array; BF16 travels as two raw bytes."""

DATATYPES: tuple[str, ...] = (*NUMPY_DTYPES, "BF16", "BYTES")

_VIEWED_AS: dict[str, np.dtype[Any]] = {name: np.dtype(code) for name, code in {**NUMPY_DTYPES, "BF16": "<u2"}.items()}

ITEM_SIZES: dict[str, int] = {name: dtype.itemsize for name, dtype in _VIEWED_AS.items()}
"""Bytes of one element; BYTES, whose elements differ, is not in it."""

_BY_KIND: dict[tuple[str, int], str] = {
    (np.dtype(code).kind, np.dtype(code).itemsize): name for name, code in NUMPY_DTYPES.items()
}

COPIED_BELOW = 4096
"""Bytes of an array up to which copying it is cheaper than making views of it."""

_LENGTH = struct.Struct("<I")


class Tensor(msgspec.Struct, frozen=True):
    """data: raw bytes as the module says; any contiguous buffer."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes | bytearray | memoryview

    @property
    def header(self) -> TensorHeader:
        data = self.data
        return TensorHeader(
            self.name, self.datatype, self.shape, data.nbytes if isinstance(data, memoryview) else len(data)
        )


def datatype_of(dtype: np.dtype[Any]) -> str:
    """The protocol's name of a numpy dtype. Raises ValueError for one that it does not have."""
    if dtype.kind in "OSU":
        return "BYTES"
    try:
        return _BY_KIND[dtype.kind, dtype.itemsize]
    except KeyError:
        raise ValueError(f"no tensor datatype for numpy dtype {dtype}") from None


def to_numpy(tensor: Tensor) -> npt.NDArray[Any]:
    """A view where the datatype allows it (BYTES: a new object array of bytes).

    A view is as aligned and as writable as the bytes are. BF16 comes back as uint16.
    Raises ValueError for an unknown datatype, and when bytes and shape do not agree.
    """
    if tensor.datatype == "BYTES":
        return _unpack_bytes(tensor)
    check_size(tensor)
    return np.ndarray(tensor.shape, _VIEWED_AS[tensor.datatype], tensor.data)


def check_size(tensor: Tensor) -> None:
    """Raises ValueError for an unknown datatype, and when bytes and shape do not agree."""
    if tensor.datatype == "BYTES":
        _check_count(tensor, len(byte_elements(tensor.name, tensor.data)) - 1)
        return
    width = ITEM_SIZES.get(tensor.datatype)
    if width is None:
        raise ValueError(f"tensor {tensor.name!r}: unknown datatype {tensor.datatype!r}")
    expected, negative = width, False
    for length in tensor.shape:  # a loop, for compiled it is several times as fast as what the library has for it
        expected *= length
        negative = negative or length < 0
    data = tensor.data
    size = data.nbytes if isinstance(data, memoryview) else len(data)
    if size != expected or negative:
        raise ValueError(
            f"tensor {tensor.name!r}: {tensor.datatype} of shape {list(tensor.shape)} is {expected} bytes, got {size}"
        )


def from_numpy(name: str, array: npt.NDArray[Any], bf16: bool = False) -> Tensor:
    """bf16: the array is uint16 and holds BF16, which numpy cannot tell.

    Raises ValueError for a dtype that has no datatype, TypeError for elements that are not text or bytes.
    """
    datatype = datatype_of(array.dtype)
    if datatype == "BYTES":
        return Tensor(name, datatype, array.shape, pack_bytes(array.ravel().tolist()))
    if bf16:
        if datatype != "UINT16":
            raise ValueError(f"tensor {name!r}: BF16 is kept as uint16, got {array.dtype}")
        datatype = "BF16"
    if array.nbytes <= COPIED_BELOW and array.dtype.byteorder != ">":
        return Tensor(name, datatype, array.shape, array.tobytes())
    contiguous = np.ascontiguousarray(array, dtype=_VIEWED_AS[datatype])
    return Tensor(name, datatype, array.shape, contiguous.reshape(-1).view(np.uint8).data)


def pack_bytes(elements: list[Any]) -> bytes:
    """The binary form of BYTES elements; text is encoded as UTF-8. Raises TypeError for anything else."""
    out = bytearray()
    for element in elements:
        if isinstance(element, str):
            raw = element.encode()
        elif isinstance(element, (bytes, bytearray, memoryview)):
            raw = bytes(element)
        else:
            raise TypeError(f"an element of a BYTES tensor must be text or bytes, got {type(element).__name__}")
        out += _LENGTH.pack(len(raw))
        out += raw
    return bytes(out)


def byte_elements(name: str, data: bytes | bytearray | memoryview) -> list[int]:
    """Where each element of a BYTES tensor begins (its length first), and where the last one ends.

    name: for messages. Raises ValueError where lengths and bytes do not agree.
    """
    view = memoryview(data).cast("B")
    ends = [0]
    at, end = 0, len(view)
    unpack = _LENGTH.unpack_from
    while at < end:
        if at + _LENGTH.size > end:
            raise ValueError(f"tensor {name!r}: ends inside the length of BYTES element {len(ends) - 1}")
        (size,) = unpack(view, at)
        at += _LENGTH.size + size
        if at > end:
            raise ValueError(
                f"tensor {name!r}: BYTES element {len(ends) - 1} of {size} bytes, but {size - (at - end)} are left"
            )
        ends.append(at)
    return ends


def _unpack_bytes(tensor: Tensor) -> npt.NDArray[Any]:
    ends = byte_elements(tensor.name, tensor.data)
    count = len(ends) - 1
    _check_count(tensor, count)
    view = memoryview(tensor.data).cast("B")
    array = np.empty(count, dtype=object)
    array[:] = [bytes(view[at + _LENGTH.size : end]) for at, end in pairwise(ends)]
    return array.reshape(tensor.shape)


def _check_count(tensor: Tensor, count: int) -> None:
    if count != prod(tensor.shape) or min(tensor.shape, default=0) < 0:
        raise ValueError(
            f"tensor {tensor.name!r}: BYTES of shape {list(tensor.shape)} has {prod(tensor.shape)} elements, "
            f"got {count}"
        )
