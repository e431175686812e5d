"""Tensors as they travel: a name, an Open Inference Protocol datatype, a shape, raw bytes.

Bytes are little-endian, row-major, without padding. A BYTES tensor is its elements in row-major
order, each a uint32 little-endian length followed by that many bytes (the protocol's binary form).
"""

from __future__ import annotations

import struct
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

_BY_KIND: dict[tuple[str, int], str] = {
    (np.dtype(code).kind, np.dtype(code).itemsize): name for name, code in NUMPY_DTYPES.items()
}


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

    Raises ValueError when bytes and shape do not agree. BF16 comes back as uint16.
    """
    if tensor.datatype == "BYTES":
        return _unpack_bytes(tensor.data, tensor.shape)
    code = "<u2" if tensor.datatype == "BF16" else NUMPY_DTYPES[tensor.datatype]
    return np.frombuffer(tensor.data, dtype=code).reshape(tensor.shape)


def from_numpy(name: str, array: npt.NDArray[Any]) -> Tensor:
    """Raises ValueError for a dtype that has no datatype, TypeError for elements that are not text or bytes."""
    datatype = datatype_of(array.dtype)
    if datatype == "BYTES":
        return Tensor(name, datatype, array.shape, pack_bytes(array.ravel().tolist()))
    contiguous = np.ascontiguousarray(array, dtype=NUMPY_DTYPES[datatype])
    return Tensor(name, datatype, array.shape, contiguous.reshape(-1).view(np.uint8).data)


def pack_bytes(elements: list[Any]) -> bytes:
    """The binary form of BYTES elements; text is encoded as UTF-8."""
    out = bytearray()
    for element in elements:
        raw = element.encode() if isinstance(element, str) else bytes(element)
        out += struct.pack("<I", len(raw))
        out += raw
    return bytes(out)


def _unpack_bytes(data: bytes | bytearray | memoryview, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    view = memoryview(data).cast("B")
    elements: list[bytes] = []
    at = 0
    while at < len(view):
        if at + 4 > len(view):
            raise ValueError("BYTES tensor ends inside a length prefix")
        (size,) = struct.unpack_from("<I", view, at)
        at += 4
        if at + size > len(view):
            raise ValueError(f"BYTES element of {size} bytes, but {len(view) - at} are left")
        elements.append(bytes(view[at : at + size]))
        at += size
    array = np.empty(len(elements), dtype=object)
    array[:] = elements
    return array.reshape(shape)
