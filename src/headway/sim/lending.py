"""Judges who gave up room for whom, by the naive books: never more than the rules for lent room allow."""

from __future__ import annotations

from collections import deque
from fractions import Fraction

from headway.core.ids import RequestId, Tenant
from headway.core.outcomes import Outcome
from headway.sim.ledger import Ledger, TrackedRequest, TrackedVersion

NO_ROOM = (Outcome.QUEUE_FULL, Outcome.TENANT_QUEUE_FULL, Outcome.OVERLOADED)
"""What a request is refused with for want of room."""


class Lending:
    """reclaimed: the requests that lost their room in this call, in order."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.reclaimed: deque[RequestId] = deque()

    def is_full(self, request: TrackedRequest) -> bool:
        return self._version_is_full(request) or self._bytes_are_full(request)

    def make_room(self, request: TrackedRequest) -> None:
        """It was let in: whoever had to go for that must have been the right one. Raises AssertionError."""
        while self.is_full(request):
            assert self.reclaimed, f"{request.event} was let in, and there was no room"
            victim = self._ledger.open[self.reclaimed.popleft()]
            assert not victim.begun, f"{victim.event} lost its room, and something of it was run"
            whose, by = victim.event.tenant, request.event.tenant
            if self._version_is_full(request):
                assert victim.version == request.version, f"{victim.event} had no room that {request.event} could use"
                version = self._ledger.versions[request.version]
                parts, holders = self._parts(version, request), version.waiting.values()
            else:
                parts, holders = self._byte_parts(request), self._ledger.open.values()
            story = f"{victim.event} gave room to {request.event}; parts of it by weight are {parts}"
            if whose != by:
                assert parts[by] <= 1, f"{story}: that one has had its own"
                assert parts[whose] > 1, f"{story}: that was its own"
                able = {each.event.tenant for each in holders if not each.begun} - {by}
                assert parts[whose] == max(parts[tenant] for tenant in able), f"{story}: unfairly"
            self._ledger.owe(victim.event.request, Outcome.RECLAIMED)

    def refuse(self, request: TrackedRequest) -> None:
        """It was not let in for want of room: nothing that was lent would have made room for it, of one that has less
        than its own. Judged where one that goes would be enough. Raises AssertionError."""
        version = self._ledger.versions[request.version]
        if self._ledger.memory_high or self._bytes_are_full(request) or not self._version_is_full(request):
            return
        parts = self._parts(version, request)
        able = {each.event.tenant for each in version.waiting.values() if not each.begun}
        beyond = max((parts[tenant] for tenant in able), default=Fraction(0))
        furthest = [tenant for tenant in able if parts[tenant] == beyond > 1]
        if parts[request.event.tenant] >= 1 or not furthest:
            return
        lent = [each for each in version.waiting.values() if each.event.tenant in furthest and not each.begun]
        has_to_go = len(version.waiting) + 1 - version.policy.max_queued_requests
        enough = has_to_go <= 1 and all(self._rows_without(each, request) for each in lent)
        story = f"{request.event} found no room, and has not had its own; parts by weight are {parts}"
        assert not enough or {each.event.tenant for each in lent} != set(furthest), story

    def _rows_without(self, victim: TrackedRequest, request: TrackedRequest) -> bool:
        """Whether there are rows enough once this one has gone."""
        version = self._ledger.versions[request.version]
        rows = sum(waiting.waiting_rows for waiting in version.waiting.values()) - victim.waiting_rows
        return rows + request.waiting_rows <= version.policy.max_queued_rows

    def weight(self, tenant: Tenant) -> Fraction:
        return Fraction(str(dict(self._ledger.policy.tenants).get(tenant, self._ledger.policy.others).weight))

    def _version_is_full(self, request: TrackedRequest) -> bool:
        version = self._ledger.versions[request.version]
        rows = sum(waiting.waiting_rows for waiting in version.waiting.values()) + request.waiting_rows
        policy = version.policy
        return len(version.waiting) >= policy.max_queued_requests or rows > policy.max_queued_rows

    def _bytes_are_full(self, request: TrackedRequest) -> bool:
        return self._ledger.bytes + request.event.bytes > self._ledger.policy.max_queued_bytes

    def _parts(self, version: TrackedVersion, request: TrackedRequest) -> dict[Tenant, Fraction]:
        """What each tenant has of the room, with this request, over what is its own; 1 = all of that."""
        policy = version.policy
        held: dict[Tenant, list[int]] = {}
        for waiting in [*version.waiting.values(), request]:
            of_tenant = held.setdefault(waiting.event.tenant, [0, 0])
            of_tenant[0] += 1
            of_tenant[1] += waiting.waiting_rows
        limits = (policy.max_queued_requests, policy.max_queued_rows)
        return self._over_own({tenant: max(map(Fraction, of, limits)) for tenant, of in held.items()})

    def _byte_parts(self, request: TrackedRequest) -> dict[Tenant, Fraction]:
        held: dict[Tenant, int] = {}
        for tracked in [*self._ledger.open.values(), request]:
            held[tracked.event.tenant] = held.get(tracked.event.tenant, 0) + tracked.event.bytes
        limit = self._ledger.policy.max_queued_bytes
        return self._over_own({tenant: Fraction(size, limit) for tenant, size in held.items()})

    def _over_own(self, held: dict[Tenant, Fraction]) -> dict[Tenant, Fraction]:
        weights = sum(self.weight(tenant) for tenant in held)
        return {tenant: part * weights / self.weight(tenant) for tenant, part in held.items()}
