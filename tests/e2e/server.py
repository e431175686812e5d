"""`headway serve` as a real process, and what a test must know of it: address, workers, what it leaves behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.e2e.client import ANSWERED

HEADWAY = Path(sys.executable).with_name("headway")
PATIENCE_S = 100


class Server:
    """`headway serve` with these arguments. Its output, log and all, is in `printed`; `address` once it listens.

    output: an open file that it is written to instead; then a subclass has to say where its `_lines` come from.
    """

    program: tuple[str, ...] = (str(HEADWAY),)

    def __init__(self, *arguments: str | Path, cwd: Path | None = None, output: int = subprocess.PIPE) -> None:
        self.root = cwd or Path()
        self.address = ""
        self.printed: list[str] = []
        # The workers' socket is in the folder for temporary files. A name for a socket must be short.
        self.temporary = Path(tempfile.mkdtemp(prefix="e2e-"))
        self.process = subprocess.Popen(
            [*self.program, "serve", *map(str, arguments)],
            cwd=cwd,
            stdout=output,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "TMPDIR": str(self.temporary), "HEADWAY_COMPILED": "1"},
        )
        self._last_workers: list[int] = []
        self._news = threading.Condition()
        self._ended = False
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _lines(self) -> Iterator[str]:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            yield from lines

    def _read(self) -> None:
        for line in self._lines():
            with self._news:
                self.printed.append(line.rstrip("\n"))
                self._news.notify_all()
        with self._news:
            self._ended = True
            self._news.notify_all()

    def wait_for(self, text: str) -> str:
        """The first line that has it, printed already or still to come."""
        ends = time.monotonic() + PATIENCE_S
        with self._news:
            while True:
                for line in self.printed:
                    if text in line:
                        return line
                if self._ended or not self._news.wait(ends - time.monotonic()):
                    raise AssertionError(f"the server has not printed {text!r} but:\n" + "\n".join(self.printed))

    def until_listening(self) -> Server:
        self.address = self.wait_for("listening on ").split()[2].rstrip(",")
        ANSWERED.pop(self.address, None)  # the address may have been another server's
        return self

    def until_serving(self) -> Server:
        listening = self.until_listening().address if not self.address else self.address
        self.address = self.wait_for("headway is serving on ").split()[-1]
        assert self.address == listening
        return self

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Status, and the body as JSON (text where it is something else). Blocks."""
        connection = HTTPConnection(urlsplit(self.address).netloc, timeout=PATIENCE_S)
        try:
            connection.request(method, path, None if body is None else json.dumps(body))
            response = connection.getresponse()
            raw = response.read().decode()
            return response.status, json.loads(raw) if raw.startswith(("{", "[")) else raw
        finally:
            connection.close()

    def infer(self, model: str, name: str, datatype: str, data: list[Any], shape: list[int]) -> tuple[int, Any]:
        tensor = {"name": name, "datatype": datatype, "shape": shape, "data": data}
        return self.request("POST", f"/v2/models/{model}/infer", {"inputs": [tensor]})

    def workers(self) -> list[int]:
        """Process ids of its workers, in the order in which they were started."""
        found = []
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                parent = int(stat.read_text().rpartition(")")[2].split()[1])
                command = (stat.parent / "cmdline").read_bytes()
            except OSError:
                continue  # it ended while we were looking
            if parent == self.process.pid and b"headway.worker\0" in command:
                found.append(int(stat.parent.name))
        return sorted(found)

    def terminate(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._last_workers = self.workers()
        self.process.send_signal(number)

    def ended(self) -> int:
        """Waits for its end, and for the last line of its output; the exit code."""
        code = self.process.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return code

    def assert_ends_well(self) -> None:
        """Once told to end: exit code 0, no worker left over, no socket left over."""
        code = self.ended()
        assert code == 0, f"exit code {code}:\n" + "\n".join(self.printed)
        left = [pid for pid in self._last_workers if is_running(pid)]
        assert left == [], f"workers {left} outlive their server"
        sockets = [str(path) for path in self.temporary.rglob("*")]
        assert sockets == []

    def stop(self) -> None:
        self.terminate()
        self.assert_ends_well()


@contextmanager
def running(root: Path, config: str = "") -> Iterator[Server]:
    """A server that serves root/models; at the end it is told to stop and must end well, if it still runs."""
    if config:
        (root / "headway.toml").write_text(config)
    file = root / "headway.toml"
    which = [file] if file.exists() else ["--models", root / "models"]
    with served(*which, "--port", "0", cwd=root) as server:
        yield server.until_serving()
        if server.process.poll() is None:
            server.stop()


@contextmanager
def served(*arguments: str | Path, cwd: Path | None = None) -> Iterator[Server]:
    """`headway serve` with these arguments; killed at the end if it still runs."""
    server = Server(*arguments, cwd=cwd)
    try:
        yield server
    finally:
        if server.process.poll() is None:
            server.process.kill()
        server.ended()
        shutil.rmtree(server.temporary, ignore_errors=True)


def put(root: Path, name: str, text: str) -> Path:
    file = root / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return file


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False
