"""Writes the metadata of GGUF files, as small as a test wants them."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any


def gguf_bytes(metadata: Mapping[str, Any], version: int = 3) -> bytes:
    """Integers are written as INT32, and as UINT32 where the key ends in _id; floats as FLOAT32."""
    head = b"GGUF" + struct.pack("<IQQ", version, 0, len(metadata))
    return head + b"".join(_text(key) + _typed(key, value) for key, value in metadata.items())


def _typed(key: str, value: Any) -> bytes:
    if isinstance(value, list):
        kind = 8 if isinstance(value[0], str) else 6 if isinstance(value[0], float) else 5
        body = b"".join(_text(item) if kind == 8 else struct.pack("<f" if kind == 6 else "<i", item) for item in value)
        return struct.pack("<IIQ", 9, kind, len(value)) + body
    if isinstance(value, bool):
        return struct.pack("<I?", 7, value)
    if isinstance(value, str):
        return struct.pack("<I", 8) + _text(value)
    if isinstance(value, float):
        return struct.pack("<If", 6, value)
    return struct.pack("<II" if key.endswith("_id") else "<Ii", 4 if key.endswith("_id") else 5, value)


def _text(text: str) -> bytes:
    data = text.encode()
    return struct.pack("<Q", len(data)) + data
