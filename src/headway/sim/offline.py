"""A scheduler that knows the future: how many of a few requests could have been answered in time?

Solved exactly. For one worker: over every set of requests, the earliest moment at which it can have
answered them all in time. To be free earlier is never worse, so that one number per set is enough.
Workers are alike, so several share a set in every way in which it can be cut.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from headway.core.ids import Part
from headway.core.policy import BatchPolicy
from headway.core.units import NEVER, Duration, Instant
from headway.sim.costs import Cost
from headway.sim.regimes import Ends
from headway.sim.scenario import KEY, Scenario, simulate
from headway.sim.shapes import SHAPES
from headway.sim.workloads import Arrival, lognormal_length

AT_MOST = 7
TIGHTNESS = ((1.2, 3.0), (1.5, 6.0), (2.0, 12.0))
"""Time allowed, in solo run times: from, to. One pair for all requests of an instance."""
CROWDING = (1.0, 2.0, 4.0, 8.0)
"""Requests that come in the solo run time of one, per worker."""


@dataclass(frozen=True, slots=True)
class Job:
    at: Instant
    length: int
    deadline: Instant


@dataclass(frozen=True, slots=True)
class Instance:
    shape: str
    workers: int
    jobs: tuple[Job, ...]


def instances(count: int, seed: str = "offline") -> Iterator[Instance]:
    """Devices and numbers of workers in turn; everything else at random."""
    names = list(SHAPES)
    for number in range(count):
        yield _instance(names[number % len(names)], 1 + number // len(names) % 2, Random(f"{seed} {number}"))


def _instance(shape: str, workers: int, rng: Random) -> Instance:
    cost = SHAPES[shape]
    size = rng.randint(3, AT_MOST)
    lengths = [lognormal_length(rng) for _ in range(size)]
    solo = [cost(1, length) for length in lengths]
    gap = sum(solo) / size / (workers * rng.choice(CROWDING))
    least, most = rng.choice(TIGHTNESS)
    at, jobs = 0, []
    for length, alone in zip(lengths, solo, strict=True):
        jobs.append(Job(at, length, at + round(alone * rng.uniform(least, most))))
        at += round(rng.expovariate(1 / gap))
    return Instance(shape, workers, tuple(jobs))


# -- the optimum --------------------------------------------------------------------------------------


def optimum(instance: Instance) -> int:
    """The most requests that can be answered in time."""
    alone = [free != NEVER for free in _earliest_free(instance.jobs, SHAPES[instance.shape])]
    reach = alone
    for _ in range(instance.workers - 1):
        reach = [any(reach[part] and alone[whole ^ part] for part in _parts(whole)) for whole in range(len(alone))]
    return max(whole.bit_count() for whole, can in enumerate(reach) if can)


def _earliest_free(jobs: Sequence[Job], cost: Cost) -> list[Instant]:
    """By set (bits): when one worker can have answered all of it in time; NEVER = it cannot."""
    free = [NEVER] * (1 << len(jobs))
    free[0] = 0
    batches = [_batch(jobs, members, cost) for members in range(len(free))]
    for done in range(1, len(free)):
        for last in _parts(done):
            before = free[done ^ last]
            if last and before != NEVER:
                ready, runs, deadline = batches[last]
                end = max(before, ready) + runs
                if end <= deadline and end < free[done]:
                    free[done] = end
    return free


def _batch(jobs: Sequence[Job], members: int, cost: Cost) -> tuple[Instant, Duration, Instant]:
    """When all of them are there, how long they run together, and when the first must have its answer."""
    chosen = [job for index, job in enumerate(jobs) if members >> index & 1]
    if not chosen:
        return 0, 0, NEVER
    runs = cost(len(chosen), max(job.length for job in chosen))
    return max(job.at for job in chosen), runs, min(job.deadline for job in chosen)


def _parts(whole: int) -> Iterator[int]:
    """Every subset of a set of bits, the whole and the empty one included."""
    part = whole
    while True:
        yield part
        if not part:
            return
        part = (part - 1) & whole


# -- headway ------------------------------------------------------------------------------------------


def achieved(instance: Instance, policy: BatchPolicy | None = None) -> int:
    """How many headway answers in time; it is told of each request when it comes."""
    arrivals = [Arrival(job.at, KEY, (Part(1, job.length),), patience=job.deadline - job.at) for job in instance.jobs]
    seen = Ends([NEVER] * len(arrivals))
    cost = SHAPES[instance.shape]
    simulate(Scenario(arrivals, policy=policy or BatchPolicy(), cost=cost, workers=instance.workers), (seen,))
    return sum(end <= job.deadline for end, job in zip(seen.ends, instance.jobs, strict=True))
