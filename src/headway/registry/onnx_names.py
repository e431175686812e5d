"""The names of an ONNX file's inputs and outputs, read without ONNX Runtime and without its weights.

The file is a protobuf message. Of its fields only those that matter are looked into; all others are stepped over, so
that a file of gigabytes takes no longer than one of kilobytes. Numbers of fields: onnx.proto, which never changes them.
"""

from __future__ import annotations

from collections.abc import Iterator
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import TypeAlias

Bytes: TypeAlias = memoryview

GRAPH = 7
"""Of ModelProto."""

INPUT, OUTPUT = 11, 12
"""Of GraphProto."""

NAME = 1
"""Of ValueInfoProto."""

VARINT, FIXED64, MESSAGE, FIXED32 = 0, 1, 2, 5
"""Kinds of fields in protobuf."""


class NotOnnx(ValueError):
    """The file is no such message. ONNX Runtime will say more."""


def read(file: Path) -> tuple[list[str], list[str]]:
    """Inputs (defaults in the graph among them) and outputs. Raises NotOnnx, OSError."""
    if not file.stat().st_size:
        raise NotOnnx("an empty file")
    with file.open("rb") as opened, mmap(opened.fileno(), 0, access=ACCESS_READ) as mapped, memoryview(mapped) as whole:
        return _names(whole)


def _names(model: Bytes) -> tuple[list[str], list[str]]:
    found: dict[int, list[str]] = {INPUT: [], OUTPUT: []}
    try:
        for start, end in [at for number, at in _fields(model, 0, len(model)) if number == GRAPH]:
            for number, value in _fields(model, start, end):
                if number in found:
                    found[number] += [str(model[a:b], "utf-8") for n, (a, b) in _fields(model, *value) if n == NAME]
    except (IndexError, UnicodeDecodeError) as error:
        raise NotOnnx(str(error)) from error
    return found[INPUT], found[OUTPUT]


def _fields(data: Bytes, at: int, end: int) -> Iterator[tuple[int, tuple[int, int]]]:
    """(number, where its content begins and ends) of each field that holds bytes. Raises NotOnnx, IndexError."""
    while at < end:
        key, at = _varint(data, at)
        kind = key & 7
        if kind == VARINT:
            _, at = _varint(data, at)
        elif kind == MESSAGE:
            size, at = _varint(data, at)
            if at + size > end:
                raise NotOnnx(f"a field of {size} bytes at byte {at} is longer than what it is in")
            yield key >> 3, (at, at + size)
            at += size
        elif kind in (FIXED64, FIXED32):
            at += 8 if kind == FIXED64 else 4
        else:
            raise NotOnnx(f"a field of kind {kind} before byte {at}")


def _varint(data: Bytes, at: int) -> tuple[int, int]:
    """The number there, and where the next thing begins."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise NotOnnx(f"a number of more than 64 bits before byte {at}")
