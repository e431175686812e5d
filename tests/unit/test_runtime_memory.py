"""Memory pressure is for those that come after the request that makes it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from headway.config.settings import Limits, Settings
from headway.core.effects import Effect, ResolveRequest
from headway.core.events import (
    Event,
    MemoryPressureChanged,
    RequestArrived,
    VersionConfigured,
    WorkerReady,
    WorkerStarting,
)
from headway.core.ids import BatchKey, Capacity, Part, VersionId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, Instant
from headway.runtime.runtime import Runtime
from headway.wire.messages import PartPayload, Submit

VERSION = VersionId("m", 1)
BOUND = 1 << 20


class Watched:
    """The real core with one idle worker, whose batches nobody runs; remembers what it was told and said."""

    def __init__(self) -> None:
        self.core = Scheduler()
        start = [VersionConfigured(VERSION, BatchPolicy()), WorkerStarting(1, VERSION, 0)]
        self.core.handle([*start, WorkerReady(1, Capacity(batch_slots=1), ())], 0)
        self.told: list[Event] = []
        self.refused: dict[int, Outcome] = {}

    def handle(self, events: Sequence[Event], now: Instant) -> list[Effect]:
        self.told += events
        effects = self.core.handle(events, now)
        said = [effect for effect in effects if isinstance(effect, ResolveRequest)]
        self.refused |= {effect.request: effect.outcome for effect in said}
        return []  # nothing is carried out: payload stays, as with a slow worker

    def next_wakeup(self) -> Instant:
        return NEVER

    def snapshot(self) -> dict[str, Any]:
        return {}

    def is_idle(self) -> bool:
        return True


def submit(request: int, size: int) -> Submit:
    key = BatchKey("m", 1, "x")
    return Submit(request, "t", key, [Part(1, 1)], [PartPayload([])], size, 1 << 62, 0, {}, 0)


def core_after(*submits: Submit) -> Watched:
    async def scenario() -> Watched:
        core = Watched()
        settings = Settings(limits=Limits(max_queued_mb=BOUND / (1 << 20)))
        runtime = Runtime(settings, [], lambda message: None, core=core, clock=lambda: 1)
        for message in submits:
            runtime.send(message)
        await asyncio.sleep(0)
        return core

    return asyncio.run(scenario())


def test_a_request_that_fits_an_empty_server_is_not_refused_for_the_pressure_that_it_makes_itself() -> None:
    core = core_after(submit(1, BOUND), submit(2, 1))
    assert core.refused == {2: Outcome.OVERLOADED}
    kinds = [type(event) for event in core.told]
    assert kinds.index(RequestArrived) < kinds.index(MemoryPressureChanged)


def test_what_comes_under_pressure_is_refused() -> None:
    assert core_after(submit(1, BOUND * 95 // 100), submit(2, 1)).refused == {2: Outcome.OVERLOADED}
    assert core_after(submit(1, BOUND * 85 // 100), submit(2, 1)).refused == {}
