"""Tensors as raw bytes behind the JSON: the binary tensor data extension.

A body is a JSON object and, right behind it, the bytes of every input that names a `binary_data_size`, in the order
of the inputs, without gaps. The header Inference-Header-Content-Length says where the JSON ends. Replies look the same.
A length of 0 is a raw request: the body is the bytes of the model's only input, and all outputs come back as bytes.
Bytes of tensors: `headway.wire.tensors`.
"""

from __future__ import annotations

from math import prod

import numpy as np

from headway.gateway.errors import BadRequest
from headway.gateway.infer_body import InferBody, InferInput, decode
from headway.gateway.oip_parameters import BINARY_OUTPUT, BINARY_SIZE
from headway.wire.messages import ModelMeta
from headway.wire.tensors import COPIED_BELOW, ITEM_SIZES, byte_elements, pack_bytes

HEADER = b"inference-header-content-length"
OCTETS = b"application/octet-stream"
NOTHING = memoryview(b"")
_MOST_DIGITS = 18
_ADVICE = "Inference-Header-Content-Length must be the number of bytes of the JSON object that the body begins with"


def split(body: bytes, length: bytes) -> tuple[InferBody, memoryview]:
    """The JSON, and what follows it. length: the header's value, not 0. Raises BadRequest."""
    end = header_length(length, len(body))
    view = memoryview(body)
    where = f"the first {end} of the body's {len(body)} bytes are"
    try:
        parsed = decode(view[:end], where)
    except BadRequest as error:
        raise BadRequest(f"{error.message}; {_ADVICE}") from None
    tail = view[end:]
    if end > len(tail):  # a view would keep the whole body, of which it is the smaller part
        tail = memoryview(bytes(tail))
    return parsed, tail


def header_length(value: bytes, most: int) -> int:
    """most: bytes of the body. Raises BadRequest."""
    if not value.isdigit() or len(value) > _MOST_DIGITS:
        raise BadRequest(f"{_ADVICE}, got {value[:40].decode('latin-1')!r}")
    length = int(value)
    if length > most:
        raise BadRequest(f"{_ADVICE}, but it says {length} and the whole body has {most} bytes")
    return length


def whole_body(body: bytes, meta: ModelMeta) -> tuple[InferBody, memoryview]:
    """A raw request: one row of the model's only input. One dimension may be variable, its size follows from the
    number of bytes; a BYTES input is one element, without a length before it. Raises BadRequest."""
    required = [declared for declared in meta.inputs if not declared.optional] or list(meta.inputs)
    if len(required) != 1:
        raise BadRequest(
            f"a raw request ({HEADER.decode()}: 0) is for models with one input, this one has {len(required)}"
        )
    (declared,) = required
    sizes = declared.shape[1:]
    free = [axis for axis, size in enumerate(sizes, 1) if size == -1]
    if len(free) > 1:
        raise BadRequest(
            f"a raw request can leave the size of one dimension open, input {declared.name!r} of shape "
            f"{list(declared.shape)} has {len(free)} besides the rows"
        )
    shape = [1, *sizes]
    if declared.datatype == "BYTES":
        body = pack_bytes([body])
        count = 1
    else:
        count = len(body) // ITEM_SIZES[declared.datatype]
    for axis in free:
        shape[axis] = count // (prod(size for size in sizes if size != -1) or 1)
    entry = InferInput(declared.name, declared.datatype, shape, parameters={BINARY_SIZE: len(body)})
    return InferBody([entry], parameters={BINARY_OUTPUT: True}), memoryview(body)


class Tail:
    """What follows the JSON, handed out from its beginning."""

    __slots__ = ("_at", "_bytes")

    def __init__(self, data: memoryview) -> None:
        self._bytes = data
        self._at = 0

    def take(self, name: str, size: int) -> bytes | memoryview:
        """The next `size` bytes, a view where they are many. name: of the input. Raises BadRequest."""
        left = len(self._bytes) - self._at
        if size > left:
            without = "" if self._bytes else f" (is the header {HEADER.decode()} missing?)"
            raise BadRequest(
                f"input {name!r}: binary_data_size is {size}, but {left} of the {len(self._bytes)} bytes "
                f"behind the JSON are left{without}"
            )
        data = self._bytes[self._at : self._at + size]
        self._at += size
        return bytes(data) if size <= COPIED_BELOW else data

    def end(self) -> None:
        """Raises BadRequest where bytes were left."""
        if self._at != len(self._bytes):
            raise BadRequest(
                f"{len(self._bytes)} bytes follow the JSON, the inputs' binary_data_size add up to {self._at}"
            )


def check_bytes(name: str, datatype: str, shape: tuple[int, ...], data: bytes | memoryview) -> None:
    """Raises BadRequest unless these are the bytes of such a tensor."""
    count = prod(shape)
    if datatype == "BYTES":
        try:
            found = len(byte_elements(name, data)) - 1
        except ValueError as error:
            raise BadRequest(f"input {name!r}: {error}") from None
        if found != count:
            raise BadRequest(f"input {name!r}: shape {list(shape)} needs {count} elements, the binary data has {found}")
        return
    expected = count * ITEM_SIZES[datatype]
    if len(data) != expected:
        raise BadRequest(
            f"input {name!r}: {datatype} of shape {list(shape)} is {expected} bytes, binary_data_size is {len(data)}"
        )
    if datatype == "BOOL" and count and np.frombuffer(data, np.uint8).max() > 1:
        raise BadRequest(f"input {name!r}: a byte of BOOL is 0 or 1, the binary data has others")
