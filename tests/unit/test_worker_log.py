"""The worker's log is of one style with its server's, one line per record."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from headway.worker.errors import raised
from headway.worker.log import STYLE, Json, OneLine, configure

RECORD = logging.LogRecord("headway.worker", logging.WARNING, "", 0, "two\nlines", (), None)


def test_as_text_it_has_time_and_name_and_is_one_line() -> None:
    line = OneLine("worker 3 m/1").format(RECORD)
    assert line[10] == "T" and line.endswith("Z worker 3 m/1: warning: two\\nlines")


def test_as_json_it_is_an_object() -> None:
    told = json.loads(Json("worker 3 m/1").format(RECORD))
    assert (told["level"], told["logger"], told["message"]) == ("warning", "worker 3 m/1", "two\nlines")


@pytest.mark.parametrize(("said", "kind"), [("json", Json), ("text", OneLine), ("", OneLine)])
def test_the_server_says_which(monkeypatch: pytest.MonkeyPatch, said: str, kind: type) -> None:
    root = logging.getLogger()
    before = root.handlers[:], root.level
    monkeypatch.setenv(STYLE, said)
    try:
        configure("worker 3")
        assert type(root.handlers[0].formatter) is kind
    finally:
        root.handlers[:], root.level = before


def test_of_an_exception_with_a_traceback_of_its_own_clients_hear_the_end_alone() -> None:
    error = RuntimeError('The operation failed.\nTraceback:\n  File "/srv/m.py", line 7\nRuntimeError: 7 and 4')
    assert raised("m/1", error) == "model m version 1: RuntimeError: RuntimeError: 7 and 4"


LEAVES = """
import sys
from headway.worker.log import rather_lose_than_fail
rather_lose_than_fail()
for stream in (sys.stdout, sys.stderr):
    print("a line", file=stream)
    print("x" * 100_000, file=stream, flush=True)
sys.exit(86)
"""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full, a disk that is always full")
def test_on_a_full_disk_a_process_goes_on_and_ends_with_its_own_exit_code() -> None:
    with open("/dev/full", "w") as full:
        assert subprocess.run([sys.executable, "-c", LEAVES], stdout=full, stderr=full).returncode == 86


def test_what_can_be_written_is_written() -> None:
    done = subprocess.run([sys.executable, "-c", LEAVES], capture_output=True, text=True)
    assert done.stdout == done.stderr == "a line\n" + "x" * 100_000 + "\n"
