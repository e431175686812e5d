"""What clients of language models send. null is as good as absent, and an unknown field is no mistake.

Types are judged while decoding, values in `parameters.py`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable
from typing import Any, TypeVar

import msgspec

from headway.gateway.errors import BadRequest
from headway.gateway.json_errors import in_words

LONGEST_SHOWN = 300
LONGEST_NAME = 256
"""Characters of a model's name, a request's own id, a salt."""
NOTED = 200
"""Unknown fields that are told in the log, since the start."""
LOOKED_THROUGH = 1 << 16
"""Bytes of bodies in which unknown fields are looked for."""

_PATH = re.compile(r" - at `(key in )?\$\.?([^`]*)`")
_NULL = re.compile(r" \| null\b")
_fields = msgspec.json.Decoder(dict[str, msgspec.Raw])
log = logging.getLogger("headway.gateway")
_noted: dict[str, None] = {}
S = TypeVar("S")


class StreamOptions(msgspec.Struct):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class StructuredOutputs(msgspec.Struct):
    json: Any = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None


class Body(msgspec.Struct, kw_only=True):
    """What chat and completions have in common."""

    model: str
    max_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    n: int | None = None
    stop: str | list[str] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    seed: int | None = None
    response_format: dict[str, Any] | None = None
    # Beyond OpenAI's own, as other servers have them.
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    ignore_eos: bool | None = None
    stop_token_ids: list[int] | None = None
    bad_token_ids: list[int] | None = None
    skip_special_tokens: bool | None = None
    include_stop_str_in_output: bool | None = None
    guided_json: Any = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    structured_outputs: StructuredOutputs | None = None
    priority: int | None = None
    cache_salt: str | None = None
    request_id: str | None = None
    add_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = None
    prompt_logprobs: int | None = None
    use_beam_search: bool | None = None


class ChatBody(Body, kw_only=True):
    messages: list[dict[str, Any]] | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    functions: Any = None
    function_call: Any = None
    modalities: list[str] | None = None
    audio: Any = None
    echo: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    documents: list[dict[str, Any]] | None = None


class CompletionBody(Body, kw_only=True):
    """prompt: decoded where prompts are made, off the event loop: it may be hundreds of thousands of numbers."""

    prompt: msgspec.Raw = msgspec.Raw(b"null")
    echo: bool | None = None
    best_of: int | None = None
    logprobs: int | None = None
    suffix: str | None = None


class GenerateBody(Body, kw_only=True):
    """Of the Open Inference Protocol."""

    text_input: str
    id: str | None = None
    echo: bool | None = None
    logprobs: int | None = None
    details: bool | None = None


class TokenizeBody(msgspec.Struct, kw_only=True):
    """Of a text, or of a chat."""

    model: str | None = None
    prompt: str | None = None
    messages: list[dict[str, Any]] | None = None
    tools: list[dict[str, Any]] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    return_token_strs: bool | None = None


class DetokenizeBody(msgspec.Struct, kw_only=True):
    tokens: list[int]
    model: str | None = None
    skip_special_tokens: bool | None = None


chat_decoder = msgspec.json.Decoder(ChatBody)
completion_decoder = msgspec.json.Decoder(CompletionBody)
tokenize_decoder = msgspec.json.Decoder(TokenizeBody)
detokenize_decoder = msgspec.json.Decoder(DetokenizeBody)


def read(decoder: msgspec.json.Decoder[S], raw: bytes, what: str) -> S:
    """what: "a chat request". Raises BadRequest, with the field in `param`."""
    try:
        body = decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise wrong(error, raw, f"the body is not {what}") from None
    if len(raw) <= LOOKED_THROUGH and len(_noted) < NOTED:
        _note(raw, type(body).__struct_fields__, what)  # type: ignore[attr-defined]
    return body


def wrong(error: Exception, raw: bytes | memoryview, saying: str) -> BadRequest:
    """error: of the decoder, which knows where it was."""
    words = _NULL.sub("", in_words(error, raw))
    at = _PATH.search(words)
    param = _field(at[2]) if at is not None else None
    if missing := re.search(r"missing required field `(\w+)`", words):
        param = missing[1]
    return BadRequest(f"{saying}: {shown(words, LONGEST_SHOWN)}", param=param)


def _field(path: str) -> str | None:
    """A decoder's path as a field's name: "stop[...]" is "stop"."""
    return path.replace("[...]", "")[:LONGEST_NAME] or None


def shown(text: str, most: int = 80) -> str:
    return text if len(text) <= most else text[:most] + "..."


def _note(raw: bytes, known: Iterable[str], what: str) -> None:
    """Once for each name: a misspelt one would otherwise be ignored in silence."""
    for name in _fields.decode(raw):
        if name in known or name in _noted or name in IGNORED or len(_noted) >= NOTED:
            continue
        _noted[name] = None
        log.info("field %r of %s is not known here and ignored", shown(name), what)


IGNORED = frozenset(
    (
        *("user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "logit_processors"),
        *("reasoning_effort", "verbosity", "prediction", "web_search_options", "spaces_between_special_tokens"),
        *("return_token_ids", "length_penalty", "early_stopping"),
    )
)
"""Known to everybody, and without effect here."""
