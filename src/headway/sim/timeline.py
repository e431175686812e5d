"""What happened when, per tenant, in steps of time: for charts. Memory grows with the steps, not with the requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core.ids import Tenant
from headway.core.units import Duration, Instant, ms


@dataclass(slots=True)
class Step:
    """service: device nanoseconds given in it.  queue: the most parts that waited.  latencies: of what was answered."""

    service: float = 0.0
    queue: int = 0
    latencies: list[Duration] = field(default_factory=list)


@dataclass(slots=True)
class Timeline:
    """step: its width.  steps: tenant -> number of the step -> what was in it; those in which nothing was are absent."""

    step: Duration = ms(250)
    steps: dict[Tenant, dict[int, Step]] = field(default_factory=dict)

    def served(self, tenant: Tenant, now: Instant, service: float) -> None:
        self._at(tenant, now).service += service

    def answered(self, tenant: Tenant, now: Instant, latency: Duration) -> None:
        self._at(tenant, now).latencies.append(latency)

    def waiting(self, tenant: Tenant, now: Instant, count: int) -> None:
        if count:
            step = self._at(tenant, now)
            step.queue = max(step.queue, count)

    def _at(self, tenant: Tenant, now: Instant) -> Step:
        steps = self.steps.setdefault(tenant, {})
        number = now // self.step
        if number not in steps:
            steps[number] = Step()
        return steps[number]
