"""Prompts as token ids, off the event loop.

A text that is too long is refused by the count of its tokens, before they are made a list of: a list of a million
numbers holds the interpreter for as long as everybody else's tokens would take.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from headway.gateway.errors import BadRequest, TooLong
from headway.gateway.text.bodies import ChatBody, CompletionBody, shown, wrong
from headway.gateway.text.languages import Language
from headway.gateway.text.messages import checked_messages, checked_tools
from headway.gateway.text.parameters import MOST_CHOICES, Wanted
from headway.wire.generation import LanguageMeta

MOST_PROMPTS = 1024
MOST_ANSWERS = 8 * MOST_CHOICES
"""Of all prompts together."""

_text = msgspec.json.Decoder(str)
_texts = msgspec.json.Decoder(list[str])
_ids = msgspec.json.Decoder(list[int])
_lists = msgspec.json.Decoder(list[list[int]])


@dataclass(frozen=True, slots=True)
class Prompt:
    """text: as it was given, None where it came as token ids or messages.  most: tokens that each answer may have."""

    ids: list[int]
    most: int
    text: str | None = None


def is_list(raw: msgspec.Raw) -> bool:
    """Whether several prompts may be meant."""
    data = bytes(memoryview(raw)[:256]).split()
    return b"".join(data)[:2] in (b'["', b"[[")


def of_completion(body: CompletionBody, wanted: Wanted, language: Language, meta: LanguageMeta) -> list[Prompt]:
    """Raises BadRequest."""
    texts, ids = _given(body.prompt)
    count = len(texts or ids)
    if count > MOST_PROMPTS:
        raise BadRequest(f"prompt has {count} prompts; at most {MOST_PROMPTS} are taken", param="prompt")
    if count * wanted.choices > MOST_ANSWERS:
        raise BadRequest(
            f"{count} prompts with n = {wanted.choices} are {count * wanted.choices} answers; at most {MOST_ANSWERS} "
            "are made for one request",
            param="n",
        )
    special = body.add_special_tokens is not False
    prompts = [of_text(text, special, wanted, language, meta, "prompt") for text in texts]
    return prompts + [_of_ids(given, wanted, meta, "prompt") for given in ids]


def of_chat(body: ChatBody, wanted: Wanted, language: Language, meta: LanguageMeta) -> list[Prompt]:
    """Raises BadRequest."""
    text = chat_text(body, language)
    special = body.add_special_tokens is True
    made = of_text(text, special, wanted, language, meta, "messages")
    return [Prompt(made.ids, made.most)]


def chat_text(body: ChatBody, language: Language) -> str:
    """What the model's template makes of the messages. Raises BadRequest."""
    from headway.llm.text.template import TAKEN, TemplateError

    messages = checked_messages(body.messages)
    tools = checked_tools(body.tools) if body.tool_choice != "none" else None
    going_on = bool(body.continue_final_message)
    opens = not going_on if body.add_generation_prompt is None else body.add_generation_prompt
    if going_on and opens:
        raise BadRequest(
            "continue_final_message goes on with the last message, and add_generation_prompt begins a new one: "
            "not both",
            param="continue_final_message",
        )
    if going_on and messages[-1]["role"] != "assistant":
        raise BadRequest(
            f"continue_final_message: the last message is of the role {shown(messages[-1]['role'])!r}, "
            "and would have to be the assistant's",
            param="continue_final_message",
        )
    values: dict[str, Any] = dict(body.chat_template_kwargs or {})
    if taken := [name for name in (*TAKEN, "self") if name in values]:
        raise BadRequest(f"{taken[0]} is not for chat_template_kwargs", param="chat_template_kwargs")
    if body.documents is not None:
        values["documents"] = body.documents
    try:
        text = language.template.render(messages, tools, opens, **values)
    except TemplateError as error:
        raise BadRequest(str(error), param="messages") from None
    return _up_to_the_last(text, messages[-1]) if going_on else text


