"""The tokenizers and chat templates of language models, each loaded once, off the event loop."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

from headway.gateway.errors import BadRequest, ServerError
from headway.llm.text.tokenizer import Tokenizer, TokenizerError, load
from headway.llm.text.vocabulary import TokenBytes

if TYPE_CHECKING:
    from headway.llm.text.template import ChatTemplate

MOST_THREADS = 4
"""That make prompts; and half as many as there are cores at most. A tokenizer lets the interpreter go while it works,
and would take the cores of the models and of everybody else's tokens."""

log = logging.getLogger("headway.gateway")


class LanguageUnavailable(ServerError):
    """The model runs, and its tokenizer cannot be read here."""

    code = "tokenizer_unavailable"


class Language:
    """What text is to one model. From any thread.

    problem: why it has no chat template.  longest: bytes of its longest token.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self.hidden = tokenizer.vocabulary
        self.shown: TokenBytes = tokenizer.vocabulary.with_special()
        self.longest = max(1, *(len(self.shown.raw(token)) for token in range(tokenizer.size)))
        self.problem = ""
        self._template: ChatTemplate | None = None
        try:
            self._template = _template(tokenizer)
        except (ImportError, ValueError) as error:
            self.problem = f"its chat template cannot be used: {error}"
        if self._template is not None and not self._template:
            self._template, self.problem = None, "it has no chat template"

    @property
    def template(self) -> ChatTemplate:
        """Raises BadRequest where there is none."""
        if self._template is None:
            raise BadRequest(
                f"the model cannot be asked in messages: {self.problem}; /v1/completions takes text", param="messages"
            )
        return self._template

    @property
    def templates(self) -> Mapping[str, str]:
        """Their sources, by name."""
        return self.tokenizer.templates


def _template(tokenizer: Tokenizer) -> ChatTemplate:
    try:
        from headway.llm.text.template import ChatTemplate
    except ImportError as error:
        raise ImportError(f"{error}: install headway[llm]") from None
    return ChatTemplate(tokenizer.templates, tokenizer.names)


class Languages:
    """pool: threads that load them, and make prompts.  forms: threads that look at what forms are asked for."""

    def __init__(self) -> None:
        threads = max(1, min(MOST_THREADS, len(os.sched_getaffinity(0)) // 2))
        self.pool = ThreadPoolExecutor(threads, thread_name_prefix="headway-text")
        self.forms = ThreadPoolExecutor(threads, thread_name_prefix="headway-forms")
        self._loaded: dict[str, Future[Language]] = {}

    def want(self, source: str) -> Future[Language]:
        """Of a file or folder; it is being loaded, or was. What is done in the pool after this may wait for it."""
        found = self._loaded.get(source)
        if found is None:
            found = self._loaded[source] = self.pool.submit(_load, source)
        return found

    def close(self) -> None:
        self.pool.shutdown(wait=False, cancel_futures=True)
        self.forms.shutdown(wait=False, cancel_futures=True)


def of(future: Future[Language]) -> Language:
    """Waits. Raises LanguageUnavailable."""
    try:
        return future.result()
    except TokenizerError as error:
        raise LanguageUnavailable(str(error)) from None


def _load(source: str) -> Language:
    try:
        language = Language(load(Path(source)))
    except TokenizerError as error:
        log.error("%s", error)
        raise
    if language.problem:
        log.warning("%s: %s", source, language.problem)
    return language
