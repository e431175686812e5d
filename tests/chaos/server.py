"""The server of chaos: its log is on a disk that can be full, its workers are told by model, what it leaves is seen."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

from headway.core.events import WorkerStarting
from headway.runtime.codec import decode_call
from tests.chaos.disk import LogDisk
from tests.e2e.server import Server

ROOT = Path(__file__).parents[2]
PLANTED = f"import sys; sys.path.insert(0, {str(ROOT)!r}); from tests.chaos.planted import run; run()"
TRACE = "trace"
CONFIG = f"""\
[server]
request_timeout_s = 60
shutdown_grace_s = 5
[workers]
backoff_s = 0.02
max_backoff_s = 0.5
[recorder]
directory = "{TRACE}"
max_file_mb = 16_000
"""


class ChaosServer(Server):
    """bug: one of `tests.chaos.planted`, which it then has."""

    def __init__(self, root: Path, bug: str = "") -> None:
        self.disk = LogDisk(root / "log")
        if bug:
            self.program = (sys.executable, "-c", PLANTED, bug)
        super().__init__("--port", "0", cwd=root, output=self.disk.fd)
        self.disk.limit(self.process.pid)
        self._roster = Roster(root / TRACE)

    def _lines(self) -> Iterator[str]:
        return self.disk.lines(lambda: self.process.poll() is not None)

    @property
    def recording(self) -> Path:
        (file,) = (self.root / TRACE).iterdir()
        return file

    def clean_up(self) -> None:
        """Whatever of it runs still, and what it has left behind."""
        if self.process.poll() is None:
            self.process.kill()
        self.ended()
        for pid in started_by(self.temporary):
            os.kill(pid, signal.SIGKILL)
        shutil.rmtree(self.temporary, ignore_errors=True)
        self.disk.close()

    def workers_of(self, model: str) -> list[int]:
        """Process ids; model: "" = any."""
        roster = self._roster.models()
        return [pid for pid in self.workers() if not model or roster.get(worker_id(pid)) == model]


class Roster:
    """Whose worker it is: what the recording says, which is written a moment later."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._position = 0
        self._models: dict[int, str] = {}

    def models(self) -> dict[int, str]:
        """Worker id -> model."""
        for file in self._folder.glob("*"):
            with file.open("rb") as lines:
                lines.seek(self._position)
                for line in lines:
                    if not line.endswith(b"\n"):
                        break
                    self._position += len(line)
                    if b'"WorkerStarting"' in line:
                        self._note(line)
        return self._models

    def _note(self, line: bytes) -> None:
        for event in decode_call(line).events:
            if isinstance(event, WorkerStarting):
                self._models[event.worker] = event.version.model


def worker_id(pid: int) -> int:
    """0 where it has just ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return int(words[words.index(b"--worker") + 1])
    except (OSError, ValueError):
        return 0


def started_by(temporary: Path) -> list[int]:
    """Processes that a server, or one of its own, has started and that still run. They are told by the folder for
    temporary files that they were given."""
    mark = f"TMPDIR={temporary}".encode()
    return [int(process.name) for process in Path("/proc").glob("[0-9]*") if _has(process / "environ", mark)]


def left_behind(temporary: Path) -> list[str]:
    """By a server that has ended: processes, files, shared memory."""
    processes = [f"process {pid}" for pid in started_by(temporary)]
    files = [str(path) for path in (*temporary.rglob("*"), *Path("/dev/shm").glob("*headway*"))]
    return [f"left behind: {what}" for what in processes + files]


def _has(environ: Path, mark: bytes) -> bool:
    try:
        return mark in environ.read_bytes().split(b"\0")
    except OSError:
        return False
