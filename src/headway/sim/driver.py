"""The virtual clock: feeds `Scheduler.handle` as the runtime does, and has its effects carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from headway.core.effects import (
    AbortSequence,
    AdmitSequence,
    ClearWorker,
    DeliverTokens,
    DispatchBatch,
    Effect,
    KillWorker,
    QuarantineRequest,
    ReportCircuit,
    ReportMemoryCap,
    ReportStarvation,
    ResolveRequest,
    RetryParts,
    SuspectWorker,
    TakeBack,
    UpdateCounters,
    WithdrawBatch,
    WithdrawPart,
)
from headway.core.events import Event
from headway.core.ids import RequestId
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, Instant
from headway.sim.agenda import Action, Agenda
from headway.sim.stalls import NO_STALLS
from headway.sim.workloads import Arrival


class Observer(Protocol):
    """Sees every call of the core, before its effects are carried out."""

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None: ...


class Driver:
    """All events of one instant go in together; the core is also woken at `next_wakeup()`.

    on: kind of effect -> who carries it out. A kind without an entry is nobody's business.
    requests: the arrivals that have no outcome yet.
    stalls: of the loop that this is: the world goes on, and the core is called when it is over.
    """

    def __init__(self, scheduler: Scheduler, observers: tuple[Observer, ...] = ()) -> None:
        self.scheduler = scheduler
        self.observers = observers
        self.now: Instant = 0
        self.calls = 0
        self.requests: dict[RequestId, Arrival] = {}
        self.stalls = NO_STALLS
        self.on: dict[type[Effect], Callable[[Any], None]] = {
            DispatchBatch: _nothing,
            AdmitSequence: _nothing,
            AbortSequence: _nothing,
            UpdateCounters: _nothing,
            TakeBack: _nothing,
            WithdrawPart: _nothing,
            WithdrawBatch: _nothing,
            DeliverTokens: _nothing,
            ReportStarvation: _nothing,
            RetryParts: _nothing,
            QuarantineRequest: _nothing,
            ReportCircuit: _nothing,
            ReportMemoryCap: _nothing,
            SuspectWorker: _nothing,
            ClearWorker: _nothing,
            KillWorker: _nothing,
            ResolveRequest: _nothing,
        }
        self._agenda = Agenda()
        self._mailbox: list[Event] = []

    def at(self, when: Instant, action: Action) -> None:
        """Run `action` at `when`, or at once where that is past."""
        self._agenda.at(max(when, self.now), action)

    def tell(self, event: Event) -> None:
        self._mailbox.append(event)

    def run(self, until: Instant = NEVER) -> None:
        """Go on until nothing is left to happen, or until the clock would pass `until`."""
        while (due := self._next()) <= until and due != NEVER:
            self.step(due)

    def step(self, now: Instant) -> None:
        """One call of the core, at `now` or when the loop stands still no longer."""
        called = self.stalls.over(max(self.now, now))
        while (due := self._agenda.next()) <= called:
            self.now = max(self.now, due)
            self._agenda.run_due(self.now)
        self.now = called
        events, self._mailbox = self._mailbox, []
        effects = self.scheduler.handle(events, self.now)
        self.calls += 1
        for observer in self.observers:
            observer.observe(self.now, events, effects, self.scheduler)
        on = self.on
        for effect in effects:
            on[type(effect)](effect)

    def _next(self) -> Instant:
        if self._mailbox:
            return self.now
        return min(self._agenda.next(), self.scheduler.next_wakeup())


def _nothing(effect: Effect) -> None:
    """An effect that this simulation leaves to itself."""
