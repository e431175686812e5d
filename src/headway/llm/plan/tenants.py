"""Whose turn it is: one virtual token counter per tenant.

A counter is service received, in priced tokens divided by the tenant's weight; the tenant with the least is next
(virtual token counters: Sheng et al., "Fairness in Serving Large Language Models", OSDI 2024). Charged is what was
computed: prompt tokens that were not found in the cache chunk by chunk, output tokens as they are emitted; what is
computed again, for whatever reason, is charged to nobody. Turns go by the counter and what is *reserved*, the rest of
the prompts under way: else a tenant would have many long prompts admitted before it had paid for any.

One that returns from idleness is lifted: to the least counter of those that wait, or where nobody does to that of the
one that left the queue last. Nobody banks credit by being away.

Under a server the counter is the server's: an engine reports what it has served, and orders by the server's value and
what of its own the server does not know yet. It lifts nobody then: who waits for nothing here may well wait there.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from heapq import heappop, heappush
from typing import Any, NamedTuple

from headway.core.ids import Tenant
from headway.core.lazy import Agenda
from headway.llm.plan.policy import UNIT
from headway.llm.plan.sequence import PREEMPTED, WAITING, Sequence

FEW = 64
"""Accounts that are not worth a look at all."""


class Account:
    """base: the server's value of the counter.  unreported: service that it does not know of.
    reserved: that is yet to be charged for prompts under way.  All in counter units, by weight.
    waiting, running: sequences.  ahead: tokens of those that wait, by class.
    served: priced tokens in all.  told: of those, what has been reported.
    reporting: of the unreported, what has been reported and not been answered, by the numbers of the reports.
    """

    __slots__ = (
        "_queue",
        "ahead",
        "base",
        "entry",
        "reporting",
        "reserved",
        "running",
        "served",
        "tenant",
        "told",
        "unreported",
        "waiting",
        "weight",
    )

    def __init__(self, tenant: Tenant, weight: float) -> None:
        self.tenant = tenant
        self.weight = weight
        self.base = 0
        self.unreported = 0
        self.reporting: deque[tuple[int, int]] = deque()
        self.reserved = 0
        self.waiting = 0
        self.running = 0
        self.ahead: dict[int, int] = {}
        self.served = 0
        self.told = 0
        self.entry: tuple[Any, ...] | None = None
        self._queue: list[tuple[int, int, int, Sequence]] = []

    @property
    def counter(self) -> int:
        return self.base + self.unreported

    @property
    def turn(self) -> int:
        """By which it is its turn."""
        return self.base + self.unreported + self.reserved

    def units(self, service: int) -> int:
        """Of the counter, for so many priced tokens."""
        return int(service * UNIT / self.weight)

    def adds_ahead(self, sequence: Sequence, sign: int) -> None:
        """It waits from now on (1), or no more (-1)."""
        left = self.ahead.get(sequence.priority, 0) + sign * len(sequence.tokens)
        self.ahead[sequence.priority] = left
        if left == 0:
            del self.ahead[sequence.priority]

    def push(self, sequence: Sequence) -> None:
        fresh = sequence.status is not PREEMPTED
        heappush(self._queue, (sequence.priority, fresh, sequence.number, sequence))
        self.waiting += 1
        if len(self._queue) > 2 * self.waiting + 64:
            self._queue = sorted(entry for entry in self._queue if _waits(entry[3]))

    def first(self) -> Sequence | None:
        """The most urgent that waits: class, what has begun already, arrival."""
        queue = self._queue
        while queue and not _waits(queue[0][3]):
            heappop(queue)
        return queue[0][3] if queue else None

    def queued(self) -> Iterator[Sequence]:
        """All that wait, in no order."""
        seen: dict[int, None] = {}
        for _, _, number, sequence in self._queue:
            if _waits(sequence) and number not in seen:
                seen[number] = None
                yield sequence

    def some(self, count: int) -> list[Sequence]:
        """The first so many, in order."""
        queue = self._queue
        kept: list[tuple[int, int, int, Sequence]] = []
        while queue and len(kept) < count:
            entry = heappop(queue)
            if _waits(entry[3]) and (not kept or kept[-1][3] is not entry[3]):
                kept.append(entry)
        for entry in kept:
            heappush(queue, entry)
        return [entry[3] for entry in kept]


def _waits(sequence: Sequence) -> bool:
    return sequence.status is WAITING or sequence.status is PREEMPTED


class Service(NamedTuple):
    """Of a tenant: priced tokens that were not reported before, and those of prompts under way that are yet to be
    charged."""

    tenant: Tenant
    service: int
    owed: int


class Tenants:
    """The accounts. One that is idle is forgotten as soon as it would be lifted anyway: no more of them are kept than
    wait or run, and those that are ahead.

    governed: by a server, which is told what was served, and tells of its counters."""

    __slots__ = ("_agenda", "_last", "_look_at", "accounts", "active", "governed", "weight", "weights")

    def __init__(self, weight_of: Callable[[Tenant], float]) -> None:
        self.accounts: dict[Tenant, Account] = {}
        self.weights = 0.0
        """Of all that wait or run."""
        self.active = 0
        """How many do."""
        self.weight = weight_of
        self.governed = False
        self._agenda: Agenda[Account] = Agenda(_turn)
        self._last = 0
        """The counter of the tenant that left the queue last."""
        self._look_at = FEW

    # -- coming and going ------------------------------------------------------------------

    def waits(self, sequence: Sequence, tenant: Tenant, released: int = 0) -> None:
        """released: what was reserved for it until it lost its blocks: it has not received that, and is lifted no
        further than it would have been with it."""
        account = sequence.account
        if account.waiting == 0:
            self._lift(account, released)
            if account.running == 0:
                self.active += 1
                self.weights += account.weight
        account.push(sequence)
        self._agenda.update(account)

    def account(self, tenant: Tenant) -> Account:
        account = self.accounts.get(tenant)
        if account is None:
            if len(self.accounts) >= self._look_at:
                self.forget_idle()
            account = self.accounts[tenant] = Account(tenant, self.weight(tenant))
        return account

    def waits_no_more(self, account: Account) -> None:
        """One of its sequences; its status says so already."""
        account.waiting -= 1
        if account.waiting == 0:
            self._last = account.turn
            self._agenda.update(account)
            self._tidy(account)

    def runs(self, account: Account) -> None:
        account.running += 1

    def runs_no_more(self, account: Account) -> None:
        account.running -= 1
        self._tidy(account)

    def _tidy(self, account: Account) -> None:
        if account.waiting == 0 and account.running == 0:
            self.active -= 1
            self.weights -= account.weight
            if self.active == 0:
                self.weights = 0.0
                self._last = max(self._last, account.counter)

    def forget_idle(self) -> None:
        """Those that have nothing, and would be lifted to where they are or beyond; what they were served must be known
        to the server first, if there is one. Called when there are twice as many as after the last time."""
        level = self.level
        gone = [
            a.tenant
            for a in self.accounts.values()
            if not (a.waiting or a.running) and (not a.unreported if self.governed else a.turn <= level)
        ]
        for tenant in gone:
            del self.accounts[tenant]
        self._look_at = 2 * len(self.accounts) + FEW

    # -- whose turn ------------------------------------------------------------------------

    @property
    def level(self) -> int:
        """The counter at which one returns, unless its own is greater."""
        first = self._agenda.first()
        return self._last if first is None else first.turn

    def _lift(self, account: Account, released: int) -> None:
        behind = self.level - account.turn - released
        if behind > 0 and not self.governed:
            account.base += behind

    def first(self) -> Account | None:
        """Whose turn it is, among those with something waiting."""
        return self._agenda.first()

    def update(self, account: Account) -> None:
        """Its counter may have become smaller."""
        self._agenda.update(account)

    def without(self, account: Account) -> None:
        """It is passed over until the next `update`."""
        self._agenda.remove(account)

    def share(self, account: Account) -> float:
        """Its part, by weight, of what there is, among those that wait or run."""
        return account.weight / self.weights if self.weights else 1.0

    # -- charging --------------------------------------------------------------------------

    def charge(self, account: Account, service: int) -> None:
        """Priced tokens that were computed for it."""
        account.served += service
        account.unreported += account.units(service)

    def report(self, number: int) -> list[Service]:
        """Of each that has something here, or was served since the last report. `learn` answers it, by its number."""
        self.governed = True
        report: list[Service] = []
        for account in self.accounts.values():
            service = account.served - account.told
            if service or account.waiting or account.running:
                report.append(Service(account.tenant, service, round(account.reserved * account.weight / UNIT)))
                fresh = account.unreported - sum([units for _, units in account.reporting])
                account.told = account.served
                account.reporting.append((number, fresh))
        return report

    def learn(self, counters: Iterable[tuple[Tenant, int]], number: int) -> None:
        """The server's values, in priced tokens by weight, all that was reported up to that number included."""
        self.governed = True
        for tenant, value in counters:
            account = self.accounts.get(tenant)
            if account is not None:
                account.base = value * UNIT
                while account.reporting and account.reporting[0][0] <= number:
                    account.unreported -= account.reporting.popleft()[1]
                if account.waiting:
                    self._agenda.update(account)

    def reweigh(self) -> None:
        """Weights have changed; what was received stays received."""
        self.weights = 0.0
        for account in self.accounts.values():
            account.weight = self.weight(account.tenant)
            if account.waiting or account.running:
                self.weights += account.weight


def _turn(account: Account) -> tuple[int, Tenant] | None:
    return (account.turn, account.tenant) if account.waiting else None
