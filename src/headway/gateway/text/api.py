"""The routes of language models: bodies in, and one answer or a stream of it out."""

from __future__ import annotations

import time
from collections.abc import Sequence
from concurrent.futures import Executor
from typing import Any

from headway import __version__
from headway.gateway.access import Caller
from headway.gateway.calls import Calls
from headway.gateway.catalog import Catalog, Version
from headway.gateway.errors import BadRequest
from headway.gateway.exchange import Pending, Request
from headway.gateway.fallback import Fallbacks
from headway.gateway.idempotency import KEY, KeyedCalls, refuse_key
from headway.gateway.options import Options, read_options, read_targets
from headway.gateway.text import bodies, choosing, forms, generate, parameters, prompts
from headway.gateway.text.bodies import Body, ChatBody
from headway.gateway.text.chat import Chat
from headway.gateway.text.completions import Completions, Told
from headway.gateway.text.forms import Asked
from headway.gateway.text.generate import Generate
from headway.gateway.text.job import Job, Judge, Made, Make
from headway.gateway.text.languages import Language, Languages
from headway.gateway.text.pages import check_name
from headway.gateway.text.parameters import Wanted
from headway.gateway.text.prompts import Prompt
from headway.gateway.text.surface import PromptTable
from headway.wire.generation import LanguageMeta

FINGERPRINT = f"headway-{__version__}"


class TextApi:
    """/v1/chat/completions, /v1/completions, and the Open Inference Protocol's generate."""

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
        targets = read_targets(request, caller)
        identity = identity_of(request, body, "chatcmpl")

        def judge(meta: LanguageMeta) -> Wanted:
            choosing.check_choice(body)
            form_asked(body)
            return parameters.of_chat(body, meta, targets)

        def make(wanted: Wanted, language: Language, meta: LanguageMeta) -> Made:
            parser = choosing.parser_of(body, language)
            form = form_of(body, self._languages.forms)
            made = prompts.of_chat(body, wanted, language, meta)
            scored, usage = wanted.scores is not None, wanted.include_usage
            tables = tables_of(body, made, language)
            surface = Chat(identity, language.shown, scored, usage, said_before(body), parser, tables)
            return Made(made, surface, form)

        return self._run(request, caller, body, "chat", judge, make)

    def completion(self, request: Request, caller: Caller) -> Pending:
        """Raises HeadwayError."""
        body = bodies.read(bodies.completion_decoder, request.body, "a completion request")
        targets = read_targets(request, caller)
        identity = identity_of(request, body, "cmpl")

        def judge(meta: LanguageMeta) -> Wanted:
            return parameters.of_completion(body, meta, targets)

        def make(wanted: Wanted, language: Language, meta: LanguageMeta) -> Made:
            form = form_of(body, self._languages.forms)
            made = prompts.of_completion(body, wanted, language, meta)
            vocabulary = language.shown if wanted.special else language.hidden
            told = [Told(prompt.ids, prompt.text, vocabulary, wanted.scores or 0) for prompt in made if wanted.echo]
            scored, usage = wanted.scores is not None, wanted.include_usage
            tables = tables_of(body, made, language)
            return Made(made, Completions(identity, vocabulary, wanted.choices, scored, usage, told, tables), form)

        return self._run(request, caller, body, "completion", judge, make, prompts.is_list(body.prompt))

    def generate(self, request: Request, caller: Caller, version: Version, stream: bool) -> Pending:
        """Raises HeadwayError."""
        body = generate.read(request.body)
        targets = read_targets(request, caller)

        def judge(meta: LanguageMeta) -> Wanted:
            return parameters.of_generate(body, meta, targets, stream)

        def make(wanted: Wanted, language: Language, meta: LanguageMeta) -> Made:
            form = form_of(body, self._languages.forms)
            special = body.add_special_tokens is not False
            made = prompts.of_text(body.text_input, special, wanted, language, meta, "text_input")
            identity = {"model_name": version.model, "model_version": version.number_text}
            if body.id is not None:
                identity["id"] = body.id
            said = body.text_input if body.echo else ""
            scored = wanted.scores is not None
            return Made([made], Generate(identity, language.shown, bool(body.details), scored, said), form)

        job = Job(self._calls, self._languages, request, options_of(request, caller, body), judge, make)
        return self._fallbacks.submit(job.call, version, job.send)

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
        options = options_of(request, caller, body)

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


def options_of(request: Request, caller: Caller, body: Body) -> Options:
    """Raises BadRequest, Forbidden."""
    return read_options(request, caller, {} if body.priority is None else {"priority": body.priority})


def identity_of(request: Request, body: Body, kind: str) -> dict[str, Any]:
    return {
        "id": f"{kind}-{body.request_id or request.id}",
        "created": int(time.time()),
        "model": body.model,
        "system_fingerprint": FINGERPRINT,
    }


def form_asked(body: Body) -> Asked | None:
    """Quick. Raises BadRequest."""
    asked = forms.asked(body)
    of_call = choosing.form_of(body) if isinstance(body, ChatBody) else None
    if asked is not None and of_call is not None:
        raise BadRequest(f"{asked.param} and tool_choice both ask for a form; an answer has one", param="tool_choice")
    return asked or of_call


def form_of(body: Body, pool: Executor) -> tuple[str, str] | None:
    """In a thread. Raises BadRequest."""
    asked = form_asked(body)
    return None if asked is None else forms.made(asked, pool)


def tables_of(body: Body, made: Sequence[Prompt], language: Language) -> list[PromptTable]:
    most = body.prompt_logprobs
    return [] if most is None else [PromptTable(prompt.ids, language.shown, most) for prompt in made]


def said_before(body: ChatBody) -> str:
    """With `echo`, what the answer goes on from."""
    last = (body.messages or [{}])[-1]
    content = last.get("content")
    return content if body.echo and last.get("role") == "assistant" and isinstance(content, str) else ""
