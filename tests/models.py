"""Tiny ONNX models for tests: each function writes one file and returns its path.

`repository` lays them out as a model repository (NAME/VERSION/model.onnx, NAME/model.toml).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

OPSET = 17
IR_VERSION = 8

Shape = list[int | str | None]


def write(path: Path, nodes: list[Any], inputs: list[Any], outputs: list[Any], constants: tuple[Any, ...] = ()) -> Path:
    """One graph as `path` (a file name ending in .onnx, or a folder that gets model.onnx)."""
    file = path if path.suffix == ".onnx" else path / "model.onnx"
    file.parent.mkdir(parents=True, exist_ok=True)
    graph = helper.make_graph(nodes, "model", inputs, outputs, list(constants))
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION)
    onnx.checker.check_model(model)
    onnx.save(model, str(file))
    return file


def tensor(name: str, datatype: int, shape: Shape) -> Any:
    return helper.make_tensor_value_info(name, datatype, shape)


def constant(name: str, value: Any) -> Any:
    array = np.asarray(value)
    return helper.make_tensor(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape, array.ravel().tolist())


def affine(path: Path, scale: float = 2, shift: float = 1, width: int = 4) -> Path:
    """x FP32 [-1, width] -> y FP32 [-1, width] = scale * x + shift."""
    nodes = [
        helper.make_node("Mul", ["x", "scale"], ["scaled"]),
        helper.make_node("Add", ["scaled", "shift"], ["y"]),
    ]
    return write(
        path,
        nodes,
        [tensor("x", TensorProto.FLOAT, ["batch", width])],
        [tensor("y", TensorProto.FLOAT, ["batch", width])],
        (
            constant("scale", np.float32(scale)),
            constant("shift", np.float32(shift)),
        ),
    )


def affine_fp16(path: Path) -> Path:
    """x FP16 [-1, 4] -> y FP16 [-1, 4] = x + x."""
    return write(
        path,
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [tensor("x", TensorProto.FLOAT16, ["batch", 4])],
        [tensor("y", TensorProto.FLOAT16, ["batch", 4])],
    )


def bfloat16_twice(path: Path) -> Path:
    """x BF16 [-1, -1] -> y BF16 [-1, -1] = x + x, computed in FP32; and z FP32, the same before it is rounded."""
    return write(
        path,
        [
            helper.make_node("Cast", ["x"], ["wide"], to=TensorProto.FLOAT),
            helper.make_node("Add", ["wide", "wide"], ["z"]),
            helper.make_node("Cast", ["z"], ["y"], to=TensorProto.BFLOAT16),
        ],
        [tensor("x", TensorProto.BFLOAT16, ["batch", "width"])],
        [tensor("y", TensorProto.BFLOAT16, ["batch", "width"]), tensor("z", TensorProto.FLOAT, ["batch", "width"])],
    )


def two_inputs(path: Path) -> Path:
    """a, b FP32 [-1, 3] -> sum, product FP32 [-1, 3]. b is optional: ones where it is missing."""
    nodes = [
        helper.make_node("Add", ["a", "b"], ["sum"]),
        helper.make_node("Mul", ["a", "b"], ["product"]),
    ]
    return write(
        path,
        nodes,
        [tensor("a", TensorProto.FLOAT, ["batch", 3]), tensor("b", TensorProto.FLOAT, [None, 3])],
        [tensor("sum", TensorProto.FLOAT, ["batch", 3]), tensor("product", TensorProto.FLOAT, ["batch", 3])],
        (constant("b", np.ones((1, 3), np.float32)),),
    )


def masked_mean(path: Path) -> Path:
    """values FP32 [-1, -1], mask INT64 [-1, -1] -> mean FP32 [-1], centred FP32 [-1, -1] (values - mean).

    Wants padding of both inputs and of `centred`; `MASKED_MEAN_TOML` says so.
    """
    nodes = [
        helper.make_node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["values", "kept"], ["masked"]),
        helper.make_node("ReduceSum", ["masked", "axis"], ["total"], keepdims=1),
        helper.make_node("ReduceSum", ["kept", "axis"], ["count"], keepdims=1),
        helper.make_node("Div", ["total", "count"], ["column"]),
        helper.make_node("Squeeze", ["column", "axis"], ["mean"]),
        helper.make_node("Sub", ["values", "column"], ["centred"]),
    ]
    return write(
        path,
        nodes,
        [
            tensor("values", TensorProto.FLOAT, ["batch", "length"]),
            tensor("mask", TensorProto.INT64, ["batch", "length"]),
        ],
        [tensor("mean", TensorProto.FLOAT, ["batch"]), tensor("centred", TensorProto.FLOAT, ["batch", "length"])],
        (constant("axis", np.array([1], np.int64)),),
    )


MASKED_MEAN_TOML = """\
[inputs.values]
pad_axis = 1
[inputs.mask]
pad_axis = 1
[outputs.centred]
pad_axis = 1
"""


def lookup(path: Path) -> Path:
    """ids INT64 [-1, -1] -> found FP32 [-1, -1]: the table 0, 10, 20, 30, 40. Any other id makes the batch fail.

    Wants padding of both; `LOOKUP_TOML` says so, and what the model takes.
    """
    return write(
        path,
        [helper.make_node("Gather", ["table", "ids"], ["found"])],
        [tensor("ids", TensorProto.INT64, ["batch", "length"])],
        [tensor("found", TensorProto.FLOAT, ["batch", "length"])],
        (constant("table", np.arange(5, dtype=np.float32) * 10),),
    )


LOOKUP_TOML = """\
max_length = 6
[inputs.ids]
pad_axis = 1
[outputs.found]
pad_axis = 1
[bounds.ids]
minimum = 0
maximum = 4
"""


def fixed_batch(path: Path, rows: int = 4) -> Path:
    """x FP32 [rows, 2] -> y FP32 [rows, 2] = x + x; the batch dimension is fixed in the file."""
    return write(
        path,
        [helper.make_node("Add", ["x", "x"], ["y"])],
        [tensor("x", TensorProto.FLOAT, [rows, 2])],
        [tensor("y", TensorProto.FLOAT, [rows, 2])],
    )


def argmax(path: Path) -> Path:
    """x FP32 [-1, 5] -> label INT64 [-1]: where the largest of the five is."""
    return write(
        path,
        [helper.make_node("ArgMax", ["x"], ["label"], axis=1, keepdims=0)],
        [tensor("x", TensorProto.FLOAT, ["batch", 5])],
        [tensor("label", TensorProto.INT64, ["batch"])],
    )


def echo_text(path: Path) -> Path:
    """text BYTES [-1, 1] -> same BYTES [-1, 1]."""
    return write(
        path,
        [helper.make_node("Identity", ["text"], ["same"])],
        [tensor("text", TensorProto.STRING, ["batch", 1])],
        [tensor("same", TensorProto.STRING, ["batch", 1])],
    )


def loses_rows(path: Path) -> Path:
    """x FP32 [-1, 2] -> y FP32 [1, 2]: the sum over all rows. A broken model: whatever comes, one row goes."""
    return write(
        path,
        [helper.make_node("ReduceSum", ["x", "axis"], ["y"], keepdims=1)],
        [tensor("x", TensorProto.FLOAT, ["batch", 2])],
        [tensor("y", TensorProto.FLOAT, [None, 2])],
        (constant("axis", np.array([0], np.int64)),),
    )


def centred_over_rows(path: Path) -> Path:
    """x FP32 [-1, 4] -> y FP32 [-1, 4] = x - mean over the rows: what a batch norm left in training mode does."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["middle"], axes=[0], keepdims=1),
        helper.make_node("Sub", ["x", "middle"], ["y"]),
    ]
    return write(
        path,
        nodes,
        [tensor("x", TensorProto.FLOAT, ["batch", 4])],
        [tensor("y", TensorProto.FLOAT, ["batch", 4])],
    )


