"""What an ONNX session says of its inputs and outputs, in headway's words."""

from __future__ import annotations

from collections.abc import Sequence
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

from headway.worker.declaration import Declared
from headway.worker.errors import LoadError

DATATYPES = {
    "tensor(bool)": "BOOL",
    "tensor(uint8)": "UINT8",
    "tensor(uint16)": "UINT16",
    "tensor(uint32)": "UINT32",
    "tensor(uint64)": "UINT64",
    "tensor(int8)": "INT8",
    "tensor(int16)": "INT16",
    "tensor(int32)": "INT32",
    "tensor(int64)": "INT64",
    "tensor(float16)": "FP16",
    "tensor(bfloat16)": "BF16",
    "tensor(float)": "FP32",
    "tensor(double)": "FP64",
    "tensor(string)": "BYTES",
}


QUANTISED = (b"QuantizeLinear", b"MatMulInteger", b"ConvInteger")
"""Names of operators that are in the file of a quantised model, as plain text."""


def computes_in(file: Path) -> str:
    """ "INT8" for a quantised model, else "": as its outputs say. Weights in other files are not looked at."""
    with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as content:
        return "INT8" if any(content.find(name) >= 0 for name in QUANTISED) else ""


def declared_inputs(model: str, session: Any) -> tuple[list[Declared], int]:
    """Inputs, and how many rows the file is fixed to (0 = any).

    An input with a default in the graph is optional. Where that default has no rows dimension it is a
    constant of the model rather than an input of a request, and is left alone.
    """
    required = session.get_inputs()
    rows = _fixed_rows(model, required)
    inputs = [_declared(model, "input", node) for node in required]
    for node in session.get_overridable_initializers():
        if node.shape and (node.shape[0] == rows if rows else not isinstance(node.shape[0], int)):
            inputs.append(_declared(model, "input", node)._replace(optional=True))
    return inputs, rows


def declared_outputs(model: str, session: Any) -> list[Declared]:
    return [_declared(model, "output", node) for node in session.get_outputs()]


def _fixed_rows(model: str, nodes: Sequence[Any]) -> int:
    fixed = {node.name: node.shape[0] for node in nodes if node.shape and isinstance(node.shape[0], int)}
    sizes = list(dict.fromkeys(fixed.values()))
    if len(sizes) > 1:
        raise LoadError(
            f"model {model}: the first dimension of every input must be the rows of the batch, "
            f"but it is fixed to different sizes: {', '.join(f'{name} to {size}' for name, size in fixed.items())}"
        )
    return sizes[0] if sizes else 0


def _declared(model: str, kind: str, node: Any) -> Declared:
    datatype = DATATYPES.get(node.type)
    if datatype is None:
        raise LoadError(
            f"model {model}: {kind} {node.name!r} is a {node.type}; "
            f"only tensors of these kinds can be served: {', '.join(DATATYPES)}"
        )
    sizes = tuple(size if isinstance(size, int) else -1 for size in node.shape)
    return Declared(node.name, datatype, (-1, *sizes[1:]) if sizes else ())
