"""What each backlogged tenant is owed of the service that a device gives, and who starves.

The clock moves with the service given, by service / sum of the weights of those who wait: a tenant
that waits while it moves by d is owed weight x d, whoever got it (the virtual time of weighted fair
queueing: Parekh and Gallager 1993).

A tenant starves that had something waiting for a whole `WINDOW` and received less than half of what
it was owed in it, and more than two of the longest batches less: by so much may turns that are in
order be late.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from headway.core.ids import Tenant
from headway.core.lazy import SLACK
from headway.core.tallies import Tallies
from headway.core.tenancy import Tenancy
from headway.core.units import NEVER, Duration, Instant, seconds

if TYPE_CHECKING:
    from headway.core.fairness import Account

WINDOW: Duration = seconds(10)
UNITS = 1_000_000
"""Of weight, so that a sum of many is exact however often one comes and goes."""


class ShareClock:
    """now: service so far per unit of weight that waited for it.  largest: service of the dearest batch so far.
    weights: of those who wait, in units.  waiting: how many they are.
    tallies: the same in total, to be looked at, by what batches really took."""

    __slots__ = ("_watched", "largest", "now", "tallies", "waiting", "weights")

    def __init__(self, tenancy: Tenancy) -> None:
        self.tallies = Tallies(tenancy)
        self.now = 0.0
        self.largest = 0
        self.weights = 0
        self.waiting = 0
        self._watched: deque[tuple[Instant, Account]] = deque()
        """In the order in which they began to be."""

    def begin(self, account: Account, now: Instant) -> None:
        """It is about to have something waiting again."""
        account.since = self.now
        self.watch(account, now)

    def joins(self, account: Account) -> None:
        weight = units(account.weight)
        self.waiting += 1
        self.weights += weight
        account.tally.waits(weight, self.tallies.clock)

    def ends(self, account: Account) -> None:
        """It has nothing waiting any more."""
        weight = units(account.weight)
        self.waiting -= 1
        self.weights -= weight
        account.tally.waits(-weight, self.tallies.clock)
        account.owed = self.owed(account)
        account.since = self.now

    def owed(self, account: Account) -> float:
        """Device nanoseconds since the account was opened, of one that waits."""
        return account.owed + account.weight * (self.now - account.since)

    def gave(self, service: int) -> None:
        """A batch is dispatched; those whom it is taken from are still counted among those who wait."""
        if self.weights:
            self.now += service * UNITS / self.weights
        if service > self.largest:
            self.largest = service
        self.tallies.gave(service, self.weights)

    def rename(self, account: Account) -> None:
        """It may be counted elsewhere from now on: the operator has named it."""
        tally = self.tallies.of(account.tenant)
        if tally is not account.tally:
            weight = units(account.weight) if account.waiting else 0
            account.tally.waits(-weight, self.tallies.clock)
            account.tally = tally
            tally.waits(weight, self.tallies.clock)

    def reweigh(self, account: Account, weight: float) -> None:
        if account.waiting:
            self.ends(account)
            account.weight = weight
            self.joins(account)
        account.weight = weight

    # -- starvation ------------------------------------------------------------------------

    def watch(self, account: Account, now: Instant) -> None:
        """It is judged when it has waited for a window from now."""
        account.watched, account.received_then, account.owed_then = now, account.received, self.owed(account)
        self._watched.append((now, account))
        if len(self._watched) > 2 * self.waiting + SLACK:
            self._watched = deque(entry for entry in self._watched if _holds(entry))

    def next_judgement(self) -> Instant:
        """NEVER where fewer than two wait: nobody is ahead of anybody."""
        if self.waiting < 2:
            return NEVER
        watched = self._watched
        while watched and not _holds(watched[0]):
            watched.popleft()
        return watched[0][0] + WINDOW if watched else NEVER

    def due(self, now: Instant) -> Account | None:
        """The next that has waited for a window by now: to be judged, and watched on."""
        return self._watched.popleft()[1] if self.next_judgement() <= now else None

    def window(self, account: Account) -> tuple[int, int]:
        """What it received and what it was owed since it is watched, in device nanoseconds."""
        return account.received - account.received_then, int(self.owed(account) - account.owed_then)

    def neglects(self, account: Account) -> bool:
        """Whether that is less than half of its share, and not for a batch that was just late."""
        received, owed = self.window(account)
        return received < owed / 2 and owed - received > 2 * self.largest

    def snapshot(self) -> dict[str, Any]:
        watched = [account.tenant for entry, account in self._watched if _holds((entry, account))]
        return {"now": self.now, "largest": self.largest, "watched": watched, "tallies": self.tallies.snapshot()}

    def restore(self, state: dict[str, Any], accounts: dict[Tenant, Account]) -> None:
        """After all parts were put back."""
        self.now, self.largest = state["now"], state["largest"]
        self.tallies.restore(state["tallies"])
        for tenant in state["watched"]:
            self._watched.append((accounts[tenant].watched, accounts[tenant]))


def units(weight: float) -> int:
    return max(1, round(weight * UNITS))


def _holds(entry: tuple[Instant, Account]) -> bool:
    """Whether it is of the backlog that is now."""
    at, account = entry
    return account.waiting > 0 and account.watched == at