def padded_mean(path: Path) -> Path:
    """values FP32 [-1, -1] -> mean FP32 [-1]: padding counts. `PADDED_MEAN_TOML` has it padded."""
    return write(
        path,
        [helper.make_node("ReduceMean", ["values"], ["mean"], axes=[1], keepdims=0)],
        [tensor("values", TensorProto.FLOAT, ["batch", "length"])],
        [tensor("mean", TensorProto.FLOAT, ["batch"])],
    )


PADDED_MEAN_TOML = "max_length = 64\n[inputs.values]\npad_axis = 1\n"


def tiny_encoder(path: Path, width: int = 32) -> Path:
    """ids, mask INT64 [-1, -1] -> embedding FP32 [-1, width]: one layer of masked attention, masked mean, unit length.

    Wants padding of both inputs; `TINY_ENCODER_TOML` says so.
    """
    random = np.random.default_rng(3)
    weights = {name: random.normal(size=(width, width)).astype(np.float32) / width**0.5 for name in ("q", "k", "v")}
    node = helper.make_node
    nodes = [
        node("Gather", ["table", "ids"], ["x"]),
        *(node("MatMul", ["x", f"w{name}"], [name]) for name in weights),
        node("Transpose", ["k"], ["kt"], perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["raw"]),
        node("Cast", ["mask"], ["kept"], to=TensorProto.FLOAT),
        node("Sub", ["kept", "one"], ["hidden"]),
        node("Mul", ["hidden", "far"], ["bias"]),
        node("Unsqueeze", ["bias", "axis1"], ["bias3"]),
        node("Add", ["raw", "bias3"], ["scores"]),
        node("Softmax", ["scores"], ["weights"], axis=-1),
        node("MatMul", ["weights", "v"], ["mixed"]),
        node("Add", ["x", "mixed"], ["states"]),
        node("Unsqueeze", ["kept", "axis2"], ["kept3"]),
        node("Mul", ["states", "kept3"], ["masked"]),
        node("ReduceSum", ["masked", "axis1"], ["total"], keepdims=0),
        node("ReduceSum", ["kept", "axis1"], ["count"], keepdims=1),
        node("Div", ["total", "count"], ["mean"]),
        node("LpNormalization", ["mean"], ["embedding"], axis=-1, p=2),
    ]
    constants = (
        constant("table", random.normal(size=(50, width)).astype(np.float32)),
        *(constant(f"w{name}", value) for name, value in weights.items()),
        constant("one", np.float32(1)),
        constant("far", np.float32(1e9)),
        constant("axis1", np.array([1], np.int64)),
        constant("axis2", np.array([2], np.int64)),
    )
    return write(
        path,
        nodes,
        [
            tensor("ids", TensorProto.INT64, ["batch", "length"]),
            tensor("mask", TensorProto.INT64, ["batch", "length"]),
        ],
        [tensor("embedding", TensorProto.FLOAT, ["batch", width])],
        constants,
    )


TINY_ENCODER_TOML = """\
max_length = 64
[inputs.ids]
pad_axis = 1
[inputs.mask]
pad_axis = 1
[bounds.ids]
minimum = 0
maximum = 49
"""


def repository(root: Path) -> Path:
    """A model repository: affine (1, and 2 which adds 100), masked_mean, argmax, two_inputs, fixed_batch."""
    affine(root / "affine" / "1")
    affine(root / "affine" / "2", shift=100)
    masked_mean(root / "masked_mean" / "1")
    (root / "masked_mean" / "model.toml").write_text(MASKED_MEAN_TOML)
    argmax(root / "argmax" / "1")
    two_inputs(root / "two_inputs" / "1")
    fixed_batch(root / "fixed_batch" / "1")
    return root
