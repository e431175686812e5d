from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headway.wire import frames as framing
from headway.wire.frames import CHUNK, HEADER, MORE, ProtocolViolation, Reader, frames


class Note(msgspec.Struct, tag="note"):
    text: str


def wire(message: Any, buffers: tuple[Any, ...] = (), stream: int = 1) -> list[bytes]:
    """The message's frames, each as the bytes that go out."""
    return [b"".join(frame) for frame in frames(message, buffers, stream)]


def read(*data: bytes) -> list[tuple[str, bytes]]:
    reader: Reader[Note] = Reader(Note)
    return [(note.text, bytes(raw)) for piece in data for note, raw in reader.feed(piece)]


def test_a_small_message_is_one_frame_with_its_tensor_bytes_behind_it():
    (frame,) = wire(Note("a"), (b"xyz", b"", bytearray(b"12")))
    assert read(frame) == [("a", b"xyz12")]


def test_what_is_fed_whole_is_not_copied():
    (frame,) = wire(Note("a"), (b"xyz",))
    ((_, raw),) = Reader(Note).feed(frame)
    assert raw.obj is frame
    assert raw.readonly


def test_a_buffer_that_its_owner_uses_again_does_not_change_what_was_read():
    (frame,) = wire(Note("a"), (b"xyz",))
    buffer = bytearray(frame)
    ((_, raw),) = Reader(Note).feed(buffer)
    buffer[:] = bytes(len(buffer))
    assert bytes(raw) == b"xyz"


def test_a_large_message_goes_in_chunks_of_at_most_one_mebibyte():
    data = bytes(range(256)) * (3 * CHUNK // 256)
    sent = wire(Note("large"), (data[: CHUNK // 2], data[CHUNK // 2 :]))
    assert len(sent) == 4
    assert [HEADER.unpack_from(frame) for frame in sent[:3]] == [(CHUNK, 1, MORE)] * 3
    assert HEADER.unpack_from(sent[3])[2] == 0
    assert read(*sent) == [("large", data)]


@pytest.mark.parametrize("difference", [-1, 0, 1])
def test_a_message_as_large_as_a_chunk_ends_where_it_should(difference: int):
    head = len(wire(Note("n"))[0]) - HEADER.size
    data = bytes(CHUNK - head + difference)
    sent = wire(Note("n"), (data,))
    assert len(sent) == (2 if difference > 0 else 1)
    assert read(b"".join(sent)) == [("n", data)]


def test_messages_of_other_streams_overtake_a_large_one_between_its_chunks():
    data = bytes(2 * CHUNK)
    large = wire(Note("large"), (data,), stream=1)
    control = wire(Note("abort"), (), stream=2)
    other = wire(Note("also large"), (data,), stream=3)
    mixed = [large[0], *control, other[0], large[1], other[1], *control, large[2], other[2]]
    assert read(*mixed) == [("abort", b""), ("abort", b""), ("large", data), ("also large", data)]


def test_bytes_may_come_one_at_a_time():
    data = b"".join(wire(Note("a"), (b"xyz",)) + wire(Note("b"), (), stream=2))
    assert read(*(bytes([byte]) for byte in data)) == [("a", b"xyz"), ("b", b"")]


def test_the_end_of_a_message_may_be_an_empty_frame():
    (whole,) = wire(Note("a"))
    payload = whole[HEADER.size :]
    assert read(HEADER.pack(len(payload), 5, MORE) + payload, HEADER.pack(0, 5, 0)) == [("a", b"")]


def test_messages_before_a_malformed_one_are_still_read():
    (whole,) = wire(Note("a"))
    reader: Reader[Note] = Reader(Note)
    messages = reader.feed(whole + HEADER.pack(CHUNK + 1, 1, 0))
    assert next(messages)[0] == Note("a")
    with pytest.raises(ProtocolViolation):
        next(messages)


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (HEADER.pack(CHUNK + 1, 1, 0), f"frame of {CHUNK + 1} bytes, the largest allowed is {CHUNK}"),
        (HEADER.pack(4, 1, 7), "frame with flags 7, known are 0 and 1"),
        (HEADER.pack(0, 1, 0), "message of 0 bytes, which has no head"),
        (HEADER.pack(0, 1, MORE), "empty frame in the middle of a message"),
        (HEADER.pack(3, 1, 0) + b"abc", "message of 3 bytes, which has no head"),
        (HEADER.pack(5, 1, 0) + b"\x09\0\0\0a", "head of 9 bytes in a message of 5"),
        (HEADER.pack(5, 1, 0) + b"\x01\0\0\0\xc1", "message not understood: "),
        (b"GET / HTTP/1.1\r\n\r\n", "frame of 542393671 bytes"),
    ],
)
def test_what_is_not_the_protocol_is_a_violation_that_says_what_came(data: bytes, complaint: str):
    with pytest.raises(ProtocolViolation, match=complaint):
        read(data)


def test_a_message_of_another_kind_is_a_violation():
    with pytest.raises(ProtocolViolation, match="message not understood"):
        read(*(b"".join(frame) for frame in frames({"type": "order", "text": "a"}, (), 1)))


def test_neither_end_deals_in_messages_beyond_the_limit(monkeypatch: pytest.MonkeyPatch):
    sent = wire(Note("large"), (bytes(2 * CHUNK),))
    monkeypatch.setattr(framing, "MAX_MESSAGE", CHUNK + 100)
    with pytest.raises(ProtocolViolation, match="message of more than"):
        read(*sent)
    with pytest.raises(ValueError, match="the largest allowed is"):
        wire(Note("large"), (bytes(2 * CHUNK),))


def test_a_value_that_cannot_be_encoded_raises_before_anything_is_sent():
    with pytest.raises(TypeError):
        next(frames({"value": object()}, (), 1))