def _up_to_the_last(text: str, message: dict[str, Any]) -> str:
    """Without what the template puts behind the last message."""
    content = message.get("content")
    said = content if isinstance(content, str) else ""
    place = text.rfind(said.strip()) if said.strip() else -1
    if place < 0:
        raise BadRequest(
            "continue_final_message: the chat template does not tell the last message as it is",
            param="continue_final_message",
        )
    whole = said.lstrip()
    if text.startswith(whole, place):
        return text[: place + len(whole)]
    return text[: place + len(said.strip())]


def _given(raw: msgspec.Raw) -> tuple[list[str], list[list[int]]]:
    """The texts, or else the token ids, of a `prompt` in any of its four forms."""
    data = memoryview(raw)
    head = b"".join(bytes(data[:256]).split())[:2]
    if head == b"nu":
        raise BadRequest("prompt is missing", param="prompt")
    if head == b"[]":
        raise BadRequest("prompt is an empty list", param="prompt")
    try:
        if head[:1] == b'"':
            return [_text.decode(data)], []
        if head == b'["':
            return _texts.decode(data), []
        if head == b"[[":
            return [], _lists.decode(data)
        return [], [_ids.decode(data)]
    except (msgspec.DecodeError, RecursionError) as error:
        refused = wrong(
            error, data, "prompt must be a text, a list of texts, a list of token ids, or a list of such lists"
        )
        raise BadRequest(refused.message, param="prompt") from None


def of_text(text: str, special: bool, wanted: Wanted, language: Language, meta: LanguageMeta, param: str) -> Prompt:
    """special: with what the model wants around a text by itself. Raises BadRequest."""
    least = len(text) // language.longest // 4  # a normalizer may make less of a text, and never so much less
    if least > meta.context and wanted.truncate is None:
        raise TooLong(
            f"{param} has {len(text)} characters, which is more than {least} tokens; the model's context is "
            f"{meta.context} tokens",
            param=param,
        )
    (encoding,) = language.tokenizer.encoder.encode_batch_fast([text], add_special_tokens=special)
    most = most_of(len(encoding), wanted, meta, param)
    kept = _kept(len(encoding), wanted, meta)
    if kept is not None:
        encoding.truncate(kept, direction="left")
        most = most_of(kept, wanted, meta, param)
    return Prompt(encoding.ids, most, text if kept is None else None)


def _of_ids(ids: list[int], wanted: Wanted, meta: LanguageMeta, param: str) -> Prompt:
    most = most_of(len(ids), wanted, meta, param)
    kept = _kept(len(ids), wanted, meta)
    if kept is not None:
        ids = ids[-kept:]
        most = most_of(kept, wanted, meta, param)
    if max(ids) >= meta.vocabulary or min(ids) < 0:
        at = next(place for place, token in enumerate(ids) if not 0 <= token < meta.vocabulary)
        raise BadRequest(
            f"{param}: token id {ids[at]} at position {at} is outside of 0 to {meta.vocabulary - 1}", param=param
        )
    return Prompt(ids, most)


def _kept(count: int, wanted: Wanted, meta: LanguageMeta) -> int | None:
    """To how many of its last tokens a prompt is cut; None = it is not."""
    if wanted.truncate is None:
        return None
    room = meta.context - max(wanted.max_tokens or 1, 1)
    keep = room if wanted.truncate == -1 else min(wanted.truncate, count)
    return keep if keep < count else None


def most_of(count: int, wanted: Wanted, meta: LanguageMeta, param: str) -> int:
    """Tokens that each answer may have. Raises TooLong with the numbers, BadRequest for a prompt of no tokens."""
    if count == 0:
        raise BadRequest(f"{param} has no tokens", param=param)
    if wanted.truncate is not None and _kept(count, wanted, meta) is not None:
        return 0  # it is asked again, of what is left
    if count >= meta.context:
        raise TooLong(
            f"{param} has {count} tokens; the model's context is {meta.context} tokens, and the answer must be within "
            "it too",
            param=param,
        )
    if wanted.max_tokens is None:
        return meta.context - count
    if count + wanted.max_tokens > meta.context:
        raise TooLong(
            f"{param} has {count} tokens and max_tokens is {wanted.max_tokens}, {count + wanted.max_tokens} together; "
            f"the model's context is {meta.context} tokens",
            param=param,
        )
    return max(wanted.max_tokens, 1)
