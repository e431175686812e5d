"""What a kind of reply looks like. Nothing here knows of sockets, threads or time."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

import msgspec

from headway.gateway.errors import HeadwayError
from headway.gateway.stream import sse
from headway.gateway.text.journal import MATCHED, Delta
from headway.llm.text.vocabulary import TokenBytes
from headway.wire.generation import PromptScores

LEAST_LOGPROB = -9999.0
"""Told for what has no probability at all, as JSON has no infinity."""
DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
encode = msgspec.json.Encoder().encode


class PromptTable:
    """What the tokens of a prompt were found to be worth, as they become known (`prompt_logprobs`). most: tokens told
    of each position beside its own."""

    def __init__(self, ids: Sequence[int], vocabulary: TokenBytes, most: int) -> None:
        self.rows: list[dict[str, Any] | None] = [None]
        """The first has nothing: nothing was before it."""
        self._ids = ids
        self._vocabulary = vocabulary
        self._most = most

    def add(self, scores: PromptScores) -> None:
        for logprob, top in scores.scores[: len(self._ids) - len(self.rows)]:
            own = self._ids[len(self.rows)]
            self.rows.append(
                {str(token): self._told(token, value) for token, value in (*top[: self._most], (own, logprob))}
            )

    def _told(self, token: int, logprob: float) -> dict[str, Any]:
        return {"logprob": number(logprob), "decoded_token": text_of(self._vocabulary, token)}


class Surface(ABC):
    """Of one reply: what is told of its answers, streamed or whole. Answers are known by their index in the reply.

    tables: of each prompt, where they were asked for.
    """

    def __init__(self, vocabulary: TokenBytes, tables: Sequence[PromptTable] = ()) -> None:
        self._vocabulary = vocabulary
        self._tables = tables

    @abstractmethod
    def begin(self, index: int) -> bytes:
        """An answer has begun."""

    @abstractmethod
    def more(self, index: int, delta: Delta, usage: dict[str, Any] | None) -> bytes:
        """An answer goes on. usage: so far, None where it was not asked for."""

    @abstractmethod
    def finish(self, index: int, end: str, usage: dict[str, Any] | None) -> bytes:
        """An answer is at its end, as `Journal` has it, once."""

    @abstractmethod
    def end(self, usage: dict[str, Any]) -> bytes:
        """All answers are."""

    @abstractmethod
    def error(self, error: HeadwayError, request_id: str) -> bytes:
        """It ends with an error, after the reply has begun."""

    @abstractmethod
    def whole(self, answers: Sequence[tuple[Delta, str]], usage: dict[str, Any]) -> bytes:
        """All answers, with their ends, at once."""

    def scored(self, place: int, scores: PromptScores) -> None:
        """Log probabilities of a prompt; place: which of them."""
        if self._tables:
            self._tables[place].add(scores)


def reason(end: str) -> str:
    """Why an answer ended, in OpenAI's words."""
    return "stop" if end == MATCHED else end


def number(logprob: float) -> float:
    return max(logprob, LEAST_LOGPROB)


def text_of(vocabulary: TokenBytes, token: int) -> str:
    """Of a token by itself; U+FFFD for what is no whole character."""
    return vocabulary.raw(token).decode("utf-8", "replace")


def event(data: bytes) -> bytes:
    return sse(data)
