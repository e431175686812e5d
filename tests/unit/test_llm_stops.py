"""Stop strings: streamed is unstreamed, nothing is told that is cut later, nothing is held that cannot be."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.llm.text.stops import StopStrings
from headway.llm.text.stream import TextStream
from headway.llm.text.vocabulary import TokenBytes


def cut(text: str, stops: list[str], include: bool = False) -> tuple[str, str | None]:
    """By looking at every end in turn, and at every string."""
    for end in range(1, len(text) + 1):
        found = [stop for stop in stops if text[:end].endswith(stop)]
        if found:
            stop = max(found, key=len)
            return (text[:end] if include else text[: end - len(stop)]), stop
    return text, None


def holdable(text: str, stops: list[str]) -> int:
    """The longest end of a text that properly begins one of them."""
    sizes = [n for stop in stops for n in range(1, len(stop)) if text.endswith(stop[:n])]
    return max(sizes, default=0)


SOME = st.text(alphabet="ab", min_size=1, max_size=5)


@settings(max_examples=600, deadline=None)
@given(
    st.lists(SOME, min_size=1, max_size=4), st.lists(st.text(alphabet="abc", max_size=4), max_size=12), st.booleans()
)
def test_against_every_end_in_turn(stops: list[str], pieces: list[str], include: bool) -> None:
    matcher = StopStrings(stops, include)
    told = whole = ""
    for piece in pieces:
        whole += piece
        told += matcher.feed(piece)
        expected, stop = cut(whole, stops, include)
        assert matcher.matched == stop
        if stop is not None:
            assert told == expected
            return
        assert told == whole[: len(whole) - holdable(whole, stops)]
    assert told + matcher.finish() == whole


@pytest.mark.parametrize("seed", range(5))
def test_long_strings_that_almost_repeat(seed: int) -> None:
    random = Random(seed)
    stops = ["".join(random.choice("ab") for _ in range(random.choice([1, 3, 40]))) + "b" for _ in range(4)]
    stops += ["a" * 60 + "b", "ab" * 25 + "aa"]
    text = "".join(random.choice(["ab" * random.randrange(30), "a" * random.randrange(70), "c"]) for _ in range(60))
    stops = [stop for stop in stops if len(stop) > 8]
    whole, told, matcher = "", "", StopStrings(stops)
    for letter in text:
        whole += letter
        told += matcher.feed(letter)
        if matcher.matched is None:
            assert len(whole) - len(told) == holdable(whole, stops)
    assert (told + matcher.finish(), matcher.matched) == cut(text, stops)


def test_a_string_is_found_over_many_tokens_and_what_looked_like_one_comes_after_all() -> None:
    matcher = StopStrings(["</end>"])
    assert [matcher.feed(piece) for piece in ("a<", "/e", "n", "x</", "end", ">zzz")] == ["a", "", "", "</enx", "", ""]
    assert matcher.matched == "</end>"
    assert matcher.feed("more") == "" and matcher.finish() == ""


def test_the_one_that_is_complete_first_wins_then_the_one_that_began_first_then_the_list() -> None:
    for stops, text, expected in (
        (["abcd", "bc"], "xabcd", ("xa", "bc")),
        (["bc", "abc"], "xabc", ("x", "abc")),
        (["abc", "abc"], "abc", ("", "abc")),
    ):
        matcher = StopStrings(stops)
        assert (matcher.feed(text), matcher.matched) == expected


def test_it_may_be_told_too() -> None:
    matcher = StopStrings(["END"], include=True)
    assert [matcher.feed("the E"), matcher.feed("ND of"), matcher.finish()] == ["the ", "END", ""]


def test_what_is_not_watched_matches_nothing_nor_begins_a_match() -> None:
    matcher = StopStrings(["ab"])
    assert matcher.feed("aba", watch=False) == "aba"
    assert matcher.feed("b") == "b"
    assert matcher.matched is None
    assert matcher.feed("xa") == "x"
    assert matcher.feed("b", watch=False) == "ab", "what was held comes first"
    assert matcher.feed("ba") == "b"
    assert matcher.finish() == "a"
    assert matcher.feed("b") == "b", "and is no part of a match any more"
    assert matcher.feed("ab") == "" and matcher.matched == "ab"


def test_an_empty_one_is_refused_and_none_holds_nothing() -> None:
    with pytest.raises(ValueError, match="empty"):
        StopStrings(["a", ""])
    assert StopStrings([]).feed("abc") == "abc"


def test_a_character_costs_the_same_however_long_the_strings_are() -> None:
    """Counted, not timed: how often the automaton falls back is at most how often it went on."""

    class Counting(str):
        __slots__ = ()
        asked = 0

        def __getitem__(self, place: object) -> str:
            Counting.asked += 1
            return str.__getitem__(self, place)  # type: ignore[index]

    matcher = StopStrings([Counting("a" * 2000 + "b")])
    Counting.asked = 0
    for _ in range(50):
        matcher.feed("a" * 100)
    assert matcher.held == 2000
    assert Counting.asked <= 3 * 5000


# -- together with the decoder ---------------------------------------------------------------------

PIECES = [b"", b"a", b"b", b"ab", b"ba", "é".encode(), b"\xc3", b"\xa9", b"\xf0\x9f", b"\x98\x80", b"\x80a", b"\xff"]
VOCABULARY = TokenBytes(PIECES)
TOKENS = st.lists(st.integers(0, len(PIECES) - 1), max_size=25)
STOPS = st.lists(st.sampled_from(["a", "ab", "aba", "é", "éa", "bé", "😀", "\ufffd", "\ufffda", "bbbb"]), max_size=3)


@settings(max_examples=600, deadline=None)
@given(TOKENS, STOPS, st.booleans(), st.sampled_from([(), (6,), (1, 8), (1,)]), st.integers(0, 6))
def test_a_stream_s_text_is_the_same_text_unstreamed(
    tokens: list[int], stops: list[str], include: bool, prompt: tuple[int, ...], min_tokens: int
) -> None:
    stream = TextStream(VOCABULARY, prompt, stops, include, min_tokens)
    bare = TextStream(VOCABULARY, prompt)
    early = "".join(bare.feed(token).text for token in tokens[:min_tokens])
    late = "".join(bare.feed(token).text for token in tokens[min_tokens:])
    last = bare.finish().text
    if len(tokens) <= min_tokens:
        expected, stop = early + last, None
    else:
        expected, stop = cut(late + last, stops, include)
        expected = early + expected
    told, counted = "", 0
    for token in tokens:
        piece = stream.feed(token)
        assert piece.offset == len(told)
        told, counted = told + piece.text, counted + piece.tokens
        assert expected.startswith(told), "nothing comes that a string cuts later"
    piece = stream.finish()
    assert (told + piece.text, stream.matched) == (expected, stop)
    counted += piece.tokens
    assert counted == len(tokens) if stop is None else counted <= len(tokens)


def test_tokens_are_told_with_the_text_that_they_belong_to() -> None:
    vocabulary = TokenBytes([b"x", b"\xc3", b"\xa9", b"E", b"N", b"D", b"DD", b" y", b""])

    def told(tokens: list[int], **settings: bool) -> list[tuple[str, int]]:
        stream = TextStream(vocabulary, stops=["END"], **settings)
        return [stream.feed(token)[:2] for token in tokens] + [stream.finish()[:2]]

    assert told([0, 1, 2, 8]) == [("x", 1), ("", 0), ("é", 2), ("", 1), ("", 0)]
    assert told([0, 3, 4, 0]) == [("x", 1), ("", 0), ("", 0), ("ENx", 3), ("", 0)]
    assert told([0, 3, 4, 5, 7]) == [("x", 1), ("", 0), ("", 0), ("", 0), ("", 0), ("", 0)]
    assert told([0, 3, 4, 6], include_stop=True) == [("x", 1), ("", 0), ("", 0), ("END", 3), ("", 0)]
    assert told([0, 3, 4]) == [("x", 1), ("", 0), ("", 0), ("EN", 2)]
    assert told([0, 1]) == [("x", 1), ("", 0), ("\ufffd", 1)]
