"""Text from token ids, as they come: valid UTF-8 at every moment, no character twice, nothing decoded again.

A token is bytes (`TokenBytes`), and a character may be made of several tokens. What is held back is the beginning of a
character that could still become whole, which is at most 3 bytes; bytes that can not are U+FFFD at once, one for each
longest part that could have been a beginning, which is what Python, browsers and the Unicode standard do.
"""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Iterable, Sequence
from typing import Protocol

_Decoder = getincrementaldecoder("utf-8")
LONGEST_TAIL = 3


class Vocabulary(Protocol):
    def bytes_of(self, token: int) -> bytes:
        """What it stands for; empty for one that is not shown, or that there is none of."""
        ...


class Detokenizer:
    """Of one output.

    emitted: characters that were given out; it only grows.
    """

    __slots__ = ("_decoder", "_ours", "_tail", "_vocabulary", "emitted")

    def __init__(self, vocabulary: Vocabulary, prompt: Sequence[int] = ()) -> None:
        """prompt: or its last tokens. Where it ends within a character, and the output completes that, the character is
        the output's; where the output does not, what the prompt left is not told again."""
        self._vocabulary = vocabulary
        self._decoder = _Decoder("replace")
        self._tail = incomplete_tail(_end_of(vocabulary, prompt))
        self._decoder.decode(self._tail)
        self._ours = 0
        self.emitted = 0

    @property
    def held(self) -> int:
        """Bytes that wait for the rest of their character: 0 to 3, those of the prompt included."""
        return len(self._decoder.getstate()[0])

    def feed(self, token: int) -> str:
        """The characters that are whole with it, and were not before."""
        data = self._vocabulary.bytes_of(token)
        text = self._after_prompt(data) if self._tail else self._decode(data)
        self.emitted += len(text)
        return text

    def finish(self) -> str:
        """Nothing more comes: U+FFFD for a character that was begun, if any of it was the output's."""
        text = self._decoder.decode(b"", final=True)
        if self._tail and not self._ours:
            text = ""
        self._tail = b""
        self.emitted += len(text)
        return text

    def _decode(self, data: bytes) -> str:
        text = self._decoder.decode(data)
        if self._decoder.getstate()[0][:1] == b"\xed" and not _may_go_on(self._decoder.getstate()[0]):
            text += self._decoder.decode(b"", final=True)
        return text

    def _after_prompt(self, data: bytes) -> str:
        """Byte by byte, at most three, until it is known what becomes of the character that the prompt began."""
        for place in range(len(data)):
            begun = self._decoder.getstate()[0]
            text = self._decode(data[place : place + 1])
            if not text:
                self._ours += 1
                continue
            if not self._ours and text != (begun + data[place : place + 1]).decode(errors="ignore"):
                text = text[1:]  # a replacement for bytes of the prompt alone
            self._tail = b""
            return text + self._decode(data[place + 1 :])
        return ""


def decode(vocabulary: Vocabulary, tokens: Iterable[int], prompt: Sequence[int] = ()) -> str:
    """All of it at once: the same text as a stream has in the end."""
    stream = Detokenizer(vocabulary, prompt)
    parts = [stream.feed(token) for token in tokens]
    return "".join(parts) + stream.finish()


def incomplete_tail(data: bytes) -> bytes:
    """The bytes at the end that begin a character and lack the rest of it."""
    for size in range(1, min(LONGEST_TAIL, len(data)) + 1):
        if data[-size] & 0xC0 != 0x80:  # a character begins here, or nothing does
            decoder = _Decoder("replace")
            decoder.decode(data[-size:])
            begun = decoder.getstate()[0]
            return begun if _may_go_on(begun) else b""
    return b""


def _may_go_on(begun: bytes) -> bool:
    """Python's decoder waits for the third byte of a surrogate, which is no character whatever comes."""
    return not (begun[:1] == b"\xed" and begun[1:2] >= b"\xa0")


def _end_of(vocabulary: Vocabulary, prompt: Sequence[int]) -> bytes:
    """Its last bytes, enough of them to know whether it ends within a character."""
    end = b""
    for token in reversed(prompt):
        end = vocabulary.bytes_of(token) + end
        if len(end) > LONGEST_TAIL:
            break
    return end
