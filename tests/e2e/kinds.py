"""A model that gives back what it gets, in every datatype there is; and values that a wrong width would change."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from headway.wire.tensors import DATATYPES, NUMPY_DTYPES
from tests.e2e.server import put

MODEL = """
class Model:
    inputs = {%(names)s}
    outputs = {name + "_out": kind for name, kind in inputs.items()}

    def execute(self, requests):
        return [{name + "_out": array for name, array in request.items()} for request in requests]
"""
NAMES = [datatype.lower() for datatype in DATATYPES]

_VALUES: dict[str, list[Any]] = {
    "BOOL": [True, False, False, True],
    "INT64": [-(2**63), 2**63 - 1, 2**53 + 1, -1],
    "UINT64": [0, 2**64 - 1, 2**53 + 1, 2**63],
    "FP16": [0.1, -2048.0, 6e-8, 65504.0],
    "BF16": [0.1, -1.0e38, 1e-40, 1.5],
    "FP32": [0.1, 16777217.0, 1e-45, 3.4028235e38],
    "FP64": [0.1, 1e308, 5e-324, 0.30000000000000004],
    "BYTES": [b"", "na\u00efve \u2603".encode(), b"nul\0inside", b"x" * 300],
}


def put_model(root: Path, name: str = "kinds") -> None:
    names = ", ".join(f'"{datatype.lower()}": ("{datatype}", [-1, -1])' for datatype in DATATYPES)
    put(root, f"models/{name}/1/model.py", MODEL % {"names": names})


def values(datatype: str) -> np.ndarray[Any, Any]:
    """Of shape [2, 2]."""
    if datatype == "BYTES":
        return np.array(_VALUES[datatype], dtype=object).reshape(2, 2)
    dtype = ml_dtypes.bfloat16 if datatype == "BF16" else np.dtype(NUMPY_DTYPES[datatype])
    if datatype in _VALUES:
        return np.array(_VALUES[datatype], dtype).reshape(2, 2)
    limits = np.iinfo(dtype)
    return np.array([limits.min, limits.max, 1, limits.max - 1], dtype).reshape(2, 2)


def assert_equal(name: str, came: Any) -> None:
    """Bit for bit. name: of the datatype, in lower case."""
    sent = values(name.upper())
    assert came is not None, name
    assert (came.dtype, came.shape) == (sent.dtype, sent.shape), name
    assert came.tolist() == sent.tolist() if sent.dtype == object else came.tobytes() == sent.tobytes(), name
