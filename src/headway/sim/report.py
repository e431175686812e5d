"""What a simulation showed: latency, throughput, batches, outcomes; as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from math import ceil

from headway.core.effects import DispatchBatch, Effect, ResolveRequest
from headway.core.events import Event, RequestArrived
from headway.core.ids import RequestId, Tenant
from headway.core.outcomes import Outcome
from headway.core.scheduler import Scheduler
from headway.core.units import MILLISECOND, SECOND, Duration, Instant


@dataclass(frozen=True, slots=True)
class Latency:
    """Milliseconds from arrival to outcome, of completed requests."""

    count: int
    mean_ms: float
    p50_ms: float
    p90_ms: float
    p99_ms: float


@dataclass(frozen=True, slots=True)
class Report:
    """duration_s: virtual time from the first arrival to the last outcome.

    padding_waste: share of the computed tokens that were padding.
    utilisation: busy time of all workers over their number times the duration.
    wall_s, requests_per_wall_s: what the simulation itself took.
    """

    requests: int
    duration_s: float
    throughput_per_s: float
    latency: Latency
    outcomes: dict[str, int]
    batch_sizes: dict[int, int]
    mean_batch_size: float
    reasons: dict[str, int]
    padding_waste: float
    utilisation: float
    tenants: dict[Tenant, Latency]
    calls: int
    wall_s: float
    requests_per_wall_s: float

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def percentile(ordered: Sequence[int], share: float) -> float:
    """The smallest value that at least `share` of the ordered values do not exceed; 0 of none."""
    if not ordered:
        return 0.0
    return float(ordered[max(0, ceil(share * len(ordered)) - 1)])


def summarise(latencies: list[Duration]) -> Latency:
    ordered = sorted(latencies)
    p50, p90, p99 = (round(percentile(ordered, share) / MILLISECOND, 3) for share in (0.5, 0.9, 0.99))
    mean = sum(ordered) / len(ordered) / MILLISECOND if ordered else 0.0
    return Latency(len(ordered), round(mean, 3), p50, p90, p99)


@dataclass(slots=True)
class Recorder:
    """An observer that keeps what the report needs, and nothing per request once it has its outcome."""

    waiting: dict[RequestId, RequestArrived] = field(default_factory=dict)
    arrived: dict[RequestId, Instant] = field(default_factory=dict)
    latencies: dict[Tenant, list[Duration]] = field(default_factory=dict)
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    sizes: Counter[int] = field(default_factory=Counter)
    reasons: Counter[str] = field(default_factory=Counter)
    tokens: int = 0
    padded: int = 0
    first: Instant = -1
    last: Instant = 0

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        for event in events:
            if type(event) is RequestArrived:
                self.first = now if self.first < 0 else self.first
                self.waiting[event.request] = event
                self.arrived[event.request] = now
        for effect in effects:
            if type(effect) is DispatchBatch:
                self._dispatched(effect)
            elif type(effect) is ResolveRequest:
                self._resolved(effect, now)

    def _dispatched(self, effect: DispatchBatch) -> None:
        parts = [self.waiting[request].parts[part] for request, part in effect.parts]
        rows = sum(part.rows for part in parts)
        self.sizes[rows] += 1
        self.reasons[effect.reason.value] += 1
        self.tokens += sum(part.rows * part.length for part in parts)
        self.padded += rows * max(part.length for part in parts)

    def _resolved(self, effect: ResolveRequest, now: Instant) -> None:
        event = self.waiting.pop(effect.request)
        latency = now - self.arrived.pop(effect.request)
        self.outcomes[effect.outcome] += 1
        self.last = now
        of_tenant = self.latencies.setdefault(event.tenant, [])
        if effect.outcome is Outcome.COMPLETED:
            of_tenant.append(latency)

    def report(self, *, busy: Duration, workers: int, calls: int, wall_s: float) -> Report:
        """busy: of all workers together, in virtual ns."""
        duration = max(1, self.last - max(0, self.first))
        requests = self.outcomes.total()
        batches = self.sizes.total()
        return Report(
            requests=requests,
            duration_s=round(duration / SECOND, 6),
            throughput_per_s=round(self.outcomes[Outcome.COMPLETED] * SECOND / duration, 2),
            latency=summarise([latency for of_tenant in self.latencies.values() for latency in of_tenant]),
            outcomes={outcome.value: self.outcomes[outcome] for outcome in Outcome if self.outcomes[outcome]},
            batch_sizes=dict(sorted(self.sizes.items())),
            mean_batch_size=round(sum(n * count for n, count in self.sizes.items()) / max(1, batches), 2),
            reasons=dict(sorted(self.reasons.items())),
            padding_waste=round(1 - self.tokens / self.padded, 4) if self.padded else 0.0,
            utilisation=round(busy / (workers * duration), 4),
            tenants={tenant: summarise(of_tenant) for tenant, of_tenant in sorted(self.latencies.items())},
            calls=calls,
            wall_s=round(wall_s, 3),
            requests_per_wall_s=round(requests / wall_s) if wall_s else 0,
        )


def as_table(report: Report) -> str:
    """The report for a terminal."""
    rows: list[tuple[str, str]] = [
        ("requests", f"{report.requests} in {report.duration_s:.3f} s of virtual time"),
        ("throughput", f"{report.throughput_per_s:g} completed/s"),
        ("latency", _latency(report.latency)),
        *((f"  {tenant}", _latency(latency)) for tenant, latency in report.tenants.items() if len(report.tenants) > 1),
        ("outcomes", _counts(report.outcomes)),
        ("batch sizes", f"mean {report.mean_batch_size:g}   {_counts(report.batch_sizes)}"),
        ("reasons", _counts(report.reasons)),
        ("padding waste", f"{report.padding_waste:.1%}"),
        ("utilisation", f"{report.utilisation:.1%}"),
        ("simulated", f"{report.requests_per_wall_s} requests per wall second ({report.wall_s:g} s)"),
    ]
    width = max(len(name) for name, _ in rows)
    return "\n".join(f"{name:<{width}}  {value}" for name, value in rows)


def _latency(latency: Latency) -> str:
    return (
        f"mean {latency.mean_ms:g}  p50 {latency.p50_ms:g}  p90 {latency.p90_ms:g}  p99 {latency.p99_ms:g} ms"
        f"  ({latency.count} completed)"
    )


def _counts(counts: dict[str, int] | dict[int, int]) -> str:
    return ", ".join(f"{name}: {count}" for name, count in counts.items()) or "none"
