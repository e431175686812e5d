"""UTF-8, divided in every way there is: nothing is lost, told twice, or told too early."""

from __future__ import annotations

import itertools
from functools import cache
from random import Random

import pytest

from headway.llm.text.detokenize import Detokenizer, decode, incomplete_tail
from headway.llm.text.vocabulary import TokenBytes, byte_alphabet, byte_fallback, byte_level

CHARACTERS = [
    "a",
    "\x7f",
    "\x80",
    "é",
    "\u07ff",
    "\u0800",
    "€",
    "\ud7ff",
    "\ue000",
    "\ufffd",
    "\uffff",
    "😀",
    "\U0010ffff",
]
CHARACTERS.append("\U00010000")
BYTES = TokenBytes([bytes([byte]) for byte in range(256)])
"""A vocabulary whose tokens are the bytes."""


class Pieces:
    """A vocabulary whose tokens are whatever bytes a test wants: token n is the n-th."""

    def __init__(self, pieces: list[bytes]) -> None:
        self.pieces = pieces

    def bytes_of(self, token: int) -> bytes:
        return self.pieces[token]


def divisions(data: bytes) -> list[list[bytes]]:
    """All ways to cut it into pieces, none of them empty."""
    ways = []
    for cuts in range(len(data)):
        for places in itertools.combinations(range(1, len(data)), cuts):
            edges = [0, *places, len(data)]
            ways.append([data[a:b] for a, b in itertools.pairwise(edges)])
    return ways


def streamed(pieces: list[bytes], prompt: list[bytes] | None = None) -> tuple[list[str], str]:
    """What comes with each piece, and what comes at the end."""
    prompt = prompt or []
    vocabulary = Pieces([*prompt, *pieces])
    stream = Detokenizer(vocabulary, range(len(prompt)))
    parts = [stream.feed(len(prompt) + n) for n in range(len(pieces))]
    assert stream.held <= 3
    return parts, stream.finish()


@pytest.mark.parametrize("around", ["{}", "x{}", "{}y", "{}{}"])
@pytest.mark.parametrize("character", CHARACTERS, ids=lambda c: f"U+{ord(c):04X}")
def test_a_character_comes_with_its_last_byte_however_it_is_divided(character: str, around: str) -> None:
    text = around.format(character, character)
    for pieces in divisions(text.encode()):
        parts, rest = streamed(pieces)
        assert rest == ""
        for n in range(len(pieces)):
            arrived = b"".join(pieces[: n + 1])
            assert "".join(parts[: n + 1]) == arrived.decode("utf-8", "ignore"), "exactly the characters that are whole"


def maximal_parts(data: bytes) -> str:
    """Python's own decoder, of all at once."""
    return data.decode("utf-8", "replace")


@cache
def may_become_a_character(data: bytes) -> bool:
    """By trying."""
    for size in (1, 2, 3):
        for rest in itertools.product([0x80, 0x90, 0xA0, 0xBF], repeat=size):
            try:
                if len((data + bytes(rest)).decode()) == 1:
                    return True
            except UnicodeDecodeError:
                pass
    return False


def beginning(data: bytes) -> bytes:
    """What of its end must be waited for."""
    ends = [data[-size:] for size in (3, 2, 1) if size <= len(data)]
    return next((end for end in ends if may_become_a_character(end)), b"")


def test_bytes_that_are_no_character_come_at_once_and_count_as_they_would_unstreamed() -> None:
    interesting = [0x41, 0x80, 0xBF, 0xC0, 0xC2, 0xE0, 0xA0, 0xED, 0x9F, 0xE2, 0xF0, 0x90, 0xF4, 0x8F, 0xF5, 0xFF]
    for data in itertools.product(interesting, repeat=3):
        data = (*data, 0x80)
        whole = bytes(data)
        parts, rest = streamed([bytes([byte]) for byte in data])
        assert "".join(parts) + rest == maximal_parts(whole)
        for n in range(1, 5):
            held = beginning(whole[:n])
            assert incomplete_tail(whole[:n]) == held
            assert "".join(parts[:n]) == maximal_parts(whole[: n - len(held)]), "only a beginning is waited for"


@pytest.mark.parametrize("seed", range(20))
def test_any_bytes_in_any_tokens_are_the_text_that_they_are_at_once(seed: int) -> None:
    random = Random(seed)
    for _ in range(100):
        data = b"".join(
            random.choice([random.choice(CHARACTERS).encode(), random.randbytes(2)]) for _ in range(random.randrange(9))
        )
        pieces = []
        left = data
        while left:
            size = random.randrange(5)
            pieces.append(left[:size])
            left = left[size:]
        parts, rest = streamed(pieces)
        assert "".join(parts) + rest == maximal_parts(data)
        assert rest == ("\ufffd" if beginning(data) else "")


