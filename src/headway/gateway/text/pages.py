"""/tokenize and /detokenize: what text is to a model, without running it. Made in a thread like prompts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from headway.gateway.access import Caller
from headway.gateway.catalog import Catalog, Version
from headway.gateway.errors import BadRequest, HeadwayError, InternalError, TooLong
from headway.gateway.exchange import Pending, Request, Response
from headway.gateway.text import bodies, languages, prompts
from headway.gateway.text.bodies import LONGEST_NAME, ChatBody, DetokenizeBody, TokenizeBody
from headway.gateway.text.job import language_of
from headway.gateway.text.languages import Language, Languages
from headway.gateway.text.surface import encode, text_of
from headway.wire.generation import LanguageMeta

MOST_TIMES_CONTEXT = 8
"""Tokens that are told of one text, by the model's context."""

log = logging.getLogger("headway.gateway")


class TokenPages:
    """respond: an error as a reply."""

    def __init__(
        self, catalog: Catalog, languages: Languages, respond: Callable[[HeadwayError, Request], Response]
    ) -> None:
        self._catalog = catalog
        self._languages = languages
        self._respond = respond

    def tokenize(self, request: Request, caller: Caller) -> Pending:
        """Raises HeadwayError."""
        body = bodies.read(bodies.tokenize_decoder, request.body, "a request to tokenize")
        if (body.prompt is None) == (body.messages is None):
            raise BadRequest("send either prompt or messages", param="prompt")
        version = self._version(body.model, caller)
        return self._off_loop(request, version, lambda language, meta: _tokenized(body, language, meta))

    def detokenize(self, request: Request, caller: Caller) -> Pending:
        """Raises HeadwayError."""
        body = bodies.read(bodies.detokenize_decoder, request.body, "a request to detokenize")
        version = self._version(body.model, caller)
        return self._off_loop(request, version, lambda language, meta: _detokenized(body, language, meta))

    def _version(self, name: str | None, caller: Caller) -> Version:
        if name is None:
            name = self._only(caller)
        check_name(name)
        caller.check_model(name)
        return self._catalog.version(name, None)

    def _only(self, caller: Caller) -> str:
        """The model that can be meant where none is named."""
        found = [
            model.name
            for model in self._catalog.models.values()
            if caller.may_call(model.name) and is_language_model(model.versions[model.default])
        ]
        if len(found) != 1:
            raise BadRequest(f"model is missing; there are {len(found)} language models", param="model")
        return found[0]

    def _off_loop(
        self, request: Request, version: Version, work: Callable[[Language, LanguageMeta], dict[str, Any]]
    ) -> Pending:
        meta = language_of(version)
        loaded = self._languages.want(meta.source)
        loop, pending = asyncio.get_running_loop(), Pending()

        def run() -> None:
            try:
                reply = Response(200, encode(work(languages.of(loaded), meta)))
            except HeadwayError as error:
                reply = self._respond(error, request)
            except Exception:
                log.exception("request %s: it could not be tokenised", request.id)
                reply = self._respond(InternalError(f"internal error, logged under {request.id}"), request)
            loop.call_soon_threadsafe(pending.complete, reply)

        self._languages.pool.submit(run)
        return pending


def _tokenized(body: TokenizeBody, language: Language, meta: LanguageMeta) -> dict[str, Any]:
    if body.messages is not None:
        chat = ChatBody(
            model="",
            messages=body.messages,
            tools=body.tools,
            add_generation_prompt=body.add_generation_prompt,
            continue_final_message=body.continue_final_message,
            chat_template_kwargs=body.chat_template_kwargs,
        )
        text, special = prompts.chat_text(chat, language), body.add_special_tokens is True
    else:
        text, special = body.prompt or "", body.add_special_tokens is not False
    (encoding,) = language.tokenizer.encoder.encode_batch_fast([text], add_special_tokens=special)
    if len(encoding) > MOST_TIMES_CONTEXT * meta.context:
        raise TooLong(
            f"the text has {len(encoding)} tokens; at most {MOST_TIMES_CONTEXT * meta.context} are told here, "
            f"{MOST_TIMES_CONTEXT} times the model's context",
            param="prompt",
        )
    ids = encoding.ids
    told: dict[str, Any] = {"count": len(ids), "max_model_len": meta.context, "tokens": ids}
    if body.return_token_strs:
        told["token_strs"] = [text_of(language.shown, token) for token in ids]
    return told


def _detokenized(body: DetokenizeBody, language: Language, meta: LanguageMeta) -> dict[str, Any]:
    for place, token in enumerate(body.tokens):
        if not 0 <= token < meta.vocabulary:
            raise BadRequest(
                f"tokens: {token} at position {place} is outside of 0 to {meta.vocabulary - 1}", param="tokens"
            )
    return {"prompt": language.tokenizer.decode(body.tokens, skip_special=body.skip_special_tokens is True)}


def is_language_model(version: Version) -> bool:
    return version.meta is not None and version.meta.language is not None


def check_name(model: str) -> None:
    if len(model) > LONGEST_NAME:
        raise BadRequest(f"model has {len(model)} characters; names have at most {LONGEST_NAME}", param="model")
