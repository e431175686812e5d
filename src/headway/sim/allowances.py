"""Judges whom the tenants' limits keep out, by the naive books: only who is let in uses up its tenant's rate."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core.ids import Tenant
from headway.core.outcomes import Outcome
from headway.core.tenancy import RateLimit
from headway.core.units import SECOND, Instant
from headway.sim.ledger import Ledger, TrackedRequest

TOO_CLOSE = 1e-6
"""Of a request or token: buckets so nearly short may be either."""


@dataclass(slots=True)
class Allowance:
    """What is left of one limit, as of `at`."""

    limit: RateLimit
    at: Instant
    requests: float = field(init=False)
    tokens: float = field(init=False)

    def __post_init__(self) -> None:
        self.requests = self.limit.requests_per_second * self.limit.burst
        self.tokens = self.limit.tokens_per_second * self.limit.burst

    def fill(self, now: Instant) -> None:
        limit, span = self.limit, (now - self.at) / SECOND
        self.requests = min(limit.requests_per_second * limit.burst, self.requests + span * limit.requests_per_second)
        self.tokens = min(limit.tokens_per_second * limit.burst, self.tokens + span * limit.tokens_per_second)
        self.at = now

    def take(self, tokens: int) -> None:
        self.requests -= 1
        self.tokens -= tokens

    def missing(self, tokens: int) -> float:
        """How much more there would have to be of what is scarcest; one that is more than a full bucket needs that."""
        limit, missing = self.limit, [-1.0]
        if limit.requests_per_second:
            missing.append(min(1, limit.requests_per_second * limit.burst) - self.requests)
        if limit.tokens_per_second:
            missing.append(min(tokens, limit.tokens_per_second * limit.burst) - self.tokens)
        return max(missing)


class Allowances:
    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._of: dict[tuple[Tenant, RateLimit], Allowance] = {}

    def judge(self, request: TrackedRequest, refused: Outcome | None, now: Instant) -> None:
        """Of one that there is nothing else against at once. Raises AssertionError."""
        allowances = self._covering(request, now)
        missing = max((allowance.missing(_tokens(request)) for allowance in allowances), default=-1.0)
        is_full = any(0 < a.limit.concurrent <= self._open(request, a.limit) for a in allowances)
        if refused is Outcome.RATE_LIMITED:
            assert is_full or missing > -TOO_CLOSE, f"{request.event} was refused within its tenant's limits"
        else:
            assert not is_full, f"{request.event} was not refused, and as many of its tenant are open as may be"
            assert missing < TOO_CLOSE, (
                f"{request.event} was not refused, and {missing} are missing of its tenant's rate"
            )

    def admit(self, request: TrackedRequest, now: Instant) -> None:
        for allowance in self._covering(request, now):
            allowance.take(_tokens(request))

    def _covering(self, request: TrackedRequest, now: Instant) -> list[Allowance]:
        policy, tenant = self._ledger.policy, request.event.tenant
        limits = dict(policy.tenants).get(tenant, policy.others).limits
        found = [
            self._of.setdefault((tenant, each), Allowance(each, now))
            for each in limits
            if each.covers(_longest(request))
        ]
        for allowance in found:
            allowance.fill(now)
        return found

    def _open(self, request: TrackedRequest, limit: RateLimit) -> int:
        tenant = request.event.tenant
        return sum(o.event.tenant == tenant and limit.covers(_longest(o)) for o in self._ledger.open.values())


def _longest(request: TrackedRequest) -> int:
    return max(part.length for part in request.event.parts)


def _tokens(request: TrackedRequest) -> int:
    return sum(part.rows * part.length for part in request.event.parts)
