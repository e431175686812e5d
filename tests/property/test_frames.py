from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.wire import frames as framing
from headway.wire.frames import ProtocolViolation, Reader, frames


class Note(msgspec.Struct):
    text: str


Message = tuple[str, list[bytes]]

messages = st.lists(st.tuples(st.text(max_size=8), st.lists(st.binary(max_size=40), max_size=4)), max_size=6)


@pytest.fixture(autouse=True, scope="module")
def small_chunks():
    """Chunks of 16 bytes, so that small messages have many."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(framing, "CHUNK", 16)
        yield


@given(sent=messages, data=st.data())
def test_whatever_is_sent_arrives_whole_however_it_is_interleaved_and_cut(sent: list[Message], data: st.DataObject):
    pending = [
        [b"".join(frame) for frame in frames(Note(text), buffers, stream)]
        for stream, (text, buffers) in enumerate(sent)
    ]
    finished: list[int] = []
    stream_of_bytes = b""
    waiting = [number for number, _ in enumerate(pending)]
    while waiting:
        number = data.draw(st.sampled_from(waiting))
        stream_of_bytes += pending[number].pop(0)
        if not pending[number]:
            waiting.remove(number)
            finished.append(number)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream_of_bytes)), max_size=8)))
    reader: Reader[Note] = Reader(Note)
    received = [
        (note.text, bytes(raw))
        for begin, end in zip([0, *cuts], [*cuts, len(stream_of_bytes)], strict=True)
        for note, raw in reader.feed(stream_of_bytes[begin:end])
    ]
    assert received == [(sent[number][0], b"".join(sent[number][1])) for number in finished]


@given(st.lists(st.binary(max_size=64), max_size=8))
def test_arbitrary_bytes_are_read_or_are_a_violation_and_nothing_else(pieces: list[bytes]):
    reader: Reader[Note] = Reader(Note)
    try:
        for piece in pieces:
            for note, _ in reader.feed(piece):
                assert isinstance(note, Note)
    except ProtocolViolation:
        return
