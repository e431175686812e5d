"""Who may send when, and what came back. It knows no socket and no clock: `now` is passed in.

Open loop: requests are due at moments fixed beforehand, whether or not earlier ones were answered,
and latency counts from the due moment. A client that waits for a stalled server and then starts
its watch would leave out exactly the requests that suffered (coordinated omission).
Closed loop: each of `concurrency` users sends the next request when the last is answered, so the
due moment is the moment at which the user is free.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Protocol

NEVER = 2**63 - 1


class Shot:
    """One request. intended, sent: nanoseconds; sent is -1 until its bytes are handed to a socket."""

    __slots__ = ("intended", "measured", "number", "sent")

    def __init__(self, number: int, intended: int, measured: bool) -> None:
        self.number = number
        self.intended = intended
        self.measured = measured
        self.sent = -1


class Pacer(Protocol):
    """Says when the next request is due."""

    def next_at(self, in_flight: int, now: int) -> int:
        """The moment at which the next request is due, given how many are unanswered; NEVER if none is."""

    def advance(self) -> None:
        """The request that `next_at` named has been taken."""


class ClosedPacer:
    """As many requests in flight as there are users."""

    def __init__(self, concurrency: int) -> None:
        self.concurrency = concurrency

    def next_at(self, in_flight: int, now: int) -> int:
        return now if in_flight < self.concurrency else NEVER

    def advance(self) -> None:
        pass  # being free is the only condition


class OpenPacer:
    """Requests at the moments of `schedule` (nanoseconds, ascending), answered or not."""

    def __init__(self, schedule: Iterator[int]) -> None:
        self._schedule = schedule
        self._next = next(schedule, NEVER)

    def next_at(self, in_flight: int, now: int) -> int:
        return self._next

    def advance(self) -> None:
        self._next = next(self._schedule, NEVER)


@dataclass(frozen=True)
class Window:
    """When is measured. All in nanoseconds.

    Requests due in [start, measure_from) warm up and are not counted; those due in
    [measure_from, end) are. requests: stop after so many measured ones (None: at `end`).
    """

    start: int
    measure_from: int
    end: int = NEVER
    requests: int | None = None


@dataclass
class Results:
    """latencies, lags: nanoseconds of measured requests; a latency only for those answered 2xx.

    lag: from the due moment until the client had sent it; large = the client or its connections were late.
    last_end: when the latest request ended, nanoseconds.
    answered_in_window: 2xx answers that came inside the window, for the throughput.
    errors: "503 queue_full", "timeout", "connection_lost", ... -> count.
    examples: of those errors that came with a body, the first one's.
    """

    latencies: array[int] = field(default_factory=lambda: array("q"))
    lags: array[int] = field(default_factory=lambda: array("q"))
    errors: dict[str, int] = field(default_factory=dict)
    answered_in_window: int = 0
    last_end: int = 0
    examples: dict[str, bytes] = field(default_factory=dict)


class Load:
    """Hands out requests when they are due and keeps the results."""

    def __init__(self, pacer: Pacer, window: Window) -> None:
        self.results = Results()
        self.window = window
        self.in_flight = 0
        self._pacer = pacer
        self._taken = 0
        self._measured = 0

    def take(self, now: int) -> Shot | None:
        """The next request that is due, or None."""
        due = self.wake_at(now)
        if due > now:
            return None
        self._pacer.advance()
        shot = Shot(self._taken, due, due >= self.window.measure_from)
        self._taken += 1
        self._measured += shot.measured
        self.in_flight += 1
        return shot

    def wake_at(self, now: int) -> int:
        """When `take` will have something, if nothing is answered before then; NEVER if not."""
        if self._measured == self.window.requests:
            return NEVER
        due = self._pacer.next_at(self.in_flight, now)
        return due if due < self.window.end else NEVER

    def is_over(self, now: int) -> bool:
        """Nothing more will be sent, and everything has ended."""
        if self.in_flight:
            return False
        return self.wake_at(now) == NEVER

    def answered(self, shot: Shot, now: int, error: str | None, body: bytes = b"") -> None:
        """The request ended. error: None for a 2xx answer, else what to count it as; body: what came with it."""
        self.in_flight -= 1
        results = self.results
        results.last_end = now
        if error is None and self.window.measure_from <= now < self.window.end:
            results.answered_in_window += 1
        if not shot.measured:
            return
        if shot.sent >= 0:
            results.lags.append(shot.sent - shot.intended)
        if error is None:
            results.latencies.append(now - shot.intended)
        else:
            results.errors[error] = results.errors.get(error, 0) + 1
            if body:
                results.examples.setdefault(error, body)
