"""What a request may ask of the sampler, and the numbers that it draws by."""

from __future__ import annotations

import math

import numpy as np
import pytest

from headway.llm.sample.counter import uniforms
from headway.llm.sample.params import ParamError, SamplingParams


@pytest.mark.parametrize(
    ("settings", "param", "said"),
    [
        ({"temperature": -0.1}, "temperature", "is -0.1; it must be at least 0, and finite"),
        ({"temperature": math.nan}, "temperature", "is nan"),
        ({"temperature": math.inf}, "temperature", "is inf"),
        ({"top_p": 0.0}, "top_p", "greater than 0"),
        ({"top_p": 1.01}, "top_p", "is 1.01; it must be at least 0, and at most 1"),
        ({"min_p": -1.0}, "min_p", "is -1.0"),
        ({"top_k": -1}, "top_k", "is -1"),
        ({"presence": 2.5}, "presence_penalty", "is 2.5; it must be at least -2, and at most 2"),
        ({"frequency": -2.5}, "frequency_penalty", "is -2.5"),
        ({"repetition": 0.0}, "repetition_penalty", "greater than 0"),
        ({"min_tokens": -5}, "min_tokens", "is -5"),
        ({"logprobs": 21}, "top_logprobs", "is 21; it must be at least 0, and at most 20"),
        ({"logit_bias": ((1, 101.0),)}, "logit_bias", "is 101.0"),
        ({"logit_bias": ((-1, 1.0),)}, "logit_bias", "names token -1"),
        ({"stops": (-2,)}, "stop_token_ids", "names token -2"),
        ({"bad": (-3,)}, "bad_token_ids", "names token -3"),
    ],
)
def test_what_is_out_of_range_is_named_with_its_number(settings: dict[str, object], param: str, said: str) -> None:
    with pytest.raises(ParamError, match=said.replace(".", r"\.")) as raised:
        SamplingParams(**settings)  # type: ignore[arg-type]
    assert raised.value.param == param


def test_tokens_beyond_the_vocabulary_are_named() -> None:
    SamplingParams(logit_bias=((9, 1.0),), stops=(9,), bad=(9,)).check_vocabulary(10)
    for params in (SamplingParams(logit_bias=((10, 1.0),)), SamplingParams(stops=(10,)), SamplingParams(bad=(10,))):
        with pytest.raises(ParamError, match="names token 10; the vocabulary has 10"):
            params.check_vocabulary(10)


def test_a_number_is_a_function_of_whose_it_is_and_which() -> None:
    assert uniforms([1, 2], [0, 0], [5, 6]).tolist() == [uniforms([s], [0], [p])[0] for s, p in ((1, 5), (2, 6))]
    assert uniforms([-1], [0], [0]) == uniforms([2**64 - 1], [0], [0])
    assert uniforms([1], [0], [0], draw=1) != uniforms([1], [0], [0])


def test_the_numbers_stay_as_they_are_from_release_to_release() -> None:
    assert uniforms([1, 2**63], [0, 3], [0, 1000], 2).tolist() == [0.6649177184372621, 0.18061872341362006]


def test_no_two_places_share_a_number() -> None:
    places = [(s, c, p) for s in range(20) for c in range(20) for p in range(20)]
    numbers = uniforms(*(list(part) for part in zip(*places, strict=True)))
    assert len(np.unique(numbers)) == len(places)


@pytest.mark.parametrize("which", ["seed", "choice", "position"])
def test_they_are_even_along_each_of_their_arguments_and_not_correlated(which: str) -> None:
    count = 100_000
    running, still = list(range(count)), [7] * count
    numbers = uniforms(*(running if name == which else still for name in ("seed", "choice", "position")))
    assert numbers.min() >= 0 and numbers.max() < 1
    cells, _ = np.histogram(numbers, 100, (0, 1))
    assert ((cells - count / 100) ** 2 / (count / 100)).sum() < 99 + 5 * math.sqrt(2 * 99)
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 5 / math.sqrt(count)
