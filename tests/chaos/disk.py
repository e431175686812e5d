"""A disk for a log, that is full when one says so. It needs no privilege and no mount."""

from __future__ import annotations

import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

SIZE = 1 << 35
"""Bytes: no file of its writers may grow beyond; more than they ever record."""
POLL_S = 0.02


class LogDisk:
    """A file that has no room left when one says so: it is stretched (no block of it is taken) to the most that its
    writers may write to. To them it is a write that fails, EFBIG where a full disk says ENOSPC."""

    def __init__(self, file: Path) -> None:
        self.fd = os.open(file, os.O_RDWR | os.O_CREAT | os.O_APPEND)
        self._lock = threading.Lock()
        self._full = False
        self._read = 0
        self._rest = b""

    def limit(self, pid: int) -> None:
        """A process and those that it starts from now on."""
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (SIZE, SIZE))

    def fill(self) -> None:
        with self._lock:
            if not self._full:
                self._rest += self._new()
                os.ftruncate(self.fd, SIZE)
                self._full = True

    def free(self) -> None:
        with self._lock:
            if self._full:
                assert os.fstat(self.fd).st_size == SIZE, "a full disk took more"
                os.ftruncate(self.fd, 0)
                self._full, self._read = False, 0

    def close(self) -> None:
        os.close(self.fd)

    def lines(self, ended: Callable[[], bool]) -> Iterator[str]:
        """As they are written, until their writer has ended."""
        held = b""
        while True:
            last = ended()
            with self._lock:
                held += self._rest + (b"" if self._full else self._new())
                self._rest = b""
            *whole, held = held.split(b"\n")
            yield from (line.decode("utf-8", "replace") for line in whole)
            if last:
                return
            time.sleep(POLL_S)

    def _new(self) -> bytes:
        found = b""
        while more := os.pread(self.fd, 1 << 20, self._read):
            found += more
            self._read += len(more)
        return found
