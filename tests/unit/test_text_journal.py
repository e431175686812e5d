"""One answer's journal: each token once and in order, and the same text however it was made."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from headway.gateway.text.journal import MATCHED, Delta, Gap, Journal
from headway.llm.text.detokenize import decode
from headway.llm.text.vocabulary import TokenBytes
from headway.wire.generation import Token

BYTES = TokenBytes([bytes([byte]) for byte in range(256)] + [b"<end>"], hidden=[256])
END = 256
TEXT = "aé€😀\u2028z"


def journal(**changes: Any) -> Journal:
    return Journal(0, BYTES, **changes)


def token(position: int, value: int, end: str = "", logprob: float | None = None) -> Token:
    return Token(0, position, value, logprob, (), end)


def fed(one: Journal, values: list[int], end: str = "length", most: int = 1000, each: bool = True) -> str:
    """All of its text. each: text is made after each token, else at the end."""
    text = ""
    for position, value in enumerate(values):
        one.accept(token(position, value, end if position == len(values) - 1 else "", -float(position)))
        if each:
            text += made(one, most)
    while not one.done:
        text += made(one, most)
    return text


def made(one: Journal, most: int) -> str:
    one.advance(most)
    delta = one.drain()
    return "" if delta is None else delta.text


def test_a_token_is_taken_once_and_in_its_turn() -> None:
    one = journal()
    assert one.accept(token(0, 65))
    assert not one.accept(token(0, 65))
    assert one.accept(token(1, 66))
    assert not one.accept(token(0, 65))
    with pytest.raises(Gap, match="token 3 of answer 0 came where 2 was the next"):
        one.accept(token(3, 67))
    assert one.tokens == [65, 66]


def test_nothing_is_taken_after_the_end() -> None:
    one = journal()
    one.accept(token(0, 65, "length"))
    assert not one.accept(token(1, 66))
    assert (fed_text(one), one.end, one.counted) == ("A", "length", 1)


def fed_text(one: Journal) -> str:
    text = ""
    while not one.done:
        text += made(one, 10)
    return text


def test_the_token_that_ends_an_answer_is_counted_and_not_shown() -> None:
    one = journal(hidden=(END, 66))
    assert fed(one, [65, 66], "stop") == "A"
    assert (one.end, one.counted) == ("stop", 2)
    shown = journal()
    assert fed(shown, [65, 66], "stop") == "AB"


def test_one_of_those_within_an_answer_is_shown() -> None:
    one = journal(hidden=(66,))
    assert fed(one, [66, 65], "length") == "BA"


def test_an_answer_without_an_end_ended_for_want_of_room() -> None:
    one = journal()
    one.accept(token(0, 65))
    one.complete()
    assert (fed_text(one), one.end) == ("A", "length")
    empty = journal()
    empty.complete()
    assert (fed_text(empty), empty.end, empty.counted) == ("", "length", 0)


def test_of_a_silent_one_nothing_is_told_or_counted() -> None:
    one = journal(silent=True)
    assert fed(one, [65], "length") == ""
    assert (one.counted, one.end) == (0, "length")


def test_tokens_after_a_stop_string_are_not_counted() -> None:
    one = journal(stops=("BC",))
    assert fed(one, [65, 66, 67, 68, 69]) == "A"
    assert (one.end, one.counted) == (MATCHED, 3)


def test_log_probabilities_come_with_their_text_and_say_where_it_begins() -> None:
    one = journal()
    told = []
    for position, value in enumerate("é€a".encode()):
        one.accept(token(position, value, logprob=-float(position)))
        one.advance(1)
        delta = one.drain()
        if delta is not None:
            told.append((delta.text, [(score.logprob, score.offset) for score in delta.scores], delta.tokens))
    assert told == [
        ("é", [(0.0, 0), (-1.0, 0)], 2),
        ("€", [(-2.0, 1), (-3.0, 1), (-4.0, 1)], 5),
        ("a", [(-5.0, 2)], 6),
    ]


def test_what_is_held_is_counted_until_it_is_told() -> None:
    one = journal()
    for position in range(10):
        one.accept(token(position, 65, logprob=-1.0))
    before = one.held
    assert before > 10 * 36
    one.advance(5)
    assert one.held == before
    one.drain()
    assert 0 < one.held < before
    one.advance(5)
    one.drain()
    assert one.held == 0


def test_every_division_of_characters_into_tokens_gives_the_same_text() -> None:
    """Vocabularies of all pieces of the text's bytes; all ways to divide the text into those."""
    data = "aé€😀b".encode()
    pieces = sorted({data[i:j] for i in range(len(data)) for j in range(i + 1, len(data) + 1)})
    vocabulary = TokenBytes(pieces)
    for cuts in range(1 << (len(data) - 1)):
        values, start = [], 0
        for place in range(1, len(data) + 1):
            if place == len(data) or cuts >> (place - 1) & 1:
                values.append(pieces.index(data[start:place]))
                start = place
        assert fed(Journal(0, vocabulary), values) == "aé€😀b"


@pytest.mark.parametrize("seed", range(40))
def test_streams_and_whole_answers_have_the_same_text_tokens_and_scores(seed: int) -> None:
    """Of random bytes, whole characters or not, with and without stop strings, and however far text lags behind."""
    random = Random(seed)
    letters = list(TEXT.encode()) if random.random() < 0.5 else list(range(256))
    values = [random.choice(letters) for _ in range(random.randrange(1, 80))]
    whole = decode(BYTES, values)
    stops = []
    if seed % 2 and len(whole) > 2:
        start = random.randrange(len(whole) - 1)
        stops = [whole[start : start + random.randrange(1, 4)], "never there"]
    found = []
    for each, most in ((True, 1), (True, 1000), (False, 3), (False, 1000)):
        one = journal(stops=stops)
        parts, scores = [], []
        for position, value in enumerate(values):
            one.accept(token(position, value, "length" if position == len(values) - 1 else "", -float(position)))
            if each and random.random() < 0.7:
                one.advance(most)
                take(one.drain(), parts, scores)
        while not one.done:
            one.advance(most)
            take(one.drain(), parts, scores)
        take(one.drain(), parts, scores)
        found.append(("".join(parts), scores, one.end, one.counted))
    assert all(one == found[0] for one in found)
    cut = min((whole.find(stop) for stop in stops if stop in whole), default=len(whole))
    assert found[0][0] == whole[:cut] or stops


def take(delta: Delta | None, parts: list[str], scores: list[Any]) -> None:
    if delta is not None:
        parts.append(delta.text)
        scores += delta.scores
