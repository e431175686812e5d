"""generate and generate_stream: the body goes to the model as it is, results come back one by one.

The body is a JSON object and means what the model makes of it. Deadline and priority are taken from headers only.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headway.core.ids import Part
from headway.gateway.calls import Call, Calls, CollectedCall, StreamCall
from headway.gateway.catalog import Version
from headway.gateway.errors import BadRequest, HeadwayError, oip_body
from headway.gateway.exchange import Pending, Request, Response
from headway.gateway.fallback import Fallbacks
from headway.gateway.json_errors import in_words
from headway.gateway.options import Options
from headway.wire.messages import PartPayload

_encode = msgspec.json.Encoder().encode
_pack = msgspec.msgpack.Encoder().encode
"""As it will travel to the worker: JSON has integers of any size and depth, that has not."""
_body_decoder = msgspec.json.Decoder(dict[str, Any])


def generate_stream(
    calls: Calls, fallbacks: Fallbacks, version: Version, request: Request, options: Options
) -> Pending:
    call = StreamCall(calls, request, _event, _error_event)
    return fallbacks.submit(call, version, lambda to: _submit(calls, call, to, _body(to, request), options))


def generate(calls: Calls, fallbacks: Fallbacks, version: Version, request: Request, options: Options) -> Pending:
    call = CollectedCall(calls, request)

    def send(to: Version) -> None:
        body = _body(to, request)
        call.finish = lambda values: Response(200, _encode(collected(to, values)))
        _submit(calls, call, to, body, options)

    return fallbacks.submit(call, version, send)


def collected(version: Version, values: list[Any]) -> dict[str, Any]:
    """Pieces of text are joined; anything else stays a list."""
    body: dict[str, Any] = {"model_name": version.model, "model_version": str(version.number)}
    if values and all(isinstance(value, dict) and isinstance(value.get("text_output"), str) for value in values):
        body["text_output"] = "".join(value["text_output"] for value in values)
    else:
        body["outputs"] = values
    return body


def _body(version: Version, request: Request) -> dict[str, Any]:
    if not version.require_ready().streaming:
        raise BadRequest(f"model {version.model!r} does not stream: POST to .../infer")
    try:
        body = _body_decoder.decode(request.body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"the body must be a JSON object: {in_words(error, request.body)}") from None
    try:
        _pack(body)
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        raise BadRequest(f"the body holds what cannot be passed on: {error}; integers must fit 64 bits") from None
    return body


def _submit(calls: Calls, call: Call, version: Version, body: dict[str, Any], options: Options) -> None:
    size = len(call.request.body)
    calls.submit(call, version.stream_key, [Part(1, 1)], [PartPayload([])], size, options, {}, body)


def _event(value: Any) -> bytes:
    return sse(_encode(value))


def _error_event(error: HeadwayError, request_id: str) -> bytes:
    return sse(_encode(oip_body(error, request_id)))


def sse(data: bytes) -> bytes:
    """One server-sent event. JSON text has no raw line feed; some readers know three more characters that end lines."""
    if b"\xe2\x80" in data:
        data = data.replace(b"\xe2\x80\xa8", b"\\u2028").replace(b"\xe2\x80\xa9", b"\\u2029")
    if b"\xc2\x85" in data:
        data = data.replace(b"\xc2\x85", b"\\u0085")
    return b"data: %b\n\n" % data
