"""Counts of language models: what was asked and generated, when tokens came, and what engines say of themselves.

Engines are followed by their events, as workers are in `failures`. What one has counted since it began is added to its
version's sum when it is gone, so that no sum falls; what it had counted since it last told is lost with it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from headway.core.events import (
    CapacityChanged,
    RequestSatisfied,
    TokensEmitted,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
    WorkerStopped,
)
from headway.core.ids import RequestId, VersionId, WorkerId
from headway.core.outcomes import Kind, Outcome
from headway.core.units import Instant, ms
from headway.runtime.observer import ReplyInfo
from headway.telemetry.histogram import Histogram
from headway.wire.engine import EngineCounts
from headway.wire.generation import Result, Token
from headway.wire.messages import Submit

FIRST_MS = (
    *(1, 5, 10, 20, 40, 60, 80, 100, 250, 500, 750, 1000, 2500, 5000, 7500),
    *(10_000, 20_000, 40_000, 80_000, 160_000, 640_000, 2_560_000),
)
GAP_MS = (
    *(1, 2, 5, 10, 25, 50, 75, 100, 150, 200, 300, 400, 500, 750, 1000, 2500, 5000, 7500),
    *(10_000, 20_000, 40_000, 80_000),
)
WHOLE_MS = (
    *(300, 500, 800, 1000, 1500, 2000, 2500, 5000, 10_000, 15_000, 20_000, 30_000, 40_000, 50_000, 60_000),
    *(120_000, 240_000, 480_000, 960_000, 1_920_000, 7_680_000),
)
"""Bounds that dashboards of language models are made for; of the gaps also some below, as small models have."""
FIRST_BOUNDS, GAP_BOUNDS, WHOLE_BOUNDS = (tuple(map(ms, bounds)) for bounds in (FIRST_MS, GAP_MS, WHOLE_MS))

NOW = ("running", "waiting", "kv_used", "kv_cached", "kv_free", "unfilled")
SINCE = tuple(field for field in EngineCounts.__struct_fields__ if field not in NOW)
"""The fields of EngineCounts that only grow."""

STOP, LENGTH, ABORT, ERROR = "stop", "length", "abort", "error"
FINISHED = {Kind.CANCELLED: ABORT, Kind.EXPIRED: ABORT, Kind.FAILED: ERROR}


class Tokens(Protocol):
    """Where a tenant's are counted."""

    prompt_tokens: int
    output_tokens: int


class LanguageCounts:
    """Of one version.

    first, gaps: of each answer: from the last byte of the request to its first token, and from each token to the next,
    as they are passed on.  whole: of completed requests: to the reply.
    finished: requests by why they ended.  told: results, of which engines have told.
    engines: what those there are say of themselves.  before: sums of those that are gone, by field.
    """

    __slots__ = ("before", "engines", "finished", "first", "gaps", "told", "whole")

    def __init__(self) -> None:
        self.first = Histogram(FIRST_BOUNDS)
        self.gaps = Histogram(GAP_BOUNDS)
        self.whole = Histogram(WHOLE_BOUNDS)
        self.finished = dict.fromkeys((STOP, LENGTH, ABORT, ERROR), 0)
        self.told = 0
        self.engines: dict[WorkerId, EngineCounts] = {}
        self.before = dict.fromkeys(SINCE, 0)

    def now(self, field: str) -> int:
        """Of all engines there are."""
        return sum([getattr(counts, field) for counts in self.engines.values()])

    def since(self, field: str) -> int:
        """Of all there ever were. field: one of SINCE."""
        return self.before[field] + self.now(field)


class Answers:
    """To one request. last: of each when its last token came; 0 = none has.
    stopped: how many have ended by themselves.  satisfied: its client wants no more of it."""

    __slots__ = ("counts", "last", "prompt", "received", "satisfied", "stopped", "tokens")

    def __init__(self, counts: LanguageCounts, tokens: Tokens, received: Instant, prompt: int, choices: int) -> None:
        self.counts = counts
        self.tokens = tokens
        self.received = received
        self.prompt = prompt
        self.last: list[Instant] = [0] * choices
        self.stopped = 0
        self.satisfied = False

    def finish(self, outcome: Outcome) -> str:
        """Why it has ended; "" for one that was refused."""
        if outcome is Outcome.COMPLETED:
            return STOP if self.satisfied or self.stopped == len(self.last) else LENGTH
        return FINISHED.get(outcome.kind, "")


