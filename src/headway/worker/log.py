"""The worker's log: one line per event, on stderr, naming the worker and what it runs."""

from __future__ import annotations

import io
import json
import logging
import os
import sys
import time
import traceback
from typing import Any

STYLE = "HEADWAY_LOG_FORMAT"
"""Environment variable: "json" has each line as an object, as the server that started the worker logs its own."""


class OneLine(logging.Formatter):
    """Whatever is logged here, by headway or by a model, becomes one line; of a traceback, its last place."""

    def __init__(self, who: str) -> None:
        super().__init__()
        self.who = who

    def format(self, record: logging.LogRecord) -> str:
        text = record.getMessage()
        if record.exc_info and record.exc_info[1] is not None:
            text = f"{text}: {describe(record.exc_info[1])}"
        at = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z"
        return self.line(at, record.levelname.lower(), text)

    def line(self, at: str, level: str, text: str) -> str:
        return f"{at} {self.who}: {level}: {text}".replace("\n", "\\n")


class Json(OneLine):
    """The same as an object: time, level, logger (who), message."""

    def line(self, at: str, level: str, text: str) -> str:
        return json.dumps({"time": at, "level": level, "logger": self.who, "message": text}, ensure_ascii=False)


class Lossy(io.FileIO):
    """What cannot be written is lost, and nobody hears of it: a full disk is no reason to fail, nor to end with another
    exit code than one's own."""

    def write(self, data: Any, /) -> int:
        try:
            written = super().write(data)
        except OSError:
            written = None
        return memoryview(data).nbytes if written is None else written


def rather_lose_than_fail() -> None:
    """From now on this process's stdout and stderr never raise, at its end neither. For one that serves, which must not
    depend on who keeps its log."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        try:
            descriptor = stream.fileno()
        except (AttributeError, OSError):
            continue  # closed, or a test's
        buffer = io.BufferedWriter(Lossy(descriptor, "w", closefd=False))
        at_once = stream.line_buffering or stream.write_through
        text = io.TextIOWrapper(buffer, stream.encoding, stream.errors, line_buffering=at_once)
        setattr(sys, name, text)


def describe(error: BaseException) -> str:
    """An exception and the line of code that it comes from."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    return f"{type(error).__name__}: {error}{where}"


def configure(who: str) -> None:
    """Called again when more is known of who this is."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(Json(who) if os.environ.get(STYLE) == "json" else OneLine(who))
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
