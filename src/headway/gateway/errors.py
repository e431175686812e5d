"""Errors at the edge, and the one table that turns outcomes into replies.

Every error says whose fault it is: a `ClientError` is answered by a 4xx that names what was expected
and what came, a `ServerError` by a 5xx. An exception outside this tree is a bug and becomes an
opaque 500 whose id is in the log.
"""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from headway.core.outcomes import Outcome
from headway.gateway.exchange import Response


class HeadwayError(Exception):
    """retry_after: nanoseconds until trying again may help, 0 = not known. param: the field at fault."""

    code = "internal"
    http_status = 500
    retryable = False

    def __init__(
        self,
        message: str,
        *,
        param: str | None = None,
        retry_after: int = 0,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        super().__init__(message)
        self.message = message
        self.param = param
        self.retry_after = retry_after
        self.headers = headers


class ClientError(HeadwayError):
    """The request is at fault; sending it again unchanged will not help."""

    code = "invalid_request"
    http_status = 400


class BadRequest(ClientError):
    pass


class TooLong(BadRequest):
    """A text of more tokens than the model takes."""

    code = "context_length_exceeded"


class MalformedHttp(ClientError):
    code = "malformed_http"


class NotRepresentable(ClientError):
    """The result exists, but JSON has no way to write it (NaN, infinity, bytes that are not UTF-8)."""

    code = "not_representable"


class Unauthenticated(ClientError):
    """Nobody knows whose the request is: there is no key, or a wrong one."""

    code = "unauthenticated"
    http_status = 401


class Forbidden(ClientError):
    """The request may be right, but not from there, or not from him."""

    code = "forbidden"
    http_status = 403


class NotFound(ClientError):
    code = "not_found"
    http_status = 404


class UnknownModel(NotFound):
    code = "model_not_found"


class MethodNotAllowed(ClientError):
    code = "method_not_allowed"
    http_status = 405


class RequestTimeout(ClientError):
    """The client did not finish sending its request in time."""

    code = "request_timeout"
    http_status = 408


class BodyTooLarge(ClientError):
    code = "body_too_large"
    http_status = 413


class UriTooLong(ClientError):
    code = "uri_too_long"
    http_status = 414


class UnsupportedEncoding(ClientError):
    code = "unsupported_encoding"
    http_status = 415


class ExpectationFailed(ClientError):
    code = "expectation_failed"
    http_status = 417


class KeyReused(ClientError):
    """An idempotency key that came with another request before."""

    code = "idempotency_key_reused"
    http_status = 422


class HeadersTooLarge(ClientError):
    code = "headers_too_large"
    http_status = 431


class ServerError(HeadwayError):
    """Ours to mend."""


class InternalError(ServerError):
    pass


class BadConfiguration(ServerError):
    """What the file says now cannot be; what it said before stays in force."""

    code = "config_error"


class ModelBroke(ServerError):
    """The model answered something that its own declaration rules out."""

    code = "model_error"


class NotImplementedHere(ServerError):
    code = "unsupported"
    http_status = 501


class HttpVersionUnsupported(ServerError):
    code = "http_version_unsupported"
    http_status = 505


class NotReady(ServerError):
    code = "model_not_ready"
    http_status = 503
    retryable = True


class GivenUp(NotReady):
    """It cannot be loaded and is not started again: only an operator can help."""

    code = "model_failed"
    retryable = False


class TooManyBodies(ServerError):
    """The edge's own share of being overloaded: bodies that are read and not yet the runtime's."""

    code = "overloaded"
    http_status = 503
    retryable = True


class TooManyKeys(ServerError):
    """Requests that run under idempotency keys fill all the room that there is for keys."""

    code = "overloaded"
    http_status = 503
    retryable = True


class TooManyConnections(ServerError):
    code = "too_many_connections"
    http_status = 503
    retryable = True


class OutcomeError(HeadwayError):
    """The runtime's outcome of a request, with the face that the table below gives it."""

    def __init__(self, outcome: Outcome, detail: str, retry_after: int = 0) -> None:
        face = FACES[outcome]
        super().__init__(detail or face.sentence, retry_after=retry_after)
        self.code = outcome.value
        self.http_status = face.status
        self.retryable = face.retryable


class Face(NamedTuple):
    """How an outcome looks to a client. sentence: said where the runtime gave no detail."""

    status: int
    retryable: bool
    sentence: str


FACES: dict[Outcome, Face] = {
    Outcome.COMPLETED: Face(200, False, "completed"),
    Outcome.CANCELLED: Face(499, False, "the request was cancelled"),
    Outcome.DEADLINE_EXCEEDED: Face(504, False, "the deadline passed before there was an answer"),
    Outcome.DEADLINE_UNMEETABLE: Face(503, False, "even started now, the answer would come after the deadline"),
    Outcome.RATE_LIMITED: Face(429, True, "the tenant's own limit is reached"),
    Outcome.TENANT_QUEUE_FULL: Face(429, True, "the tenant has as much waiting as it may"),
    Outcome.QUEUE_FULL: Face(503, True, "too many requests are waiting for this model version"),
    Outcome.RECLAIMED: Face(503, True, "it waited in another tenant's room, which that tenant needs now"),
    Outcome.OVERLOADED: Face(503, True, "the server is overloaded"),
    Outcome.DRAINING: Face(503, True, "the server is shutting down or the version is being withdrawn"),
    Outcome.NO_WORKER: Face(503, True, "no worker runs this model version at the moment"),
    Outcome.UNKNOWN_VERSION: Face(404, False, "no such model version"),
    Outcome.TOO_LARGE: Face(413, False, "the request is larger than this server could ever hold or run"),
    Outcome.WORKER_LOST: Face(503, True, "the worker died while it held the request"),
    Outcome.MAY_HAVE_RUN: Face(
        500, False, "it may have been run before its worker was lost, and the model declares idempotent = false"
    ),
    Outcome.POISON_REQUEST: Face(500, False, "whatever runs this request fails, and what ran without it did not"),
    Outcome.CIRCUIT_OPEN: Face(503, True, "workers of this model version keep dying; it is tried again after a while"),
    Outcome.OUT_OF_MEMORY: Face(500, False, "the request needs more memory than the model's workers have"),
    Outcome.MODEL_ERROR: Face(500, False, "the model failed"),
    Outcome.INVALID_INPUT: Face(400, False, "the model refused the input"),
}

LONGEST_MESSAGE = 600
"""Characters."""
_OPENAI_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_encode = msgspec.json.Encoder().encode


def error_response(error: HeadwayError, *, openai: bool, request_id: str) -> Response:
    """The whole reply for an error, in the shape of the surface that was asked."""
    body = openai_body(error) if openai else oip_body(error, request_id)
    return Response(error.http_status, _encode(body), headers=error.headers + _retry_headers(error))


def oip_body(error: HeadwayError, request_id: str) -> dict[str, object]:
    body: dict[str, object] = {"error": error.message, "code": error.code, "retryable": error.retryable}
    if error.retry_after:
        body["retry_after_ms"] = -(-error.retry_after // 1_000_000)
    body["request_id"] = request_id
    return body


def openai_body(error: HeadwayError) -> dict[str, object]:
    """At most about 3 KiB, whatever a client's own words in it are."""
    fallback = "invalid_request_error" if error.http_status < 500 else "server_error"
    kind = _OPENAI_TYPES.get(error.http_status, fallback)
    return {"error": {"message": _short(error.message), "type": kind, "param": error.param, "code": error.code}}


def _short(message: str) -> str:
    """JSON may write a character in six letters, or in four bytes."""
    return message if len(message) <= LONGEST_MESSAGE else message[:LONGEST_MESSAGE] + "..."


def _retry_headers(error: HeadwayError) -> tuple[tuple[bytes, bytes], ...]:
    """Clients that retry every 5xx by themselves would triple the load of a request that cannot succeed."""
    if not error.retryable:
        return ((b"x-should-retry", b"false"),) if error.http_status >= 500 else ()
    if error.retry_after:
        milliseconds = -(-error.retry_after // 1_000_000)  # openai's own clients look for it first
        return ((b"retry-after", b"%d" % -(-milliseconds // 1_000)), (b"retry-after-ms", b"%d" % milliseconds))
    return ()
