"""A server under load for a long time, faults on at a low rate: does anything grow, or goodput fall? `make soak`.

    python -m tests.chaos.soak --minutes 30

Everything that `tests.chaos.run` judges is judged at the end, too.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from tests.chaos.faults import NoVictim, do, schedule
from tests.chaos.run import ChaosFailed, failure, report
from tests.chaos.slopes import Slope, fit
from tests.chaos.stage import Plan, Stage, staged

EVERY_S, LEAST_SAMPLES = 2.0, 45
"""Between two samples; less where there would be too few."""
WARM_UP = 0.25
"""Of the time, that is not measured; LONGEST_WARM_UP_S at most."""
LONGEST_WARM_UP_S = 180
GAP_S = 2.0
PAGE = os.sysconf("SC_PAGE_SIZE")


class Sample(NamedTuple):
    """at: seconds.  goodput: right answers per second since the last sample.  Memory: MiB that are resident.
    elsewhere: since the last sample, the share of the machine's processors that others were using: a closed loop
    answers less beside them, whatever the server does."""

    at: float
    goodput: float
    server_mib: float
    workers_mib: float
    files: float
    threads: float
    elsewhere: float = 0.0


class Allowed(NamedTuple):
    """share: of the mean; plus so much. Over all that is measured, however long it takes."""

    share: float
    plus: float = 0

    def of(self, slope: Slope) -> float:
        return self.share * slope.mean + self.plus


ALLOWED: dict[str, Allowed] = {
    "goodput": Allowed(-0.1),
    "server_mib": Allowed(0.05, 2),
    "workers_mib": Allowed(0.1),
    "files": Allowed(0, 4),
    "threads": Allowed(0, 1),
}
"""What each may change by, in the direction that is bad, before it counts."""


async def soak(root: Path, plan: Plan, minutes: float) -> str:
    """What came of it. Raises ChaosFailed."""
    began = time.monotonic()
    ends = began + 60 * minutes
    async with staged(root, plan) as stage:
        measuring = asyncio.create_task(measure(stage, ends))
        await disturb(stage, ends)
        samples = await measuring
        await stage.heal()
        await stage.end()
        played = time.monotonic() - began
    table, grown = judged(samples)
    stage.breaches += grown
    if stage.breaches:
        options = f"--seed {plan.seed} --minutes {minutes:g} --gap {plan.gap_s:g} --pause {plan.pause_s:g}"
        replay = f"python -m tests.chaos.soak {options}"
        raise ChaosFailed("\n".join([*table, failure(stage, replay)]))
    return "\n".join([report(stage, played), *table])


async def disturb(stage: Stage, ends: float) -> None:
    """One fault after the other, in ever new orders."""
    rng = stage.plan.rng("schedule")
    with contextlib.suppress(asyncio.TimeoutError):
        async with asyncio.timeout(max(0, ends - time.monotonic())):
            while True:
                for name in schedule(rng, stage.plan.kills):
                    try:
                        await do(stage.scene, name)
                    except NoVictim as missing:
                        stage.breaches.append(str(missing))
                        return
                    await asyncio.sleep(rng.expovariate(1 / stage.plan.gap_s))


async def measure(stage: Stage, ends: float) -> list[Sample]:
    """After the warm-up, until it ends."""
    left = ends - time.monotonic()
    warm_up = min(LONGEST_WARM_UP_S, WARM_UP * left)
    await asyncio.sleep(warm_up)
    samples, every = [], min(EVERY_S, (left - warm_up) / LEAST_SAMPLES)
    last, at, used = stage.ledger.completed, time.monotonic(), processors(stage)
    while time.monotonic() < ends:
        await asyncio.sleep(every)
        done, now, using = stage.ledger.completed, time.monotonic(), processors(stage)
        samples.append(sample(stage, now, (done - last) / (now - at), used.elsewhere(using)))
        last, at, used = done, now, using
    return samples


class Processors(NamedTuple):
    """Clock ticks: that there were, that were used, and that were used by the server, its workers and its clients."""

    there: int
    used: int
    ours: int

    def elsewhere(self, later: Processors) -> float:
        """Share of what there was in between."""
        others = later.used - self.used - (later.ours - self.ours)
        return min(1.0, max(0.0, others / max(1, later.there - self.there)))


def processors(stage: Stage) -> Processors:
    ticks = [int(count) for count in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    ours = sum(map(_ticks, [os.getpid(), stage.server.process.pid, *stage.server.workers()]))
    return Processors(sum(ticks), sum(ticks) - ticks[3] - ticks[4], ours)


def _ticks(pid: int) -> int:
    """Of a process, and of its children that have ended."""
    try:
        return sum(map(int, Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:15]))
    except OSError:
        return 0


def sample(stage: Stage, now: float, goodput: float, elsewhere: float) -> Sample:
    pid = stage.server.process.pid
    workers = sum(_resident_mib(worker) for worker in stage.server.workers())
    files = len(os.listdir(f"/proc/{pid}/fd"))
    threads = len(os.listdir(f"/proc/{pid}/task"))
    return Sample(now, goodput, _resident_mib(pid), workers, files, threads, elsewhere)


def _resident_mib(pid: int) -> float:
    """0 of one that has just ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * PAGE / (1 << 20)
    except OSError:
        return 0.0


def judged(samples: list[Sample]) -> tuple[list[str], list[str]]:
    """The table of what was measured, and what has changed for the worse."""
    times = [each.at for each in samples]
    elsewhere = [each.elsewhere for each in samples]
    span = (times[-1] - times[0]) / 60
    rows = [f"{len(samples)} samples in {span:.1f} min", f"{'':12} {'mean':>9} {'change':>9} {'+-':>7} {'allowed':>9}"]
    grown = []
    for name, allowed in ALLOWED.items():
        slope = fit(times, [getattr(each, name) for each in samples], elsewhere if name == "goodput" else ())
        limit = allowed.of(slope)
        bad = slope.exceeds(limit)
        row = f"{name:12} {slope.mean:9.2f} {slope.change:+9.2f} {slope.error:7.2f} {limit:+9.2f}"
        rows.append(f"{row}{'  TOO MUCH' if bad else ''}")
        if bad:
            grown.append(f"{name} changed by {slope.change:+.2f} (+- {slope.error:.2f}), allowed are {limit:+.2f}")
    rows.append(f"others used {sum(elsewhere) / len(elsewhere):.0%} of the machine, which goodput is corrected for")
    return rows, grown


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.soak", description=__doc__.split("\n")[0])
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--gap", type=float, default=GAP_S, help="seconds between two faults, on average")
    parser.add_argument("--pause", type=float, default=Plan.pause_s, help="seconds between two requests of a client")
    parser.add_argument("--bug", default="", help="one of tests/chaos/planted.py, which must be noticed")
    given = parser.parse_args()
    plan = Plan(given.seed, gap_s=given.gap, pause_s=given.pause, bug=given.bug)
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(asyncio.run(soak(Path(folder), plan, given.minutes)))
        except ChaosFailed as failed:
            sys.exit(str(failed))


if __name__ == "__main__":
    main()
