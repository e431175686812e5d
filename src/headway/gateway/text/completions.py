"""The replies of /v1/completions, and the chunks of its streams."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headway.gateway.errors import HeadwayError, openai_body
from headway.gateway.text.journal import Delta, Score
from headway.gateway.text.surface import DONE, PromptTable, Surface, encode, event, number, reason, text_of
from headway.llm.text.detokenize import Detokenizer
from headway.llm.text.vocabulary import TokenBytes
from headway.wire.generation import PromptScores


class Told:
    """A prompt that is told before its answers: its text, and its tokens with what is known of them so far."""

    def __init__(self, ids: Sequence[int], text: str | None, vocabulary: TokenBytes, most: int = 0) -> None:
        """text: None = as the tokens say, without a character that only an answer could complete.  most: tokens told of
        each position. Takes time by the prompt's length."""
        stream, pieces = Detokenizer(vocabulary), []
        self.offsets = []
        for token in ids:
            self.offsets.append(stream.emitted)
            pieces.append(stream.feed(token))
        self.text = "".join(pieces) if text is None else text
        self.tokens = [text_of(vocabulary, token) for token in ids]
        self.logprobs: list[float | None] = [None]
        """The first has none: nothing was before it."""
        self.tops: list[dict[str, float] | None] = [None]
        self._ids = ids
        self._vocabulary = vocabulary
        self._most = most

    def add(self, scores: PromptScores) -> None:
        for logprob, top in scores.scores:
            if len(self.logprobs) >= len(self._ids):
                return
            token = self._ids[len(self.logprobs)]
            self.logprobs.append(number(logprob))
            self.tops.append(top_of(self._vocabulary, token, logprob, top[: self._most]))

    def as_json(self) -> dict[str, list[Any]]:
        return {
            "tokens": self.tokens,
            "token_logprobs": self.logprobs,
            "top_logprobs": self.tops,
            "text_offset": self.offsets,
        }


class Completions(Surface):
    """identity: as of Chat.  choices: answers to each prompt.  scores, usage: as of Chat.
    prompts: that are told before their answers; () = they are not."""

    def __init__(
        self,
        identity: dict[str, Any],
        vocabulary: TokenBytes,
        choices: int = 1,
        scores: bool = False,
        usage: bool = False,
        prompts: Sequence[Told] = (),
        tables: Sequence[PromptTable] = (),
    ) -> None:
        super().__init__(vocabulary, tables)
        self._choices = choices
        self._scores = scores
        self._usage = usage
        self._prompts = prompts
        head = {name: value for name, value in identity.items() if name != "id"}
        self._object = {"id": identity["id"], "object": "text_completion", **head}
        self._head = encode(self._object)[:-1] + b',"choices":['

    def scored(self, place: int, scores: PromptScores) -> None:
        super().scored(place, scores)
        if self._prompts:
            self._prompts[place].add(scores)

    def begin(self, index: int) -> bytes:
        if not self._prompts:
            return b""
        prompt = self._prompts[index // self._choices]
        return self._chunk(index, prompt.text, prompt.as_json() if self._scores else None, None)

    def more(self, index: int, delta: Delta, usage: dict[str, Any] | None) -> bytes:
        logprobs = self._logprobs(delta.scores, self._offset(index)) if self._scores and delta.scores else None
        return self._chunk(index, delta.text, logprobs, None, usage)

    def finish(self, index: int, end: str, usage: dict[str, Any] | None) -> bytes:
        return self._chunk(index, "", None, reason(end), usage)

    def end(self, usage: dict[str, Any]) -> bytes:
        if not self._usage:
            return DONE
        return event(self._head + b'],"usage":%b}' % encode(usage)) + DONE

    def error(self, error: HeadwayError, request_id: str) -> bytes:
        return event(encode(openai_body(error))) + DONE

    def whole(self, answers: Sequence[tuple[Delta, str]], usage: dict[str, Any]) -> bytes:
        choices = [self._choice(index, delta, end) for index, (delta, end) in enumerate(answers)]
        return encode({**self._object, "choices": choices, "usage": usage})

    def _choice(self, index: int, delta: Delta, end: str) -> dict[str, Any]:
        text, logprobs = delta.text, None
        if self._scores:
            logprobs = self._logprobs(delta.scores, self._offset(index))
        if self._prompts:
            prompt = self._prompts[index // self._choices]
            text = prompt.text + text
            if logprobs is not None:
                before = prompt.as_json()
                logprobs = {name: before[name] + logprobs[name] for name in before}
        choice = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": reason(end)}
        if self._tables:
            choice["prompt_logprobs"] = self._tables[index // self._choices].rows
        return choice

    def _offset(self, index: int) -> int:
        """Where an answer's text begins."""
        return len(self._prompts[index // self._choices].text) if self._prompts else 0

    def _chunk(
        self,
        index: int,
        text: str,
        logprobs: dict[str, list[Any]] | None,
        end: str | None,
        usage: dict[str, Any] | None = None,
    ) -> bytes:
        choice = {"text": text, "index": index, "logprobs": logprobs, "finish_reason": end}
        tail = b"]}" if not self._usage else b'],"usage":%b}' % encode(usage)
        return event(self._head + encode(choice) + tail)

    def _logprobs(self, scores: Sequence[Score], offset: int) -> dict[str, list[Any]]:
        return {
            "tokens": [text_of(self._vocabulary, score.token) for score in scores],
            "token_logprobs": [number(score.logprob) for score in scores],
            "top_logprobs": [top_of(self._vocabulary, score.token, score.logprob, score.top) for score in scores],
            "text_offset": [offset + score.offset for score in scores],
        }


def top_of(vocabulary: TokenBytes, token: int, logprob: float, top: Sequence[tuple[int, float]]) -> dict[str, float]:
    """The token itself is always among them."""
    found = {text_of(vocabulary, other): number(value) for other, value in top}
    found.setdefault(text_of(vocabulary, token), number(logprob))
    return found
