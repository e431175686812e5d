"""From what a client asks for to what the engine is told: every value judged, with the numbers, before anything else.

What is wrong with a prompt is found where prompts are made, off the event loop.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from secrets import randbits

from headway.gateway.errors import BadRequest
from headway.gateway.text.bodies import LONGEST_NAME, Body, ChatBody, CompletionBody, GenerateBody, shown
from headway.llm.sample.params import MOST_LOGPROBS, ParamError, SamplingParams
from headway.wire.generation import LanguageMeta

MOST_CHOICES = 128
"""`n`; and of all prompts of a request together, 8 times that."""
MOST_STOPS, LONGEST_STOP = 16, 1024
"""Strings that end an answer, and characters of one."""
MOST_STOP_TOKENS = 256
MOST_BIASED = 300
HOTTEST = 2.0
LEAST_SEED, GREATEST_SEED = -(2**63), 2**64 - 1


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked of a model beside the prompt.

    sampling: its stops are the client's own; the model's ends are not among them yet.
    max_tokens: None = what the context leaves.  stops: strings.  include_stop: what ended it is shown.
    ends: whether the model's own ends end an answer.  special: special tokens are shown.
    scores: of how many of the most probable tokens log probabilities are told with each, None = of none at all.
    prompt_scores: the same of the prompt's.  echo: the prompt is told before the answer.
    truncate: the prompt's last so many tokens are taken; -1 = as many as there is room for.
    """

    sampling: SamplingParams
    max_tokens: int | None = None
    choices: int = 1
    stops: tuple[str, ...] = ()
    include_stop: bool = False
    ends: bool = True
    special: bool = False
    scores: int | None = None
    prompt_scores: int | None = None
    echo: bool = False
    truncate: int | None = None
    salt: str = ""
    first_within: int = 0
    itl: int = 0
    stream: bool = False
    include_usage: bool = False
    continuous_usage: bool = False

    def with_ends(self, ends: tuple[int, ...], formed: bool) -> SamplingParams:
        """ends: the model's own.  formed: the answer has a form, whose end is one of those."""
        if not self.ends and not formed:
            return self.sampling
        return replace(self.sampling, stops=tuple(dict.fromkeys((*ends, *self.sampling.stops))))


def of_chat(body: ChatBody, meta: LanguageMeta, targets: tuple[int, int]) -> Wanted:
    """targets: see `options.read_targets`. Raises BadRequest."""
    if body.functions is not None or body.function_call is not None:
        param = "functions" if body.functions is not None else "function_call"
        raise BadRequest(f"{param} is not taken: send tools and tool_choice", param=param)
    if body.audio is not None or (body.modalities or ["text"]) != ["text"]:
        param = "audio" if body.audio is not None else "modalities"
        raise BadRequest(f"{param}: this server makes text and nothing else", param=param)
    if body.chat_template is not None:
        raise BadRequest("chat_template is not taken: the model's own is used", param="chat_template")
    scores = None
    if body.logprobs:
        scores = body.top_logprobs or 0
    elif body.top_logprobs:
        raise BadRequest(f"top_logprobs is {body.top_logprobs}, which needs logprobs: true", param="top_logprobs")
    if body.top_logprobs is not None:
        _within("top_logprobs", body.top_logprobs, 0, MOST_LOGPROBS)
    limit = "max_tokens" if body.max_completion_tokens is None else "max_completion_tokens"
    most = body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens
    _check_most(limit, most, meta, least=1)
    return _wanted(body, meta, most, scores, targets, echo=False)


def of_completion(body: CompletionBody, meta: LanguageMeta, targets: tuple[int, int]) -> Wanted:
    """Raises BadRequest."""
    if body.suffix:
        raise BadRequest("suffix is not taken: this server continues texts, and fills no gaps", param="suffix")
    if body.best_of is not None:
        _within("best_of", body.best_of, 1, MOST_CHOICES)
        if body.best_of != (body.n or 1):
            raise BadRequest(
                f"best_of is {body.best_of} and n is {body.n or 1}: as many are told as are made here", param="best_of"
            )
    if body.logprobs is not None:
        _within("logprobs", body.logprobs, 0, MOST_LOGPROBS)
    _check_most("max_tokens", body.max_tokens, meta, least=0 if body.echo else 1)
    return _wanted(body, meta, body.max_tokens, body.logprobs, targets, bool(body.echo))


def of_generate(body: GenerateBody, meta: LanguageMeta, targets: tuple[int, int], stream: bool) -> Wanted:
    """Raises BadRequest."""
    if body.logprobs is not None:
        _within("logprobs", body.logprobs, 0, MOST_LOGPROBS)
    _check_most("max_tokens", body.max_tokens, meta, least=1)
    return replace(_wanted(body, meta, body.max_tokens, body.logprobs, targets, echo=False), stream=stream)


