"""What a GGUF file says of itself: the key-value part of it, without a look at the tensors.

The format: https://github.com/ggml-org/ggml/blob/master/docs/gguf.md, versions 2 and 3, little-endian.
"""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import Any

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
_STRING, _ARRAY = 8, 9
DEEPEST = 4
"""Arrays within arrays."""


class GgufError(ValueError):
    """It is no GGUF file, or not whole, or none that is read here. The message has the file's name and the place."""


def read_metadata(file: Path) -> dict[str, Any]:
    """Keys as the file has them; values are numbers, booleans, strings, and lists of those. Raises GgufError; OSError
    where the file cannot be opened."""
    with file.open("rb") as opened:
        try:
            data = mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:
            raise GgufError(f"{file} is empty") from None
    with data:
        reader = _Reader(data)
        try:
            return reader.everything()
        except GgufError as error:
            raise GgufError(f"{file}: {error}") from None
        except struct.error:
            raise GgufError(f"{file}: it ends in the midst of its metadata, at byte {reader.at}") from None


class _Reader:
    def __init__(self, data: mmap.mmap) -> None:
        self._data = data
        self._size = len(data)
        self.at = 0

    def everything(self) -> dict[str, Any]:
        if self._data[: len(MAGIC)] != MAGIC:
            raise GgufError("it does not begin as a GGUF file does")
        self.at = len(MAGIC)
        version = self._number("I")
        if version not in VERSIONS:
            raise GgufError(f"version {version}; versions {VERSIONS[0]} and {VERSIONS[1]}, little-endian, are read")
        self._number("Q")  # of tensors
        found = {}
        for _ in range(self._number("Q")):
            key = self._string()
            found[key] = self._value(self._number("I"))
        return found

    def _value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self._string()
        if kind == _ARRAY and depth < DEEPEST:
            return self._array(depth)
        if kind not in _NUMBERS:
            raise GgufError(f"a value of type {kind} at byte {self.at}")
        return self._number(_NUMBERS[kind])

    def _array(self, depth: int) -> list[Any]:
        kind, count = self._number("I"), self._number("Q")
        if count > self._size - self.at:
            raise GgufError(f"an array of {count} at byte {self.at}, where {self._size - self.at} bytes are left")
        if kind not in _NUMBERS:
            return [self._value(kind, depth + 1) for _ in range(count)]
        values = struct.unpack_from(f"<{count}{_NUMBERS[kind]}", self._data, self.at)
        self.at += struct.calcsize(f"<{count}{_NUMBERS[kind]}")
        return list(values)

    def _string(self) -> str:
        size = self._number("Q")
        if size > self._size - self.at:
            raise GgufError(f"a string of {size} bytes at byte {self.at}, where {self._size - self.at} are left")
        self.at += size
        return self._data[self.at - size : self.at].decode("utf-8", "replace")

    def _number(self, form: str) -> Any:
        (value,) = struct.unpack_from("<" + form, self._data, self.at)
        self.at += struct.calcsize("<" + form)
        return value
