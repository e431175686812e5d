"""Simulated clients: they send, lose patience, go away, and send again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from random import Random

from headway.core.effects import ResolveRequest
from headway.core.events import ReplyWritten, RequestArrived, RequestCancelled
from headway.core.ids import RequestId
from headway.core.units import NEVER, Duration
from headway.sim.driver import Driver
from headway.sim.workloads import Arrival


class Clients:
    """Turns arrivals into events.

    are_sending: there are arrivals still to come.
    overhead: mean time outside queue and worker, reported by ReplyWritten (0: not reported).
    """

    def __init__(self, driver: Driver, rng: Random, overhead: Duration = 0) -> None:
        self.sent = 0
        self.are_sending = False
        self._driver = driver
        self._rng = rng
        self._overhead = overhead
        self._loops: dict[RequestId, tuple[Iterator[Arrival], Duration]] = {}
        driver.on[ResolveRequest] = self._resolved

    def open_loop(self, arrivals: Iterable[Arrival]) -> None:
        """Each is sent at its own time, whatever becomes of the others."""
        self.are_sending = True
        self._send_next(iter(arrivals))

    def closed_loop(self, arrivals: Iterable[Arrival], clients: int, think: Duration) -> None:
        """Each client sends its next request `think` after its reply; the arrivals' own times are ignored.

        think: at least 1 ns, or refused clients would come back for ever at the same instant.
        """
        self.are_sending = True
        shared = iter(arrivals)
        for _ in range(clients):
            self._send_again(shared, max(1, think))

    def send(self, arrival: Arrival) -> RequestId:
        self.sent += 1
        request = self.sent
        self._driver.requests[request] = arrival
        self._driver.tell(
            RequestArrived(
                request,
                arrival.tenant,
                arrival.key,
                arrival.parts,
                arrival.bytes,
                arrival.deadline,
                arrival.priority,
            )
        )
        if arrival.cancel_after != NEVER:
            self._driver.at(self._driver.now + arrival.cancel_after, lambda: self.cancel(request))
        return request

    def cancel(self, request: RequestId) -> None:
        """Go away. That the outcome may be known already is nothing a client can see."""
        self._driver.tell(RequestCancelled(request))

    def _send_next(self, arrivals: Iterator[Arrival]) -> None:
        arrival = next(arrivals, None)
        if arrival is None:
            self.are_sending = False
        else:
            self._driver.at(arrival.at, lambda: self._send_and_go_on(arrival, arrivals))

    def _send_and_go_on(self, arrival: Arrival, arrivals: Iterator[Arrival]) -> None:
        self.send(arrival)
        self._send_next(arrivals)

    def _send_again(self, shared: Iterator[Arrival], think: Duration) -> None:
        self._driver.at(self._driver.now + think, lambda: self._send_in_loop(shared, think))

    def _send_in_loop(self, shared: Iterator[Arrival], think: Duration) -> None:
        arrival = next(shared, None)
        if arrival is None:
            self.are_sending = False
        else:
            arrival.at = self._driver.now
            self._loops[self.send(arrival)] = (shared, think)

    def _resolved(self, effect: ResolveRequest) -> None:
        request = effect.request
        version = self._driver.requests.pop(request).key.version_id
        if self._overhead:
            overhead = 1 + self._rng.randrange(2 * self._overhead)
            written = ReplyWritten(request, overhead, version)
            self._driver.at(self._driver.now + overhead, lambda: self._driver.tell(written))
        if (loop := self._loops.pop(request, None)) is not None:
            self._send_again(*loop)
