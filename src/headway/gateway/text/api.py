"""The routes of language models: bodies in, and one answer or a stream of it out."""

from __future__ import annotations

import time
from typing import Any

from headway import __version__
from headway.gateway.access import Caller
from headway.gateway.calls import Calls
from headway.gateway.catalog import Catalog
from headway.gateway.errors import BadRequest
from headway.gateway.exchange import Pending, Request
from headway.gateway.fallback import Fallbacks
from headway.gateway.idempotency import KEY, KeyedCalls, refuse_key
from headway.gateway.options import read_options, read_targets
from headway.gateway.text import bodies, parameters, prompts
from headway.gateway.text.bodies import LONGEST_NAME, Body, ChatBody
from headway.gateway.text.chat import Chat
from headway.gateway.text.completions import Completions, Told
from headway.gateway.text.job import Job, Judge, Made, Make
from headway.gateway.text.languages import Language, Languages
from headway.gateway.text.parameters import Wanted
from headway.wire.generation import LanguageMeta

FINGERPRINT = f"headway-{__version__}"


class TextApi:
    """/v1/chat/completions and /v1/completions."""

    def __init__(
        self, catalog: Catalog, calls: Calls, fallbacks: Fallbacks, keyed: KeyedCalls, languages: Languages
    ) -> None:
        self._catalog = catalog
        self._calls = calls
        self._fallbacks = fallbacks
        self._keyed = keyed
        self._languages = languages

    def chat(self, request: Request, caller: Caller) -> Pending:
        """Raises HeadwayError."""
        body = bodies.read(bodies.chat_decoder, request.body, "a chat request")
        targets = read_targets(request)
        identity = self._identity(request, body, "chatcmpl")

        def make(wanted: Wanted, language: Language, meta: LanguageMeta) -> Made:
            made = prompts.of_chat(body, wanted, language, meta)
            surface = Chat(identity, language.shown, wanted.scores is not None, wanted.include_usage, said_before(body))
            return Made(made, surface)

        return self._run(request, caller, body, "chat", lambda meta: parameters.of_chat(body, meta, targets), make)

    def completion(self, request: Request, caller: Caller) -> Pending:
        """Raises HeadwayError."""
        body = bodies.read(bodies.completion_decoder, request.body, "a completion request")
        targets = read_targets(request)
        identity = self._identity(request, body, "cmpl")

        def make(wanted: Wanted, language: Language, meta: LanguageMeta) -> Made:
            made = prompts.of_completion(body, wanted, language, meta)
            vocabulary = language.shown if wanted.special else language.hidden
            told = [Told(prompt.ids, prompt.text, vocabulary) for prompt in made] if wanted.echo else []
            scored = wanted.scores is not None
            return Made(made, Completions(identity, vocabulary, wanted.choices, scored, wanted.include_usage, told))

        several = prompts.is_list(body.prompt)
        judge: Judge = lambda meta: parameters.of_completion(body, meta, targets)  # noqa: E731
        return self._run(request, caller, body, "completion", judge, make, several)

    def _run(
        self,
        request: Request,
        caller: Caller,
        body: Body,
        kind: str,
        judge: Judge,
        make: Make,
        several: bool = False,
    ) -> Pending:
        """several: prompts, which no fallback is asked for."""
        check_name(body.model)
        caller.check_model(body.model)
        version = self._catalog.version(body.model, None)
        asked: dict[str, Any] = {} if body.priority is None else {"priority": body.priority}
        options = read_options(request, caller, asked)

        def run(own: Request) -> Pending:
            job = Job(self._calls, self._languages, own, options, judge, make)
            if several:
                job.send(version)
                return job.call.pending
            return self._fallbacks.submit(job.call, version, job.send)

        if KEY not in request.headers:
            return run(request)
        if body.stream:
            refuse_key(request)
        return self._keyed.submit(request, caller, (kind,), run)

    def _identity(self, request: Request, body: Body, kind: str) -> dict[str, Any]:
        return {
            "id": f"{kind}-{body.request_id or request.id}",
            "created": int(time.time()),
            "model": body.model,
            "system_fingerprint": FINGERPRINT,
        }


def said_before(body: ChatBody) -> str:
    """With `echo`, what the answer goes on from."""
    last = (body.messages or [{}])[-1]
    content = last.get("content")
    return content if body.echo and last.get("role") == "assistant" and isinstance(content, str) else ""


def check_name(model: str) -> None:
    if len(model) > LONGEST_NAME:
        raise BadRequest(f"model has {len(model)} characters; names have at most {LONGEST_NAME}", param="model")
