"""What the tokens of a vocabulary stand for, as bytes."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
WORD_START = "\u2581"
"""How sentencepiece writes a space."""


def byte_alphabet() -> dict[str, int]:
    """How byte-level BPE writes bytes: those that are seen as themselves, the others as the letters from U+0100 on."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in shown]
    return {chr(byte): byte for byte in shown} | {chr(0x100 + n): byte for n, byte in enumerate(hidden)}


class TokenBytes:
    """The bytes of each token, in a list. hidden: tokens that are not shown (special ones, as the end of a turn is)."""

    def __init__(self, table: list[bytes], hidden: Collection[int] = ()) -> None:
        self._all = table
        self._shown = table[:]
        for token in hidden:
            if token < len(table):
                self._shown[token] = b""

    def __len__(self) -> int:
        return len(self._all)

    def bytes_of(self, token: int) -> bytes:
        return self._shown[token] if 0 <= token < len(self._shown) else b""

    def raw(self, token: int) -> bytes:
        """The same, of special tokens too."""
        return self._all[token] if 0 <= token < len(self._all) else b""

    def with_special(self) -> TokenBytes:
        """Where special tokens are to be shown."""
        return TokenBytes(self._all)


def byte_level(tokens: Mapping[str, int], added: Mapping[str, int]) -> list[bytes]:
    """Of a vocabulary whose tokens are written in the byte alphabet. added: tokens that are plain text."""
    alphabet = byte_alphabet()
    table = _empty(tokens, added)
    for text, token in tokens.items():
        if all(letter in alphabet for letter in text):
            table[token] = bytes(alphabet[letter] for letter in text)
        else:
            table[token] = text.encode("utf-8", "replace")
    return _with_added(table, added)


def byte_fallback(tokens: Mapping[str, int], added: Mapping[str, int]) -> list[bytes]:
    """Of a vocabulary of text, as sentencepiece makes them, with tokens `<0x00>` to `<0xFF>` for what it lacks."""
    table = _empty(tokens, added)
    for text, token in tokens.items():
        byte = BYTE.fullmatch(text)
        table[token] = (
            bytes([int(byte.group(1), 16)]) if byte else text.replace(WORD_START, " ").encode("utf-8", "replace")
        )
    return _with_added(table, added)


def _empty(tokens: Mapping[str, int], added: Mapping[str, int]) -> list[bytes]:
    return [b""] * (max((*tokens.values(), *added.values()), default=-1) + 1)


def _with_added(table: list[bytes], added: Mapping[str, int]) -> list[bytes]:
    for text, token in added.items():
        table[token] = text.encode("utf-8", "replace")
    return table
