"""Log lines: what is in them, and what never is."""

from __future__ import annotations

import io
import json
import logging

import pytest

from headway.gateway.keys import new_key
from headway.telemetry.causes import cause_kind
from headway.telemetry.logs import set_up, without_secrets


@pytest.fixture
def stream():
    logger = logging.getLogger("headway")
    before = (logger.handlers[:], logger.level, logger.propagate)
    yield io.StringIO()
    logger.handlers[:], logger.level, logger.propagate = before


def test_json_lines_carry_level_logger_message_and_the_requests_id(stream):
    set_up("json", stream=stream)
    logging.getLogger("headway.gateway").warning("too slow: %d ms", 12, extra={"request_id": "r-1"})
    line = json.loads(stream.getvalue())
    assert line["message"] == "too slow: 12 ms" and line["level"] == "warning"
    assert line["logger"] == "headway.gateway" and line["request_id"] == "r-1"


def test_a_record_without_a_request_has_no_request_id(stream):
    set_up("json", stream=stream)
    logging.getLogger("headway").error("plain")
    assert "request_id" not in json.loads(stream.getvalue())


def test_an_error_is_one_json_line_with_its_traceback(stream):
    set_up("json", stream=stream)
    try:
        raise ValueError("bad")
    except ValueError:
        logging.getLogger("headway").exception("it failed")
    lines = stream.getvalue().splitlines()
    assert len(lines) == 1 and "ValueError: bad" in json.loads(lines[0])["error"]


def test_a_new_line_in_a_message_cannot_forge_a_record_of_its_own(stream):
    set_up("text", stream=stream)
    logging.getLogger("headway").info("name: %s", "x\n2024-01-01 error headway forged")
    first, second = stream.getvalue().splitlines()
    assert first.endswith("name: x") and second.startswith("    2024")


def test_setting_up_again_does_not_write_each_line_twice(stream):
    set_up(stream=stream)
    set_up(stream=stream)
    logging.getLogger("headway").info("once")
    assert stream.getvalue().count("once") == 1


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer s3cret",
        "authorization=s3cret",
        "{'X-Api-Key': 's3cret'}",
        "(b'authorization', b'Bearer s3cret')",
        '"x-api-key":"s3cret", "other": 1',
    ],
)
def test_a_credential_in_a_message_is_cut_out(text):
    assert "s3cret" not in without_secrets(text)


def test_text_without_credentials_is_left_alone():
    assert without_secrets("model m/1: ready, authorised by nobody") == "model m/1: ready, authorised by nobody"


@pytest.mark.parametrize(
    ("cause", "kind"),
    [
        ("signal SIGKILL", "signal"),
        ("exit code 3", "exit"),
        ("load failed: no such file", "load_failed"),
        ("not ready within 5 s", "start_timeout"),
        ("protocol violation: Ready out of turn", "protocol_violation"),
        ("channel closed", "channel_closed"),
        ("a sentence that nobody wrote yet", "other"),
    ],
)
def test_a_cause_of_loss_becomes_one_of_a_few_labels(cause, kind):
    assert cause_kind(cause) == kind


def test_a_key_is_cut_out_wherever_it_stands(stream):
    key = new_key("k1")
    secret = key.text.rpartition("k1_")[2]
    for style in ("json", "text"):
        set_up(style, stream=stream)
        log = logging.getLogger("headway")
        log.info("GET /%s asked", key.text, extra={"fields": {"path": f"/v2/{key.text}"}})
        try:
            raise ValueError(key.text)
        except ValueError:
            log.exception("it failed")
    assert secret not in stream.getvalue()
    assert stream.getvalue().count("hw_k1_[hidden]") == 5
