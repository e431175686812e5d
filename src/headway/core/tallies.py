"""What tenants received of a device and were owed of it, in total: for whoever looks on, nothing is decided by it.

A tenant's account is forgotten when it leaves, a tally never is. There is one for every tenant that the
operator has ever named, and one for all the others together, so that strangers leave no growth.

Of both only what is over counts: service once its batch was answered, as it was measured.
"""

from __future__ import annotations

from typing import Any

from headway.core.ids import Tenant
from headway.core.tenancy import STRANGERS, Tenancy
from headway.core.units import Duration, Instant, seconds

SPAN: Duration = seconds(10)
"""What is told of the last while is of so long at least, and of twice that at most while anything happens."""


class Tally:
    """One tenant's, or the strangers'. In device nanoseconds since the device was opened; neither ever falls.

    owed: until `since`, in the time of the share clock.  weight: of those that wait, in units.
    spells: how often one of them began to starve.  marks: received and owed when the two latest spans began.
    """

    __slots__ = ("marks", "owed", "received", "since", "spells", "weight")

    def __init__(self) -> None:
        self.received = 0
        self.owed = 0.0
        self.since = 0.0
        self.weight = 0
        self.spells = 0
        self.marks = [(0, 0.0), (0, 0.0)]

    def owed_by(self, clock: float) -> float:
        return self.owed + (clock - self.since) * self.weight

    def waits(self, weight: int, clock: float) -> None:
        """So many units of weight more wait from now on; negative: fewer."""
        self.owed += (clock - self.since) * self.weight
        self.since = clock
        self.weight += weight


class Tallies:
    """Of one device.  clock: service given so far, in nanoseconds per unit of weight that waited for it.
    unsettled: what answers took beyond what was counted when their batches left: it counts with the next one.
    began: when the two latest spans did."""

    __slots__ = ("_tenancy", "began", "by_tenant", "clock", "unsettled")

    def __init__(self, tenancy: Tenancy) -> None:
        self._tenancy = tenancy
        self.by_tenant: dict[Tenant, Tally] = {STRANGERS: Tally()}
        self.clock = 0.0
        self.unsettled = 0
        self.began: tuple[Instant, Instant] = (0, 0)

    def of(self, tenant: Tenant) -> Tally:
        """Where the tenant is counted now."""
        name = self._tenancy.label(tenant)
        tally = self.by_tenant.get(name)
        if tally is None:
            tally = self.by_tenant[name] = Tally()
        return tally

    def gave(self, service: int, weights: int) -> None:
        """weights: units of those who wait, or did before they were served."""
        given = service + self.unsettled
        if weights and given > 0:
            self.clock += given / weights
            given = 0
        self.unsettled = given

    def streamed(self, service: int, weights: int) -> None:
        """By a sequence, which waits for nothing meanwhile: it is owed to those who do wait, if any."""
        if weights:
            self.clock += service / weights

    @property
    def next_span(self) -> Instant:
        return self.began[1] + SPAN

    def mark(self, now: Instant) -> None:
        """Another span begins."""
        self.began = (self.began[1], now)
        for tally in self.by_tenant.values():
            tally.marks = [tally.marks[1], (tally.received, tally.owed_by(self.clock))]

    def snapshot(self) -> dict[str, Any]:
        return {
            "clock": self.clock,
            "unsettled": self.unsettled,
            "began": list(self.began),
            "tallies": [
                [name, t.received, t.owed, t.since, t.spells, [list(mark) for mark in t.marks]]
                for name, t in self.by_tenant.items()
            ],
        }

    def restore(self, state: dict[str, Any]) -> None:
        """After all parts were put back: who waits is counted already."""
        self.clock, self.unsettled = state["clock"], state["unsettled"]
        before, latest = state["began"]
        self.began = (before, latest)
        found, self.by_tenant = self.by_tenant, {}
        for name, received, owed, since, spells, marks in state["tallies"]:
            tally = self.by_tenant[name] = found.get(name) or Tally()
            tally.received, tally.owed, tally.since, tally.spells = received, owed, since, spells
            tally.marks = [(int(got), float(due)) for got, due in marks]
