"""A timer of some tens of microseconds: an event loop's own timers count whole milliseconds, which is
as long as a small model runs, and would be added to every latency of an open loop."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable

from headway.bench.load import NEVER


class Alarm:
    """Calls `callback` on the loop at the earliest moment that was set since it last did."""

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        self._at = NEVER
        self._stopped = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def set(self, at: int) -> None:
        """at: monotonic nanoseconds."""
        if at >= self._at:
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="alarm", daemon=True)
            self._thread.start()
        with self._changed:
            self._at = at
            self._changed.notify()

    def stop(self) -> None:
        """After this the callback is not scheduled any more."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        if self._thread is not None:
            self._thread.join()

    def _watch(self) -> None:
        with self._changed:
            while not self._stopped:
                left = self._at - time.monotonic_ns()
                if self._at == NEVER:
                    self._changed.wait()
                elif left > 0:
                    self._changed.wait(left / 1e9)
                else:
                    self._at = NEVER
                    self._loop.call_soon_threadsafe(self._callback)
