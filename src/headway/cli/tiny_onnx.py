"""Writes one small ONNX model without the `onnx` package, which a plain install does not have.

ONNX files are protobuf messages; this is all of the encoding that `y = scale * x + offset` needs.
The numbers are the field numbers of onnx.proto.
"""

from __future__ import annotations

import struct

IR_VERSION = 8
OPSET = 17
FLOAT = 1


def affine(scale: float, offset: float, width: int) -> bytes:
    """A model with input x and output y, both FP32 [batch, width]."""
    graph = (
        message(1, node("Mul", "x", "scale", "scaled"))
        + message(1, node("Add", "scaled", "offset", "y"))
        + text(2, "affine")
        + message(5, constant("scale", scale))
        + message(5, constant("offset", offset))
        + message(11, tensor_info("x", width))
        + message(12, tensor_info("y", width))
    )
    return number(1, IR_VERSION) + text(2, "headway") + message(7, graph) + message(8, text(1, "") + number(2, OPSET))


def node(operator: str, left: str, right: str, result: str) -> bytes:
    return text(1, left) + text(1, right) + text(2, result) + text(4, operator)


def constant(name: str, value: float) -> bytes:
    """A scalar initializer."""
    return number(2, FLOAT) + text(8, name) + message(9, struct.pack("<f", value))


def tensor_info(name: str, width: int) -> bytes:
    dimensions = message(1, text(2, "batch")) + message(1, number(1, width))
    return text(1, name) + message(2, message(1, number(1, FLOAT) + message(2, dimensions)))


def number(field: int, value: int) -> bytes:
    return varint(field << 3) + varint(value)


def text(field: int, value: str) -> bytes:
    return message(field, value.encode())


def message(field: int, body: bytes) -> bytes:
    return varint(field << 3 | 2) + varint(len(body)) + body


def varint(value: int) -> bytes:
    """Seven bits a byte, the lowest first; the top bit says that more follow."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*encoded, value])