def _wanted(
    body: Body, meta: LanguageMeta, most: int | None, scores: int | None, targets: tuple[int, int], echo: bool
) -> Wanted:
    if body.use_beam_search:
        raise BadRequest("use_beam_search is not taken: answers are sampled, or greedy", param="use_beam_search")
    choices = 1 if body.n is None else body.n
    _within("n", choices, 1, MOST_CHOICES)
    if body.prompt_logprobs is not None:
        _within("prompt_logprobs", body.prompt_logprobs, 0, MOST_LOGPROBS)
        if body.stream:
            raise BadRequest("prompt_logprobs is not told in streams", param="prompt_logprobs")
    for name, text in (("cache_salt", body.cache_salt), ("request_id", body.request_id)):
        if text is not None and not 0 < len(text) <= LONGEST_NAME:
            raise BadRequest(f"{name} has {len(text)} characters; it must have 1 to {LONGEST_NAME}", param=name)
    if body.truncate_prompt_tokens is not None and (
        body.truncate_prompt_tokens < -1 or body.truncate_prompt_tokens == 0
    ):
        raise BadRequest(
            f"truncate_prompt_tokens is {body.truncate_prompt_tokens}; it must be at least 1, or -1",
            param="truncate_prompt_tokens",
        )
    options = body.stream_options
    if options is not None and not body.stream:
        raise BadRequest("stream_options is for streams: send stream: true", param="stream_options")
    return Wanted(
        sampling=_sampling(body, meta, most, scores),
        max_tokens=most,
        choices=choices,
        stops=_stops(body.stop),
        include_stop=bool(body.include_stop_str_in_output),
        ends=not body.ignore_eos,
        special=body.skip_special_tokens is False,
        scores=scores,
        prompt_scores=_most_of(body.prompt_logprobs, scores if echo else None),
        echo=echo,
        truncate=body.truncate_prompt_tokens,
        salt=body.cache_salt or "",
        first_within=targets[0],
        itl=targets[1],
        stream=bool(body.stream),
        include_usage=bool(options and options.include_usage),
        continuous_usage=bool(options and options.include_usage and options.continuous_usage_stats),
    )


def _sampling(body: Body, meta: LanguageMeta, most: int | None, scores: int | None) -> SamplingParams:
    temperature = 1.0 if body.temperature is None else body.temperature
    _within("temperature", temperature, 0, HOTTEST)
    top_k = body.top_k or 0
    if top_k < -1:
        raise BadRequest(f"top_k is {top_k}; it must be at least 1, or 0 or -1 for all tokens", param="top_k")
    least = body.min_tokens or 0
    if most is not None and least > most:
        raise BadRequest(f"min_tokens is {least}, above max_tokens, which is {most}", param="min_tokens")
    if least > meta.context:
        raise BadRequest(f"min_tokens is {least}; the model's context is {meta.context} tokens", param="min_tokens")
    seed = randbits(63) if body.seed is None else body.seed
    if not LEAST_SEED <= seed <= GREATEST_SEED:
        raise BadRequest(f"seed is {shown(str(seed))}; it must fit 64 bits", param="seed")
    try:
        sampling = SamplingParams(
            temperature=temperature,
            top_k=max(top_k, 0),
            top_p=1.0 if body.top_p is None else body.top_p,
            min_p=body.min_p or 0.0,
            presence=body.presence_penalty or 0.0,
            frequency=body.frequency_penalty or 0.0,
            repetition=1.0 if body.repetition_penalty is None else body.repetition_penalty,
            logit_bias=_bias(body.logit_bias),
            stops=_tokens("stop_token_ids", body.stop_token_ids),
            bad=_tokens("bad_token_ids", body.bad_token_ids),
            min_tokens=least,
            seed=seed,
            logprobs=scores,
        )
        sampling.check_vocabulary(meta.vocabulary)
    except ParamError as error:
        raise BadRequest(shown(str(error), 300), param=error.param) from None
    return sampling


def _most_of(*counts: int | None) -> int | None:
    return max((count for count in counts if count is not None), default=None)


def _check_most(name: str, most: int | None, meta: LanguageMeta, least: int) -> None:
    """least: 0 where a prompt may be told without an answer."""
    if most is None:
        return
    if most < least:
        raise BadRequest(f"{name} is {most}; it must be at least {least}", param=name)
    if most >= meta.context:
        raise BadRequest(
            f"{name} is {most}; the model's context is {meta.context} tokens, prompt and answer together", param=name
        )


def _within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most or math.isnan(value):
        raise BadRequest(f"{name} is {value:g}; it must be {least:g} to {most:g}", param=name)


def _stops(told: str | list[str] | None) -> tuple[str, ...]:
    stops = () if told is None else (told,) if isinstance(told, str) else tuple(told)
    if len(stops) > MOST_STOPS:
        raise BadRequest(f"stop has {len(stops)} strings; at most {MOST_STOPS} are taken", param="stop")
    for number, text in enumerate(stops):
        if not text:
            raise BadRequest(f"stop string {number} is empty", param="stop")
        if len(text) > LONGEST_STOP:
            raise BadRequest(
                f"stop string {number} has {len(text)} characters; at most {LONGEST_STOP} are taken", param="stop"
            )
    return tuple(dict.fromkeys(stops))


def _tokens(name: str, told: list[int] | None) -> tuple[int, ...]:
    tokens = tuple(told or ())
    if len(tokens) > MOST_STOP_TOKENS:
        raise BadRequest(f"{name} has {len(tokens)} ids; at most {MOST_STOP_TOKENS} are taken", param=name)
    return tokens


def _bias(told: dict[str, float] | None) -> tuple[tuple[int, float], ...]:
    if not told:
        return ()
    if len(told) > MOST_BIASED:
        raise BadRequest(f"logit_bias has {len(told)} tokens; at most {MOST_BIASED} are taken", param="logit_bias")
    bias = []
    for text, value in told.items():
        if not (text.isascii() and text.isdigit() and len(text) < 10):
            raise BadRequest(
                f"logit_bias: {shown(text)!r} is no token id; keys are whole numbers as text", param="logit_bias"
            )
        bias.append((int(text), float(value)))
    return tuple(bias)
