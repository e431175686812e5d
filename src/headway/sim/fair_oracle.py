"""What the fair order promises, judged by books of its own. Statements and proofs: docs/fairness.md.

For one version under one batch key, whatever its costs, lengths, weights and workers:

1. Two tenants that both have something waiting drift apart, over any interval, by no more than `bound`.
2. Who comes with nothing waiting and no debt is in a batch before any other tenant has led two of them, and one more
   for each that workers had then. Not with deadlines: who promotes them may lead more, within the bound.
3. A batch is led by the most urgent part of its tenant: within tenant and class nobody leads before one that
   came earlier.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core.effects import DispatchBatch, Effect, ResolveRequest, RetryParts
from headway.core.events import Event, RequestArrived, ServerConfigured, VersionConfigured
from headway.core.ids import BatchId, RequestId, Tenant
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, Duration, Instant
from headway.sim.gaps import Gap
from headway.sim.oracles import OracleViolation
from headway.sim.service import Flight, Listener, ServiceLedger, charges

ROUNDING = 1e-6
"""Of the service so far: the core counts whole nanoseconds, these books do not."""


@dataclass(slots=True)
class Waits:
    """Since when a tenant without debt waits for its first batch. before: batches that were with workers then.
    leaders: who has led how many since."""

    at: Instant
    before: int
    leaders: dict[Tenant, int] = field(default_factory=dict)


@dataclass(slots=True)
class FairOracle(Listener):
    """An observer. `bound` and `gap` can be asked at any time.

    longest: the dearest batch so far, as predicted or as measured, or part alone, in device nanoseconds x cores.
    in_flight: the most batches that workers had at once.
    """

    ledger: ServiceLedger = field(init=False)
    longest: float = 0.0
    in_flight: int = 1
    _scheduler: Scheduler | None = None
    _policy: BatchPolicy = field(default_factory=BatchPolicy)
    _patience: tuple[Duration, ...] = ()
    _promotes: bool = False
    _limit: Duration = 0
    _waits: dict[Tenant, Waits] = field(default_factory=dict)
    _joined: dict[Tenant, None] = field(default_factory=dict)
    _lanes: dict[tuple[Tenant, int], dict[RequestId, None]] = field(default_factory=dict)
    _lane_of: dict[RequestId, tuple[Tenant, int]] = field(default_factory=dict)
    _arrived_in: dict[RequestId, tuple[Tenant, int]] = field(default_factory=dict)
    _lightest: dict[Tenant, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.ledger = ServiceLedger(self)

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._joined.clear()
        for event in events:
            if type(event) is RequestArrived:
                self._arrived(event)
            elif type(event) is VersionConfigured:
                self._policy = event.policy
            elif type(event) is ServerConfigured:
                self._patience = event.policy.patience
                for tenant, policy in event.policy.tenants:
                    self._lightest[tenant] = min(policy.weight, self._lightest.get(tenant, policy.weight))
        for effect in effects:
            if type(effect) is DispatchBatch:
                self._leads(effect)
                self._splits(effect, scheduler)
            elif type(effect) is ResolveRequest:
                self._leave(effect.request)
                self._arrived_in.pop(effect.request, None)
            elif type(effect) is RetryParts:
                self._wait_again(effect)
        self.ledger.observe(now, events, effects, scheduler)
        for gap in self.ledger.gaps.news():
            self._judge(gap)

    # -- 1: the gap ------------------------------------------------------------------------------

    def bound(self, one: Tenant, other: Tenant) -> float:
        """On |W / w of one - W / w of the other|, in device nanoseconds x cores. See docs/fairness.md."""
        return self._of(one) + self._of(other)

    def _of(self, tenant: Tenant) -> float:
        """U / w: the batch that took it ahead, one more by which who returns is lifted too little, and what workers
        had; with deadlines the one by which it may be ahead and still be promoted."""
        promoted = self._limit if self._promotes else 0.0
        weight = self._lightest.get(tenant, self.ledger.weight(tenant))
        return ((1 + self.in_flight) * self.longest + promoted) / weight

    def _judge(self, gap: Gap) -> None:
        bound = self.bound(gap.ahead, gap.behind)
        if gap.service > bound + ROUNDING * self._received():
            raise OracleViolation(
                f"{gap.ahead} got {gap.service:.0f} ns / weight more than {gap.behind} from {gap.since} to {gap.until} "
                f"while both had something waiting; {bound:.0f} are allowed"
            )

    def _received(self) -> float:
        return sum(watched.received for watched in self.ledger.tenants.values())

    def _splits(self, effect: DispatchBatch, scheduler: Scheduler) -> None:
        """The charges of a batch sum to the batch."""
        running = scheduler._state.workers[effect.worker].batches[effect.batch]
        charged = sum(charges(scheduler, effect).values())
        predicted = running.predicted * max(1, self._policy.cores)
        heaviest = max(account.weight for account, _ in running.charges)
        if abs(charged - predicted) > len(running.charges) * (1 + heaviest):
            raise OracleViolation(f"{effect} takes {predicted} ns x cores, and its tenants are charged {charged:.0f}")

    # -- 2: who is under its share is served -------------------------------------------------------

    def returned(self, tenant: Tenant, now: Instant, in_flight: int) -> None:
        """Without debt: where one is who returns now, and not in a batch of this very call already."""
        assert self._scheduler is not None
        fair = next(iter(self._scheduler._state.devices.values())).fair
        others = [account.settled for account in fair.backlogged.values() if account.tenant != tenant]
        level = max(fair.virtual_time, min(others, default=0))
        if tenant not in self._joined and fair.accounts[tenant].counter <= level:
            self._waits[tenant] = Waits(now, in_flight)

    def left(self, batch: BatchId, flight: Flight, now: Instant) -> None:
        self.in_flight = max(self.in_flight, len(self.ledger.flights))
        self._size(batch, flight)
        for tenant in flight.parts:
            self._joined[tenant] = None
            self._waits.pop(tenant, None)
        for tenant, waits in self._waits.items():
            led = waits.leaders[flight.leader] = waits.leaders.get(flight.leader, 0) + 1
            if led > 1 + waits.before and not self._promotes:
                raise OracleViolation(f"{flight.leader} has led {led} batches since {waits.at}, {tenant} waits since")

    def _size(self, batch: BatchId, flight: Flight) -> None:
        assert self._scheduler is not None
        running = self._scheduler._state.workers[flight.worker].batches[batch]
        cost = self._scheduler._state.pools[running.key.version_id].cost
        dearest = max([running.predicted, *(cost.median(part.rows, part.length) for part in running.members)])
        self.longest = max(self.longest, dearest * flight.cores)
        for part in running.members:
            limit = self._policy.time_limit(cost.upper(part.rows, part.length))
            self._limit = max(self._limit, limit * flight.cores)

    def served(self, flight: Flight, service: Duration, now: Instant) -> None:
        self.longest = max(self.longest, service)

    # -- 3: order inside tenant and class ----------------------------------------------------------

    def _arrived(self, event: RequestArrived) -> None:
        if event.deadline != NEVER:
            self._promotes = True  # and urgency depends on what the core expects a run to take
            return
        lane = (event.tenant, min(event.priority, len(self._patience) - 1))
        self._lanes.setdefault(lane, {})[event.request] = None
        self._lane_of[event.request] = self._arrived_in[event.request] = lane

    def _wait_again(self, effect: RetryParts) -> None:
        """In their old places: ids are in order of arrival."""
        for ref in effect.parts:
            lane = self._arrived_in.get(ref.request)
            if lane is not None:
                self._lane_of[ref.request] = lane
                self._lanes[lane] = dict.fromkeys(sorted({*self._lanes.get(lane, {}), ref.request}))

    def _leads(self, effect: DispatchBatch) -> None:
        first = effect.parts[0].request
        lane = self._lane_of.get(first)
        if lane is not None:
            earliest = next(iter(self._lanes[lane]))
            if earliest != first:
                raise OracleViolation(f"{effect} is led by {first}, and {earliest} of {lane} came first and waits")
        for ref in effect.parts:
            self._leave(ref.request)

    def _leave(self, request: RequestId) -> None:
        lane = self._lane_of.pop(request, None)
        if lane is not None:
            requests = self._lanes[lane]
            del requests[request]
            if not requests:
                del self._lanes[lane]
