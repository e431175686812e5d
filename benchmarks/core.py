"""Core microseconds per request: arrival with a deadline, fair order of four tenants, dispatch, completion.

    python benchmarks/core.py [--repeats 5] [--requests 4000] [--json]

A queue of constant depth and one worker that is never idle: as many requests arrive as left in the
last batch, each in a call of its own, then the batch completes and the next one leaves. `handle` is
timed and nothing else: arrivals are built beforehand, completions between the timed sections. The
time is this thread's CPU time, so that a busy machine does not count; the garbage collector is on, with the
server's thresholds.
Beside it, requests per wall second of the whole simulator.
"""

from __future__ import annotations

import argparse
import gc
import json
from dataclasses import asdict, dataclass
from itertools import islice
from random import Random
from statistics import median
from time import thread_time_ns

from headway.cli.server import COLLECT
from headway.core.effects import DispatchBatch, Effect
from headway.core.events import (
    BatchCompleted,
    Event,
    RequestArrived,
    ServerConfigured,
    VersionConfigured,
    WorkerReady,
    WorkerStarting,
)
from headway.core.ids import Capacity, Part, RequestId
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.scheduler import Scheduler
from headway.core.tenancy import TenantPolicy
from headway.core.units import Instant, seconds
from headway.sim.costs import COSTS, warm_up
from headway.sim.scenario import KEY, VERSION, Scenario, simulate
from headway.sim.workloads import MEDIAN_LENGTH, Mix, lognormal_length, open_loop, poisson

TENANTS = ("a", "b", "c", "d")
DEPTHS = (100, 100_000)
UNLIMITED = 1 << 40
SIMULATED = 5_000


@dataclass(frozen=True)
class Regime:
    """max_batch_size 1 is the dearest per request: no call is shared."""

    cost: str
    max_batch_size: int

    def __str__(self) -> str:
        return f"{self.cost}, {'batch 1' if self.max_batch_size == 1 else f'up to {self.max_batch_size}'}"


REGIMES = tuple(Regime(cost, size) for size in (1, 32) for cost in COSTS)


@dataclass(frozen=True)
class Result:
    """us: depth -> median over the repeats. ratio: the deepest to the shallowest. batch: mean requests per batch."""

    regime: str
    us: dict[int, float]
    ratio: float
    batch: float


@dataclass(frozen=True)
class Run:
    handle_ns: int
    requests: int
    batches: int


def arrivals(count: int, first: RequestId, rng: Random) -> list[list[Event]]:
    """One call's events each. Deadlines are far, and in no order."""
    return [
        [
            RequestArrived(
                request=first + number,
                tenant=rng.choice(TENANTS),
                key=KEY,
                parts=(Part(1, lognormal_length(rng)),),
                bytes=100,
                deadline=seconds(rng.uniform(1e5, 2e5)),
            )
        ]
        for number in range(count)
    ]


def loaded(regime: Regime, depth: int, rng: Random) -> tuple[Scheduler, DispatchBatch]:
    """A scheduler with `depth` requests waiting, and the batch that its worker runs."""
    scheduler = Scheduler()
    policy = BatchPolicy(max_batch_size=regime.max_batch_size, max_queued_requests=UNLIMITED, max_queued_rows=UNLIMITED)
    server = ServerPolicy(max_queued_bytes=UNLIMITED, tenants=tuple((tenant, TenantPolicy()) for tenant in TENANTS))
    scheduler.handle([ServerConfigured(server), VersionConfigured(VERSION, policy), WorkerStarting(1, VERSION)], 0)
    for events in arrivals(depth, 1, rng):
        scheduler.handle(events, 0)
    effects = scheduler.handle([WorkerReady(1, Capacity(), warm_up(COSTS[regime.cost], 32, 256))], 0)
    return scheduler, dispatched(effects)


def dispatched(effects: list[Effect]) -> DispatchBatch:
    return next(effect for effect in effects if isinstance(effect, DispatchBatch))


class Bench:
    """One scheduler at a constant depth; each `run` goes on where the last one ended."""

    def __init__(self, regime: Regime, depth: int) -> None:
        self._rng = Random(1)
        self._cost = COSTS[regime.cost]
        self._scheduler, self._batch = loaded(regime, depth, self._rng)
        self._next = depth + 1
        self._now: Instant = 0

    def run(self, requests: int) -> Run:
        coming = iter(arrivals(requests, self._next, self._rng))
        self._next += requests
        gc.collect()
        gc.set_threshold(*COLLECT)
        spent = done = batches = 0
        while done < requests:
            size = len(self._batch.parts)
            spent += self._one_batch(list(islice(coming, size)))
            done += size
            batches += 1
        return Run(spent, done, batches)

    def _one_batch(self, calls: list[list[Event]]) -> int:
        """`calls` arrive while the batch runs; it completes, and the next one leaves. Returns ns."""
        batch, handle, now = self._batch, self._scheduler.handle, self._now
        took = self._cost(len(batch.parts), MEDIAN_LENGTH)
        completed = [BatchCompleted(batch.worker, batch.batch, took)]
        step = took // (len(calls) + 1)
        began = thread_time_ns()
        for events in calls:
            now += step
            handle(events, now)
        now += step
        effects = handle(completed, now)
        spent = thread_time_ns() - began
        self._now, self._batch = now, dispatched(effects)
        return spent


def measure(regime: Regime, requests: int, repeats: int) -> Result:
    us: dict[int, float] = {}
    batch = 0.0
    for depth in DEPTHS:
        bench = Bench(regime, depth)
        runs = [bench.run(requests) for _ in range(repeats)]
        us[depth] = round(median(run.handle_ns / run.requests for run in runs) / 1000, 2)
        batch = batch or runs[0].requests / runs[0].batches
    return Result(str(regime), us, round(us[DEPTHS[-1]] / us[DEPTHS[0]], 2), round(batch, 1))


def simulator_rate(repeats: int) -> int:
    """Simulated requests per wall second: 80/s of Poisson arrivals, CPU costs, one worker."""
    rates = []
    for seed in range(repeats):
        arriving = open_loop(Random(seed), poisson(Random(seed), 80), Mix((KEY,)), SIMULATED)
        rates.append(simulate(Scenario(arriving)).requests_per_wall_s)
    return round(median(rates))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--requests", type=int, default=4000, help="timed requests in each repeat")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    results = []
    if not options.json:
        print(f"{'':22}{'':>8}{'µs per request with so many waiting':>40}")
        print(f"{'':22}{'batch':>8}" + "".join(f"{depth:>14,}" for depth in DEPTHS) + f"{'ratio':>10}")
    for regime in REGIMES:
        result = measure(regime, options.requests, options.repeats)
        results.append(result)
        if not options.json:
            numbers = "".join(f"{result.us[depth]:>14.2f}" for depth in DEPTHS)
            print(f"{result.regime:22}{result.batch:>8.1f}{numbers}{result.ratio:>10.2f}", flush=True)
    rate = simulator_rate(options.repeats)
    if options.json:
        print(json.dumps({"core": [asdict(result) for result in results], "simulated_per_s": rate}, indent=2))
    else:
        print(f"simulator: {rate:,} requests per wall second")


if __name__ == "__main__":
    main()
