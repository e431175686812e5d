"""A tenant that gets too little is named, and who is ahead of it borrows no room until that is over."""

from __future__ import annotations

from headway.core.effects import Effect, ReportStarvation, ResolveRequest
from headway.core.events import VersionConfigured, WorkerReady, WorkerStarting
from headway.core.ids import BatchKey, Capacity, VersionId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.core.shares import WINDOW
from headway.core.units import ms
from tests.unit.core_world import FLAT, World, arrive, dispatches, outcomes

OTHER = VersionId("n", 1)
THERE = BatchKey("n", 1, "a")
ROOM = 6


def reports(effects: list[Effect]) -> list[tuple[str, bool, str]]:
    return [(e.tenant, e.starves, e.ahead) for e in effects if isinstance(e, ReportStarvation)]


class Street:
    """Two versions on one device: the worker of one is stuck, and `hungry` waits for it; `full` always has two requests
    for the other, which answers one every 10 ms."""

    def __init__(self) -> None:
        self.world = World(BatchPolicy(max_batch_size=1, device="cpu"))
        policy = BatchPolicy(max_batch_size=1, max_queued_requests=ROOM, device="cpu")
        self.world.tell(VersionConfigured(OTHER, policy), WorkerStarting(1, OTHER), WorkerReady(1, Capacity(1), FLAT))
        self.stuck = dispatches(self.world.tell(arrive(0, tenant="holder")))[0]
        self.world.tell(arrive(1, tenant="hungry"), arrive(2, tenant="hungry"))
        self.next = 10
        self.running = dispatches(self.ask("full", 2))[0]

    def ask(self, tenant: str, requests: int = 1) -> list[Effect]:
        self.next += requests
        return self.world.tell(*(arrive(self.next - n, tenant=tenant, key=THERE) for n in range(1, requests + 1)))

    def until_reported(self) -> list[tuple[str, bool, str]]:
        while self.world.now <= 2 * WINDOW:
            effects = self.world.complete(self.running, at=self.world.now + ms(10)) + self.ask("full")
            self.running = next(batch for batch in dispatches(effects) if batch.worker == 1)
            if reports(effects):
                return reports(effects)
        return []


def test_who_gets_nothing_for_a_window_is_named_with_who_is_ahead_of_it():
    street = Street()
    assert street.until_reported() == [("hungry", True, "full")]
    assert WINDOW <= street.world.now <= WINDOW + ms(20)


def test_who_is_ahead_borrows_no_room_until_the_other_is_served_and_others_may():
    """There is room, and of it `full` has its half."""
    street = Street()
    assert street.until_reported()
    assert outcomes(street.ask("polite")) == {}
    refused: dict[int, Outcome] = {}
    while not refused:  # it takes up what is its own
        refused = outcomes(effects := street.ask("full"))
    assert set(refused.values()) == {Outcome.TENANT_QUEUE_FULL}
    assert [e.detail for e in effects if isinstance(e, ResolveRequest)] == [
        "tenant full may borrow no room while others starve"
    ]
    assert outcomes(street.ask("polite")) == {}, "there is room for others"
    ended = street.world.complete(street.stuck)
    ended += street.world.complete(dispatches(ended)[0])
    assert ("hungry", False, "") in reports(ended)
    assert outcomes(street.ask("full")) == {}
