"""Judges a recording: run through the scheduler again it decides the same, and the simulator's oracles hold at every
call of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headway.core.effects import DispatchBatch, Effect, ResolveRequest, RetryParts
from headway.core.events import DrainStarted, Event, WorkerLost
from headway.core.ids import WorkerId
from headway.core.scheduler import Scheduler
from headway.core.units import Instant
from headway.runtime.replay import replay
from headway.sim.oracles import Oracle, OracleViolation

SHOWN, LONGEST = 5, 1_000
"""Effects of a difference, and characters of each, that are shown. A violation of the oracles is one of them."""


class Watched:
    """A core that is restored and watched. instances: of each model, workers that must be ready when the server is told
    to end."""

    def __init__(self, core: Scheduler, instances: Mapping[str, int]) -> None:
        self.oracle = Oracle()
        self.outcomes: Counter[str] = Counter()
        self.losses: Counter[tuple[str, str]] = Counter()
        """By model and kind."""
        self.batches = 0
        self.retries: Counter[str] = Counter()
        self.core = core
        self._instances = instances
        self._models: dict[WorkerId, str] = {}

    def handle(self, events: Sequence[Event], now: Instant) -> list[Effect]:
        effects = self.core.handle(events, now)
        for event in events:
            if isinstance(event, WorkerLost):
                worker = self.oracle.ledger.workers.get(event.worker)
                self.losses["?" if worker is None else worker.version.model, event.loss.value] += 1
        self.oracle.observe(now, list(events), effects, self.core)
        if any(isinstance(event, DrainStarted) for event in events):
            self._everybody_is_back()
        for effect in effects:
            self._count(effect)
        return effects

    def check(self) -> None:
        """The oracle has done so."""

    def _everybody_is_back(self) -> None:
        for version in self.oracle.ledger.versions.values():
            expected = self._instances[version.version.model]
            ready = [worker.worker for worker in version.workers.values() if worker.ready]
            if len(ready) != expected:
                self.oracle.fail(f"{version.version}: {ready} are ready after the faults, expected {expected} workers")

    def _count(self, effect: Effect) -> None:
        if isinstance(effect, ResolveRequest):
            self.outcomes[effect.outcome.value] += 1
        elif isinstance(effect, DispatchBatch):
            self.batches += 1
        elif isinstance(effect, RetryParts):
            self.retries[effect.how.value] += len(effect.parts)


class Judgement:
    """breaches: what is wrong with it."""

    def __init__(self, recording: Path, instances: Mapping[str, int]) -> None:
        self.breaches: list[str] = []
        self.watched: Watched

        def restore(snapshot: dict[str, Any]) -> Watched:
            self.watched = Watched(Scheduler.restore(snapshot), instances)
            return self.watched

        self.report = replay(recording, restore)
        if self.report.cut_off or self.report.raised:
            self.breaches.append(f"{recording.name} ends with {self.report.raised or 'half a line'}")
        difference = self.report.difference
        if difference is not None:
            self.breaches.append(f"{recording.name}, line {difference.line}: {difference.problem}")
            for what, effects in (("replayed", difference.replayed), ("recorded", difference.recorded)):
                self.breaches += [f"{what}: {effect[:LONGEST]}" for effect in effects[:SHOWN]]
            return
        try:
            self.watched.oracle.finish(self.watched.core)
        except OracleViolation as violation:
            self.breaches.append(f"at the end of {recording.name}: {violation}")

    def compare(self, heard: Counter[str], left: int) -> None:
        """heard: what clients were told, by code.  left: requests whose clients did not stay to hear.

        Every reply is a decision, and every decision was heard by whoever was there."""
        decided = self.watched.outcomes
        told = Counter({code: count for code, count in heard.items() if code != "model_not_ready"})
        invented, unheard = told - decided, decided - told
        if invented:
            self.breaches.append(f"clients were told {dict(invented)} that nobody has decided")
        if unheard.total() > left:
            self.breaches.append(f"{dict(unheard)} was decided and told to nobody; {left} had left")
