"""The one door to the core: events are collected and handed over in one call per wake of the loop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from headway.core.effects import Effect
from headway.core.events import Event
from headway.core.units import Duration, Instant, ms
from headway.runtime.clock import Clock
from headway.runtime.timer import Timer

log = logging.getLogger("headway.runtime")

STOOD_STILL: Duration = ms(100)
"""What a turn that was asked for may take to come without anything being wrong."""


class Core(Protocol):
    """What the runtime needs of the scheduler."""

    def handle(self, events: Sequence[Event], now: Instant) -> list[Effect]: ...

    def next_wakeup(self) -> Instant: ...

    def snapshot(self) -> dict[str, Any]: ...

    def is_idle(self) -> bool: ...


CarryOut: TypeAlias = Callable[[Instant, list[Event], list[Effect]], None]
Raised: TypeAlias = Callable[[Instant, list[Event], BaseException], None]
Fatal: TypeAlias = Callable[[BaseException], None]


def crash(error: BaseException) -> None:
    """The default for `fatal`: leaves the event loop with exit code 1."""
    raise SystemExit(1) from error


class Mailbox:
    """carry_out: performs the effects of one call.  raised: told when the core raised, before `fatal`.

    Whatever goes wrong in the core or in carrying out its effects is a bug of ours: state and world
    may disagree from then on, so nothing is handled any more and `fatal` is called.
    """

    def __init__(
        self,
        core: Core,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        carry_out: CarryOut,
        raised: Raised,
        fatal: Fatal = crash,
    ) -> None:
        self._core = core
        self._loop = loop
        self._clock = clock
        self._carry_out = carry_out
        self._raised = raised
        self._fatal = fatal
        self._events: list[Event] = []
        self._scheduled = False
        self._woken_at: Instant = 0
        self._closed = False
        self._timer = Timer(loop, clock, self._wake)

    def post(self, event: Event) -> None:
        """Handled at the next turn of the loop, with all that is posted until then."""
        self._events.append(event)
        if not self._scheduled:
            self._wake()

    def post_quietly(self, event: Event) -> None:
        """Handled whenever something else is: for what needs no decision."""
        self._events.append(event)

    def close(self) -> None:
        """Handle what is there, then nothing any more."""
        if not self._closed:
            self._drain()
        self._closed = True
        self._timer.close()

    def _wake(self) -> None:
        if not self._scheduled and not self._closed:
            self._scheduled = True
            self._woken_at = self._clock()
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        """Where the loop stood still since this turn was asked for, sockets are read first, which takes a round of it:
        a worker whose answer lies there has not hung."""
        if self._clock() - self._woken_at > STOOD_STILL:
            self._loop.call_soon(self._drain)
        else:
            self._drain()

    def _drain(self) -> None:
        self._scheduled = False
        if self._closed:
            return
        events, self._events = self._events, []
        now = self._clock()
        try:
            effects = self._core.handle(events, now)
        except Exception as error:
            self._raised(now, events, error)
            self._give_up("the core raised", events, error)
            return
        try:
            self._carry_out(now, events, effects)
            self._timer.arm(self._core.next_wakeup())
        except Exception as error:
            self._give_up("carrying out effects raised", events, error)

    def _give_up(self, what: str, events: Sequence[Event], error: BaseException) -> None:
        self._closed = True
        self._timer.close()
        log.critical("%s: %s; the last events were %r", what, error, list(events[-20:]), exc_info=error)
        self._fatal(error)
