"""Tensors as they travel: a name, an Open Inference Protocol datatype, a shape, raw bytes.

Bytes are little-endian, row-major, without padding. A BYTES tensor is its elements in row-major
order, each a uint32 little-endian length followed by that many bytes (the protocol's binary form).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from math import prod
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

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

_BY_KIND: dict[tuple[str, int], str] = {
    (np.dtype(code).kind, np.dtype(code).itemsize): name for name, code in NUMPY_DTYPES.items()
}

COPIED_BELOW = 4096
"""Bytes of an array up to which copying it is cheaper than making views of it."""

_LENGTH = struct.Struct("<I")


class TensorHeader(msgspec.Struct, frozen=True, array_like=True):
    """All of a tensor but its bytes. size: how many bytes follow for it."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    size: int


class Tensor(msgspec.Struct, frozen=True):
    """data: raw bytes as the module says; any contiguous buffer."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    data: bytes | bytearray | memoryview

    @property
    def header(self) -> TensorHeader:
        return TensorHeader(self.name, self.datatype, self.shape, memoryview(self.data).nbytes)


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
    dtype = _VIEWED_AS.get(tensor.datatype)
    if dtype is None:
        raise ValueError(f"tensor {tensor.name!r}: unknown datatype {tensor.datatype!r}")
    expected = prod(tensor.shape) * dtype.itemsize
    size = memoryview(tensor.data).nbytes
    if size != expected or min(tensor.shape, default=0) < 0:
        raise ValueError(
            f"tensor {tensor.name!r}: {tensor.datatype} of shape {list(tensor.shape)} is {expected} bytes, got {size}"
        )
    return np.ndarray(tensor.shape, dtype, tensor.data)


def from_numpy(name: str, array: npt.NDArray[Any]) -> Tensor:
    """Raises ValueError for a dtype that has no datatype, TypeError for elements that are not text or bytes."""
    datatype = datatype_of(array.dtype)
    if datatype == "BYTES":
        return Tensor(name, datatype, array.shape, pack_bytes(array.ravel().tolist()))
    if array.nbytes <= COPIED_BELOW and array.dtype.byteorder != ">":
        return Tensor(name, datatype, array.shape, array.tobytes())
    contiguous = np.ascontiguousarray(array, dtype=NUMPY_DTYPES[datatype])
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


def _unpack_bytes(tensor: Tensor) -> npt.NDArray[Any]:
    elements = list(_elements(tensor))
    if len(elements) != prod(tensor.shape) or min(tensor.shape, default=0) < 0:
        raise ValueError(
            f"tensor {tensor.name!r}: BYTES of shape {list(tensor.shape)} has {prod(tensor.shape)} elements, "
            f"got {len(elements)}"
        )
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    return array.reshape(tensor.shape)


def _elements(tensor: Tensor) -> Iterator[bytes]:
    view = memoryview(tensor.data).cast("B")
    at, end = 0, len(view)
    while at < end:
        if at + _LENGTH.size > end:
            raise ValueError(f"tensor {tensor.name!r}: ends inside the length of a BYTES element")
        (size,) = _LENGTH.unpack_from(view, at)
        at += _LENGTH.size
        if at + size > end:
            raise ValueError(f"tensor {tensor.name!r}: BYTES element of {size} bytes, but {end - at} are left")
        yield bytes(view[at : at + size])
        at += size