def test_a_character_that_is_never_finished_is_one_replacement_at_the_end() -> None:
    for data in (b"\xf0", b"\xf0\x9f", b"\xf0\x9f\x98", b"\xe2\x82", b"\xc3"):
        assert streamed([b"ok", data]) == (["ok", ""], "\ufffd")


@pytest.mark.parametrize("character", [c for c in CHARACTERS if len(c.encode()) > 1], ids=lambda c: f"U+{ord(c):04X}")
def test_a_character_that_the_prompt_began_is_the_output_s_if_that_completes_it(character: str) -> None:
    data = character.encode()
    for cut in range(1, len(data)):
        begun = "é".encode() + data[:cut]
        for prompt in ([b"secret", begun], [b"secret" + begun[:1], begun[1:]], [bytes([b]) for b in begun]):
            for pieces in divisions(data[cut:]):
                parts, rest = streamed([*pieces, b"!"], prompt)
                assert "".join(parts) == character + "!"
                assert parts[-2].endswith(character) and rest == ""


@pytest.mark.parametrize("tail", [b"\xf0", b"\xf0\x9f", b"\xf0\x9f\x98", b"\xe2\x82", b"\xc3"])
def test_what_the_prompt_left_unfinished_is_never_told(tail: bytes) -> None:
    assert streamed([b"A"], [b"secret" + tail]) == (["A"], "")
    assert streamed(["é".encode()], [b"secret", tail]) == (["é"], "")
    assert streamed([], [tail]) == ([], "")
    assert streamed([b""], [tail]) == ([""], "")
    assert streamed([b"\xff"], [tail]) == (["\ufffd"], ""), "the output's own bytes are"


def test_what_the_output_added_in_vain_is_one_replacement() -> None:
    assert streamed([b"\x9f", b"A"], [b"\xf0"]) == (["", "\ufffdA"], "")
    assert streamed([b"\x9fA"], [b"\xf0"]) == (["\ufffdA"], "")
    assert streamed([b"\x9f"], [b"\xf0"]) == ([""], "\ufffd")


def test_a_prompt_that_ends_in_nonsense_leaves_nothing() -> None:
    for prompt in ([b"\x80\x80"], [b"\xe2\x82\xac\xac"], [b"\xff"], [b"\xc3\xa9"], [b"\xed\xa0"]):
        assert streamed([b"\xacB"], prompt) == (["\ufffdB"], "")


def test_how_much_was_told_only_grows() -> None:
    stream = Detokenizer(BYTES)
    counts = []
    for byte in "aé😀\ufffd".encode() + b"\xff\xe2":
        stream.feed(byte)
        counts.append(stream.emitted)
    stream.finish()
    counts.append(stream.emitted)
    assert counts == [1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 5, 5, 6]


def test_a_token_costs_the_same_however_much_came_before() -> None:
    """Counted, not timed: each token's bytes are asked for once."""

    class Counting(Pieces):
        asked = 0

        def bytes_of(self, token: int) -> bytes:
            self.asked += 1
            return b"\xe2"

    vocabulary = Counting([])
    stream = Detokenizer(vocabulary, [0] * 5000)
    asked = vocabulary.asked
    assert asked <= 4, "of a prompt only the end is looked at"
    for _ in range(1000):
        stream.feed(0)
        assert stream.held <= 3
    assert vocabulary.asked == asked + 1000


def test_the_byte_alphabet_is_that_of_gpt_2() -> None:
    alphabet = byte_alphabet()
    assert sorted(alphabet.values()) == list(range(256))
    assert (alphabet["Ġ"], alphabet["Ċ"], alphabet["a"], alphabet["Ń"]) == (0x20, 0x0A, 0x61, 0xAD)


def test_tables_of_both_kinds_of_vocabulary() -> None:
    table = byte_level({"Ġhi": 0, "Ã": 1, "©": 2}, {"<|end|>": 3, "two words": 4})
    assert table == [b" hi", b"\xc3", b"\xa9", b"<|end|>", b"two words"]
    assert decode(TokenBytes(table, hidden=[3]), [0, 1, 2, 3, 99, -1]) == " hié"
    assert decode(TokenBytes(table, hidden=[3]).with_special(), [0, 3]) == " hi<|end|>"
    table = byte_fallback({"▁hi": 0, "<0xC3>": 1, "<0xa9>": 2, "<0x>": 3}, {"</s>": 5})
    assert table == [b" hi", b"\xc3", b"\xa9", b"<0x>", b"", b"</s>"]
    assert decode(TokenBytes(table), [0, 1, 2]) == " hié"
