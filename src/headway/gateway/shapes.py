"""Shapes of a request's inputs, against what is declared and against each other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, TypeAlias

from headway.gateway.bounds import check_length
from headway.gateway.errors import BadRequest
from headway.wire.messages import InputMeta

MAX_RANK = 32
NAMES_SHOWN = 20

Shapes: TypeAlias = list[tuple[InputMeta, tuple[int, ...]]]
"""Of the inputs that are present, in the order of the declaration."""


def check_shape(shape: list[Any], declared: InputMeta) -> tuple[int, ...]:
    """shape: as it came. Raises BadRequest."""
    if len(shape) != len(declared.shape) or len(shape) > MAX_RANK:
        raise BadRequest(
            f"input {declared.name!r}: the model takes {_dims(declared)} ({len(declared.shape)} dimensions, "
            f"-1 = any size, the first is the rows), got {len(shape)} dimensions"
        )
    for axis, size in enumerate(shape):
        if type(size) is not int or not 0 <= size < 2**63:
            raise BadRequest(
                f"input {declared.name!r}: a shape has integers from 0 to 2^63 - 1, got {str(size)[:40]!r}"
            )
        if axis and declared.shape[axis] not in (-1, size):
            raise BadRequest(
                f"input {declared.name!r}: the model takes {_dims(declared)} (-1 = any size, the first is the rows), "
                f"got {shape}"
            )
    if not shape or shape[0] < 1:
        raise BadRequest(f"input {declared.name!r}: the first dimension is the rows, at least 1, got shape {shape}")
    return tuple(shape)


def common_rows(shapes: Shapes) -> int:
    first, rows = shapes[0][0].name, shapes[0][1][0]
    for declared, shape in shapes:
        if shape[0] != rows:
            raise BadRequest(f"input {first!r} has {rows} rows, input {declared.name!r} has {shape[0]}")
    return rows


def common_length(shapes: Shapes, most: int) -> int:
    """The size along the padded axis, which all padded inputs share; 1 where nothing is padded. most: 0 = any."""
    padded = [(meta.name, shape[meta.pad_axis]) for meta, shape in shapes if meta.pad_axis is not None]
    if not padded:
        return 1
    first, length = padded[0]
    for name, other in padded:
        if other != length:
            raise BadRequest(f"input {first!r} has length {length} along its padded axis, input {name!r} has {other}")
    if length < 1:
        raise BadRequest(f"input {first!r}: the size along the padded axis must be at least 1, got 0")
    check_length(first, length, most)
    return length


def names(of: Iterable[str]) -> str:
    """For messages."""
    known = list(of)
    return ", ".join(known[:NAMES_SHOWN]) + (", ..." if len(known) > NAMES_SHOWN else "") or "none"


def _dims(declared: InputMeta) -> str:
    return str(list(declared.shape))
