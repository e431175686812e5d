"""Simulated clients: they send, lose patience, go away, and send again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from headway.core.effects import QuarantineRequest, ResolveRequest
from headway.core.events import ContentQuarantined, ReplyWritten, RequestArrived, RequestCancelled
from headway.core.ids import RequestId
from headway.core.outcomes import Kind
from headway.core.units import NEVER, Duration, Instant
from headway.sim.driver import Driver
from headway.sim.workloads import Arrival


@dataclass(slots=True)
class Loop:
    """Clients that take their next request from `supply` when they have their reply.

    think: from the reply to the next request, at least 1 ns.  pause: the same after a refusal.
    until: when they stop.
    """

    supply: Iterator[Arrival]
    think: Duration
    pause: Duration
    until: Instant
    ended: bool = False


class Clients:
    """Turns arrivals into events.

    overhead: mean time outside queue and worker, reported by ReplyWritten (0: not reported).
    """

    def __init__(self, driver: Driver, rng: Random, overhead: Duration = 0) -> None:
        self.sent = 0
        self._sources = 0
        self._driver = driver
        self._rng = rng
        self._overhead = overhead
        self._loops: dict[RequestId, Loop] = {}
        driver.on[ResolveRequest] = self._resolved
        driver.on[QuarantineRequest] = self._quarantined

    @property
    def are_sending(self) -> bool:
        """There are arrivals still to come."""
        return self._sources > 0

    def open_loop(self, arrivals: Iterable[Arrival]) -> None:
        """Each is sent at its own time, whatever becomes of the others."""
        self._sources += 1
        self._send_next(iter(arrivals))

    def closed_loop(
        self,
        arrivals: Iterable[Arrival],
        clients: int,
        think: Duration,
        pause: Duration = 0,
        until: Instant = NEVER,
    ) -> None:
        """Each client sends its next request `think` after its reply; the arrivals' own times are ignored.

        think: at least 1 ns, or refused clients would come back for ever at the same instant.
        pause: after a refusal, if longer.  until: when they stop.
        """
        self._sources += 1
        loop = Loop(iter(arrivals), max(1, think), max(1, think, pause), until)
        for _ in range(clients):
            self._send_again(loop, loop.think)

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
                arrival.content,
                arrival.prefix,
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
            self._sources -= 1
        else:
            self._driver.at(arrival.at, lambda: self._send_and_go_on(arrival, arrivals))

    def _send_and_go_on(self, arrival: Arrival, arrivals: Iterator[Arrival]) -> None:
        self.send(arrival)
        self._send_next(arrivals)

    def _send_again(self, loop: Loop, after: Duration) -> None:
        self._driver.at(self._driver.now + after, lambda: self._send_in_loop(loop))

    def _send_in_loop(self, loop: Loop) -> None:
        arrival = next(loop.supply, None) if self._driver.now < loop.until else None
        if arrival is not None:
            arrival.at = self._driver.now
            self._loops[self.send(arrival)] = loop
        elif not loop.ended:
            loop.ended = True
            self._sources -= 1

    def _quarantined(self, effect: QuarantineRequest) -> None:
        """What the runtime does: only it has the content. The request is resolved in the same call, after this."""
        content = self._driver.requests[effect.request].content
        if content:
            self._driver.tell(ContentQuarantined(effect.version, content))

    def _resolved(self, effect: ResolveRequest) -> None:
        request = effect.request
        version = self._driver.requests.pop(request).key.version_id
        if self._overhead:
            overhead = 1 + self._rng.randrange(2 * self._overhead)
            written = ReplyWritten(request, overhead, version)
            self._driver.at(self._driver.now + overhead, lambda: self._driver.tell(written))
        if (loop := self._loops.pop(request, None)) is not None:
            self._send_again(loop, loop.pause if effect.outcome.kind is Kind.REFUSED else loop.think)
