"""Who received how much of the device, who waited meanwhile, and how far apart that left them.

Books of their own beside the core's: an observer of what it is told and says. Service is counted
when a batch is answered: its measured time x cores, in the proportions in which the fair order
charges it (by what each would have taken alone; nothing for who came along for free). A batch that
dies with its worker served nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core.effects import DispatchBatch, Effect, ResolveRequest, RetryParts
from headway.core.events import (
    BatchCompleted,
    BatchFailed,
    Event,
    RequestArrived,
    ServerConfigured,
    VersionConfigured,
    WorkerLost,
)
from headway.core.ids import BatchId, RequestId, Tenant, VersionId, WorkerId
from headway.core.policy import ServerPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import Duration, Instant
from headway.sim.gaps import Gaps


@dataclass(slots=True)
class Open:
    """A request without an outcome. waiting: parts not yet handed over. left: parts without an answer."""

    event: RequestArrived
    arrived: Instant
    waiting: int
    left: int


@dataclass(slots=True)
class Flight:
    """A batch that a worker has.

    leader: whose head it was built around.  fractions: of its service, by tenant.
    owed: fractions of its service by the weights of those who waited when it left.
    weights: of its members when it left.  parts: by tenant.
    """

    worker: WorkerId
    cores: int
    at: Instant
    leader: Tenant
    fractions: dict[Tenant, float]
    owed: dict[Tenant, float]
    weights: dict[Tenant, float]
    parts: dict[Tenant, int]


@dataclass(slots=True)
class Watched:
    """A tenant. received, owed: device nanoseconds x cores. waiting, running: parts."""

    received: float = 0.0
    owed: float = 0.0
    waiting: int = 0
    running: int = 0


class Listener:
    """What the ledger tells whoever wants to know; does nothing by itself."""

    def returned(self, tenant: Tenant, now: Instant, in_flight: int) -> None:
        """It had nothing waiting, and has now. in_flight: batches that workers have at that moment."""

    def left(self, batch: BatchId, flight: Flight, now: Instant) -> None:
        """A batch is handed over."""

    def begins(self, flight: Flight, now: Instant) -> None:
        """Its worker begins with it."""

    def served(self, flight: Flight, service: Duration, now: Instant) -> None:
        """A batch is answered. service: 0 where it died with its worker."""

    def ended(self, request: Open, effect: ResolveRequest, now: Instant) -> None:
        """A request has its outcome."""


@dataclass(slots=True)
class ServiceLedger:
    """An observer. since: nothing is counted as received or owed before."""

    listener: Listener = field(default_factory=Listener)
    since: Instant = 0
    tenants: dict[Tenant, Watched] = field(default_factory=dict)
    flights: dict[BatchId, Flight] = field(default_factory=dict)
    gaps: Gaps = field(default_factory=Gaps)
    _open: dict[RequestId, Open] = field(default_factory=dict)
    _cores: dict[VersionId, int] = field(default_factory=dict)
    _policy: ServerPolicy = field(default_factory=ServerPolicy)
    _weights: dict[Tenant, float] = field(default_factory=dict)
    _backlog: dict[Tenant, None] = field(default_factory=dict)

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        came: dict[Tenant, None] = {}
        restarted: dict[Tenant, None] = {}
        for event in events:
            self._told(event, now, came)
        for effect in effects:
            if type(effect) is DispatchBatch:
                self._dispatched(effect, now, scheduler)
            elif type(effect) is ResolveRequest:
                self._resolved(effect, now, restarted)
            elif type(effect) is RetryParts:
                self._waits_again(effect, came)
        self._renew_backlogs(now, came, restarted)

    def weight(self, tenant: Tenant) -> float:
        return self._weights.get(tenant, self._policy.others.weight)

    def is_idle(self, tenant: Tenant) -> bool:
        watched = self.tenants.get(tenant)
        return watched is None or not (watched.waiting or watched.running)

    # -- what the core is told ---------------------------------------------------------------

    def _told(self, event: Event, now: Instant, came: dict[Tenant, None]) -> None:
        if type(event) is RequestArrived:
            self._open[event.request] = Open(event, now, len(event.parts), len(event.parts))
            self.tenants.setdefault(event.tenant, Watched()).waiting += len(event.parts)
            came[event.tenant] = None
        elif type(event) is BatchCompleted or type(event) is BatchFailed:
            flight = self.flights.get(event.batch)
            if flight is not None and flight.worker == event.worker:
                self._ran(event.batch, event.duration, now)
        elif type(event) is WorkerLost:
            for batch in [batch for batch, flight in self.flights.items() if flight.worker == event.worker]:
                self._ran(batch, 0, now)
        elif type(event) is VersionConfigured:
            self._cores[event.version] = max(1, event.policy.cores)
        elif type(event) is ServerConfigured:
            self._policy = event.policy
            self._weights = {tenant: policy.weight for tenant, policy in event.policy.tenants}

    def _ran(self, batch: BatchId, duration: Duration, now: Instant) -> None:
        flight = self.flights.pop(batch)
        service = duration * flight.cores
        for tenant, parts in flight.parts.items():
            self.tenants[tenant].running -= parts
        if now >= self.since:
            for tenant, part in flight.fractions.items():
                self.tenants[tenant].received += service * part
            for tenant, part in flight.owed.items():
                self.tenants[tenant].owed += service * part
        self.gaps.add({t: service * part / flight.weights[t] for t, part in flight.fractions.items()}, now)
        self.listener.served(flight, service, now)
        following = next((other for other in self.flights.values() if other.worker == flight.worker), None)
        if following is not None:
            self.listener.begins(following, now)
        for tenant in flight.parts:
            self._forget(tenant)

    # -- what the core says --------------------------------------------------------------------

    def _dispatched(self, effect: DispatchBatch, now: Instant, scheduler: Scheduler) -> None:
        parts: dict[Tenant, int] = {}
        backlog = {tenant: self.weight(tenant) for tenant, _ in self._waiting()}
        for ref in effect.parts:
            request = self._open[ref.request]
            tenant = request.event.tenant
            parts[tenant] = parts.get(tenant, 0) + 1
            request.waiting -= 1
        for tenant, count in parts.items():
            self.tenants[tenant].waiting -= count
            self.tenants[tenant].running += count
        charged = charges(scheduler, effect)
        total, weights = sum(charged.values()) or 1.0, sum(backlog.values())
        flight = Flight(
            effect.worker,
            self._cores[effect.key.version_id],
            now,
            self._open[effect.parts[0].request].event.tenant,
            {tenant: charge / total for tenant, charge in charged.items()},
            {tenant: weight / weights for tenant, weight in backlog.items()},
            {tenant: backlog[tenant] for tenant in charged},
            parts,
        )
        follows = any(other.worker == effect.worker for other in self.flights.values())
        self.flights[effect.batch] = flight
        self.listener.left(effect.batch, flight, now)
        if not follows:
            self.listener.begins(flight, now)

    def _waits_again(self, effect: RetryParts, came: dict[Tenant, None]) -> None:
        for ref in effect.parts:
            request = self._open[ref.request]
            request.waiting += 1
            tenant = request.event.tenant
            self.tenants.setdefault(tenant, Watched()).waiting += 1
            came[tenant] = None

    def _waiting(self) -> list[tuple[Tenant, Watched]]:
        """Tenants with something that waits: those of the backlog, and newcomers of this call."""
        return [(tenant, watched) for tenant, watched in self.tenants.items() if watched.waiting]

    def _resolved(self, effect: ResolveRequest, now: Instant, restarted: dict[Tenant, None]) -> None:
        request = self._open.pop(effect.request)
        tenant = request.event.tenant
        if request.waiting:
            self.tenants[tenant].waiting -= request.waiting
            restarted[tenant] = None
        self.listener.ended(request, effect, now)
        self._forget(tenant)

    def _forget(self, tenant: Tenant) -> None:
        """Of who is idle and not configured nothing is kept: there may be ever so many."""
        if tenant not in self._weights and self.is_idle(tenant) and tenant not in self._backlog:
            self.tenants.pop(tenant, None)

    # -- backlogs ------------------------------------------------------------------------------

    def _renew_backlogs(self, now: Instant, came: dict[Tenant, None], restarted: dict[Tenant, None]) -> None:
        """Nobody's backlog changes but by a call in which something of it comes or goes.

        restarted: what waited left otherwise than in a batch; if something came as well, there may have been a moment
        with nothing waiting in between, and the interval begins anew.
        """
        for tenant in [t for t in self._backlog if not self.tenants[t].waiting or (t in restarted and t in came)]:
            del self._backlog[tenant]
            self.gaps.close(tenant)
            self._forget(tenant)
        for tenant in came:
            watched = self.tenants.get(tenant)
            if watched is not None and watched.waiting and tenant not in self._backlog:
                self._backlog[tenant] = None
                self.gaps.open(tenant, now)
                self.listener.returned(tenant, now, len(self.flights))


def charges(scheduler: Scheduler, effect: DispatchBatch) -> dict[Tenant, float]:
    """What each tenant is charged for a batch that has just left, as predicted, in device nanoseconds x cores."""
    batch = scheduler._state.workers[effect.worker].batches[effect.batch]
    return {account.tenant: amount * account.weight for account, amount in batch.charges}
