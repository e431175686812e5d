"""Tensor data in JSON: read strictly, written exactly.

Read: integers must be integers (1.0 and true are refused) within the range of the datatype, with all their
digits; numbers for FP16/FP32/BF16 that would become infinite are refused; BOOL takes true, false, 0 and 1; BYTES takes
text, which is encoded as UTF-8. `data` is flat, or nested exactly as the shape says.
Written: flat; the shortest decimals that read back as the same number; NaN, infinity and bytes that are not UTF-8
have no JSON form and are an error.
"""

from __future__ import annotations

import re
from functools import lru_cache
from itertools import chain
from types import GenericAlias
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Meta

from headway.gateway.errors import BadRequest, NotRepresentable
from headway.gateway.floats import shortest
from headway.wire.tensors import COPIED_BELOW, NUMPY_DTYPES, pack_bytes

Array = npt.NDArray[Any]

_ELEMENTS: dict[str, Any] = {
    "BOOL": bool | Annotated[int, Meta(ge=0, le=1)],
    "UINT8": Annotated[int, Meta(ge=0, le=2**8 - 1)],
    "UINT16": Annotated[int, Meta(ge=0, le=2**16 - 1)],
    "UINT32": Annotated[int, Meta(ge=0, le=2**32 - 1)],
    "UINT64": Annotated[int, Meta(ge=0)],  # its upper bound is numpy's to check: it does not fit msgspec's
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
_NESTED = re.compile(rb"\s*\[\s*\[")
_ARRAY = re.compile(rb"\s*\[")


@lru_cache(maxsize=512)
def _decoder(datatype: str, depth: int) -> msgspec.json.Decoder[Any]:
    kind: Any = _ELEMENTS[datatype]
    for _ in range(depth):
        kind = GenericAlias(list, (kind,))
    return msgspec.json.Decoder(kind)


def read(name: str, datatype: str, shape: tuple[int, ...], raw: bytes | memoryview) -> Array | list[Any]:
    """raw: the JSON text. An array of `datatype` with `shape`; for BYTES the flat list of texts, as bytes.

    Raises BadRequest, naming what was expected and what came.
    """
    view = bytes(raw)
    if not _ARRAY.match(view):
        raise BadRequest(f"input {name!r}: data must be an array, got {_excerpt(view)}")
    nested = _NESTED.match(view) is not None
    depth = len(shape) if nested else 1
    try:
        values = _decoder(datatype, depth).decode(view)
    except (msgspec.DecodeError, RecursionError) as error:
        what = f"nested as the shape {list(shape)} says" if nested else "flat"
        raise BadRequest(f"input {name!r}: data for {datatype}, {what}: {error or 'nested too deeply'}") from None
    if nested:
        values = _flatten(name, values, shape)
    expected = _product(shape)
    if len(values) != expected:
        raise BadRequest(f"input {name!r}: shape {list(shape)} needs {expected} values, data has {len(values)}")
    if datatype == "BYTES":
        return [text.encode() for text in values]
    return _array(name, datatype, values).reshape(shape)


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


def _product(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count


def _array(name: str, datatype: str, values: list[Any]) -> Array:
    dtype = "<f4" if datatype == "BF16" else NUMPY_DTYPES[datatype]
    try:
        with np.errstate(over="raise"):
            array = np.array(values, dtype)
    except (OverflowError, FloatingPointError):
        raise BadRequest(
            f"input {name!r}: {_first_too_large(values, dtype)} is out of the range of {datatype}"
        ) from None
    return _to_bf16(array) if datatype == "BF16" else array


def _first_too_large(values: list[Any], dtype: str) -> str:
    for at, value in enumerate(values):
        try:
            with np.errstate(over="raise"):
                np.array(value, dtype)
        except (OverflowError, FloatingPointError):
            return f"{value!r} at position {at}"
    return "a number"


def _to_bf16(array: npt.NDArray[np.float32]) -> npt.NDArray[np.uint16]:
    """Round to nearest, ties to even. What rounds up past the largest number becomes infinite, as in hardware."""
    bits = array.view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype(np.uint16)


def buffer_of(data: Array | list[Any]) -> bytes | memoryview:
    """The raw bytes of what `read` returned."""
    if isinstance(data, list):
        return pack_bytes(data)
    if data.nbytes <= COPIED_BELOW:
        return data.tobytes()
    return data.reshape(-1).view(np.uint8).data


def _excerpt(raw: bytes) -> str:
    text = raw[:40].decode("utf-8", "replace")
    return text + ("..." if len(raw) > 40 else "")


def write(name: str, datatype: str, array: Array) -> list[Any]:
    """The flat JSON values of an output (`array` as `wire.tensors.to_numpy` gives it). Raises NotRepresentable."""
    flat = array.reshape(-1)
    if datatype == "BYTES":
        return [_text(name, element) for element in flat.tolist()]
    if datatype == "BF16":
        flat = (flat.astype(np.uint32) << 16).view(np.float32)
    if flat.dtype.kind != "f":
        values: list[Any] = flat.tolist()
        return values
    if not np.isfinite(flat).all():
        at = int(np.flatnonzero(~np.isfinite(flat))[0])
        raise NotRepresentable(
            f"output {name!r} has {flat[at]} at position {at}, for which JSON has no number; "
            "ask for other outputs, or have the model avoid it"
        )
    return flat.tolist() if flat.dtype.itemsize == 8 else shortest(flat)


def _text(name: str, element: bytes) -> str:
    try:
        return element.decode()
    except UnicodeDecodeError as error:
        raise NotRepresentable(f"output {name!r} has bytes that are not UTF-8 text: {error}") from None
