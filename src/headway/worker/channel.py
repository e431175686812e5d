"""The worker's end of the channel: blocking, without threads. One message at a time goes out."""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from headway.wire.frames import Buffer, Reader, frames
from headway.wire.messages import ToWorker
from headway.worker.errors import ChannelClosed

Received: TypeAlias = tuple[ToWorker, memoryview]
"""A message and a view of its raw tensor bytes."""

SMALL_READ = 64 << 10
LARGE_READ = 1 << 20
"""Bytes asked for at once: small until a read comes back full, for large allocations are slow."""

JOIN_BELOW = 64 << 10
"""Frames up to this many bytes are copied together: cheaper than handing many pieces to the kernel."""

MAX_PIECES = 512
"""Pieces handed to the kernel at once; systems allow 1,024."""


class Channel:
    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self._reader: Reader[ToWorker] = Reader(ToWorker)
        self._received: deque[Received] = deque()
        self._read_size = SMALL_READ
        self._stream = 0

    def send(self, message: Any, buffers: Sequence[Buffer] = ()) -> None:
        """Returns when the kernel has taken everything. Raises ChannelClosed; TypeError and ValueError
        for what cannot be sent, and then nothing was."""
        self._stream = (self._stream + 1) & 0xFFFFFFFF
        try:
            for frame in frames(message, buffers, self._stream):
                if sum(map(len, frame)) <= JOIN_BELOW:
                    self._socket.sendall(b"".join(frame))
                else:
                    self._send_pieces(frame)
        except OSError as error:
            raise ChannelClosed(f"channel lost while sending: {error}") from None

    def receive(self) -> Received:
        """The next message, however long it takes. Raises ChannelClosed, ProtocolViolation."""
        while not self._received:
            self._read(0)
        return self._received.popleft()

    def poll(self) -> Received | None:
        """The next message if one has come, without waiting. Raises as `receive` does."""
        if not self._received:
            self._read(socket.MSG_DONTWAIT)
        return self._received.popleft() if self._received else None

    def close(self) -> None:
        self._socket.close()

    def _read(self, flags: int) -> None:
        try:
            data = self._socket.recv(self._read_size, flags)
        except BlockingIOError:
            return
        except OSError as error:
            raise ChannelClosed(f"channel lost: {error}") from None
        if not data:
            raise ChannelClosed("channel closed by the runtime")
        self._read_size = LARGE_READ if len(data) == self._read_size else SMALL_READ
        self._received.extend(self._reader.feed(data))

    def _send_pieces(self, frame: Sequence[Buffer]) -> None:
        pieces = deque(memoryview(piece) for piece in frame if len(piece))
        while pieces:
            sent = self._socket.sendmsg(_first(pieces, MAX_PIECES))
            while sent:
                piece = pieces.popleft()
                if sent < len(piece):
                    pieces.appendleft(piece[sent:])
                sent -= min(sent, len(piece))


def _first(pieces: Iterable[memoryview], count: int) -> list[memoryview]:
    return [piece for piece, _ in zip(pieces, range(count), strict=False)]


def connect(address: str) -> Channel:
    """`unix:/path/of/socket` or `tcp:host:port`. Raises ValueError for another form, OSError as connecting does."""
    kind, _, rest = address.partition(":")
    if kind == "unix" and rest:
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(rest)
        return Channel(sock)
    host, _, port = rest.rpartition(":")
    if kind == "tcp" and host and port.isdigit():
        sock = socket.create_connection((host.strip("[]"), int(port)))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return Channel(sock)
    raise ValueError(f"address {address!r}: expected unix:/path/of/socket or tcp:host:port")
