"""The Open Inference Protocol's generate and generate_stream, for language models.

Fields are taken from `parameters` and from beside them, under the names that Triton's backends and the protocol have.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from headway.gateway.errors import BadRequest, HeadwayError, oip_body
from headway.gateway.json_errors import in_words
from headway.gateway.text.bodies import GenerateBody, shown, wrong
from headway.gateway.text.journal import MATCHED, Delta
from headway.gateway.text.surface import Surface, encode, event, number, text_of
from headway.llm.text.vocabulary import TokenBytes

DEFAULT_TOKENS = 20
"""Of an answer, as the protocol says, where a request does not."""
NAMES = {
    "max_new_tokens": "max_tokens",
    "stop_words": "stop",
    "stop_sequences": "stop",
    "random_seed": "seed",
    "return_log_probs": "logprobs",
    "beam_width": "n",
}
"""Of Triton's backends and others -> as they are here."""
REASONS = {"length": "length", "stop": "eos_token", MATCHED: "stop_sequence"}

_decoder = msgspec.json.Decoder(dict[str, Any])


def read(raw: bytes) -> GenerateBody:
    """Raises BadRequest."""
    try:
        told = _decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"the body must be a JSON object: {shown(in_words(error, raw), 300)}") from None
    parameters = told.pop("parameters", None) or {}
    if not isinstance(parameters, dict):
        raise BadRequest("parameters must be an object", param="parameters")
    merged = {NAMES.get(name, name): value for name, value in (*told.items(), *parameters.items())}
    if merged.get("stop") == "":
        del merged["stop"]
    if merged.get("logprobs") is False:
        del merged["logprobs"]
    if merged.get("logprobs") is True:
        merged["logprobs"] = 0
    if "exclude_input_in_output" in merged:
        merged.setdefault("echo", not merged["exclude_input_in_output"])
    merged |= {"model": "", "stream": None, "stream_options": None}
    if not isinstance(merged.get("text_input"), str):
        raise BadRequest("text_input is missing or no text", param="text_input")
    try:
        body: GenerateBody = msgspec.convert(merged, GenerateBody)
    except (msgspec.ValidationError, RecursionError) as error:
        raise wrong(error, raw, "the body is no request to generate") from None
    if body.max_tokens is None:
        body.max_tokens = DEFAULT_TOKENS
    if (body.n or 1) != 1:
        raise BadRequest(f"n is {body.n}; one answer is made here: /v1/completions makes several", param="n")
    return body


class Generate(Surface):
    """identity: model_name, model_version, and the client's id if it has one.  details: whether they are told.
    scores: of which tokens log probabilities are.  said: text before the answer."""

    def __init__(
        self,
        identity: dict[str, Any],
        vocabulary: TokenBytes,
        details: bool = False,
        scores: bool = False,
        said: str = "",
    ) -> None:
        super().__init__(vocabulary)
        self._identity = identity
        self._details = details
        self._scores = scores
        self._said = said

    def begin(self, index: int) -> bytes:
        return self._piece(self._said, None) if self._said else b""

    def more(self, index: int, delta: Delta, usage: dict[str, Any] | None) -> bytes:
        return self._piece(delta.text, self._told(delta) if self._scores else None)

    def finish(self, index: int, end: str, usage: dict[str, Any] | None) -> bytes:
        return self._piece("", {"finish_reason": REASONS[end]}) if self._details else b""

    def end(self, usage: dict[str, Any]) -> bytes:
        return b""

    def error(self, error: HeadwayError, request_id: str) -> bytes:
        return event(encode(oip_body(error, request_id)))

    def whole(self, answers: Sequence[tuple[Delta, str]], usage: dict[str, Any]) -> bytes:
        delta, end = answers[0]
        told: dict[str, Any] = {**self._identity, "text_output": self._said + delta.text}
        if self._details or self._scores:
            told["details"] = {
                "finish_reason": REASONS[end],
                "prompt_tokens": usage["prompt_tokens"],
                "generated_tokens": usage["completion_tokens"],
            }
        if self._scores:
            told["details"] |= self._told(delta)
        return encode(told)

    def _piece(self, text: str, details: dict[str, Any] | None) -> bytes:
        told = {**self._identity, "text_output": text}
        return event(encode(told if details is None else {**told, "details": details}))

    def _told(self, delta: Delta) -> dict[str, Any]:
        return {
            "logprobs": [
                {"id": score.token, "text": text_of(self._vocabulary, score.token), "logprob": number(score.logprob)}
                for score in delta.scores
            ]
        }
