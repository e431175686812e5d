"""What a Python model returned for one request, checked against what the model declares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from headway.wire.bfloat16 import from_float32
from headway.wire.messages import InputMeta
from headway.wire.tensors import NUMPY_DTYPES
from headway.worker.errors import ResultError, did_you_mean, part_error
from headway.worker.executor import Array, PartError, PartOutput

_DTYPES = {name: np.dtype(code) for name, code in NUMPY_DTYPES.items()}


def check_result(model: str, outputs: Sequence[InputMeta], result: Any, rows: int) -> PartOutput:
    """The result as arrays of the declared datatypes, or why this request alone has failed.

    Raises ResultError for a wrong number of rows: then the model has mixed up whose result is whose,
    and none of the batch can be trusted.
    """
    if isinstance(result, BaseException):
        return part_error(model, result)
    if not isinstance(result, dict):
        return PartError(
            f"model {model} returned a {type(result).__name__}; expected a dict of outputs, or an exception"
        )
    known = [output.name for output in outputs]
    for name in result:
        if name not in known:
            return PartError(
                f"model {model} returned unknown output {name!r}; "
                f"it declares {', '.join(known)}{did_you_mean(str(name), known)}"
            )
    arrays: dict[str, Array] = {}
    for output in outputs:
        if output.name not in result:
            return PartError(f"model {model} returned no output {output.name!r}")
        array = _as_declared(model, output, result[output.name])
        if isinstance(array, PartError):
            return array
        _check_rows(model, output, array, rows)
        if not _fits(array.shape[1:], output.shape[1:]):
            return PartError(
                f"model {model} returned output {output.name!r} of shape {list(array.shape)}; "
                f"it declares {list(output.shape)}"
            )
        arrays[output.name] = array
    return arrays


def _as_declared(model: str, output: InputMeta, value: Any) -> Array | PartError:
    try:
        array = np.asarray(value, dtype=object if output.datatype == "BYTES" else None)
    except ValueError as error:
        return PartError(f"model {model} returned output {output.name!r} that is no array: {error}")
    if output.datatype == "BYTES":
        for element in array.ravel().tolist():
            if not isinstance(element, (str, bytes)):
                return _wrong_datatype(model, output, type(element).__name__)
        return array
    if output.datatype == "BF16":
        return _as_bf16(model, output, array)
    wanted = _DTYPES[output.datatype]
    if array.dtype == wanted:
        return array
    if not np.can_cast(array.dtype, wanted, "same_kind"):
        return _wrong_datatype(model, output, str(array.dtype))
    return array.astype(wanted, copy=False)


def _as_bf16(model: str, output: InputMeta, array: Array) -> Array | PartError:
    """uint16 is BF16 already; other numbers are rounded to it."""
    if array.dtype.name == "bfloat16":  # a library's own dtype for it
        return array.view(np.uint16)
    if array.dtype == np.uint16:
        return array
    if not np.can_cast(array.dtype, np.float32, "same_kind"):
        return _wrong_datatype(model, output, str(array.dtype))
    return from_float32(array)


def _wrong_datatype(model: str, output: InputMeta, came: str) -> PartError:
    return PartError(f"model {model} returned output {output.name!r} as {came}; it declares {output.datatype}")


def _check_rows(model: str, output: InputMeta, array: Array, rows: int) -> None:
    came = array.shape[0] if array.ndim else 0
    if came != rows:
        raise ResultError(f"model {model} returned {came} rows in output {output.name!r} for a request of {rows}")


def _fits(shape: Sequence[int], declared: Sequence[int]) -> bool:
    return len(shape) == len(declared) and all(
        wanted in (-1, size) for size, wanted in zip(shape, declared, strict=True)
    )
