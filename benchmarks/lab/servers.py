"""Real servers for a benchmark: each a process of its own on a free port, ended with the block."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

HEADWAY = (sys.executable, "-c", "from headway.cli.main import main; main()")
START_TIMEOUT_S = 120
STOP_TIMEOUT_S = 30


class Process:
    """A running command; all that it prints is kept in `said`, so that its pipe never fills."""

    def __init__(self, name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self.said: list[str] = []
        self._news = threading.Condition()
        self._process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, **(environment or {})},
        )
        threading.Thread(target=self._read, daemon=True).start()

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_for(self, pattern: str) -> str:
        """The first line that matches, printed already or still to come. RuntimeError if none comes."""
        ends = time.monotonic() + START_TIMEOUT_S
        with self._news:
            while True:
                for line in self.said:
                    if re.search(pattern, line):
                        return line
                if self._process.poll() is not None or not self._news.wait(ends - time.monotonic()):
                    raise self.failed(f"did not print {pattern!r}")

    def wait_until_answers(self, url: str, body: bytes) -> None:
        """Asks until a request is answered with 2xx. RuntimeError if none is."""
        ends = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < ends and self._process.poll() is None:
            request = urllib.request.Request(url, body, {"content-type": "application/json"})
            try:
                with urllib.request.urlopen(request, timeout=START_TIMEOUT_S):
                    return
            except OSError:
                time.sleep(0.2)
        raise self.failed(f"did not answer {url}")

    def failed(self, what: str) -> RuntimeError:
        code = self._process.poll()
        when = f"within {START_TIMEOUT_S} s" if code is None else f"and ended with code {code}"
        return RuntimeError(f"{self.name} {what} {when}; it said:\n{''.join(self.said)}")

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self.said.append(line)
                self._news.notify_all()
        with self._news:
            self._process.wait()
            self._news.notify_all()


@contextmanager
def process(name: str, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Iterator[Process]:
    running = Process(name, command, environment)
    try:
        yield running
    finally:
        running.stop()


@contextmanager
def headway(config: str, directory: Path, name: str = "headway", start: Sequence[str] = HEADWAY) -> Iterator[str]:
    """`headway serve` with this configuration: its address, once every model is ready.

    directory: where the file is put; relative paths in `config` count from it. start: what else
    takes headway's commands.
    """
    with serving(config, directory, name, start) as (address, _):
        yield address


@contextmanager
def serving(
    config: str, directory: Path, name: str = "headway", start: Sequence[str] = HEADWAY
) -> Iterator[tuple[str, Process]]:
    """The same, and its process."""
    file = directory / f"{re.sub('[^a-z0-9]+', '-', name)}.toml"
    file.write_text(config)
    with process(name, [*start, "serve", str(file), "--port", "0"]) as server:
        yield server.wait_for(r"headway is serving on ").split()[-1], server


def free_port() -> int:
    """For servers that cannot choose one themselves and say which."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
