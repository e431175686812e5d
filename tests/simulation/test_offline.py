"""Goodput beside a scheduler that knows the future, and beside fixed settings on a trace."""

from __future__ import annotations

from itertools import permutations
from statistics import fmean

import pytest

from headway.core.policy import BatchPolicy
from headway.core.units import Instant, ms
from headway.sim.goodput import in_time
from headway.sim.offline import Instance, Job, achieved, instances, optimum
from headway.sim.regimes import Load, Run
from headway.sim.shapes import SHAPES

SOME = list(instances(100))


def launched(*jobs: tuple[float, float], workers: int = 1) -> Instance:
    """Launch-bound: 5 ms and 10 µs a row. jobs: arrival and deadline in ms."""
    return Instance("launch", workers, tuple(Job(ms(at), 8, ms(deadline)) for at, deadline in jobs))


def test_the_optimum_waits_for_a_request_that_only_it_knows_of() -> None:
    """At once, the first is in time and the second is not; together, both are."""
    instance = launched((0, 9), (3, 9))
    assert optimum(instance) == 2
    assert achieved(instance) == 1


def test_the_optimum_leaves_out_who_would_make_others_late() -> None:
    assert optimum(launched((0, 5), (0, 5.015), (6, 11.5))) == 2
    assert optimum(launched((0, 6), (4, 9.5))) == 1
    assert optimum(launched((0, 6), (4, 9.5), workers=2)) == 2


def by_trying_everything(jobs: list[Job], shape: str) -> int:
    """One worker: every order, cut into batches in every way."""
    cost, best = SHAPES[shape], 0
    for size in range(1, len(jobs) + 1):
        for order in permutations(jobs, size):
            for cuts in range(1 << (size - 1)):
                now: Instant = 0
                batch: list[Job] = []
                in_time = True
                for index, job in enumerate(order):
                    batch.append(job)
                    if index == size - 1 or cuts >> index & 1:
                        longest = max(member.length for member in batch)
                        now = max(now, *(member.at for member in batch)) + cost(len(batch), longest)
                        in_time = in_time and all(now <= member.deadline for member in batch)
                        batch = []
                best = max(best, size if in_time else 0)
    return best


@pytest.mark.parametrize("number", range(0, 40, 2))
def test_the_optimum_is_what_trying_everything_finds(number: int) -> None:
    instance = SOME[number]
    jobs = list(instance.jobs[:4])
    assert optimum(Instance(instance.shape, 1, tuple(jobs))) == by_trying_everything(jobs, instance.shape)


def test_nobody_beats_the_optimum() -> None:
    for instance in SOME:
        assert achieved(instance) <= optimum(instance), instance


def test_most_of_what_was_possible_is_done_without_knowing_the_future() -> None:
    assert fmean(achieved(instance) / max(1, optimum(instance)) for instance in SOME) >= 0.88


def test_a_policy_that_waits_too_long_is_found_out() -> None:
    patient = BatchPolicy(hold=True, max_queue_delay=ms(1000), deadline_margin=-ms(20))
    assert fmean(achieved(instance, patient) / max(1, optimum(instance)) for instance in SOME) < 0.6


def test_only_what_is_answered_within_the_slo_counts() -> None:
    run = Run(Load([0, 10, 20], [8, 8, 8]), [5, 30, 25], batches=3, busy=0)
    assert in_time(run, 5) == pytest.approx(2 / 3)
