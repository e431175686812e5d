"""One engine: a scheduler of steps, and a device that takes as long for a step as its step-time model says."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Protocol

from headway.core.ids import RequestId
from headway.core.units import Duration, Instant
from headway.llm.plan.request import SequenceRequest
from headway.llm.plan.state import State
from headway.llm.plan.step import Emitted, Refusal, StepPlan
from headway.llm.plan.step_time import Coefficients

StepTime = Callable[[StepPlan], Duration]
"""How long the device takes for a step, in ns. The scheduler is not told but by the time that steps took."""


class Scheduler(Protocol):
    """What is simulated: the planner, or a baseline. state: what the report reads."""

    @property
    def state(self) -> State: ...
    def add(self, request: SequenceRequest, now: Instant) -> Refusal | None: ...
    def abort(self, request: RequestId) -> bool: ...
    def plan(self, now: Instant) -> StepPlan: ...
    def commit(self, results: Sequence[int | None], now: Instant, elapsed: Duration = 0) -> list[Emitted]: ...


def exact(coefficients: Coefficients) -> StepTime:
    """Steps take what the coefficients say."""

    def time(plan: StepPlan) -> Duration:
        return max(1, int(coefficients.predict(plan.prefill, plan.decodes, plan.context, plan.pairs)))

    return time


def noisy(coefficients: Coefficients, rng: Random, sigma: float) -> StepTime:
    """The same times a lognormal factor of median 1."""

    def time(plan: StepPlan) -> Duration:
        base = coefficients.predict(plan.prefill, plan.decodes, plan.context, plan.pairs)
        return max(1, int(base * rng.lognormvariate(0, sigma)))

    return time


class Engine:
    """running: the step that the device is at, from `began` until `ends`.  ready: the one after it, planned meanwhile.
    busy: how long the device has worked, in ns.  step: counts the steps that were begun.
    """

    __slots__ = ("began", "busy", "ends", "number", "ready", "running", "scheduler", "step", "time")

    def __init__(self, number: int, scheduler: Scheduler, time: StepTime) -> None:
        self.number = number
        self.scheduler = scheduler
        self.time = time
        self.running: StepPlan | None = None
        self.ready: StepPlan | None = None
        self.began: Instant = 0
        self.ends: Instant = 0
        self.busy: Duration = 0
        self.step = 0

    @property
    def load(self) -> int:
        """Sequences that wait or run."""
        return len(self.scheduler.state.sequences)

    def begin(self, plan: StepPlan, now: Instant) -> None:
        elapsed = self.time(plan)
        self.running = plan
        self.began, self.ends = now, now + elapsed
        self.busy += elapsed
        self.step += 1
