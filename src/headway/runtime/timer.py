"""One timer for the whole core: wakes the mailbox at an absolute instant.

uvloop rounds its own timers to whole milliseconds, which is coarse beside a queue delay of a few
milliseconds, so where the host has timerfd (Linux) the kernel keeps the instant. Elsewhere the
loop's timer is used, rounded up.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import time
from collections.abc import Callable

from headway.core.units import MILLISECOND, NEVER, SECOND, Instant
from headway.runtime.clock import Clock


class Timer:
    """Calls `fire` once at or soon after the armed instant.

    Arming for a later instant than before leaves the timer as it is: with many short requests the
    earliest deadline moves at every call, and it is cheaper to wake once for nothing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, fire: Callable[[], None]) -> None:
        self._clock = clock
        self._fire = fire
        self._wanted: Instant = NEVER
        self._armed: Instant = NEVER
        self._alarm: _KernelAlarm | _LoopAlarm
        if sys.platform == "linux" and clock is time.monotonic_ns:
            self._alarm = _KernelAlarm(loop, self._ring)
        else:
            self._alarm = _LoopAlarm(loop, clock, self._ring)

    def arm(self, wanted: Instant) -> None:
        """wanted: NEVER = not needed."""
        self._wanted = wanted
        if wanted < self._armed:
            self._armed = wanted
            self._alarm.set(wanted)

    def close(self) -> None:
        self._wanted = NEVER
        self._alarm.close()

    def _ring(self) -> None:
        self._armed = NEVER
        if self._wanted <= self._clock():
            self._fire()
        else:
            self.arm(self._wanted)


class _LoopAlarm:
    def __init__(self, loop: asyncio.AbstractEventLoop, clock: Clock, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._clock = clock
        self._ring = ring
        self._handle: asyncio.TimerHandle | None = None

    def set(self, instant: Instant) -> None:
        self.close()
        whole_ms = -((self._clock() - instant) // MILLISECOND)
        self._handle = self._loop.call_later(max(0, whole_ms) / 1000, self._ring)

    def close(self) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None


class _Timespec(ctypes.Structure):
    _fields_ = [("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long)]


class _Itimerspec(ctypes.Structure):
    _fields_ = [("interval", _Timespec), ("value", _Timespec)]


_CLOCK_MONOTONIC = 1
_TFD_FLAGS = os.O_NONBLOCK | os.O_CLOEXEC
_ABSOLUTE = 1


class _KernelAlarm:
    """timerfd of the same clock as time.monotonic_ns; a past instant rings at once."""

    def __init__(self, loop: asyncio.AbstractEventLoop, ring: Callable[[], None]) -> None:
        self._loop = loop
        self._ring = ring
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._spec = _Itimerspec()
        self._fd: int = self._libc.timerfd_create(_CLOCK_MONOTONIC, _TFD_FLAGS)
        if self._fd < 0:
            raise OSError(ctypes.get_errno(), "timerfd_create failed")
        loop.add_reader(self._fd, self._expired)

    def set(self, instant: Instant) -> None:
        value = self._spec.value
        # All zero would mean "switch it off", so an instant at or before the clock's origin rings at 1 ns.
        value.seconds, value.nanoseconds = divmod(max(1, instant), SECOND)
        if self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(self._spec), None) != 0:
            raise OSError(ctypes.get_errno(), "timerfd_settime failed")

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _expired(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return  # set anew between the ring and this call
        self._ring()
