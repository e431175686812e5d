"""Logging: one line per record, as text or JSON, with the request's id where there is one and no secrets."""

from __future__ import annotations

import json
import logging
import re
import sys
import time
from typing import Any, Literal, TextIO

SECRET = re.compile(
    r"(?i)(authorization|x-api-key)(['\"]?\s*[:=]\s*|['\"]?,\s*)(b?['\"])?((?:bearer|basic)\s+)?[^\s'\",;}]+"
)


KEY = re.compile(r"\bhw_([A-Za-z0-9-]{1,64})_[A-Za-z0-9_-]+")
"""A key of ours, wherever it stands; its id is no secret."""


def set_up(style: Literal["text", "json"] = "text", level: str = "info", stream: TextIO | None = None) -> None:
    """Send what `headway.*` logs to `stream` (stderr). Calling it again replaces the first."""
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter() if style == "json" else TextFormatter())
    logger = logging.getLogger("headway")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False


def without_secrets(text: str) -> str:
    """Whatever follows the name of a header that holds a credential is cut out, and so is the secret of a key."""
    return KEY.sub(r"hw_\1_[hidden]", SECRET.sub(r"\1\2[hidden]", text))


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    """request_id is what was given as `extra={"request_id": ...}`, missing otherwise; what was given as
    `extra={"fields": {...}}` are fields of their own."""
    fields: dict[str, Any] = {
        "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
        "level": record.levelname.lower(),
        "logger": record.name,
        "message": without_secrets(record.getMessage()),
    }
    request = getattr(record, "request_id", None)
    if request is not None:
        fields["request_id"] = str(request)
    for name, value in getattr(record, "fields", {}).items():
        fields[name] = without_secrets(value) if isinstance(value, str) else value
    if record.exc_info:
        fields["error"] = without_secrets(logging.Formatter().formatException(record.exc_info))
    return fields


class JsonFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        return json.dumps(fields_of(record), ensure_ascii=False)


class TextFormatter(logging.Formatter):
    """A new line in a message cannot pass for a record of its own: it is indented."""

    def format(self, record: logging.LogRecord) -> str:
        fields = fields_of(record)
        request = f" request={fields['request_id']}" if "request_id" in fields else ""
        line = f"{fields['time']} {fields['level']:<7} {fields['logger']}{request} {fields['message']}"
        return "\n    ".join([*line.splitlines(), *fields.get("error", "").splitlines()])
