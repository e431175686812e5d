"""Tells the runtime that this worker is getting on, but not more often than it needs to hear."""

from __future__ import annotations

from time import perf_counter_ns

from headway.core.units import ms
from headway.wire.messages import Progress
from headway.worker.channel import Channel

INTERVAL = ms(100)


class ProgressReport:
    def __init__(self, channel: Channel, worker: int) -> None:
        self._channel = channel
        self._worker = worker
        self._steps = 0
        self._next = 0

    def step(self) -> None:
        """Called before each step of work."""
        self._steps += 1
        now = perf_counter_ns()
        if now >= self._next:
            self._next = now + INTERVAL
            self._channel.send(Progress(self._worker, self._steps))
