"""How late the event loop is: a probe that asks to be called at a moment and sees when it is."""

from __future__ import annotations

import asyncio

from headway.core.units import SECOND
from headway.telemetry.histogram import DURATION_BOUNDS, Histogram

INTERVAL_S = 0.25


class LagProbe:
    """lags: nanoseconds beyond the moment asked for; the loop's own timers are good to a millisecond."""

    def __init__(self, interval_s: float = INTERVAL_S) -> None:
        self.lags = Histogram(DURATION_BOUNDS)
        self._interval_s = interval_s
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """On the loop that is to be watched."""
        loop = asyncio.get_running_loop()
        due = loop.time() + self._interval_s
        self._timer = loop.call_at(due, self._ring, loop, due)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ring(self, loop: asyncio.AbstractEventLoop, due: float) -> None:
        self.lags.add(max(0, round((loop.time() - due) * SECOND)))
        self.start()
