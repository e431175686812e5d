"""One fair order of tenants per device, by virtual counters.

A counter is device time received, in nanoseconds, divided by the tenant's weight. The tenant with
the least is served next. One that returns, having had nothing waiting, is lifted to the device's
virtual time, the counter of the tenant served last (start-time fair queueing: Goyal, Vin and Cheng
1996), and to the least of those who have something waiting, not counting what still runs (virtual
token counters: Sheng et al. 2024); or, where nobody had anything to do, to the greatest of all. So
nobody banks credit by being away, and nobody is punished for service nobody else wanted: virtual time
alone stays behind where ever new tenants lead batches that one fills who always waits. What runs is
no backlog: who always has something running and never anything waiting gets all that it asks for.

A batch is charged as predicted when it is dispatched, corrected when it completes, and given back
when its worker is lost. Bounds and their derivation: docs/fairness.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import TYPE_CHECKING, Any, NamedTuple

from headway.core.cost import CostModel
from headway.core.ids import Tenant
from headway.core.lazy import Agenda
from headway.core.requests import QueuedPart
from headway.core.shares import ShareClock, units
from headway.core.tallies import Tally
from headway.core.tenancy import Tenancy
from headway.core.units import Duration, Instant

if TYPE_CHECKING:
    from headway.core.queue import TenantQueue


MAX_DEBTORS = 4096
"""Idle tenants that are remembered for what they owe; beyond that the least debt is forgiven."""


TIGHT = -1
"""The lane of parts that their deadline makes due; the others are those of the classes."""


class Account:
    """A tenant on one device.

    pending: of the counter, what is charged for batches that have no answer.
    queues: where it waits now, by their numbers.  active: parts waiting or running.  waiting: parts that wait.
    work: what those would take one by one, in device nanoseconds.  lanes: by class of priority, and TIGHT.
    received: device nanoseconds, since the account was opened.  owed, since: kept by the share clock.
    watched: from when its share was last judged; so much was `received_then` and `owed_then`.
    tally: where the totals are kept.
    """

    __slots__ = (
        "active",
        "counter",
        "entry",
        "lanes",
        "owed",
        "owed_then",
        "pending",
        "queues",
        "received",
        "received_then",
        "since",
        "tally",
        "tenant",
        "waiting",
        "watched",
        "weight",
        "work",
    )

    def __init__(self, tenant: Tenant, weight: float, counter: int, tally: Tally) -> None:
        self.tenant = tenant
        self.tally = tally
        self.weight = weight
        self.counter = counter
        self.active = 0
        self.waiting = 0
        self.work = 0
        self.lanes: dict[int, int] = {}
        self.received = 0
        self.owed = 0.0
        self.since = 0.0
        self.watched: Instant = 0
        self.received_then = 0
        self.owed_then = 0.0
        self.queues: dict[int, TenantQueue] = {}
        self.entry: tuple[Any, ...] | None = None
        self.pending = 0

    @property
    def settled(self) -> int:
        """The counter without what is charged as predicted, for what still runs: it never falls."""
        return self.counter - self.pending

    def window(self) -> list[Any]:
        return [self.watched, self.received_then, self.owed_then]

    def charge(self, service: float) -> int:
        """service: device nanoseconds, negative to give back. Returns what it came to."""
        self.received += int(service)
        amount = int(service / self.weight)
        self.counter += amount
        return amount

    def reserve(self, service: float) -> int:
        """The same for what has yet to run."""
        amount = self.charge(service)
        self.pending += amount
        return amount

    def release(self, amount: int) -> None:
        """So much of what was reserved has not run, or is charged by now."""
        self.counter -= amount
        self.pending -= amount
        self.received -= int(amount * self.weight)


class Starved(NamedTuple):
    """ahead: who is furthest ahead of it ("" = nobody).  since: when that was found."""

    ahead: Tenant
    since: Instant


class FairOrder:
    """The accounts of one device. Tenants that are idle and owe nothing are forgotten.

    backlogged: those that have something waiting.  work: what all of that would take one by one, in device nanoseconds.
    """

    __slots__ = (
        "_active",
        "_debtors",
        "_waiting",
        "accounts",
        "backlogged",
        "clock",
        "starving",
        "tenancy",
        "virtual_time",
        "work",
    )

    def __init__(self, tenancy: Tenancy) -> None:
        self.tenancy = tenancy
        self.accounts: dict[Tenant, Account] = {}
        self.backlogged: dict[Tenant, Account] = {}
        self.work = 0
        self.clock = ShareClock(tenancy)
        self.starving: dict[Tenant, Starved] = {}
        """Who gets less than half of its share."""
        self.virtual_time = 0
        self._active = 0
        self._waiting: Agenda[Account] = Agenda(_least)
        """Those with something waiting: the least that is settled first."""
        self._debtors: list[tuple[int, Tenant]] = []
        """Idle tenants ahead of the virtual time, by counter: forgotten when it has caught up."""

    def open(self, tenant: Tenant, now: Instant) -> Account:
        """The account of a tenant that has something to wait for. Lifts one that had nothing."""
        account = self.accounts.get(tenant)
        if account is None:
            account = Account(tenant, self.tenancy.weight(tenant), self.virtual_time, self.clock.tallies.of(tenant))
            self.accounts[tenant] = account
        if account.waiting == 0:
            self.lift(account)
            self.clock.begin(account, now)
        return account

    @property
    def level(self) -> int:
        """The counter at which one returns, unless its own is greater."""
        least = self._waiting.first()
        return self.virtual_time if least is None else max(self.virtual_time, least.settled)

    def lift(self, account: Account) -> None:
        level = self.level
        if account.counter < level:
            account.counter = level

    def enter(self, account: Account) -> None:
        """One more part of the tenant waits or runs."""
        if account.active == 0:
            self._active += 1
        account.active += 1

    def leave(self, account: Account) -> None:
        """One part of the tenant neither waits nor runs any more."""
        account.active -= 1
        if account.active == 0:
            self._active -= 1
            self._idle(account)

    def waits(self, account: Account, part: QueuedPart) -> None:
        if account.waiting == 0:
            self.clock.joins(account)
            self.backlogged[account.tenant] = account
        account.waiting += 1
        account.work += part.work
        if account.waiting == 1:
            self._waiting.update(account)
        account.lanes[part.lane] = account.lanes.get(part.lane, 0) + part.work
        self.work += part.work

    def waits_no_more(self, account: Account, part: QueuedPart) -> None:
        account.waiting -= 1
        account.work -= part.work
        account.lanes[part.lane] -= part.work
        self.work -= part.work
        if account.waiting == 0:
            del self.backlogged[account.tenant]
            self._waiting.update(account)
            self.clock.ends(account)

    def served(self, account: Account) -> None:
        """Its turn has come: time has moved on to its counter."""
        if account.counter > self.virtual_time:
            self.virtual_time = account.counter
            debtors = self._debtors
            while debtors and debtors[0][0] <= self.virtual_time:
                self._forget(heappop(debtors)[1])

    def charge(self, tenant: Tenant, service: Duration) -> None:
        """It received so much of the device, in nanoseconds. Who has left meanwhile owes it, unless nobody is left."""
        account = self.accounts.get(tenant)
        if account is not None:
            account.charge(service)
            account.tally.received += service
        elif self._active:
            account = Account(tenant, self.tenancy.weight(tenant), self.virtual_time, self.clock.tallies.of(tenant))
            self.accounts[tenant] = account
            account.charge(service)
            account.tally.received += service
            self._idle(account)

    def counted(self, account: Account, waiting: int) -> int:
        """Of so many parts that wait, those that may lengthen a batch of this tenant's: as many as if nobody had more
        waiting, by weight, than it has. Else one tenant's backlog would lengthen everybody's batches."""
        return min(waiting, -(-account.waiting * self.clock.weights // units(account.weight)))

    def has_waiting(self, tenant: Tenant) -> bool:
        account = self.accounts.get(tenant)
        return account is not None and account.waiting > 0

    def ahead_of(self, account: Account) -> Tenant:
        """Who of those that wait has the greatest counter, above this one's; "" = nobody."""
        others = [other for other in self.accounts.values() if other.waiting and other.counter > account.counter]
        return max(others, key=lambda other: other.counter).tenant if others else ""

    def _idle(self, account: Account) -> None:
        if self._active == 0:  # nobody is left to owe anything to
            self.virtual_time = max(self.virtual_time, max(a.counter for a in self.accounts.values()))
            self.accounts.clear()
            self._debtors.clear()
        elif account.counter <= self.virtual_time:
            del self.accounts[account.tenant]
        else:
            heappush(self._debtors, (account.counter, account.tenant))
            if len(self._debtors) > MAX_DEBTORS:
                self._forget(heappop(self._debtors)[1], forgive=True)

    def _forget(self, tenant: Tenant, forgive: bool = False) -> None:
        account = self.accounts.get(tenant)
        if account is None or account.active:
            return
        if forgive or account.counter <= self.virtual_time:
            del self.accounts[tenant]
        else:
            heappush(self._debtors, (account.counter, tenant))  # it came back and was served since

    def reweigh(self) -> None:
        """The weights have changed; what was received stays received."""
        for account in self.accounts.values():
            self.clock.rename(account)
            weight = self.tenancy.weight(account.tenant)
            if weight != account.weight:
                self.clock.reweigh(account, weight)

    def snapshot(self) -> dict[str, Any]:
        return {
            "virtual_time": self.virtual_time,
            "starving": {tenant: list(starved) for tenant, starved in self.starving.items()},
            "clock": self.clock.snapshot(),
            "accounts": [
                [a.tenant, a.weight, a.counter, a.received, a.owed, a.since, *a.window()]
                for a in self.accounts.values()
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Before any part is put back."""
        self.virtual_time = state["virtual_time"]
        self.starving.update((tenant, Starved(ahead, since)) for tenant, (ahead, since) in state["starving"].items())
        for tenant, weight, counter, *rest in state["accounts"]:
            account = self.accounts[tenant] = Account(tenant, weight, counter, self.clock.tallies.of(tenant))
            account.received, account.owed, account.since = rest[:3]
            account.watched, account.received_then, account.owed_then = rest[3:]

    def restored(self, state: dict[str, Any]) -> None:
        """After all parts were put back: whoever is idle is a debtor."""
        self.clock.restore(state["clock"], self.accounts)
        for account in self.accounts.values():
            if account.active == 0:
                heappush(self._debtors, (account.counter, account.tenant))


def _least(account: Account) -> tuple[int, Tenant] | None:
    return (account.settled, account.tenant) if account.waiting else None


def split(
    members: Sequence[QueuedPart], owners: Sequence[Account], cost: CostModel, predicted: Duration
) -> list[tuple[Account, int]]:
    """Charge a batch to its tenants: each member its share by solo cost, predicted * solo / sum of solos.

    It sums to the batch, does not depend on the order of joining, and is never more than the solo
    cost where batching paid.
    """
    first = owners[0]
    if owners.count(first) == len(owners):
        return [(first, first.reserve(predicted))]
    solo = [cost.median(part.rows, part.length) for part in members]
    total = max(1, sum(solo))
    shares: dict[Tenant, tuple[Account, int]] = {}
    for owner, alone in zip(owners, solo, strict=True):
        _, so_far = shares.get(owner.tenant, (owner, 0))
        shares[owner.tenant] = (owner, so_far + alone)
    return [(owner, owner.reserve(predicted * alone / total)) for owner, alone in shares.values()]
