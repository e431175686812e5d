"""The replies of /v1/chat/completions, and the chunks of its streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headway.gateway.errors import HeadwayError, openai_body
from headway.gateway.text.journal import Delta, Score
from headway.gateway.text.surface import DONE, PromptTable, Surface, encode, event, number, reason, text_of
from headway.gateway.text.tools import Call, ToolParser
from headway.llm.text.vocabulary import TokenBytes

NO_TOOLS: Callable[[], ToolParser | None] = lambda: None  # noqa: E731


class Chat(Surface):
    """identity: id, created, model, system_fingerprint.  scores: whether log probabilities are told.
    usage: whether chunks have the field.  said: what an answer begins with (`echo`).
    parser: of an answer, finds the calls of tools in it; None = it is all text."""

    def __init__(
        self,
        identity: dict[str, Any],
        vocabulary: TokenBytes,
        scores: bool = False,
        usage: bool = False,
        said: str = "",
        parser: Callable[[], ToolParser | None] = NO_TOOLS,
        tables: Sequence[PromptTable] = (),
    ) -> None:
        super().__init__(vocabulary, tables)
        self._identity = identity
        self._scores = scores
        self._usage = usage
        self._said = said
        self._new_parser = parser
        self._parsers: dict[int, ToolParser | None] = {}
        head = {name: value for name, value in identity.items() if name != "id"}
        told = {"id": identity["id"], "object": "chat.completion.chunk", **head}
        self._head = encode(told)[:-1] + b',"choices":['

    def begin(self, index: int) -> bytes:
        return self._chunk(index, {"role": "assistant", "content": self._said}, None, None)

    def more(self, index: int, delta: Delta, usage: dict[str, Any] | None) -> bytes:
        parser = self._parser(index)
        told = self._logprobs(delta.scores) if self._scores and delta.scores else None
        if parser is None:
            return self._chunk(index, {"content": delta.text}, told, None, usage)
        text, calls = parser.feed(delta.text)
        return self._parsed(index, text, calls, told, usage)

    def finish(self, index: int, end: str, usage: dict[str, Any] | None) -> bytes:
        parser = self._parser(index)
        before = b""
        if parser is not None:
            text, calls = parser.finish()
            before = self._parsed(index, text, calls, None, usage)
            end = parser.reason(reason(end))
        return before + self._chunk(index, {}, None, reason(end), usage)

    def end(self, usage: dict[str, Any]) -> bytes:
        if not self._usage:
            return DONE
        return event(self._head + b'],"usage":%b}' % encode(usage)) + DONE

    def error(self, error: HeadwayError, request_id: str) -> bytes:
        return event(encode(openai_body(error))) + DONE

    def whole(self, answers: Sequence[tuple[Delta, str]], usage: dict[str, Any]) -> bytes:
        choices = [self._choice(index, delta, end) for index, (delta, end) in enumerate(answers)]
        head = {name: value for name, value in self._identity.items() if name != "id"}
        told = {"id": self._identity["id"], "object": "chat.completion", **head, "choices": choices, "usage": usage}
        return encode({**told, "prompt_logprobs": self._tables[0].rows} if self._tables else told)

    def _choice(self, index: int, delta: Delta, end: str) -> dict[str, Any]:
        text, calls, end = delta.text, list[Call](), reason(end)
        parser = self._parser(index)
        if parser is not None:
            text, calls = parser.feed(delta.text)
            rest, more = parser.finish()
            text, calls, end = text + rest, calls + more, parser.reason(end)
        text = self._said + text
        message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
        if calls:
            message["content"] = text or None
            message["tool_calls"] = joined(calls)
        return {
            "index": index,
            "message": message,
            "logprobs": self._logprobs(delta.scores) if self._scores else None,
            "finish_reason": end,
        }

    def _parser(self, index: int) -> ToolParser | None:
        if index not in self._parsers:
            self._parsers[index] = self._new_parser()
        return self._parsers[index]

    def _parsed(
        self, index: int, text: str, calls: Sequence[Call], told: dict[str, Any] | None, usage: dict[str, Any] | None
    ) -> bytes:
        out = self._chunk(index, {"content": text}, told, None, usage) if text or told is not None else b""
        if calls:
            out += self._chunk(index, {"tool_calls": [call.as_delta() for call in calls]}, None, None, usage)
        return out

    def _chunk(
        self,
        index: int,
        delta: dict[str, Any],
        logprobs: dict[str, Any] | None,
        end: str | None,
        usage: dict[str, Any] | None = None,
    ) -> bytes:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": end}
        tail = b"]}" if not self._usage else b'],"usage":%b}' % encode(usage)
        return event(self._head + encode(choice) + tail)

    def _logprobs(self, scores: Sequence[Score]) -> dict[str, Any]:
        return {"content": [self._scored(score) for score in scores], "refusal": None}

    def _scored(self, score: Score) -> dict[str, Any]:
        top = [self._token(token, logprob) for token, logprob in score.top]
        return {**self._token(score.token, score.logprob), "top_logprobs": top}

    def _token(self, token: int, logprob: float) -> dict[str, Any]:
        raw = self._vocabulary.raw(token)
        return {"token": text_of(self._vocabulary, token), "logprob": number(logprob), "bytes": list(raw)}


def joined(calls: Sequence[Call]) -> list[dict[str, Any]]:
    """Calls as a whole reply has them: the pieces of each put together."""
    whole: dict[int, dict[str, Any]] = {}
    for call in calls:
        if call.place not in whole:
            whole[call.place] = {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
        else:
            whole[call.place]["function"]["arguments"] += call.arguments
    return list(whole.values())
