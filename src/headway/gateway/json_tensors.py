"""Tensor data in JSON: read strictly, written exactly.

Read: integers must be integers (1.0 and true are refused) within the range of the datatype, with all their
digits; numbers for FP16/FP32/BF16 that would become infinite are refused; BOOL takes true, false, 0 and 1; BYTES takes
text, which is encoded as UTF-8. `data` is flat, or nested exactly as the shape says.
Written: flat; the shortest decimals that read back as the same number; NaN, infinity and bytes that are not UTF-8
have no JSON form and are an error.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from functools import lru_cache
from itertools import chain
from math import prod
from types import GenericAlias
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
import orjson
from msgspec import Meta

from headway.gateway.bfloat16_decimals import decimals
from headway.gateway.errors import BadRequest, NotRepresentable
from headway.gateway.floats import shortest
from headway.wire import bfloat16
from headway.wire.tensors import NUMPY_DTYPES, pack_bytes

Array = npt.NDArray[Any]

AS_BINARY = '"parameters": {"binary_data": true} on the output'
"""What to ask for where JSON will not do."""
_OPEN = ord("[")
_encode = msgspec.json.Encoder().encode

_ELEMENTS: dict[str, Any] = {
    "BOOL": bool | Annotated[int, Meta(ge=0, le=1)],
    "BOOL or more": bool | int,
    "UINT8": Annotated[int, Meta(ge=0, le=2**8 - 1)],
    "UINT16": Annotated[int, Meta(ge=0, le=2**16 - 1)],
    "UINT32": Annotated[int, Meta(ge=0, le=2**32 - 1)],
    "UINT64": Annotated[int, Meta(ge=0)],  # its upper bound is struct's to check: it does not fit msgspec's
    "INT8": Annotated[int, Meta(ge=-(2**7), le=2**7 - 1)],
    "INT16": Annotated[int, Meta(ge=-(2**15), le=2**15 - 1)],
    "INT32": Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)],
    "INT64": int,
    "FP16": float,
    "BF16": float,
    "FP32": float,
    "FP64": float,
    "BYTES": str,
}
_CODES = {
    "BOOL": "?",
    "UINT8": "B",
    "UINT16": "H",
    "UINT32": "I",
    "UINT64": "Q",
    "INT8": "b",
    "INT16": "h",
    "INT32": "i",
    "INT64": "q",
    "FP16": "e",
    "FP32": "f",
    "FP64": "d",
}
"""As the struct module names them."""
_INTEGERS = ("UINT8", "UINT16", "UINT32", "UINT64", "INT8", "INT16", "INT32", "INT64")
_RANGES: dict[str, tuple[float, float]] = {
    "BOOL": (0, 1),
    **{
        datatype: (int(np.iinfo(kind).min), int(np.iinfo(kind).max))
        for datatype, kind in NUMPY_DTYPES.items()
        if datatype in _INTEGERS
    },
    "BF16": (-3.3895314e38, 3.3895314e38),
    "FP16": (-65504, 65504),
    "FP32": (-3.4028235e38, 3.4028235e38),
}
"""What a number may be."""
_WIDE = {"BOOL": "BOOL or more", **dict.fromkeys(_INTEGERS, "INT64")}
"""The element that takes whatever integer is written where the datatype's own does."""
WRITTEN_AS_THEY_ARE = frozenset(name for name in NUMPY_DTYPES if name != "FP16")
"""Whose JSON text is made from their bytes."""
_DTYPES = {name: np.dtype(code) for name, code in NUMPY_DTYPES.items()}
_LETTER_N = ord("n")
_SPACE = b" \t\r\n"
_NESTED = re.compile(rb"\[\s*\[")
_PACKED_UP_TO = 4096
"""Values up to which packing them one by one is faster than making an array."""


@lru_cache(maxsize=512)
def _decoder(datatype: str, depth: int) -> msgspec.json.Decoder[Any]:
    kind: Any = _ELEMENTS[datatype]
    for _ in range(depth):
        kind = GenericAlias(list, (kind,))
    return msgspec.json.Decoder(kind)


@lru_cache(maxsize=512)
def _packer(datatype: str, count: int) -> struct.Struct:
    return struct.Struct(f"<{count}{_CODES[datatype]}")


def read(name: str, datatype: str, shape: tuple[int, ...], raw: bytes | memoryview) -> bytes | memoryview:
    """raw: the JSON text, without white space before it. The bytes of the tensor, as `wire.tensors` has them.

    Raises BadRequest, naming what was expected and what came.
    """
    if raw[0] != _OPEN:
        raise BadRequest(f"input {name!r}: data must be an array, got {_excerpt(raw)}")
    nested = raw[1] == _OPEN or (raw[1] in _SPACE and _NESTED.match(raw) is not None)
    depth = len(shape) if nested else 1
    try:
        values = _decoder(datatype, depth).decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        outside = _first_outside(datatype, depth, raw)
        if outside:
            raise _out_of_range(name, datatype, outside) from None
        what = f"nested as the shape {list(shape)} says" if nested else "flat"
        raise BadRequest(f"input {name!r}: data for {datatype}, {what}: {error or 'nested too deeply'}") from None
    if nested:
        values = _flatten(name, values, shape)
    expected = prod(shape)
    if len(values) != expected:
        raise BadRequest(f"input {name!r}: shape {list(shape)} needs {expected} values, data has {len(values)}")
    return _packed(name, datatype, values)


