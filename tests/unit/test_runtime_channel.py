"""The runtime's end of the channel, against a peer that is a bare socket."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

import pytest
import uvloop

from headway.core.ids import BatchKey
from headway.runtime.channel import Channel
from headway.wire.frames import CHUNK, HEADER, ProtocolViolation, Reader, frames
from headway.wire.messages import Abort, Execute, FromWorker, Hello, PartInput, Progress, Stop, ToWorker
from headway.wire.tensors import TensorHeader

KEY = BatchKey("m", 1, "x")
HELLO = Hello(1, 7, 1, "secret")


class Listener:
    def __init__(self) -> None:
        self.got: list[tuple[FromWorker, bytes]] = []
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.refuse = False

    def connected(self, channel: Channel) -> None:
        pass

    def received(self, channel: Channel, message: FromWorker, data: memoryview) -> None:
        if self.refuse:
            raise ProtocolViolation("not now")
        self.got.append((message, bytes(data)))

    def closed(self, channel: Channel, cause: str) -> None:
        assert not self.ended.done(), "told twice"
        self.ended.set_result(cause)


Case = Callable[[Channel, Listener, socket.socket], Awaitable[None]]


def with_channel(case: Case, factory: Callable[[], asyncio.AbstractEventLoop]) -> None:
    async def main() -> None:
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        listener = Listener()
        channel = Channel(listener)
        await asyncio.get_running_loop().create_unix_connection(lambda: channel, sock=ours)
        try:
            await case(channel, listener, theirs)
        finally:
            channel.close()
            theirs.close()

    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def factory(request: pytest.FixtureRequest) -> Callable[[], asyncio.AbstractEventLoop]:
    made: Callable[[], asyncio.AbstractEventLoop] = request.param
    return made


def execute(batch: int, size: int) -> tuple[Execute, list[bytes]]:
    tensor = TensorHeader("x", "UINT8", (1, size), size)
    return Execute(7, batch, [PartInput(batch, 0, 1, 1, [tensor], {})]), [bytes([batch]) * size]


async def read_all(theirs: socket.socket, count: int) -> list[tuple[ToWorker, memoryview]]:
    """The next messages in the order in which each is complete."""
    loop = asyncio.get_running_loop()
    reader: Reader[ToWorker] = Reader(ToWorker)
    got: list[tuple[ToWorker, memoryview]] = []
    while len(got) < count:
        got.extend(reader.feed(await loop.sock_recv(theirs, 1 << 18)))
    return got


def test_a_control_message_overtakes_fifty_megabytes_of_data_that_a_slow_peer_has_not_read(factory):
    size = 50 << 20

    async def case(channel: Channel, listener: Listener, theirs: socket.socket) -> None:
        channel.send(*execute(1, size))
        raw = bytearray()
        while len(raw) < CHUNK:  # the peer has begun to read the large message, and then takes a break
            raw += await asyncio.get_running_loop().sock_recv(theirs, CHUNK)
        channel.send_control(Abort(7, 5, 0))
        reader: Reader[ToWorker] = Reader(ToWorker)
        got = list(reader.feed(bytes(raw)))
        before_abort = len(raw)
        while not got:
            data = await asyncio.get_running_loop().sock_recv(theirs, 1 << 16)
            before_abort += len(data)
            got.extend(reader.feed(data))
        assert got[0][0] == Abort(7, 5, 0)
        assert before_abort < 5 * CHUNK
        while len(got) < 2:
            got.extend(reader.feed(await asyncio.get_running_loop().sock_recv(theirs, CHUNK)))
        assert isinstance(got[1][0], Execute)
        assert got[1][1] == bytes([1]) * size

    with_channel(case, factory)


def test_control_messages_stay_in_order_among_themselves_and_data_messages_too(factory):
    async def case(channel: Channel, listener: Listener, theirs: socket.socket) -> None:
        for batch in (1, 2, 3):
            channel.send(*execute(batch, 3 << 20))
            channel.send_control(Abort(7, batch, 0))
        channel.send(*execute(4, 10))
        channel.send_control(Stop(7))
        got = [message for message, _ in await read_all(theirs, 8)]
        assert [m.batch for m in got if isinstance(m, Execute)] == [1, 2, 3, 4]
        assert [m for m in got if not isinstance(m, Execute)] == [*(Abort(7, n, 0) for n in (1, 2, 3)), Stop(7)]

    with_channel(case, factory)


def test_a_small_message_is_not_held_back_when_nothing_is_queued(factory):
    async def case(channel: Channel, listener: Listener, theirs: socket.socket) -> None:
        channel.send(*execute(9, 100))
        [(message, data)] = await read_all(theirs, 1)
        assert isinstance(message, Execute)
        assert message.batch == 9
        assert data == bytes([9]) * 100

    with_channel(case, factory)


@pytest.mark.parametrize("size", [100, 100_000], ids=["joined", "in pieces"])
def test_a_message_has_left_before_the_loop_does_anything_else(factory, size):
    async def case(channel: Channel, listener: Listener, theirs: socket.socket) -> None:
        channel.send(*execute(9, size))
        sent = theirs.recv(1 << 18)  # no turn of the loop in between: it raises where nothing is there
        [(message, data)] = list(Reader[ToWorker](ToWorker).feed(sent))
        assert isinstance(message, Execute)
        assert data == bytes([9]) * size

    with_channel(case, factory)


def test_messages_come_in_with_their_data_however_the_stream_is_cut(factory):
    async def case(channel: Channel, listener: Listener, theirs: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        stream = b"".join(b"".join(frame) for n in range(3) for frame in frames(Progress(7, n), [b"abc"], n))
        for at in range(0, len(stream), 5):
            await loop.sock_sendall(theirs, stream[at : at + 5])
        theirs.shutdown(socket.SHUT_WR)
        assert await listener.ended == "channel closed"
        assert listener.got == [(Progress(7, n), b"abc") for n in range(3)]

    with_channel(case, factory)


def test_bytes_that_are_no_message_end_the_channel_with_the_reason(factory):
    async def case(channel: Channel, listener: Listener, theirs: socket.socket) -> None:
        await asyncio.get_running_loop().sock_sendall(theirs, HEADER.pack(5, 1, 0) + b"hello")
        assert (await listener.ended).startswith("protocol violation: ")
        assert await asyncio.get_running_loop().sock_recv(theirs, 1) == b""

    with_channel(case, factory)


def test_what_the_listener_refuses_ends_the_channel(factory):
    async def case(channel: Channel, listener: Listener, theirs: socket.socket) -> None:
        listener.refuse = True
        await asyncio.get_running_loop().sock_sendall(theirs, b"".join(next(frames(HELLO, (), 1))))
        assert await listener.ended == "protocol violation: not now"

    with_channel(case, factory)


def test_sending_to_a_peer_that_is_gone_does_nothing(factory):
    async def case(channel: Channel, listener: Listener, theirs: socket.socket) -> None:
        theirs.close()
        assert await listener.ended == "channel closed"
        channel.send(*execute(1, 10))
        channel.send(*execute(2, 5 << 20))
        channel.send_control(Stop(7))

    with_channel(case, factory)
