"""The default beside every fixed setting, in a few cells; and that this harness can fail."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest

from headway.core.policy import BatchPolicy
from headway.core.units import NEVER, Duration, Instant, ms
from headway.sim.costs import cpu, gpu
from headway.sim.crowd import Crowd, serve_crowd
from headway.sim.fixed import Setting, capacity, grid, play_fixed
from headway.sim.regimes import (
    TRACES,
    Cell,
    Load,
    judge,
    play_core,
    read_verdicts,
    write_verdicts,
)
from headway.sim.shapes import SHAPES
from headway.sim.workloads import MAX_LENGTH, lognormal_length, poisson

ROOT = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("HEADWAY_TRACES") or ROOT.parent / "shared" / "data" / "traces")
COUNT = 1500
ALLOWED = 1.25
"""Beyond the goal, by so much: few requests make rough percentiles."""


def load(rate: float, count: int, length: int = 0, seed: str = "load") -> Load:
    rng, at, now = Random(seed), [], 0
    for _, gap in zip(range(count), poisson(rng, rate), strict=False):
        now += gap
        at.append(now)
    return Load(at, [length or lognormal_length(rng) for _ in at])


# -- the fixed settings ---------------------------------------------------------------------------


def slowly(at: Sequence[Instant], lengths: Sequence[int], s: Setting, cost: object, workers: int) -> list[Instant]:
    """The same rule, millisecond fractions aside, told as a clock that ticks from event to event."""
    assert callable(cost)
    free, waiting, ends, to_come = [0] * workers, [], [0] * len(at), list(range(len(at)))
    now = 0
    while to_come or waiting:
        while to_come and at[to_come[0]] <= now:
            waiting.append(to_come.pop(0))
        batch = waiting[: s.rows]
        while s.tokens and len(batch) > 1 and len(batch) * max(lengths[i] for i in batch) > s.tokens:
            batch.pop()
        full = len(batch) == s.rows or len(batch) < len(waiting)
        full = full or (bool(batch) and 0 < s.tokens <= len(batch) * max(lengths[i] for i in batch))
        idle = [i for i in range(workers) if free[i] <= now]
        if batch and idle and (full or now >= at[batch[0]] + s.linger):
            free[idle[0]] = now + cost(len(batch), max(lengths[i] for i in batch))
            for i in batch:
                ends[i] = free[idle[0]]
            waiting = waiting[len(batch) :]
            continue
        coming = [t for t in free if t > now] + [at[i] for i in to_come[:1]]
        coming += [at[batch[0]] + s.linger] if batch and at[batch[0]] + s.linger > now else []
        now = min(coming)
    return ends


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("setting", grid(MAX_LENGTH)[::5], ids=str)
def test_one_pass_over_the_arrivals_gives_what_a_ticking_clock_gives(setting: Setting, workers: int) -> None:
    some = load(900 * workers, 200)
    played = play_fixed(some.at, some.lengths, setting, gpu, workers)
    assert played.ends == slowly(some.at, some.lengths, setting, gpu, workers)


@pytest.mark.parametrize(("rows", "linger"), [(1, 0), (8, 0), (8, ms(5)), (32, ms(5))])
@pytest.mark.parametrize("rate", [200, 2000])
def test_with_equal_lengths_the_core_that_holds_its_batches_does_the_same(
    rows: int, linger: Duration, rate: float
) -> None:
    """One length, one worker: the core has nothing to choose."""
    some = load(rate, 800, length=32)
    policy = BatchPolicy(max_batch_size=rows, max_queue_delay=linger, hold=True, max_batch_time=ms(60_000))
    core = play_core(some, gpu, 1, policy)
    assert core.ends == play_fixed(some.at, some.lengths, Setting(rows, 0, linger), gpu).ends


def test_who_has_waited_too_long_is_dropped() -> None:
    played = play_fixed([0, 1, 2], [8, 8, 8], Setting(1), lambda rows, length: 10, patience=15)
    assert played.ends == [10, 20, NEVER]


def test_the_capacity_is_that_of_the_best_setting() -> None:
    assert capacity([8] * 320, SHAPES["sizes"], grid(MAX_LENGTH)) == pytest.approx(8 / 0.006)
    assert capacity([8] * 320, SHAPES["launch"], grid(MAX_LENGTH)) == pytest.approx(32 / 0.00532)


def test_settings_that_cannot_differ_are_played_once() -> None:
    settings = grid(256)
    assert len(settings) == len(set(settings)) == 57
    assert [s for s in settings if s.rows == 1] == [Setting(1)]


# -- the table ------------------------------------------------------------------------------------

CELLS = [
    Cell("cpu", 0.7, "poisson", 1),
    Cell("gpu", 0.7, "poisson", 1),
    Cell("knee", 0.5, "gamma", 1),
    Cell("sizes", 0.5, "poisson", 1),
    Cell("launch", 0.3, "poisson", 4),
    Cell("gpu", 1.2, "poisson", 4),
]


@pytest.mark.parametrize("cell", CELLS, ids=str)
def test_the_default_is_about_as_good_as_the_best_fixed_setting(cell: Cell) -> None:
    for comparison in judge(cell, COUNT, FOLDER).comparisons():
        assert comparison.badness <= ALLOWED, f"{comparison.metric}: {comparison.ratio:.2f} of {comparison.setting}"


def test_on_a_real_trace_too() -> None:
    if not (FOLDER / TRACES["conv"]).exists():
        pytest.skip(f"no {TRACES['conv']} in {FOLDER}; HEADWAY_TRACES names the folder that has the public traces")
    for comparison in judge(Cell("gpu", 0.7, "conv", 1), COUNT, FOLDER).comparisons():
        assert comparison.badness <= ALLOWED, f"{comparison.metric}: {comparison.ratio:.2f} of {comparison.setting}"


@pytest.mark.parametrize(
    ("cell", "bad"),
    [
        (Cell("cpu", 0.7, "poisson", 1), BatchPolicy(hold=True)),
        (Cell("gpu", 0.7, "poisson", 1), BatchPolicy(max_batch_size=1)),
        (Cell("launch", 0.3, "poisson", 4), BatchPolicy(hold=True, max_queue_delay=ms(20))),
    ],
    ids=["always waiting", "never batching", "waiting for too long"],
)
def test_a_bad_policy_is_found_out(cell: Cell, bad: BatchPolicy) -> None:
    worst = max(comparison.badness for comparison in judge(cell, COUNT, FOLDER, bad).comparisons())
    assert worst > ALLOWED


@pytest.mark.parametrize("shape", SHAPES)
def test_a_long_queue_never_makes_it_slower(shape: str) -> None:
    crowd = serve_crowd(Crowd(shape, 1))
    assert not crowd.collapses, crowd.rates


def test_first_come_batches_of_mixed_length_collapse_and_are_found_out() -> None:
    """What most servers do on a CPU: the longer the queue, the fuller and slower the batches."""
    some = load(80, 400)
    busy = [play_fixed(some.at, some.lengths, Setting(rows), cpu).busy for rows in (1, 32)]
    assert busy[1] > 2 * busy[0]
    assert Crowd("cpu", 1, {10: 86.0, 100: 40.0, 1000: 19.0}).collapses


def test_verdicts_are_read_as_they_were_written() -> None:
    verdict = judge(Cell("launch", 1.2, "poisson", 1), 200, FOLDER)
    again = read_verdicts(write_verdicts([verdict]))[verdict.cell]
    assert again == verdict
    assert judge(verdict.cell, 200, FOLDER, known=again) == verdict
