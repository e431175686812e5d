"""Payload held for requests without an outcome, and when it becomes too much of it."""

from __future__ import annotations

from collections.abc import Callable

from headway.core.events import MemoryPressureChanged

HIGH = 0.90
LOW = 0.70
"""Shares of the bound where pressure begins and ends; apart, so that it does not flicker."""


class MemoryGauge:
    def __init__(self, bound: int, post: Callable[[MemoryPressureChanged], None]) -> None:
        """bound: in bytes. post: is told when pressure begins or ends."""
        self._high = int(bound * HIGH)
        self._low = int(bound * LOW)
        self._post = post
        self.held = 0
        self.pressed = False

    def add(self, count: int) -> None:
        self.held += count
        if not self.pressed and self.held >= self._high:
            self.pressed = True
            self._post(MemoryPressureChanged(True))

    def remove(self, count: int) -> None:
        self.held -= count
        if self.pressed and self.held <= self._low:
            self.pressed = False
            self._post(MemoryPressureChanged(False))
