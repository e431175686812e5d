"""Whose turn it is, by counters of its own: a second set of books beside the core's, kept by the rules of
docs/fairness.md and compared with what leaves.

1. The head of a batch is of the tenant with the least counter of those who wait; or it has a deadline, and its tenant
   is not more than one longest batch ahead of the least.
2. So is each member that pays, with what its tenant has in this batch already counted. Behind them are only such that
   make the batch no longer, as good as.
3. Those who pay share the batch's service in proportion to what each of them would have taken alone.

What a batch, or a part alone, is predicted to take is the core's to say; the counters are not. For one version under
one key, in which nobody loses room to another, nothing is cancelled and workers die of nothing that they run.
"""

from __future__ import annotations

from collections.abc import Callable, Container
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
from headway.core.ids import BatchId, Part, PartRef, RequestId, Tenant, WorkerId
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, Duration, Instant
from headway.sim.bookkeeping import WHEN_ITS_TURN_CAME
from headway.sim.oracles import OracleViolation

NEARLY = 1 + 1 / 64
"""A batch is as good as no longer for who comes along, up to so many times what it took."""

Median = Callable[[int, int], Duration]
"""(rows, length) -> what a batch is predicted to take."""


@dataclass(slots=True)
class Taken:
    """A batch that a worker has. owners: of its members.  charged: to counters, as predicted."""

    worker: WorkerId
    predicted: Duration
    refs: tuple[PartRef, ...]
    owners: list[Tenant]
    charged: dict[Tenant, float]


@dataclass(slots=True)
class Standing:
    """A tenant. counter: service / weight, as charged.  unsettled: of it, what is only predicted.
    waiting: requests.  parts: that wait or run."""

    counter: float = 0.0
    unsettled: float = 0.0
    waiting: dict[RequestId, int] = field(default_factory=dict)
    parts: int = 0

    @property
    def settled(self) -> float:
        return self.counter - self.unsettled


