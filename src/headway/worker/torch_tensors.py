"""Datatypes of PyTorch in the protocol's words, and arrays to tensors and back.

BF16, which numpy has not, travels as two raw bytes per element (UINT16 to numpy).
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from headway.worker.errors import LoadError
from headway.worker.executor import Array

DATATYPES: dict[Any, str] = {
    torch.bool: "BOOL",
    torch.uint8: "UINT8",
    torch.int8: "INT8",
    torch.int16: "INT16",
    torch.int32: "INT32",
    torch.int64: "INT64",
    torch.float16: "FP16",
    torch.bfloat16: "BF16",
    torch.float32: "FP32",
    torch.float64: "FP64",
}


def datatype_of(where: str, dtype: Any) -> str:
    """Raises LoadError for a dtype that cannot be served."""
    if dtype not in DATATYPES:
        raise LoadError(f"{where} is of {dtype}; only these can be served: {', '.join(map(str, DATATYPES))}")
    return DATATYPES[dtype]


def to_tensor(array: Array, datatype: str) -> Any:
    """A tensor over the same memory where that can be written; bytes that came over the channel are copied."""
    plain = np.require(array, requirements=["C", "A", "W"])
    return (
        torch.from_numpy(plain.view(np.int16)).view(torch.bfloat16) if datatype == "BF16" else torch.from_numpy(plain)
    )


def to_array(tensor: Any) -> Array:
    """tensor: on the CPU."""
    plain = tensor.contiguous()
    array: Array = plain.view(torch.int16).numpy().view("<u2") if plain.dtype == torch.bfloat16 else plain.numpy()
    return array
