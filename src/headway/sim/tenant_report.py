"""What a simulation showed of each tenant: its share and what it was owed, latency, refusals, how soon it got its
share back; as a table and as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field

from headway.core.effects import Effect, ReportStarvation, ResolveRequest
from headway.core.events import Event
from headway.core.ids import Tenant
from headway.core.outcomes import Kind, Outcome
from headway.core.scheduler import Scheduler
from headway.core.tenancy import TenantPolicy
from headway.core.units import MILLISECOND, SECOND, Duration, Instant
from headway.sim.report import Report, as_table, percentile
from headway.sim.scenario import VERSION
from headway.sim.service import Flight, Listener, Open, ServiceLedger
from headway.sim.timeline import Timeline


@dataclass(frozen=True, slots=True)
class TenantReport:
    """service_s: device seconds it received.  share: of all that was given.
    owed_s: by weight among those who had something waiting, batch by batch.  owed: share of all that was owed.
    goodput_per_s: completed within the SLO, or within its deadline, or at all where there is neither.
    late: part of the completed that missed the SLO.
    refusals: by reason.
    returns: how often it came back from idleness beside others who waited.
    reclaim_ms: from there until a batch with something of it began, at most.
    reclaim_batches: those of others that ran in between, at most.
    """

    weight: float
    requests: int
    completed: int
    throughput_per_s: float
    goodput_per_s: float
    late: float
    p50_ms: float
    p99_ms: float
    service_s: float
    share: float
    owed_s: float
    owed: float
    refusals: dict[str, int]
    other_ends: dict[str, int]
    longest_queue: int
    returns: int
    reclaim_ms: float
    reclaim_batches: int
    starvations: int


@dataclass(frozen=True, slots=True)
class TenantsReport:
    """jain: index of service / weight over all tenants; 1 = in proportion. A tenant that asks for little lowers it.
    jain_of_owed: of service / owed.
    gap_ms: the largest |W/w of one - W/w of another| over any interval in which both had something waiting.
    gap_between: who was ahead of whom.
    utilisation: of the workers, while there was load.
    """

    overall: Report
    tenants: dict[Tenant, TenantReport]
    jain: float
    jain_of_owed: float
    gap_ms: float
    gap_between: tuple[Tenant, Tenant] | None
    utilisation: float

    def as_json(self) -> dict[str, object]:
        return asdict(self)


def jain(values: Iterable[float]) -> float:
    """(sum x)^2 / (n sum x^2): 1 if all are equal, 1/n if one has all (Jain, Chiu and Hawe 1984). 1 of none."""
    x = list(values)
    squares = sum(value * value for value in x)
    return sum(x) ** 2 / (len(x) * squares) if squares else 1.0


@dataclass(slots=True)
class Reclaim:
    """Who is back since `at`, beside so many batches that workers had; began: others' begun since."""

    at: Instant
    in_flight: int
    began: int = 0


@dataclass(slots=True)
class Tally:
    """Of one tenant, as it goes."""

    latencies: list[Duration] = field(default_factory=list)
    in_slo: int = 0
    outcomes: Counter[Outcome] = field(default_factory=Counter)
    longest_queue: int = 0
    returns: int = 0
    reclaim: Duration = 0
    reclaim_batches: int = 0
    starvations: int = 0


