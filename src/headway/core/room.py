"""Room to wait in, shared by weight: a guaranteed part, the rest lent to whoever asks first.

A tenant's part of a room is its weight among those that have something in it. As long as there is
room anybody may take it. Once it is full, who has less than its part gets what the tenant furthest
beyond its own has borrowed: the newest request of that tenant of which nothing was ever run is refused.
A room may be full in more than one way (requests, rows); what counts for a tenant is that of which
it has the greatest part (dominant resource fairness: Ghodsi et al. 2011).

Within a tenant's part its lengths share alike, so that its long requests do not keep out its short
ones: lengths of one doubling belong together.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.core.ids import Tenant
from headway.core.lazy import SLACK, Agenda
from headway.core.requests import Request
from headway.core.shares import units

LOOK_AT_TENANTS = 32
"""That are beyond their part, up to which one is looked for that has a request of which nothing was run."""

Amount = tuple[int, ...]
"""As many of each kind that a room has limits for."""


def doubling(length: int) -> int:
    """The number of the range of lengths that belong together: 1, 2 to 3, 4 to 7, ..."""
    return length.bit_length()


class Holding:
    """What one tenant has in a room.

    used: of each kind.  newest: by doubling of the length the requests that came, in order; some are gone by now.
    counts: how many are not.
    """

    __slots__ = ("counts", "entry", "newest", "tenant", "used", "weight")

    def __init__(self, tenant: Tenant, weight: int, kinds: int) -> None:
        self.tenant = tenant
        self.weight = weight
        self.used = [0] * kinds
        self.newest: dict[int, list[Request]] = {}
        self.counts: dict[int, int] = {}
        self.entry: tuple[Any, ...] | None = None

    def pop_newest(self) -> Request | None:
        """Of its length that has the most, the newest of which nothing was ever run; else of the next."""
        for length in sorted(self.counts, key=lambda length: (-self.counts[length], -length)):
            stack = self.newest[length]
            while stack:
                request = stack.pop()
                if request.parts and not request.begun:
                    return request
        return None


class Room:
    """limits: how much of each kind there is.  used: of each.  weights: of all holdings, in units.
    weight_of: a tenant's weight.
    lost, regained: requests that had to go for one whose room it was, by whose they were and for whom; of tenants that
        the operator has named, and of STRANGERS."""

    __slots__ = ("_furthest", "_weight_of", "holdings", "limits", "lost", "regained", "used", "weights")

    def __init__(self, limits: Amount, weight_of: Callable[[Tenant], float]) -> None:
        self.limits = limits
        self.used = [0] * len(limits)
        self.holdings: dict[Tenant, Holding] = {}
        self.lost: dict[Tenant, int] = {}
        self.regained: dict[Tenant, int] = {}
        self.weights = 0
        self._weight_of = weight_of
        self._furthest: Agenda[Holding] | None = None
        """Kept while the room is short: looking for who is furthest beyond its part must not take a look at all."""

    # -- coming and going ------------------------------------------------------------------

    def enter(self, request: Request, amount: Amount) -> None:
        tenant, length = request.tenant, request.doubling
        holding = self.holdings.get(tenant)
        if holding is None:
            holding = self.holdings[tenant] = Holding(tenant, units(self._weight_of(tenant)), len(self.limits))
            self.weights += holding.weight
        for kind, count in enumerate(amount):
            self.used[kind] += count
            holding.used[kind] += count
        count = holding.counts.get(length, 0) + 1
        holding.counts[length] = count
        stack = holding.newest.get(length)
        if stack is None:
            stack = holding.newest[length] = []
        stack.append(request)
        if len(stack) > 2 * count + SLACK:
            holding.newest[length] = [entry for entry in stack if entry.parts and entry.waiting]
        if self._furthest is not None:
            self._furthest.update(holding)

    def grow(self, request: Request, amount: Amount) -> None:
        """More of a request that is in it."""
        holding = self.holdings[request.tenant]
        for kind, count in enumerate(amount):
            self.used[kind] += count
            holding.used[kind] += count
        if self._furthest is not None:
            self._furthest.update(holding)

    def leave(self, request: Request, amount: Amount, whole: bool) -> None:
        """whole: nothing of it is left in the room."""
        holding = self.holdings[request.tenant]
        for kind, count in enumerate(amount):
            self.used[kind] -= count
            holding.used[kind] -= count
        if not whole:
            return
        length = request.doubling
        count = holding.counts[length] = holding.counts[length] - 1
        if count == 0:
            del holding.counts[length], holding.newest[length]
            if not holding.counts:
                self._remove(holding)
        if self._furthest is not None and not self._is_short():
            self._furthest = None

    def _remove(self, holding: Holding) -> None:
        del self.holdings[holding.tenant]
        self.weights -= holding.weight
        if self._furthest is not None:
            self._furthest.remove(holding)

    def reweigh(self) -> None:
        """The weights, or the limits, have changed."""
        self.weights = 0
        for holding in self.holdings.values():
            holding.weight = units(self._weight_of(holding.tenant))
            self.weights += holding.weight
        self._furthest = None

    # -- asking ----------------------------------------------------------------------------

    def lacks(self, amount: Amount) -> bool:
        """Whether it does not hold so much more."""
        return any(used + more > limit for used, more, limit in zip(self.used, amount, self.limits, strict=True))

    def part(self, tenant: Tenant) -> float:
        """Of the room, that is the tenant's own: among those that are in it, itself included."""
        holding = self.holdings.get(tenant)
        weight = units(self._weight_of(tenant)) if holding is None else holding.weight
        return weight / (self.weights + (0 if holding is not None else weight))

    def part_beside(self, holding: Holding, newcomer: Tenant) -> float:
        """Of the room, that is this tenant's own once the other is in it as well."""
        joins = 0 if newcomer in self.holdings else units(self._weight_of(newcomer))
        return holding.weight / (self.weights + joins)

    def has_part_left(self, tenant: Tenant, amount: Amount) -> bool:
        """Whether so much more is still the tenant's own."""
        holding = self.holdings.get(tenant)
        used = [0] * len(self.limits) if holding is None else holding.used
        part = self.part(tenant)
        return all(
            have + more <= part * limit for have, more, limit in zip(used, amount, self.limits, strict=True) if more
        )

    def has_length_left(self, tenant: Tenant, length: int) -> bool:
        """Whether it is requests that there is no room for, and those of such a length have less than their part of
        what is the tenant's own."""
        holding = self.holdings.get(tenant)
        if holding is None or len(self.limits) < 2 or self.used[0] < self.limits[0]:
            return False
        lengths = len(holding.counts) + (length not in holding.counts)
        return (holding.counts.get(length, 0) + 1) * lengths <= self.part(tenant) * self.limits[0]

    def is_shared(self, tenant: Tenant) -> bool:
        """Whether somebody else is in it."""
        return len(self.holdings) > (tenant in self.holdings)

    def borrowed(self, tenant: Tenant) -> int:
        """Of the first kind, beyond the tenant's own part."""
        holding = self.holdings.get(tenant)
        return 0 if holding is None else max(0, holding.used[0] - int(self.part(tenant) * self.limits[0]))

    def newest_borrowed(self, newcomer: Tenant) -> Request | None:
        """Of whoever is furthest beyond its part once the newcomer is in, and has one of which nothing was run; None
        where nobody is. A request that reaches beyond the part counts as borrowed, all of it."""
        if self._furthest is None:
            self._furthest = Agenda(self._beyond)
            for holding in self.holdings.values():
                holding.entry = None  # of the agenda before this one
                self._furthest.update(holding)
        found: Request | None = None
        passed_over: list[Holding] = []
        while found is None and len(passed_over) < LOOK_AT_TENANTS:
            furthest = self._furthest.first()
            if furthest is None or self.dominant(furthest) <= self.part_beside(furthest, newcomer):
                break
            found = furthest.pop_newest()
            if found is None:  # all that it has was begun
                self._furthest.remove(furthest)
                passed_over.append(furthest)
        for holding in passed_over:
            self._furthest.update(holding)
        return found

    def newest_of(self, tenant: Tenant) -> Request | None:
        """Of the length of which the tenant has the most."""
        return self.holdings[tenant].pop_newest()

    def dominant(self, holding: Holding) -> float:
        """The greatest part of any kind that it holds."""
        return max(used / limit for used, limit in zip(holding.used, self.limits, strict=True) if limit)

    def _beyond(self, holding: Holding) -> tuple[Any, ...]:
        return (-self.dominant(holding) / holding.weight, holding.tenant)

    def _is_short(self) -> bool:
        return any(2 * used > limit for used, limit in zip(self.used, self.limits, strict=True))