@dataclass(slots=True)
class TurnOracle:
    """An observer. virtual_time: where the last batch was led."""

    virtual_time: float = 0.0
    tenants: dict[Tenant, Standing] = field(default_factory=dict)
    _flights: dict[BatchId, Taken] = field(default_factory=dict)
    _requests: dict[RequestId, RequestArrived] = field(default_factory=dict)
    _policy: BatchPolicy = field(default_factory=BatchPolicy)
    _server: ServerPolicy = field(default_factory=ServerPolicy)
    _charges: int = 0

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        again = {ref for effect in effects if type(effect) is RetryParts for ref in effect.parts}
        refused = {effect.request for effect in effects if type(effect) is ResolveRequest and _at_the_door(effect)}
        for event in events:
            self._told(event, refused, again)
        for effect in effects:
            if type(effect) is ResolveRequest:
                self._resolved(effect.request)
            elif type(effect) is DispatchBatch:
                self._dispatched(effect, scheduler)

    @property
    def slack(self) -> float:
        """The core counts whole nanoseconds, these books do not."""
        return 2.0 + self._charges

    def weight(self, tenant: Tenant) -> float:
        return dict(self._server.tenants).get(tenant, self._server.others).weight

    # -- what the core is told ---------------------------------------------------------------

    def _told(self, event: Event, refused: set[RequestId], again: set[PartRef]) -> None:
        if type(event) is RequestArrived:
            if event.request not in refused or event.request in self._requests:
                self._arrived(event)
        elif type(event) is BatchCompleted or type(event) is BatchFailed:
            flight = self._flights.get(event.batch)
            if flight is not None and flight.worker == event.worker:
                self._ended(event.batch, event.duration)
        elif type(event) is WorkerLost:
            for batch in [batch for batch, flight in self._flights.items() if flight.worker == event.worker]:
                self._ended(batch, 0, again)
        elif type(event) is VersionConfigured:
            self._policy = event.policy
        elif type(event) is ServerConfigured:
            self._server = event.policy

    def _arrived(self, event: RequestArrived) -> None:
        self._requests[event.request] = event
        self._waits(event, len(event.parts))

    def _waits(self, event: RequestArrived, parts: int) -> None:
        """So many more of its parts."""
        tenant = self.tenants.setdefault(event.tenant, Standing())
        if not tenant.waiting:  # it returns
            waiting = [other.settled for other in self.tenants.values() if other.waiting]
            tenant.counter = max(tenant.counter, self.virtual_time, min(waiting, default=0.0))
        tenant.waiting[event.request] = tenant.waiting.get(event.request, 0) + parts
        tenant.parts += parts

    def _ended(self, batch: BatchId, took: Duration, again: Container[PartRef] = ()) -> None:
        """What was predicted becomes what was measured, in the same proportions. again: who waits once more."""
        flight = self._flights.pop(batch)
        for tenant, amount in flight.charged.items():
            self.tenants[tenant].unsettled -= amount
            self.tenants[tenant].counter += amount * (took - flight.predicted) / flight.predicted
            self._charges += 1
        for ref in flight.refs:
            if ref in again:
                self._waits(self._requests[ref.request], 1)
        for tenant in flight.owners:
            self._leaves(tenant, 1)

    def _resolved(self, request: RequestId) -> None:
        event = self._requests.pop(request, None)
        if event is not None:
            self._leaves(event.tenant, self.tenants[event.tenant].waiting.pop(request, 0))

    def _leaves(self, tenant: Tenant, parts: int) -> None:
        self.tenants[tenant].parts -= parts
        if not any(standing.parts for standing in self.tenants.values()):  # nobody is left to owe anything to
            self.virtual_time = max(self.virtual_time, *(standing.counter for standing in self.tenants.values()))

    # -- what leaves ---------------------------------------------------------------------------

    def _dispatched(self, effect: DispatchBatch, scheduler: Scheduler) -> None:
        running = scheduler._state.workers[effect.worker].batches[effect.batch]
        cost = scheduler._state.pools[effect.key.version_id].cost
        events = [self._requests[ref.request] for ref in effect.parts]
        owners = [event.tenant for event in events]
        parts = [event.parts[ref.part] for event, ref in zip(events, effect.parts, strict=True)]
        least = min(standing.counter for standing in self.tenants.values() if standing.waiting)
        self._leads(effect, events[0], least, self._policy.time_limit(cost.upper(parts[0].rows, parts[0].length)))
        charged = {account.tenant: float(amount) for account, amount in running.charges}
        in_turn = self._in_turn(effect, owners, parts, cost.median)
        if not running.is_probe:  # what one brings in joins in turn as well, behind those who came along
            self._shared(effect, owners[:in_turn], parts, charged, cost.median)
        self.virtual_time = max(self.virtual_time, least)
        for tenant, amount in charged.items():
            self.tenants[tenant].counter += amount
            self.tenants[tenant].unsettled += amount
            self._charges += 1
        self._flights[effect.batch] = Taken(effect.worker, running.predicted, effect.parts, owners, charged)

    def _leads(self, effect: DispatchBatch, head: RequestArrived, least: float, longest: Duration) -> None:
        ahead = self.tenants[head.tenant].counter - least
        allowed = longest * max(1, self._policy.cores) / self.weight(head.tenant) if head.deadline < NEVER else 0.0
        if ahead > allowed + self.slack:
            raise OracleViolation(f"{effect} is led by {head.tenant}, {ahead:.0f} ns / weight ahead of who is next")

    def _in_turn(self, effect: DispatchBatch, owners: list[Tenant], parts: list[Part], alone: Median) -> int:
        """How many of the members came in the order of counters, with what each had in the batch already counted.
        They are in the batch afterwards."""
        tentative = {tenant: standing.counter for tenant, standing in self.tenants.items() if standing.waiting}
        in_turn = 0
        for position, (ref, owner, part) in enumerate(zip(effect.parts, owners, parts, strict=True)):
            least = min(tentative[tenant] for tenant in tentative if self.tenants[tenant].waiting)
            if position in (0, in_turn) and (position == 0 or tentative[owner] <= least + self.slack):
                in_turn += 1
            tentative[owner] += alone(part.rows, part.length) / self.weight(owner)
            self._takes(ref.request, owner)
        return in_turn

    def _takes(self, request: RequestId, owner: Tenant) -> None:
        waiting = self.tenants[owner].waiting
        waiting[request] -= 1
        if not waiting[request]:
            del waiting[request]

    def _shared(
        self,
        effect: DispatchBatch,
        owners: list[Tenant],
        parts: list[Part],
        charged: dict[Tenant, float],
        alone: Median,
    ) -> None:
        """owners: of those who may pay. Some number of the first of them do, and nobody else."""
        took = alone(sum(part.rows for part in parts), max(part.length for part in parts))
        service = took * max(1, self._policy.cores)
        solo: dict[Tenant, float] = {}
        rows = length = 0
        for owner, part in zip(owners, parts, strict=False):
            solo[owner] = solo.get(owner, 0.0) + alone(part.rows, part.length)
            rows, length = rows + part.rows, max(length, part.length)
            shares = {t: service * of / sum(solo.values()) / self.weight(t) for t, of in solo.items()}
            if took <= NEARLY * alone(rows, length) and self._agree(shares, charged):
                return
        raise OracleViolation(f"{effect} takes {service} ns x cores, charged as {charged}; in turn came {owners}")

    def _agree(self, shares: dict[Tenant, float], charged: dict[Tenant, float]) -> bool:
        return shares.keys() == charged.keys() and all(abs(shares[t] - charged[t]) <= 2 for t in shares)


def _at_the_door(effect: ResolveRequest) -> bool:
    return not effect.detail.startswith(WHEN_ITS_TURN_CAME)
