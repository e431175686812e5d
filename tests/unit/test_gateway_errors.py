from __future__ import annotations

import json

import pytest

from headway.core.outcomes import Kind, Outcome
from headway.gateway import errors
from headway.gateway.errors import FACES, HeadwayError, NotReady, OutcomeError, error_response


def every_error(kind: type[HeadwayError] = HeadwayError) -> list[type[HeadwayError]]:
    return [kind, *(below for child in kind.__subclasses__() for below in every_error(child))]


@pytest.mark.parametrize("outcome", Outcome)
def test_every_outcome_has_a_face(outcome: Outcome) -> None:
    face = FACES[outcome]
    assert (face.status == 200) == (outcome is Outcome.COMPLETED)
    if outcome.kind is Kind.REFUSED:
        assert face.status in (404, 413, 429, 503)
    if face.retryable:
        assert face.status in (429, 503)


@pytest.mark.parametrize("kind", [kind for kind in every_error() if kind is not OutcomeError])
def test_every_error_says_whose_fault_it_is(kind: type[HeadwayError]) -> None:
    if issubclass(kind, errors.ClientError):
        assert 400 <= kind.http_status < 500 and not kind.retryable
    else:
        assert kind.http_status >= 500
    assert kind.code == kind.code.lower() and " " not in kind.code


def test_an_error_of_the_inference_protocol_carries_code_and_retry_beside_the_sentence() -> None:
    response = error_response(NotReady("loading", retry_after=1_500_000_001), openai=False, request_id="r")
    assert response.status == 503
    assert json.loads(response.body) == {
        "error": "loading",
        "code": "model_not_ready",
        "retryable": True,
        "retry_after_ms": 1501,
        "request_id": "r",
    }
    assert response.headers == ((b"retry-after", b"2"), (b"retry-after-ms", b"1501"))


def test_an_outcome_without_detail_still_says_something() -> None:
    for outcome in Outcome:
        assert OutcomeError(outcome, "").message


def test_what_will_not_help_to_repeat_is_marked_so_for_clients_that_repeat_every_5xx() -> None:
    unmeetable = error_response(OutcomeError(Outcome.DEADLINE_UNMEETABLE, "", 9), openai=True, request_id="r")
    assert unmeetable.headers == ((b"x-should-retry", b"false"),)
    full = error_response(OutcomeError(Outcome.QUEUE_FULL, ""), openai=True, request_id="r")
    assert full.headers == ()
