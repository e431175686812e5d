"""What the sender of a body that is no JSON is told."""

from __future__ import annotations

import msgspec
import pytest

from headway.gateway.errors import BadRequest
from headway.gateway.infer_body import decode
from headway.gateway.json_errors import NO_JSON_NUMBER, in_words

INPUT = b'{"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, 2], "data": [%b, 1]}]}'


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"-Infinity"])
def test_a_number_that_json_has_not_is_named_with_what_to_send_instead(number: bytes) -> None:
    with pytest.raises(BadRequest, match=f"{NO_JSON_NUMBER}.*; send the input as binary data"):
        decode(INPUT % number)


@pytest.mark.parametrize(
    ("raw", "words"),
    [(b"", "it is empty"), (b" \n", "it is empty"), (b'{"inputs"', "the JSON ends in the middle, after 9 bytes")],
)
def test_a_body_that_is_missing_or_cut_off_is_said_to_be(raw: bytes, words: str) -> None:
    with pytest.raises(BadRequest, match=words):
        decode(raw)


def test_other_mistakes_keep_the_parsers_words() -> None:
    raw = INPUT % b"Nonsense"
    with pytest.raises(msgspec.DecodeError) as caught:
        msgspec.json.decode(raw)
    assert in_words(caught.value, raw) == str(caught.value)
