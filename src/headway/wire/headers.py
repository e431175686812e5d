"""The one part of a tensor that is decoded. A module of its own, which is not compiled: the decoder looks at the
annotations of its fields, and those of a class in a compiled module are not what the source says."""

from __future__ import annotations

import msgspec


class TensorHeader(msgspec.Struct, frozen=True, array_like=True):
    """All of a tensor but its bytes. size: how many bytes follow for it."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    size: int
