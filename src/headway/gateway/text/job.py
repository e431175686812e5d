"""A request to a language model from its arrival to its submission: its prompts are made in a thread.

The form that answers are to have is looked at there too, with a time of its own: what takes longer is refused.
"""

from __future__ import annotations

import asyncio
import logging
from asyncio import AbstractEventLoop
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeAlias

from headway.gateway.calls import Calls, SharedCall
from headway.gateway.catalog import Version
from headway.gateway.errors import BadRequest, HeadwayError, InternalError
from headway.gateway.exchange import Request
from headway.gateway.options import Options
from headway.gateway.text import languages
from headway.gateway.text.answer import Answer
from headway.gateway.text.languages import Language, Languages
from headway.gateway.text.parameters import Wanted
from headway.gateway.text.prompts import Prompt
from headway.gateway.text.surface import Surface
from headway.wire.generation import LanguageMeta

log = logging.getLogger("headway.gateway")


@dataclass(frozen=True, slots=True)
class Made:
    """What a thread makes of a request. form: see `Generation`."""

    prompts: list[Prompt]
    surface: Surface
    form: tuple[str, str] | None = None


Judge: TypeAlias = Callable[[LanguageMeta], Wanted]
"""On the event loop, quickly. Raises HeadwayError."""
Make: TypeAlias = Callable[[Wanted, Language, LanguageMeta], Made]
"""In a thread. Raises HeadwayError."""


class Job:
    """One request, for the model that was asked or its fallback."""

    def __init__(
        self, calls: Calls, languages: Languages, request: Request, options: Options, judge: Judge, make: Make
    ) -> None:
        self._calls = calls
        self._languages = languages
        self._options = options
        self._judge = judge
        self._make = make
        self._abandoned = False
        self._answer: Answer | None = None
        self.call = SharedCall(calls, request, 0)

    def send(self, version: Version) -> None:
        """Raises HeadwayError where it does not fit."""
        meta = language_of(version)
        wanted = self._judge(meta)
        if self._answer is not None:
            self._answer.abandon()
            self._answer = None
        self.call.listener = None
        self.call.request.on_disconnect = self._abandon
        language = self._languages.want(meta.source)
        loop = asyncio.get_running_loop()
        self._languages.pool.submit(self._work, version, wanted, language, meta, loop)

    def _abandon(self) -> None:
        """The client went away while its prompt was being made."""
        self._abandoned = True
        self.call.again = None

    def _work(
        self, version: Version, wanted: Wanted, loaded: Future[Language], meta: LanguageMeta, loop: AbstractEventLoop
    ) -> None:
        """In a thread; its result goes back to the loop."""
        if self._abandoned:
            return
        result: Answer | HeadwayError
        try:
            language = languages.of(loaded)
            made = self._make(wanted, language, meta)
            request = self.call.request
            result = Answer(self._calls, request, made.surface, wanted, made.prompts, language, made.form)
        except HeadwayError as error:
            result = error
        except Exception:
            log.exception("request %s: its prompt could not be made", self.call.request.id)
            result = InternalError(f"internal error, logged under {self.call.request.id}")
        loop.call_soon_threadsafe(self._made, version, result)

    def _made(self, version: Version, result: Answer | HeadwayError) -> None:
        """Back in the loop."""
        if self._abandoned:
            return
        call = self.call
        try:
            if isinstance(result, HeadwayError):
                raise result
            self._answer = result
            result.submit(call, version, self._options)
        except HeadwayError as error:
            call.fail(call.stand_by(error))
        except Exception:
            log.exception("request %s: submission failed", call.request.id)
            call.fail(InternalError(f"internal error, logged under {call.request.id}"))


def language_of(version: Version) -> LanguageMeta:
    """Raises BadRequest for what is no language model, NotReady."""
    meta = version.require_ready()
    if meta.language is None:
        if version.settings.embeddings is not None:
            use = "makes embeddings: POST /v1/embeddings"
        else:
            use = f"takes tensors: POST /v2/models/{version.model}/infer"
        raise BadRequest(f"model {version.model!r} is no language model; it {use}", param="model")
    return meta.language
