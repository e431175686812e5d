"""One measurement: a plan in, results out."""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from ssl import SSLContext

import uvloop

from headway.bench import arrivals
from headway.bench.client import Client
from headway.bench.load import NEVER, ClosedPacer, Load, OpenPacer, Pacer, Results, Window

SECOND = 1_000_000_000


@dataclass(frozen=True)
class Plan:
    """Closed loop with `concurrency` users, or open loop with `rate` requests/s (`poisson` or evenly spaced).

    duration, warmup, timeout: seconds; the timeout counts from the moment at which a request was due.
    requests: measured requests after which to stop; None: after `duration`.
    connections: at most so many in the open loop; requests that find none free wait, and their clock runs.
    """

    concurrency: int = 1
    rate: float | None = None
    poisson: bool = True
    duration: float = 10
    requests: int | None = None
    warmup: float = 1
    timeout: float = 60
    connections: int = 1024
    seed: int = 0


@dataclass(frozen=True)
class Measured:
    """seconds: length of the measured window.  cpu: this client's own use during the run, in cores."""

    results: Results
    seconds: float
    cpu: float


def run(
    plan: Plan, host: str, port: int, wires: Sequence[bytes], *, tls: SSLContext | None = None, unix: str = ""
) -> Measured:
    """tls: None = in the clear.  unix: path of a socket, instead of host and port.

    Raises OSError when the server cannot be reached at the start.
    """
    return uvloop.run(_run(plan, host, port, wires, tls, unix))


async def _run(plan: Plan, host: str, port: int, wires: Sequence[bytes], tls: SSLContext | None, unix: str) -> Measured:
    limit = plan.concurrency if plan.rate is None else plan.connections
    timeout = round(plan.timeout * SECOND)
    client = Client(host, port, wires, timeout=timeout, connections=limit, tls=tls, unix=unix)
    await client.connect(limit if plan.rate is None else 1)
    gc.collect()
    gc.freeze()  # what was made before the run is not looked at again during it
    start, cpu = time.monotonic_ns(), time.process_time_ns()
    load = _load(plan, start)
    await client.run(load)
    used = (time.process_time_ns() - cpu) / (time.monotonic_ns() - start)
    window = load.window
    end = load.results.last_end if window.end == NEVER else window.end
    return Measured(load.results, max(end - window.measure_from, 0) / SECOND, used)


def _load(plan: Plan, start: int) -> Load:
    measure_from = start + round(plan.warmup * SECOND)
    end = NEVER if plan.requests is not None else measure_from + round(plan.duration * SECOND)
    return Load(_pacer(plan, start), Window(start, measure_from, end, plan.requests))


def _pacer(plan: Plan, start: int) -> Pacer:
    if plan.rate is None:
        return ClosedPacer(plan.concurrency)
    if plan.poisson:
        return OpenPacer(arrivals.poisson(plan.rate, start, random.Random(plan.seed)))
    return OpenPacer(arrivals.constant(plan.rate, start))
