"""How a request wants its tokens drawn: plain data, without torch, so that a gateway can make it."""

from __future__ import annotations

import math
from dataclasses import dataclass

MOST_LOGPROBS = 20
MOST_BIAS = 100.0
MOST_PENALTY = 2.0


class ParamError(ValueError):
    """A parameter out of its range. param: its name; the message has the number."""

    def __init__(self, param: str, message: str) -> None:
        super().__init__(f"{param} {message}")
        self.param = param


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """Raises ParamError for what is out of range.

    temperature: 0 = greedy.  top_k: 0 = all.  top_p: 1 = all.  min_p: of the most probable token's probability.
    presence, frequency: subtracted once, and once for each time, from tokens that were produced.
    repetition: positive logits of tokens in prompt or output are divided by it, negative ones multiplied.
    logit_bias: added, after penalties.  bad: tokens that are never drawn.
    stops: tokens that end a sequence, and are not drawn before `min_tokens` others were.
    seed: any integer; its lowest 64 bits count.  Whoever has none is given one at admission and keeps it.
    logprobs: None, or how many of the most probable tokens are told with each, 0 = only itself.
    """

    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence: float = 0.0
    frequency: float = 0.0
    repetition: float = 1.0
    logit_bias: tuple[tuple[int, float], ...] = ()
    stops: tuple[int, ...] = ()
    bad: tuple[int, ...] = ()
    min_tokens: int = 0
    seed: int = 0
    logprobs: int | None = None

    def __post_init__(self) -> None:
        _within("temperature", self.temperature, 0.0, math.inf)
        _within("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0:
            raise ParamError("top_p", "is 0; it must be greater than 0, and at most 1")
        _within("min_p", self.min_p, 0.0, 1.0)
        _within("presence_penalty", self.presence, -MOST_PENALTY, MOST_PENALTY)
        _within("frequency_penalty", self.frequency, -MOST_PENALTY, MOST_PENALTY)
        _within("repetition_penalty", self.repetition, 0.0, math.inf)
        if self.repetition == 0:
            raise ParamError("repetition_penalty", "is 0; it must be greater than 0")
        _within("top_k", self.top_k, 0, math.inf)
        _within("min_tokens", self.min_tokens, 0, math.inf)
        if self.logprobs is not None:
            _within("top_logprobs", self.logprobs, 0, MOST_LOGPROBS)
        for token, bias in self.logit_bias:
            _token("logit_bias", token)
            _within("logit_bias", bias, -MOST_BIAS, MOST_BIAS)
        for token in self.stops:
            _token("stop_token_ids", token)
        for token in self.bad:
            _token("bad_token_ids", token)

    @property
    def penalised(self) -> bool:
        return self.repetition != 1.0 or self.presence != 0.0 or self.frequency != 0.0

    def check_vocabulary(self, size: int) -> None:
        """ParamError where a token that it names is not one of so many."""
        named = (("logit_bias", [token for token, _ in self.logit_bias]), ("stop_token_ids", self.stops))
        for param, tokens in (*named, ("bad_token_ids", self.bad)):
            for token in tokens:
                if token >= size:
                    raise ParamError(param, f"names token {token}; the vocabulary has {size}")


def _within(param: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most or math.isinf(value):
        upper = f"at most {most:g}" if math.isfinite(most) else "finite"
        raise ParamError(param, f"is {value}; it must be at least {least:g}, and {upper}")


def _token(param: str, token: int) -> None:
    if token < 0:
        raise ParamError(param, f"names token {token}; token ids start at 0")
