"""Invented loads: Poisson arrivals, lognormal lengths, tenants that each want something else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import takewhile
from math import exp, log
from random import Random

from headway.core.ids import Tenant
from headway.core.units import NEVER, SECOND, Duration, Instant, seconds
from headway.sim.llm.arrivals import Arrival, Piece


@dataclass(frozen=True, slots=True)
class Lengths:
    """Lognormal, in tokens. sigma 0: all are the median."""

    median: int
    sigma: float = 0.0
    most: int = 1 << 30

    def draw(self, rng: Random) -> int:
        return min(self.most, max(1, round(rng.lognormvariate(log(self.median), self.sigma))))

    @property
    def mean(self) -> float:
        """Of what is drawn, but for what `most` cuts off."""
        return self.median * exp(self.sigma**2 / 2)


@dataclass(frozen=True, slots=True)
class Client:
    """What one tenant asks for.

    rate: requests a second, Poisson (even: at equal gaps).  max_tokens: asked for; 0 = as many as its answer has.
    shared: tokens that all its prompts begin with, within their length.  since, until: when it asks.
    """

    tenant: Tenant
    rate: float
    prompt: Lengths = Lengths(500, 1.0, 8_000)
    output: Lengths = Lengths(130, 0.8, 1_000)
    max_tokens: int = 1_000
    shared: int = 0
    priority: int = 0
    first_within: Duration = NEVER
    itl: Duration = 0
    choices: int = 1
    even: bool = False
    since: Instant = 0
    until: Instant = NEVER
    leaves_after: Duration = NEVER


def arrivals(clients: tuple[Client, ...], seed: int) -> Iterator[Arrival]:
    """Of all of them, in the order of time; endless where one of them is."""
    return merge(*(_arrivals(client, number, seed) for number, client in enumerate(clients)), key=lambda a: a.at)


def _arrivals(client: Client, number: int, seed: int) -> Iterator[Arrival]:
    rng = Random(f"{seed} {client.tenant} {number}")
    at = client.since
    count = 0
    while True:
        at += round(SECOND / client.rate if client.even else rng.expovariate(client.rate) * SECOND)
        if at >= client.until:
            return
        count += 1
        prompt, output = client.prompt.draw(rng), client.output.draw(rng)
        shared = min(client.shared, prompt - 1)
        pieces = [Piece(1 + number, shared)] if shared else []
        pieces.append(Piece((1 + number) << 32 | count, prompt - shared))
        yield Arrival(
            at,
            tuple(pieces),
            output,
            client.max_tokens or output,
            client.tenant,
            client.priority,
            client.first_within,
            client.itl,
            client.choices,
            client.leaves_after,
        )


def greedy_and_polite(capacity: float, duration_s: float = 120.0) -> tuple[Client, ...]:
    """Two tenants of equal weight: one asks for twice what there is in all, the other for a quarter of it.

    capacity: requests a second, of these lengths (prompts and answers of 256 tokens, as in the figures of "Fairness in
    Serving Large Language Models", OSDI 2024, section 5.2).
    """
    same = Lengths(256)
    return tuple(
        Client(name, part * capacity, same, same, max_tokens=256, even=True, until=seconds(duration_s))
        for name, part in (("greedy", 2.0), ("polite", 0.25))
    )


def for_a_while(coming: Iterator[Arrival], duration_s: float) -> Iterator[Arrival]:
    """Those that come in so many seconds."""
    return takewhile(lambda arrival: arrival.at < seconds(duration_s), coming)