@dataclass(slots=True)
class TenantRecorder(Listener):
    """An observer. Requests that come before `since` or from `until` on do not count, nor does service.

    slo: of the version; 0 = none.
    """

    policies: Mapping[Tenant, TenantPolicy]
    slo: Duration
    since: Instant
    until: Instant
    timeline: Timeline = field(default_factory=Timeline)
    ledger: ServiceLedger = field(init=False)
    _tallies: dict[Tenant, Tally] = field(init=False)
    _back: dict[Tenant, Reclaim] = field(default_factory=dict)
    _at_end: dict[Tenant, tuple[float, float]] | None = None

    def __post_init__(self) -> None:
        self.ledger = ServiceLedger(self, self.since)
        self._tallies = {tenant: Tally() for tenant in self.policies}

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        if now >= self.until and self._at_end is None:
            self._at_end = self._service()
        self.ledger.observe(now, events, effects, scheduler)
        for effect in effects:
            if type(effect) is ReportStarvation and effect.starves:
                self._tallies[effect.tenant].starvations += 1
        for tenant, tally in self._tallies.items():
            watched = self.ledger.tenants.get(tenant)
            waiting = watched.waiting if watched else 0
            tally.longest_queue = max(tally.longest_queue, waiting)
            self.timeline.waiting(tenant, now, waiting)

    def _service(self) -> dict[Tenant, tuple[float, float]]:
        tenants = self.ledger.tenants
        return {t: (tenants[t].received, tenants[t].owed) if t in tenants else (0.0, 0.0) for t in self.policies}

    # -- what the ledger tells -------------------------------------------------------------------

    def returned(self, tenant: Tenant, now: Instant, in_flight: int) -> None:
        watched = self.ledger.tenants[tenant]
        others = any(other.waiting for name, other in self.ledger.tenants.items() if name != tenant)
        if others and not watched.running:
            self._back[tenant] = Reclaim(now, in_flight)

    def begins(self, flight: Flight, now: Instant) -> None:
        for tenant in list(self._back):
            back, tally = self._back[tenant], self._tallies[tenant]
            if tenant not in flight.parts:
                back.began += flight.at >= back.at
                continue
            del self._back[tenant]
            tally.returns += 1
            tally.reclaim = max(tally.reclaim, now - back.at)
            tally.reclaim_batches = max(tally.reclaim_batches, back.in_flight + back.began)

    def served(self, flight: Flight, service: Duration, now: Instant) -> None:
        for tenant, part in flight.fractions.items():
            self.timeline.served(tenant, now - service // flight.cores, now, service * part)

    def ended(self, request: Open, effect: ResolveRequest, now: Instant) -> None:
        event, latency = request.event, now - request.arrived
        if effect.outcome is Outcome.COMPLETED:
            self.timeline.answered(event.tenant, now, latency)
        else:
            if self.ledger.is_idle(event.tenant):
                self._back.pop(event.tenant, None)
        if not self.since <= request.arrived < self.until:
            return
        tally = self._tallies[event.tenant]
        tally.outcomes[effect.outcome] += 1
        if effect.outcome is Outcome.COMPLETED:
            tally.latencies.append(latency)
            slo = self.policies[event.tenant].slo(VERSION.model, self.slo)
            tally.in_slo += not slo or latency <= slo

    # -- the report ------------------------------------------------------------------------------

    def report(self, overall: Report, utilisation: float) -> TenantsReport:
        service = self._at_end or self._service()
        given = sum(received for received, _ in service.values()) or 1.0
        owed = sum(due for _, due in service.values()) or 1.0
        tenants = {
            tenant: self._tenant(tenant, received, received / given, due, due / owed)
            for tenant, (received, due) in service.items()
        }
        gap = self.ledger.gaps.worst
        return TenantsReport(
            overall,
            tenants,
            jain=round(jain(service[t][0] / self.policies[t].weight for t in service), 4),
            jain_of_owed=round(jain(received / due for received, due in service.values() if due), 4),
            gap_ms=round(gap.service / MILLISECOND, 3) if gap else 0.0,
            gap_between=(gap.ahead, gap.behind) if gap else None,
            utilisation=round(utilisation, 4),
        )

    def _tenant(self, tenant: Tenant, received: float, share: float, due: float, owed: float) -> TenantReport:
        tally = self._tallies[tenant]
        ordered = sorted(tally.latencies)
        per_second = SECOND / max(1, self.until - self.since)
        ends = {kind: _named(tally.outcomes, kind) for kind in Kind}
        others = {**ends[Kind.EXPIRED], **ends[Kind.CANCELLED], **ends[Kind.FAILED]}
        return TenantReport(
            weight=self.policies[tenant].weight,
            requests=tally.outcomes.total(),
            completed=len(ordered),
            throughput_per_s=round(len(ordered) * per_second, 3),
            goodput_per_s=round(tally.in_slo * per_second, 3),
            late=round(1 - tally.in_slo / len(ordered), 4) if ordered else 0.0,
            p50_ms=round(percentile(ordered, 0.5) / MILLISECOND, 3),
            p99_ms=round(percentile(ordered, 0.99) / MILLISECOND, 3),
            service_s=round(received / SECOND, 4),
            share=round(share, 4),
            owed_s=round(due / SECOND, 4),
            owed=round(owed, 4),
            refusals=ends[Kind.REFUSED],
            other_ends=others,
            longest_queue=tally.longest_queue,
            returns=tally.returns,
            reclaim_ms=round(tally.reclaim / MILLISECOND, 3),
            reclaim_batches=tally.reclaim_batches,
            starvations=tally.starvations,
        )


def _named(outcomes: Counter[Outcome], kind: Kind) -> dict[str, int]:
    return {outcome.value: outcomes[outcome] for outcome in Outcome if outcomes[outcome] and outcome.kind is kind}


HEADINGS = (
    "tenant", "weight", "share", "owed", "device s", "p50 ms", "p99 ms", "in SLO/s", "completed", "refused",
    "reclaim ms", "batches",
)  # fmt: skip


def tenants_table(report: TenantsReport) -> str:
    """The report for a terminal."""
    rows = [HEADINGS, *(_row(name, tenant) for name, tenant in report.tenants.items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADINGS))]
    lines = [
        "  ".join(
            cell.ljust(w) if n == 0 else cell.rjust(w) for n, (cell, w) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lines += ["", f"Jain index of service / weight {report.jain:g}, of service / owed {report.jain_of_owed:g}"]
    if report.gap_between:
        ahead, behind = report.gap_between
        lines.append(f"largest service gap {report.gap_ms:g} ms / weight: {ahead} ahead of {behind}")
    for name, tenant in report.tenants.items():
        ends = {**tenant.refusals, **tenant.other_ends}
        if ends:
            lines.append(f"{name}: " + ", ".join(f"{reason} {count}" for reason, count in ends.items()))
        if tenant.starvations:
            lines.append(f"{name}: reported as starving {tenant.starvations} times")
    return "\n".join(lines) + "\n\n" + as_table(report.overall)


def _row(name: Tenant, tenant: TenantReport) -> tuple[str, ...]:
    return (
        name,
        f"{tenant.weight:g}",
        f"{tenant.share:.1%}",
        f"{tenant.owed:.1%}",
        f"{tenant.service_s:.2f}",
        f"{tenant.p50_ms:.1f}",
        f"{tenant.p99_ms:.1f}",
        f"{tenant.goodput_per_s:.1f}",
        str(tenant.completed),
        str(sum(tenant.refusals.values())),
        f"{tenant.reclaim_ms:.1f}" if tenant.returns else "-",
        str(tenant.reclaim_batches) if tenant.returns else "-",
    )