def _first_outside(datatype: str, depth: int, raw: bytes | memoryview) -> str:
    """The first integer beyond the datatype, of data that is all integers; "" where that is not what is wrong."""
    if datatype not in _WIDE:
        return ""
    try:
        values = _decoder(_WIDE[datatype], depth).decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return ""
    for _ in range(depth - 1):
        values = list(chain.from_iterable(values))
    low, high = _RANGES[datatype]
    return next((f"{value} at position {at}" for at, value in enumerate(values) if not low <= value <= high), "")


def _flatten(name: str, values: list[Any], shape: tuple[int, ...]) -> list[Any]:
    for axis, size in enumerate(shape):
        rows = [values] if axis == 0 else values
        for row in rows:
            if len(row) != size:
                raise BadRequest(
                    f"input {name!r}: shape {list(shape)} says {size} along axis {axis}, a list there has {len(row)}"
                )
        if axis:
            values = list(chain.from_iterable(values))
    return values


def _packed(name: str, datatype: str, values: list[Any]) -> bytes | memoryview:
    if datatype == "BYTES":
        return pack_bytes(values)
    if datatype == "BF16":
        return _raw(_bf16(name, values))
    if len(values) <= _PACKED_UP_TO:
        try:
            return _packer(datatype, len(values)).pack(*values)
        except (struct.error, OverflowError):
            raise _too_large(name, datatype, values) from None
    try:
        with np.errstate(over="raise"):
            return _raw(np.array(values, NUMPY_DTYPES[datatype]))
    except (OverflowError, FloatingPointError):
        raise _too_large(name, datatype, values) from None


def _bf16(name: str, values: list[Any]) -> npt.NDArray[np.uint16]:
    try:
        with np.errstate(over="raise"):
            bits = bfloat16.from_float32(np.array(values, "<f4"))
    except FloatingPointError:
        raise _too_large(name, "BF16", values) from None
    infinite = (bits & 0x7FFF) == 0x7F80
    if infinite.any():
        at = int(np.argmax(infinite))
        raise _out_of_range(name, "BF16", f"{values[at]!r} at position {at}")
    return bits


def _raw(array: Array) -> memoryview:
    return array.view(np.uint8).data


def _too_large(name: str, datatype: str, values: list[Any]) -> BadRequest:
    dtype = "<f4" if datatype == "BF16" else NUMPY_DTYPES[datatype]
    return _out_of_range(name, datatype, _first_too_large(values, dtype))


def _out_of_range(name: str, datatype: str, what: str) -> BadRequest:
    return BadRequest(f"input {name!r}: {what} is out of the range of {datatype}, {_allowed(datatype)}", param=name)


def _allowed(datatype: str) -> str:
    if datatype == "BOOL":
        return "which takes true, false, 0 and 1"
    low, high = _RANGES[datatype]
    return f"{low} to {high}"


def _first_too_large(values: list[Any], dtype: str) -> str:
    for at, value in enumerate(values):
        try:
            with np.errstate(over="raise"):
                np.array(value, dtype)
        except (OverflowError, FloatingPointError):
            return f"{value!r} at position {at}"
    return "a number"


def _excerpt(raw: bytes | memoryview) -> str:
    text = bytes(raw[:40]).decode("utf-8", "replace")
    return text + ("..." if len(raw) > 40 else "")


def text(name: str, datatype: str, array: Array) -> bytes:
    """As `write`, but the JSON text: for all numbers but FP16 by a writer that knows arrays. Raises
    NotRepresentable."""
    if datatype in ("BYTES", "FP16"):
        return _encode(write(name, datatype, array))
    if datatype == "BF16":
        return _numbers(name, decimals(array.reshape(-1)))
    return text_of(name, datatype, [array.tobytes()])


def text_of(name: str, datatype: str, buffers: Sequence[bytes | bytearray | memoryview]) -> bytes:
    """As `text`, from the bytes of the parts; for the datatypes in `WRITTEN_AS_THEY_ARE`."""
    # Copied even where there is one: bytes from the channel may begin anywhere, the writer reads whole words.
    raw = bytes(buffers[0]) if len(buffers) == 1 else b"".join(buffers)
    return _numbers(name, np.frombuffer(raw, _DTYPES[datatype]))


def _numbers(name: str, flat: Array) -> bytes:
    written = orjson.dumps(flat, option=orjson.OPT_SERIALIZE_NUMPY)
    if _LETTER_N in written:  # it writes null for NaN and infinity, and no other word with this letter
        raise _not_finite(name, flat)
    return written


def write(name: str, datatype: str, array: Array) -> list[Any]:
    """The flat JSON values of an output (`array` as `wire.tensors.to_numpy` gives it). Raises NotRepresentable."""
    flat = array.reshape(-1)
    if datatype == "BYTES":
        return [_text(name, element) for element in flat.tolist()]
    if datatype == "BF16":
        flat = decimals(flat)
    if flat.dtype.kind != "f":
        values: list[Any] = flat.tolist()
        return values
    if not np.isfinite(flat).all():
        raise _not_finite(name, flat)
    return flat.tolist() if flat.dtype.itemsize == 8 else shortest(flat)


def _not_finite(name: str, flat: Array) -> NotRepresentable:
    at = int(np.flatnonzero(~np.isfinite(flat))[0])
    return NotRepresentable(
        f"output {name!r} has {flat[at]} at position {at}, for which JSON has no number; "
        f"ask for it as binary data: {AS_BINARY}"
    )


def _text(name: str, element: bytes) -> str:
    try:
        return element.decode()
    except UnicodeDecodeError as error:
        raise NotRepresentable(
            f"output {name!r} has bytes that are not UTF-8 text ({error}); ask for it as binary data: {AS_BINARY}"
        ) from None
