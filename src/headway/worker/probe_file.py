"""probes.json in a version's folder: inputs for the check of batch safety, for models that made-up ones do not suit.

    [{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}], "parameters": {}}]

A list of requests as the Open Inference Protocol has them in JSON. Each row of each is a probe.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from headway.wire.messages import InputMeta
from headway.wire.tensors import NUMPY_DTYPES
from headway.worker.errors import LoadError, did_you_mean
from headway.worker.executor import Array, PartArrays

NAME = "probes.json"


class ProbeInput(msgspec.Struct, frozen=True):
    name: str
    datatype: str
    shape: list[int]
    data: list[Any]


class ProbeRequest(msgspec.Struct, frozen=True):
    inputs: list[ProbeInput]
    parameters: dict[str, Any] = {}


def read(model: str, folder: str, inputs: Sequence[InputMeta]) -> list[PartArrays]:
    """One part per row; none where there is no such file. Raises LoadError with the place of what is wrong."""
    file = Path(folder) / NAME
    if not file.is_file():
        return []
    try:
        requests = msgspec.json.decode(file.read_bytes(), type=list[ProbeRequest])
    except (msgspec.MsgspecError, OSError) as error:
        raise LoadError(f"model {model}: {NAME}: {error}") from None
    if not requests:
        raise LoadError(f"model {model}: {NAME} holds no request; without one, remove the file")
    by_name = {tensor.name: tensor for tensor in inputs}
    probes: list[PartArrays] = []
    for number, request in enumerate(requests):
        probes += _rows(f"model {model}: {NAME}[{number}]", request, by_name)
    return probes


def _rows(where: str, request: ProbeRequest, declared: Mapping[str, InputMeta]) -> list[PartArrays]:
    arrays = {given.name: _array(f"{where}: input {given.name!r}", given, declared) for given in request.inputs}
    missing = [name for name, meta in declared.items() if name not in arrays and not meta.optional]
    if missing:
        raise LoadError(f"{where}: input {missing[0]!r} is missing; given: {', '.join(arrays) or 'none'}")
    rows = {name: len(array) for name, array in arrays.items()}
    if len(set(rows.values())) != 1:
        raise LoadError(f"{where}: inputs have different numbers of rows: {rows}")
    ordered = {name: arrays[name] for name in declared if name in arrays}
    sizes = {ordered[name].shape[axis] for name in ordered if (axis := declared[name].pad_axis) is not None}
    if len(sizes) > 1:
        raise LoadError(f"{where}: padded inputs have different lengths: {sorted(sizes)}")
    length = next(iter(sizes), 1)
    return [
        PartArrays(1, length, {name: array[row : row + 1] for name, array in ordered.items()}, dict(request.parameters))
        for row in range(next(iter(rows.values())))
    ]


def _array(where: str, given: ProbeInput, declared: Mapping[str, InputMeta]) -> Array:
    meta = declared.get(given.name)
    if meta is None:
        raise LoadError(
            f"{where}: the model has no such input, it has {', '.join(declared)}{did_you_mean(given.name, declared)}"
        )
    if given.datatype != meta.datatype:
        raise LoadError(f"{where}: the model takes {meta.datatype}, got {given.datatype}")
    fits = len(given.shape) == len(meta.shape) and all(
        size >= 0 and wanted in (-1, size) for size, wanted in zip(given.shape[1:], meta.shape[1:], strict=True)
    )
    if not fits or given.shape[0] < 1:
        raise LoadError(f"{where}: the model takes {list(meta.shape)}, got shape {given.shape}")
    flat = _flat(given.data)
    if len(flat) != prod(given.shape):
        raise LoadError(f"{where}: shape {given.shape} has {prod(given.shape)} elements, data has {len(flat)}")
    try:
        return _typed(meta.datatype, flat).reshape(given.shape)
    except (AttributeError, OverflowError, TypeError, ValueError) as error:
        raise LoadError(f"{where}: data is not {meta.datatype}: {error}") from None


def _flat(data: list[Any]) -> list[Any]:
    return [leaf for item in data for leaf in (_flat(item) if isinstance(item, list) else [item])]


def _typed(datatype: str, flat: list[Any]) -> Array:
    if datatype == "BYTES":
        texts = np.empty(len(flat), dtype=object)
        texts[:] = [text.encode() for text in flat]
        return texts
    wanted = (bool,) if datatype == "BOOL" else (int,) if "INT" in datatype else (int, float)
    for element in flat:
        if type(element) not in wanted:
            raise TypeError(f"got {str(element)[:40]!r}")
    if datatype == "BF16":
        return (np.array(flat, "<f4").view("<u4") >> 16).astype("<u2")
    return np.array(flat, NUMPY_DTYPES[datatype])
