"""Load on one server, in slices that are pooled: so several servers can take turns within the same minutes."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from headway.bench.bodies import embeddings_body, encode_request
from headway.bench.lengths import parse_lengths
from headway.bench.run import Plan, run
from lab.figures import quantiles_ms

MODEL = "all-MiniLM-L6-v2"
LENGTHS = "lognormal:44:256"
ROUTE = "/v1/embeddings"
WARM_UP_S = 2.0


@dataclass(frozen=True)
class Texts:
    """lengths: in tokens.  bodies: the same texts as requests."""

    lengths: list[int]
    bodies: list[bytes]


def texts(count: int, seed: int) -> Texts:
    """The same for every server: lognormal lengths of median 44, at most 256 tokens."""
    rng = random.Random(seed)
    draw = parse_lengths(LENGTHS)
    lengths = [draw(rng) for _ in range(count)]
    return Texts(lengths, [embeddings_body(MODEL, lambda _, n=n: n, 1, rng) for n in lengths])  # type: ignore[misc]


@dataclass(frozen=True)
class Point:
    """A load: a closed loop of `concurrency` clients, or Poisson arrivals at `rate` a second."""

    concurrency: int = 0
    rate: float = 0.0
    label: str = ""

    def plan(self, seconds: float, seed: int) -> Plan:
        warm_up = min(WARM_UP_S, seconds / 4)
        if self.rate:
            return Plan(rate=self.rate, duration=seconds, warmup=warm_up, seed=seed)
        return Plan(concurrency=self.concurrency, duration=seconds, warmup=warm_up)


@dataclass
class Pool:
    """What one server did at one point in one round. latencies: nanoseconds from the due moment, of 2xx answers."""

    latencies: list[int] = field(default_factory=list)
    answered: int = 0
    failed: int = 0
    seconds: float = 0.0
    client_cpu: float = 0.0
    send_lag_p99_ms: float = 0.0

    @property
    def requests(self) -> int:
        return len(self.latencies) + self.failed

    def load(self, address: str, point: Point, seconds: float, bodies: Sequence[bytes], seed: int) -> None:
        """One more slice. Raises OSError where the server cannot be reached."""
        target = urlsplit(address + ROUTE)
        wires = [encode_request(target, body, ()) for body in bodies]
        measured = run(point.plan(seconds, seed), target.hostname or "", target.port or 80, wires)
        results = measured.results
        self.latencies += results.latencies
        self.answered += results.answered_in_window
        self.failed += sum(results.errors.values())
        self.seconds += measured.seconds
        self.client_cpu = max(self.client_cpu, measured.cpu)
        if results.lags:
            self.send_lag_p99_ms = max(self.send_lag_p99_ms, quantiles_ms(results.lags)["p99"])

    def figures(self) -> dict[str, float]:
        per_s = self.answered / self.seconds if self.seconds else 0.0
        spread = quantiles_ms(self.latencies) if self.latencies else {}
        counts = {"requests": self.requests, "failed": self.failed}
        client = {"client_cpu": round(self.client_cpu, 3), "send_lag_p99_ms": round(self.send_lag_p99_ms, 3)}
        return {"ok_per_s": round(per_s, 2), **{k: round(v, 2) for k, v in spread.items()}, **counts, **client}


def describe(point: Point) -> dict[str, Any]:
    return {"point": point.label, "concurrency": point.concurrency, "rate": round(point.rate, 2)}
