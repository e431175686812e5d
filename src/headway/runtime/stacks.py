"""Where a worker writes its stacks when it is told to, or when a signal ends it: memory that outlives it."""

from __future__ import annotations

import os
import sys
import tempfile

LONGEST = 16 << 10
"""Bytes that are read of it: of many threads the first."""


class Stacks:
    """fd: for the worker to inherit. Raises OSError where there is none to be had."""

    def __init__(self) -> None:
        self.fd = _nameless()

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def read(self) -> str:
        """As one line; "" where nothing was written."""
        if self.fd < 0:
            return ""
        text = os.pread(self.fd, LONGEST, 0).decode("utf-8", "replace")
        return " | ".join(line.strip() for line in text.splitlines() if line.strip())


def _nameless() -> int:
    if sys.platform == "linux":
        return os.memfd_create("headway-stacks")  # no disk that could be full
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