class Generations:
    """watched: type of event -> what counts it, besides `told`.  open: requests without an outcome.
    versions: those that an engine has ever served, or a prompt was sent to."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, int], LanguageCounts] = {}
        self.open: dict[RequestId, Answers] = {}
        self._workers: dict[WorkerId, VersionId] = {}
        self._engines: dict[WorkerId, LanguageCounts] = {}
        self.watched: dict[type, Callable[[Any], object]] = {
            WorkerStarting: self._starting,
            WorkerReady: self._ready,
            CapacityChanged: self._ready,
            WorkerStopped: self._gone,
            WorkerLost: self._gone,
            RequestSatisfied: self._satisfied,
        }

    # -- requests ------------------------------------------------------------------------------

    def asked(self, submit: Submit, tokens: Tokens) -> None:
        asked = submit.generation
        assert asked is not None
        counts = self._counts(submit.key[:2])
        self.open[submit.request] = Answers(counts, tokens, submit.received, len(asked.prompt), asked.choices)

    def generated(self, request: RequestId, values: Sequence[Result], now: Instant) -> None:
        answers = self.open.get(request)
        if answers is None:
            return  # of another kind of model
        last = answers.last
        for value in values:
            if type(value) is Token:
                choice = value.choice
                before = last[choice]
                last[choice] = now
                if before:
                    answers.counts.gaps.add(now - before)
                else:
                    self._begun(answers, now)
                answers.tokens.output_tokens += 1
                if value.end == STOP:
                    answers.stopped += 1

    def _begun(self, answers: Answers, now: Instant) -> None:
        answers.counts.first.add(now - answers.received)
        answers.tokens.prompt_tokens += answers.prompt
        answers.prompt = 0  # the other answers are to the same

    def replied(self, reply: ReplyInfo) -> None:
        answers = self.open.pop(reply.request, None)
        if answers is None:
            return
        if reason := answers.finish(reply.outcome):
            answers.counts.finished[reason] += 1
        if reply.outcome is Outcome.COMPLETED:
            spent = reply.timings
            answers.counts.whole.add(spent.parse + spent.queue + spent.hand_over + spent.execute + spent.back)

    def _satisfied(self, event: RequestSatisfied) -> None:
        if answers := self.open.get(event.request):
            answers.satisfied = True

    # -- engines -------------------------------------------------------------------------------

    def engine(self, worker: WorkerId, told: EngineCounts) -> None:
        if counts := self._engines.get(worker):
            counts.engines[worker] = told

    def _starting(self, event: WorkerStarting) -> None:
        self._workers[event.worker] = event.version

    def _ready(self, event: WorkerReady | CapacityChanged) -> None:
        """Where it is an engine, that has nothing yet and was not heard of."""
        version = self._workers.get(event.worker)
        if version is not None and event.capacity.block_size and event.worker not in self._engines:
            counts = self._engines[event.worker] = self._counts(version)
            counts.engines[event.worker] = EngineCounts(kv_free=event.capacity.kv_blocks)

    def _gone(self, event: WorkerLost | WorkerStopped) -> None:
        self._workers.pop(event.worker, None)
        if counts := self._engines.pop(event.worker, None):
            told = counts.engines.pop(event.worker)
            for field in SINCE:
                counts.before[field] += getattr(told, field)

    def told(self, event: TokensEmitted) -> None:
        if counts := self._engines.get(event.worker):
            counts.told += event.count

    def _counts(self, version: tuple[str, int]) -> LanguageCounts:
        """Of a version that the core knows: labels do not grow with traffic."""
        counts = self.versions.get(version)
        if counts is None:
            counts = self.versions[version] = LanguageCounts()
        return counts
