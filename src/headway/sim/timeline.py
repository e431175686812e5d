"""What happened when, per tenant, in steps of time: for charts. Memory grows with the steps, not with the requests."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core.ids import Tenant
from headway.core.units import Duration, Instant, ms

STEP: Duration = ms(250)


@dataclass(slots=True)
class Step:
    """service: device nanoseconds given in it.  queue: the most parts that waited.  latencies: of what was answered."""

    service: float = 0.0
    queue: int = 0
    latencies: list[Duration] = field(default_factory=list)


@dataclass(slots=True)
class Timeline:
    """step: its width.  steps: tenant -> number of the step -> what was in it, if anything was."""

    step: Duration = STEP
    steps: dict[Tenant, dict[int, Step]] = field(default_factory=dict)

    def served(self, tenant: Tenant, since: Instant, until: Instant, service: float) -> None:
        """Evenly from since to until."""
        lasted = max(1, until - since)
        at = since
        while at < until:
            end = min(until, (at // self.step + 1) * self.step)
            self._at(tenant, at).service += service * (end - at) / lasted
            at = end

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
