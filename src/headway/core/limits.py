"""Rate limits: token buckets, and how many requests of a tenant may be open.

A bucket holds `burst` seconds of its rate and fills all the time. A request takes what it needs out of
it; one that needs more than it ever holds passes when it is full, and leaves it in debt. Buckets that
are full again, of tenants with nothing open, are forgotten.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Any

from headway.core.ids import Tenant
from headway.core.record import record
from headway.core.tenancy import RateLimit, Tenancy
from headway.core.units import NEVER, SECOND, Duration, Instant

FULL = 1e-9
"""Of a bucket, that may be missing for it to be full: sums of fractions are not exact."""


class Meter:
    """One limit of one tenant.

    requests, tokens: left in the buckets, as of `at`.  open: requests without an outcome.
    """

    __slots__ = ("at", "limit", "open", "requests", "tenant", "tokens")

    def __init__(self, tenant: Tenant, limit: RateLimit, now: Instant) -> None:
        self.tenant = tenant
        self.limit = limit
        self.requests = limit.requests_per_second * limit.burst
        self.tokens = limit.tokens_per_second * limit.burst
        self.at = now
        self.open = 0

    def fill(self, now: Instant) -> None:
        limit, span = self.limit, (now - self.at) / SECOND
        self.requests = min(limit.requests_per_second * limit.burst, self.requests + span * limit.requests_per_second)
        self.tokens = min(limit.tokens_per_second * limit.burst, self.tokens + span * limit.tokens_per_second)
        self.at = now

    def full_in(self) -> Duration:
        """How long until both buckets are full, from `at`."""
        limit = self.limit
        waits = [0.0]
        if limit.requests_per_second:
            waits.append(limit.burst - self.requests / limit.requests_per_second)
        if limit.tokens_per_second:
            waits.append(limit.burst - self.tokens / limit.tokens_per_second)
        longest = max(waits)
        return 0 if longest <= FULL else int(longest * SECOND) + 1


@record
class Shortage:
    """Why a limit does not let a request through. retry_after: when it would; 0 = when one that is open has ended."""

    detail: str
    retry_after: Duration


class Limits:
    """The meters of all tenants that have limits."""

    __slots__ = ("_forget", "_tenancy", "meters")

    def __init__(self, tenancy: Tenancy) -> None:
        self._tenancy = tenancy
        self.meters: dict[tuple[Tenant, RateLimit], Meter] = {}
        self._forget: list[tuple[Instant, Tenant, RateLimit]] = []

    def covering(self, tenant: Tenant, length: int, now: Instant) -> tuple[Meter, ...]:
        """The meters that a request of this length counts on."""
        limits = self._tenancy.of(tenant).limits
        if not limits:
            return ()
        self._tidy(now)
        return tuple(self._meter(tenant, limit, now) for limit in limits if limit.covers(length))

    def _meter(self, tenant: Tenant, limit: RateLimit, now: Instant) -> Meter:
        meter = self.meters.get((tenant, limit))
        if meter is None:
            meter = self.meters[tenant, limit] = Meter(tenant, limit, now)
            self._watch(meter)
        return meter

    def _watch(self, meter: Meter) -> None:
        heappush(self._forget, (meter.at + meter.full_in(), meter.tenant, meter.limit))

    def _tidy(self, now: Instant) -> None:
        """Each meter is looked at when it would be full if nothing more were taken."""
        forget = self._forget
        while forget and forget[0][0] < now:
            _, tenant, limit = heappop(forget)
            meter = self.meters.get((tenant, limit))
            if meter is None:
                continue
            meter.fill(now)
            if meter.open or meter.full_in():
                heappush(forget, (now + max(SECOND, meter.full_in()), tenant, limit))
            else:
                del self.meters[tenant, limit]

    def snapshot(self) -> list[list[Any]]:
        """What is open is counted anew from the requests."""
        return [[m.tenant, list(m.limit), m.requests, m.tokens, m.at] for m in self.meters.values()]

    def restore(self, state: list[list[Any]]) -> None:
        for tenant, limit, requests, tokens, at in state:
            meter = Meter(tenant, RateLimit(*limit), at)
            meter.requests, meter.tokens = requests, tokens
            self.meters[tenant, meter.limit] = meter
            self._watch(meter)


def take(meters: tuple[Meter, ...], tokens: int) -> None:
    """The request is let in. The meters were filled when it was asked whether they are `short`."""
    for meter in meters:
        meter.requests -= 1 if meter.limit.requests_per_second else 0
        meter.tokens -= tokens if meter.limit.tokens_per_second else 0
        meter.open += 1


def short(meters: tuple[Meter, ...], tokens: int, now: Instant) -> Shortage | None:
    """What keeps a request of so many tokens out: of several reasons the one that lasts longest."""
    worst: Shortage | None = None
    for meter in meters:
        meter.fill(now)
        found = _short(meter, tokens)
        if found is not None and (worst is None or found.retry_after > worst.retry_after):
            worst = found
    return worst


def _short(meter: Meter, tokens: int) -> Shortage | None:
    limit = meter.limit
    if limit.concurrent and meter.open >= limit.concurrent:
        detail = f"{meter.open} requests{_range(limit)} of tenant {meter.tenant} are open; {limit.concurrent} may be"
        return Shortage(detail, 0)
    for left, wanted, rate, what in (
        (meter.requests, 1, limit.requests_per_second, "requests"),
        (meter.tokens, tokens, limit.tokens_per_second, "tokens"),
    ):
        least = min(wanted, rate * limit.burst)  # one that is more than a full bucket passes when it is full
        if rate and left < least - FULL:
            detail = f"tenant {meter.tenant} may send {rate:g} {what} per second{_range(limit)}, "
            detail += f"{rate * limit.burst:g} at once; {max(0.0, left):.3g} are left, and this is {wanted}"
            return Shortage(detail, int((least - left) / rate * SECOND) + 1)
    return None


def _range(limit: RateLimit) -> str:
    bounds = []
    if limit.beyond:
        bounds.append(f"longer than {limit.beyond} tokens")
    if limit.up_to < NEVER:
        bounds.append(f"of up to {limit.up_to} tokens")
    return f" {' and '.join(bounds)}" if bounds else ""
