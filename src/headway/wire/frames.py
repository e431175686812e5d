"""Framing of the channel between runtime and worker: a duplex byte stream, unix socket or TCP.

    frame   = header, payload
    header  = uint32 payload size | uint32 stream | uint8 flags          (little-endian, 9 bytes)
    message = the payloads of a stream's frames, up to one without MORE
            = uint32 size of head | head (MessagePack) | raw tensor bytes ...

A message larger than CHUNK is sent as several frames with the same stream number and the MORE flag
on all but the last, and frames of other streams may come in between: that is how a control message
overtakes a large tensor. Both ends reassemble per stream.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

import msgspec

Buffer: TypeAlias = bytes | bytearray | memoryview

CHUNK = 1 << 20
"""Largest payload of one frame in bytes."""

MAX_MESSAGE = 1 << 31
"""Largest message that a reader accepts, in bytes."""

MORE = 1

HEADER = struct.Struct("<IIB")
_SIZE = struct.Struct("<I")

M = TypeVar("M")

_encoder = msgspec.msgpack.Encoder()


class ProtocolViolation(Exception):
    """The other end does not speak this protocol; the connection is of no further use."""


def frames(message: Any, buffers: Sequence[Buffer], stream: int) -> Iterator[list[Buffer]]:
    """The message as frames, each a list of buffers to write one after the other.

    `stream` must differ from that of any message whose frames are still being written.
    """
    head = _encoder.encode(message)
    pieces: list[Buffer] = [_SIZE.pack(len(head)) + head]
    total = len(pieces[0])
    for buffer in buffers:
        view = memoryview(buffer).cast("B")
        if view.nbytes:
            pieces.append(view)
            total += view.nbytes
    if total <= CHUNK:
        yield [HEADER.pack(total, stream, 0), *pieces]
        return
    for last, chunk in _chunks(pieces):
        size = sum(memoryview(piece).nbytes for piece in chunk)
        yield [HEADER.pack(size, stream, 0 if last else MORE), *chunk]


def _chunks(pieces: list[Buffer]) -> Iterator[tuple[bool, list[Buffer]]]:
    chunk: list[Buffer] = []
    room = CHUNK
    for number, piece in enumerate(pieces):
        view = memoryview(piece)
        while view.nbytes:
            part, view = view[:room], view[room:]
            chunk.append(part)
            room -= part.nbytes
            if room == 0:
                yield view.nbytes == 0 and number == len(pieces) - 1, chunk
                chunk, room = [], CHUNK
    if chunk:
        yield True, chunk


class Reader(Generic[M]):
    """Turns received bytes into messages: `feed` what came, iterate over what is complete.

    Yields (message, view of its raw tensor bytes). Raises ProtocolViolation for anything malformed.
    """

    def __init__(self, message_type: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(message_type)
        self._pending = bytearray()
        self._streams: dict[int, bytearray] = {}

    def feed(self, data: Buffer) -> Iterator[tuple[M, memoryview]]:
        self._pending += data
        at = 0
        try:
            while len(self._pending) - at >= HEADER.size:
                size, stream, flags = HEADER.unpack_from(self._pending, at)
                if size > CHUNK or flags > MORE:
                    raise ProtocolViolation(f"frame of {size} bytes with flags {flags}")
                end = at + HEADER.size + size
                if len(self._pending) < end:
                    break
                payload = bytes(memoryview(self._pending)[at + HEADER.size : end])
                at = end
                whole = self._join(stream, payload, bool(flags & MORE))
                if whole is not None:
                    yield self._parse(whole)
        finally:
            if at:
                del self._pending[:at]

    def _join(self, stream: int, payload: bytes, more: bool) -> Buffer | None:
        parts = self._streams.get(stream)
        if parts is None:
            if not more:
                return payload
            self._streams[stream] = bytearray(payload)
            return None
        parts += payload
        if len(parts) > MAX_MESSAGE:
            raise ProtocolViolation(f"message of more than {MAX_MESSAGE} bytes")
        if more:
            return None
        del self._streams[stream]
        return parts

    def _parse(self, whole: Buffer) -> tuple[M, memoryview]:
        view = memoryview(whole)
        if view.nbytes < _SIZE.size:
            raise ProtocolViolation("message without a head")
        (size,) = _SIZE.unpack_from(view)
        if _SIZE.size + size > view.nbytes:
            raise ProtocolViolation(f"head of {size} bytes in a message of {view.nbytes}")
        try:
            message = self._decoder.decode(view[_SIZE.size : _SIZE.size + size])
        except msgspec.MsgspecError as error:
            raise ProtocolViolation(f"message not understood: {error}") from None
        return message, view[_SIZE.size + size :]
