"""Records every call of the core to bounded, rotating files, each beginning with a snapshot.

The loop encodes, which takes microseconds; a thread writes. (A thread that encoded would hold the
interpreter for milliseconds at a time.) Recording is never a reason to stop serving: when the disk
fails it switches itself off, and when the disk is too slow it leaves a gap and goes on with a new
file and a new snapshot.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from headway import __version__
from headway.config.settings import Recorder as RecorderSettings
from headway.core.effects import Effect
from headway.core.events import Event
from headway.core.units import Instant
from headway.runtime.codec import FORMAT, Header, Snapshot, encode, encode_call, encode_raised

log = logging.getLogger("headway.recorder")

MAX_PENDING = 20_000
"""Lines that may wait for the writer."""

GATHER_S = 0.1
"""How long the writer waits for more after the first call of an idle time."""

PATTERN = "trace-*.jsonl"

TakeSnapshot: TypeAlias = Callable[[], dict[str, Any]]
_Item: TypeAlias = Snapshot | bytes
"""A snapshot begins a new file; everything else is a line."""


class Recorder:
    """recording: False when off, by settings or after a failure.  dropped: calls left out because the
    writer was behind.  failures: how often recording was given up (0 or 1)."""

    def __init__(self, settings: RecorderSettings) -> None:
        self.recording = False
        self.dropped = 0
        self.failures = 0
        self._settings = settings
        self._pending: deque[_Item] = deque()
        self._gap = False
        self._rotating = 0
        self._work = threading.Event()
        self._closing = threading.Event()
        self._files = _Files(settings)
        self._thread: threading.Thread | None = None

    def start(self, snapshot: dict[str, Any]) -> None:
        """snapshot: the core before its first call. Does nothing where no directory is set."""
        if not self._settings.directory:
            return
        self.recording = True
        self._pending.append(Snapshot(snapshot))
        self._thread = threading.Thread(target=self._write_all, name="headway-recorder", daemon=True)
        self._thread.start()

    def record(self, now: Instant, events: Sequence[Event], effects: Sequence[Effect], snapshot: TakeSnapshot) -> None:
        """Called after each call of the core. snapshot: of the core as it is now, taken when a new file begins."""
        if not self.recording:
            return
        if len(self._pending) >= MAX_PENDING:
            self._drop()
            return
        if self._gap:
            self._gap = False
            self.dropped += 1  # this call too: the snapshot comes after it
            self._append(Snapshot(snapshot()))
            return
        self._append(encode_call(now, events, effects))
        if self._files.full and self._rotating != self._files.number:
            self._rotating = self._files.number
            self._append(Snapshot(snapshot()))

    def raised(self, now: Instant, events: Sequence[Event], error: BaseException) -> None:
        """The core broke on this call: the recording ends with it, written out at once."""
        if self.recording:
            self._append(encode_raised(now, events, error))
        self.close()

    def close(self) -> None:
        """Writes what is pending; returns when it is on its way to the disk."""
        self.recording = False
        if self._thread is not None:
            self._closing.set()
            self._work.set()
            self._thread.join()
            self._thread = None

    def _append(self, item: _Item) -> None:
        self._pending.append(item)
        if not self._work.is_set():
            self._work.set()

    def _drop(self) -> None:
        if not self._gap:
            log.warning("recording is behind by %d calls: a gap follows", len(self._pending))
        self._gap = True
        self.dropped += 1

    # -- the writer's thread -------------------------------------------------------------------

    def _write_all(self) -> None:
        try:
            while not self._closing.is_set():
                self._work.wait()
                self._closing.wait(GATHER_S)
                self._work.clear()
                self._write_pending()
            self._write_pending()
            self._files.close()
        except OSError as error:
            self._switch_off(error)
            self._files.abandon()

    def _write_pending(self) -> None:
        while self._pending:
            item = self._pending.popleft()
            if isinstance(item, Snapshot):
                self._files.begin(item)
            else:
                self._files.write(item)
        self._files.flush()

    def _switch_off(self, error: OSError) -> None:
        self.recording = False
        self.failures += 1
        self._pending.clear()
        log.error("recording is off: %s", error)


class _Files:
    """The files of one recording. number: of the current one.  full: it is as large as it may get."""

    def __init__(self, settings: RecorderSettings) -> None:
        self.full = False
        self._directory = Path(settings.directory)
        self._max_bytes = int(settings.max_file_mb * (1 << 20))
        self._max_files = settings.max_files
        self._started = time.strftime("%Y%m%dT%H%M%S")
        self.number = 0
        self._file: BinaryIO | None = None
        self._size = 0

    def begin(self, snapshot: Snapshot) -> None:
        self.close()
        self._directory.mkdir(parents=True, exist_ok=True)
        number = self.number + 1
        path = self._directory / f"trace-{self._started}-{os.getpid()}-{number:06}.jsonl"
        self._file = self._open(path)
        self._size = 0
        self.write(encode(Header(FORMAT, __version__)))
        self.write(encode(snapshot))
        self.full = False
        self.number = number  # last: the loop must never see the new number beside the old file's fullness
        for old in sorted(self._directory.glob(PATTERN))[: -self._max_files]:
            old.unlink(missing_ok=True)

    def _open(self, path: Path) -> BinaryIO:
        return path.open("wb")

    def write(self, line: bytes) -> None:
        if self._file is None:
            raise OSError("no recording file is open")
        self._file.write(line + b"\n")
        self._size += len(line) + 1
        if self._size >= self._max_bytes:
            self.full = True

    def flush(self) -> None:
        if self._file is not None:
            self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None

    def abandon(self) -> None:
        """Close after a failure, of which closing would only be told again."""
        with contextlib.suppress(OSError):
            self.close()
