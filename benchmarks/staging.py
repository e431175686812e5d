"""What handing the next batch over early buys in idle time, and what it costs in growth.

    python benchmarks/staging.py

One worker whose batches take 10 ms and a little for each row, give or take; each batch and each answer
is some while on its way. A staged batch is fixed shortly before the running one ends: whoever comes
after that is not in it. Beside headway as it is, the same without staging. Everything happens in
virtual time: the figures do not depend on this machine.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random
from unittest.mock import patch

from headway.core.effects import Effect
from headway.core.events import BatchCompleted, Event
from headway.core.scheduler import Scheduler
from headway.core.units import Duration, Instant, ms, us
from headway.sim.costs import noisy
from headway.sim.report import Report
from headway.sim.scenario import KEY, Scenario, simulate
from headway.sim.workloads import Mix, open_loop, poisson

REQUESTS = 20_000
HAND_OVERS = (ms(0.1), ms(0.5), ms(2))
SPREADS = (0.0, 0.05, 0.2)
"""Sigma of the logarithm of a run time."""
RATE = 1_600
"""Per second; 32 rows take 10.6 ms, so at most 3,000 could be served."""


@dataclass(slots=True)
class Gaps:
    """An observer: when the worker ran. Answers come `hand_over` after the run has ended."""

    hand_over: Duration
    runs: list[tuple[Instant, Instant]] = field(default_factory=list)

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        for event in events:
            if isinstance(event, BatchCompleted):
                end = now - self.hand_over
                self.runs.append((end - event.duration, end))

    @property
    def idle(self) -> float:
        """Of all time from the first run to the last."""
        ran = sum(end - begin for begin, end in self.runs)
        return 1 - ran / (self.runs[-1][1] - self.runs[0][0])


def cost(rows: int, length: int) -> Duration:
    return ms(10) + us(20) * rows


def play(hand_over: Duration, spread: float, clients: int) -> tuple[float, Report]:
    """clients: 0 = open loop."""
    rng = Random(1)
    gaps = Gaps(hand_over)
    arrivals = open_loop(rng, poisson(rng, RATE), Mix((KEY,)), REQUESTS)
    took = noisy(cost, Random(2), spread) if spread else cost
    report = simulate(Scenario(arrivals, cost=took, hand_over=hand_over, clients=clients), (gaps,))
    return gaps.idle, report


def row(hand_over: Duration, spread: float, clients: int) -> str:
    idle, with_it = play(hand_over, spread, clients)
    with patch("headway.core.placement.WORTH_STAGING", float("inf")):
        idle_without, without = play(hand_over, spread, clients)
    load = f"{clients} clients" if clients else f"{RATE}/s"
    cells = [load, f"{hand_over / ms(1):g} ms", f"{spread:g}"]
    cells += [f"{100 * idle:.1f} %", f"{100 * idle_without:.1f} %"]
    cells += [f"{with_it.mean_batch_size:.1f}", f"{without.mean_batch_size:.1f}"]
    cells += [f"{with_it.latency.p50_ms:.1f}", f"{without.latency.p50_ms:.1f}"]
    cells += [f"{with_it.throughput_per_s:.0f}", f"{without.throughput_per_s:.0f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    print("| load | on its way | spread | idle | idle, not staged | rows | rows, not | p50 ms | not | per s | not |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for clients in (64, 0):
        for hand_over in HAND_OVERS:
            for spread in SPREADS:
                print(row(hand_over, spread, clients), flush=True)


if __name__ == "__main__":
    main()
