from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from headway.wire.frames import Reader, frames
from headway.wire.messages import Abort, FromWorker, Progress, Stop
from headway.worker import channel as module
from headway.worker.channel import Channel, connect
from headway.worker.errors import ChannelClosed

Ends = tuple[Channel, socket.socket]


@pytest.fixture
def ends() -> Iterator[Ends]:
    """The worker's end, and the socket of the runtime's."""
    ours, theirs = socket.socketpair()
    theirs.settimeout(60)
    with ours, theirs:
        yield Channel(ours), theirs


class Trickling:
    """A socket that takes at most `most` bytes at a time."""

    def __init__(self, most: int) -> None:
        self.most, self.taken = most, b""

    def sendmsg(self, pieces: list[memoryview]) -> int:
        data = b"".join(pieces)[: self.most]
        self.taken += data
        return len(data)


def test_messages_are_received_one_at_a_time_however_many_came_at_once(ends: Ends):
    channel, runtime = ends
    sent = [Abort(1, 2, 3), Abort(1, 4, 1), Stop(1)]
    runtime.sendall(b"".join(b"".join(frame) for message in sent for frame in frames(message, (), 1)))
    assert [channel.receive()[0] for _ in sent] == sent


def test_polling_does_not_wait(ends: Ends):
    channel, runtime = ends
    assert channel.poll() is None
    (frame,) = frames(Stop(1), (), 1)
    data = b"".join(frame)
    runtime.sendall(data[:5])
    assert channel.poll() is None
    runtime.sendall(data[5:])
    received = channel.poll()
    assert received is not None and received[0] == Stop(1)


def test_the_other_end_closing_is_told(ends: Ends):
    channel, runtime = ends
    runtime.close()
    with pytest.raises(ChannelClosed, match="closed by the runtime"):
        channel.receive()
    with pytest.raises(ChannelClosed, match="closed by the runtime"):
        channel.poll()
    with pytest.raises(ChannelClosed, match="lost while sending"):
        channel.send(Stop(1))


def test_what_cannot_be_encoded_leaves_the_channel_usable(ends: Ends):
    channel, runtime = ends
    with pytest.raises(TypeError):
        channel.send(object())
    channel.send(Progress(1, 2))
    ((message, _),) = Reader[FromWorker](FromWorker).feed(runtime.recv(1000))
    assert message == Progress(1, 2)


@pytest.mark.parametrize("most", [1, 7, 1000])
def test_pieces_that_the_kernel_takes_in_part_are_sent_whole_and_in_order(most: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(module, "JOIN_BELOW", 0)
    monkeypatch.setattr(module, "MAX_PIECES", 3)
    sock = Trickling(most)
    buffers = [bytes([number]) * number for number in range(30)]
    Channel(sock).send(Progress(1, 2), buffers)  # type: ignore[arg-type]
    ((message, data),) = Reader[FromWorker](FromWorker).feed(sock.taken)
    assert message == Progress(1, 2)
    assert bytes(data) == b"".join(buffers)


@pytest.mark.parametrize("address", ["", "unix:", "tcp:host", "tcp::80", "http://host:80", "tcp:host:port"])
def test_an_address_of_another_form_is_refused(address: str):
    with pytest.raises(ValueError, match="expected unix:/path/of/socket or tcp:host:port"):
        connect(address)
