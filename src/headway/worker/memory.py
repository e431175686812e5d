"""What a batch takes of a worker's memory at its peak: measured while warming up, and turned into a cap in tokens.

Peaks grow with rows x length about as a line does, plus what every batch takes; attention grows faster. So the line is
laid over the points: fitted, then raised until none lies above it.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from headway.wire.messages import MemoryPoint, MemoryUse

MARGIN = 0.9
"""Of the memory there is, what batches may be expected to take: allocators lose some to fragments."""

WORDS = ("out of memory", "not enough memory", "can't allocate memory", "failed to allocate memory", "bad_alloc")
"""How torch, CUDA and ONNX Runtime say it."""


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a batch failed for want of memory, so that a smaller one may do."""
    if isinstance(error, MemoryError):
        return True
    text = str(error).lower()
    return isinstance(error, (RuntimeError, OSError)) and any(word in text for word in WORDS)


class Peak(Protocol):
    def begin(self) -> bool:
        """From now on the highest use counts. False: it cannot be measured here."""

    def taken(self) -> int:
        """Bytes at the peak since `begin`, above what was in use when the worker had loaded."""


class HostPeak:
    """Resident memory of this process, as Linux counts it, above what it was when this was made: once the model has
    loaded, and before the first batch. What loading has given back goes back to the system first, lest it be used again
    unseen. Of what batches give back the allocator keeps some, so a small batch after a large one looks larger than it
    is."""

    def __init__(self, proc: Path = Path("/proc/self")) -> None:
        self._status, self._clear = proc / "status", proc / "clear_refs"
        give_back()
        try:
            self._before: int | None = self._read("VmRSS")
        except (OSError, ValueError):
            self._before = None

    def begin(self) -> bool:
        try:
            self._clear.write_text("5")  # the peak becomes what is in use now
        except OSError:
            return False
        return self._before is not None

    def taken(self) -> int:
        return max(0, self._read("VmHWM") - (self._before or 0))

    def _read(self, name: str) -> int:
        """Raises ValueError, OSError."""
        found = re.search(rf"^{name}:\s+(\d+) kB", self._status.read_text(), re.MULTILINE)
        if found is None:
            raise ValueError(f"{self._status} does not say {name}")
        return int(found[1]) * 1024


def available_bytes(meminfo: Path = Path("/proc/meminfo")) -> int:
    """That new allocations of this host may have, as the kernel estimates it; where it does not, what is free."""
    try:
        lines = meminfo.read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration, ValueError, IndexError):
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def give_back() -> None:
    """Free memory of the allocator to the system, where the C library can (glibc)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class MemoryWatch:
    """limit: bytes that a batch may take at its peak; 0 = no cap."""

    def __init__(self, limit: int, peak: Peak) -> None:
        self.limit = limit
        self._peak = peak
        self._points: list[MemoryPoint] = []
        self._too_much = 0
        self._measuring = False

    def begin(self) -> None:
        self._measuring = self._peak.begin()

    def end(self, rows: int, length: int) -> None:
        if self._measuring:
            self._points.append(MemoryPoint(rows, length, self._peak.taken()))

    def exceeded(self, rows: int, length: int) -> None:
        """This size ran out of memory."""
        tokens = rows * length
        self._too_much = min(self._too_much, tokens) if self._too_much else tokens

    def found(self) -> MemoryUse | None:
        """None where nothing was measured."""
        if not self._points and not self._too_much:
            return None
        fixed, per_token = upper_line(self._points)
        cap = tokens_within(int(self.limit * MARGIN), fixed, per_token) if self.limit and self._points else 0
        if self._too_much:
            cap = min(cap or self._too_much, max(1, self._too_much // 2))
        return MemoryUse(self.limit, fixed, per_token, cap, tuple(self._points))


def upper_line(points: Sequence[MemoryPoint]) -> tuple[int, float]:
    """(bytes of any batch, bytes per token) of a line that no point lies above, the slope by least squares."""
    if not points:
        return 0, 0.0
    tokens = [point.rows * point.length for point in points]
    mean, middle = sum(tokens) / len(points), sum(point.peak for point in points) / len(points)
    spread = sum((one - mean) ** 2 for one in tokens)
    along = sum((one - mean) * (point.peak - middle) for one, point in zip(tokens, points, strict=True))
    slope = max(0.0, along / spread) if spread else 0.0
    raised = max(point.peak - slope * one for one, point in zip(tokens, points, strict=True))
    return max(0, int(raised) + 1), slope


def tokens_within(limit: int, fixed: int, per_token: float) -> int:
    """The most tokens whose peak keeps to the limit, at least 1: a row always runs. 0 = any, where it costs nothing."""
    if per_token <= 0:
        return 0 if fixed <= limit else 1
    return max(1, int((limit - fixed) / per_token))
