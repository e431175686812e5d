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
    Raises, before the first frame: TypeError for a value that cannot be encoded, ValueError for a
    message of more than MAX_MESSAGE bytes.
    """
    head = _encoder.encode(message)
    pieces: list[Buffer] = [_SIZE.pack(len(head)) + head]
    total = len(pieces[0])
    for buffer in buffers:
        if not isinstance(buffer, bytes):
            buffer = memoryview(buffer).cast("B")
        size = len(buffer)
        if size:
            pieces.append(buffer)
            total += size
    if total > MAX_MESSAGE:
        raise ValueError(f"message of {total} bytes, the largest allowed is {MAX_MESSAGE}")
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
    """Turns received bytes into messages: `feed` what came, iterate over what is complete, to the end.

    Yields (message, read-only view of its raw tensor bytes). A message that lies whole in what was fed is
    not copied, one in several pieces is copied once. Raises ProtocolViolation for anything malformed; the
    reader is of no further use then.
    """

    def __init__(self, message_type: Any) -> None:
        self._decoder = msgspec.msgpack.Decoder(message_type)
        self._cut = b""
        """The beginning of a frame's header whose rest has not come yet."""
        self._stream = 0
        self._more = False
        self._left = 0
        """Bytes still to come of the frame that is being received; 0 = between frames."""
        self._streams: dict[int, bytearray] = {}
        """What has come so far of messages that are in several pieces."""

    def feed(self, data: Buffer) -> Iterator[tuple[M, memoryview]]:
        if not isinstance(data, bytes):
            data = bytes(data)  # whoever owns the buffer may use it again; what is yielded must stay
        if self._cut:
            data, self._cut = self._cut + data, b""
        view = memoryview(data)
        at = 0
        while at < len(view):
            if not self._left:
                if len(view) - at < HEADER.size:
                    self._cut = data[at:]
                    return
                size, stream, more = self._header(view, at)
                at += HEADER.size
                if not more and stream not in self._streams and at + size <= len(view):
                    at += size
                    yield self._parse(view[at - size : at])
                    continue
                self._begin(size, stream, more)
            at += self._take(view[at : at + self._left])
            if not self._left and not self._more:
                yield self._parse(self._streams.pop(self._stream))

    def _header(self, view: memoryview, at: int) -> tuple[int, int, bool]:
        size, stream, flags = HEADER.unpack_from(view, at)
        if size > CHUNK:
            raise ProtocolViolation(f"frame of {size} bytes, the largest allowed is {CHUNK}")
        if flags > MORE:
            raise ProtocolViolation(f"frame with flags {flags}, known are 0 and {MORE}")
        return size, stream, bool(flags & MORE)

    def _begin(self, size: int, stream: int, more: bool) -> None:
        whole = self._streams.setdefault(stream, bytearray())
        if len(whole) + size > MAX_MESSAGE:
            raise ProtocolViolation(f"message of more than {MAX_MESSAGE} bytes")
        if not size and more:
            raise ProtocolViolation("empty frame in the middle of a message")
        self._stream, self._more, self._left = stream, more, size

    def _take(self, piece: memoryview) -> int:
        self._streams[self._stream] += piece
        self._left -= len(piece)
        return len(piece)

    def _parse(self, whole: Buffer) -> tuple[M, memoryview]:
        view = memoryview(whole).toreadonly()
        if len(view) < _SIZE.size:
            raise ProtocolViolation(f"message of {len(view)} bytes, which has no head")
        (size,) = _SIZE.unpack_from(view)
        if _SIZE.size + size > len(view):
            raise ProtocolViolation(f"head of {size} bytes in a message of {len(view)}")
        try:
            message = self._decoder.decode(view[_SIZE.size : _SIZE.size + size])
        except msgspec.MsgspecError as error:
            raise ProtocolViolation(f"message not understood: {error}") from None
        return message, view[_SIZE.size + size :]
