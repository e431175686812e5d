"""The largest service gap: between any two tenants, over any interval in which both were backlogged."""

from __future__ import annotations

from dataclasses import dataclass, field

from headway.core.ids import Tenant
from headway.core.units import Instant


@dataclass(frozen=True, slots=True)
class Gap:
    """ahead received so much more than behind, each divided by its weight, between since and until (ns)."""

    ahead: Tenant
    behind: Tenant
    service: float
    since: Instant
    until: Instant


@dataclass(slots=True)
class Extremes:
    """Of the difference one - other, while both are backlogged: the least and the greatest, and when."""

    least: float
    least_at: Instant
    most: float
    most_at: Instant


@dataclass(slots=True)
class Gaps:
    """Exact, without looking at intervals: within one common backlog the largest |difference at the end - difference
    at the beginning| over all intervals is the greatest difference less the least one.

    received: service / weight of those who are backlogged, since that began.
    largest: by pair of names in order.
    """

    largest: dict[tuple[Tenant, Tenant], Gap] = field(default_factory=dict)
    _received: dict[Tenant, float] = field(default_factory=dict)
    _pairs: dict[tuple[Tenant, Tenant], Extremes] = field(default_factory=dict)
    _news: dict[tuple[Tenant, Tenant], Gap] = field(default_factory=dict)

    def news(self) -> list[Gap]:
        """Those that have become the largest of their pair since this was asked last."""
        news, self._news = self._news, {}
        return list(news.values())

    @property
    def worst(self) -> Gap | None:
        return max(self.largest.values(), key=lambda gap: gap.service, default=None)

    def open(self, tenant: Tenant, now: Instant) -> None:
        """It is backlogged from now on."""
        self._received[tenant] = 0.0
        for other in self._received:
            if other != tenant:
                one, two = sorted((tenant, other))
                difference = self._received[one] - self._received[two]
                self._pairs[one, two] = Extremes(difference, now, difference, now)

    def close(self, tenant: Tenant) -> None:
        """It is no longer."""
        del self._received[tenant]
        for other in self._received:
            one, two = sorted((tenant, other))
            del self._pairs[one, two]

    def add(self, service: dict[Tenant, float], now: Instant) -> None:
        """service: by tenant, divided by its weight; of those who are not backlogged it does not count."""
        changed = [tenant for tenant in service if tenant in self._received]
        for tenant in changed:
            self._received[tenant] += service[tenant]
        for tenant in changed:
            for other in self._received:
                if other != tenant and (other not in service or tenant < other):
                    one, two = sorted((tenant, other))
                    self._move(one, two, now)

    def _move(self, one: Tenant, two: Tenant, now: Instant) -> None:
        pair = self._pairs[one, two]
        difference = self._received[one] - self._received[two]
        known = self.largest.get((one, two))
        if difference > pair.most:
            pair.most, pair.most_at = difference, now
            gap = Gap(one, two, difference - pair.least, pair.least_at, now)
        elif difference < pair.least:
            pair.least, pair.least_at = difference, now
            gap = Gap(two, one, pair.most - difference, pair.most_at, now)
        else:
            return
        if known is None or gap.service > known.service:
            self.largest[one, two] = self._news[one, two] = gap
