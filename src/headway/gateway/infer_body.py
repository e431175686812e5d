"""The infer call's JSON, as it is read: types of members only; what they mean is checked against the declaration.

Unknown members are ignored; of duplicate JSON keys the last counts.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headway.gateway.errors import BadRequest
from headway.gateway.json_errors import NO_JSON_NUMBER, in_words

INSTEAD = {NO_JSON_NUMBER: "send the input as binary data (parameters.binary_data_size)"}


class InferInput(msgspec.Struct):
    """data: its JSON text."""

    name: str
    datatype: str
    shape: list[Any]
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    parameters: dict[str, Any] | None = None


class InferOutput(msgspec.Struct):
    name: str
    parameters: dict[str, Any] | None = None


class InferBody(msgspec.Struct):
    inputs: list[InferInput]
    outputs: list[InferOutput] | None = None
    id: str | None = None
    parameters: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(InferBody)


def decode(raw: bytes | memoryview, where: str = "the body is") -> InferBody:
    """where: begins the message. Raises BadRequest."""
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"{where} not an infer request: {in_words(error, raw, INSTEAD)}") from None
