"""The runtime's end of the channel to one worker.

Two lanes out. A message that fits one frame is written at once while nothing is waiting; a larger
one waits in the data lane and goes chunk by chunk, the next only when the transport's buffer has
drained. A control message is written at once, between two chunks, so that it waits for about one
chunk at most however much data is queued.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Protocol, cast

from headway.wire.frames import MORE, Buffer, ProtocolViolation, Reader, frames
from headway.wire.messages import FromWorker, ToWorker

log = logging.getLogger("headway.runtime")

CLOSED = "channel closed"
"""The cause where nothing was wrong with what came before it."""

HIGH_WATER = 256 << 10
"""Bytes in the transport's buffer above which no further data is written to it."""

JOIN_BELOW = 64 << 10
"""Frames up to this many bytes are copied together: cheaper than several small writes."""


class Peer(Protocol):
    """Who listens to a channel."""

    def connected(self, channel: Channel) -> None: ...

    def received(self, channel: Channel, message: FromWorker, data: memoryview) -> None:
        """data: raw tensor bytes that came with the message. May raise ProtocolViolation."""

    def closed(self, channel: Channel, cause: str) -> None:
        """Once, whoever closed it. cause: "channel closed", or "protocol violation: ..."."""


class Channel:
    """An asyncio.Protocol by behaviour, not by class (decision 31).

    peer: may be exchanged once it is known who is at the other end."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self._transport: asyncio.Transport | None = None
        self._reader: Reader[FromWorker] = Reader(FromWorker)
        self._data: deque[Iterator[list[Buffer]]] = deque()
        self._stream = 0
        self._paused = False
        self._closed = False

    # -- out -----------------------------------------------------------------------------------

    def send(self, message: ToWorker, buffers: Sequence[Buffer] = ()) -> None:
        """Data lane, in order. Buffers must stay as they are until they are written."""
        if self._transport is None:
            return  # gone already; whoever listens has been told
        self._stream = (self._stream + 1) & 0xFFFFFFFF
        pieces = frames(message, buffers, self._stream)
        first = next(pieces)
        if not self._data and not self._paused and not first[0][-1] & MORE:
            self._write(self._transport, first)
            return
        self._data.append(_chain(first, pieces))
        self._pump()

    def send_control(self, message: ToWorker) -> None:
        """Control lane: overtakes whatever waits in the data lane; in order among its own."""
        if self._transport is None:
            return
        self._stream = (self._stream + 1) & 0xFFFFFFFF
        for frame in frames(message, (), self._stream):
            self._write(self._transport, frame)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _pump(self) -> None:
        while self._data and not self._paused and self._transport is not None:
            frame = next(self._data[0], None)
            if frame is None:
                self._data.popleft()
            else:
                self._write(self._transport, frame)

    @staticmethod
    def _write(transport: asyncio.Transport, frame: list[Buffer]) -> None:
        if sum(map(len, frame)) <= JOIN_BELOW:
            transport.write(b"".join(frame))
        else:
            transport.writelines(frame)

    # -- in: called by the loop ----------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is one by behaviour, not by class
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        self.peer.connected(self)

    def data_received(self, data: bytes) -> None:
        try:
            for message, tensors in self._reader.feed(data):
                if self._closed:
                    return
                self.peer.received(self, message, tensors)
        except ProtocolViolation as violation:
            self._end(f"protocol violation: {violation}")

    def eof_received(self) -> bool:
        """Who sends nothing more is gone."""
        return False

    def pause_writing(self) -> None:
        self._paused = True

    def resume_writing(self) -> None:
        self._paused = False
        self._pump()

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(CLOSED)

    def _end(self, cause: str) -> None:
        if self._closed:
            return
        self._closed = True
        self._data.clear()
        if self._transport is not None:
            self._transport.abort()
            self._transport = None
        self.peer.closed(self, cause)


def _chain(first: list[Buffer], rest: Iterator[list[Buffer]]) -> Iterator[list[Buffer]]:
    yield first
    yield from rest
