"""Is headway's default as good as the best fixed setting, chosen in hindsight for that very load?

A cell is a device, a load, a kind of arrivals and a number of workers. Everybody is given the same
arrivals and the same service times.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, astuple, dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random

from headway.core.effects import DispatchBatch, Effect, ResolveRequest
from headway.core.events import Event
from headway.core.ids import Part
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import MILLISECOND, NEVER, SECOND, Duration, Instant
from headway.sim.costs import Cost
from headway.sim.fixed import Setting, capacity, grid, play_fixed
from headway.sim.report import percentile
from headway.sim.scenario import KEY, Scenario, simulate
from headway.sim.shapes import SHAPES
from headway.sim.workloads import MAX_LENGTH, Arrival, bursty, lognormal_length, poisson, read_trace

LOADS = (0.3, 0.5, 0.7, 0.85, 0.95, 0.98, 1.2)
TRACES = {"conv": "azure-llm-2023-conv.csv", "code": "azure-llm-2023-code.csv"}
ARRIVALS = ("poisson", "gamma", *TRACES)
WORKERS = (1, 4)
GOALS = {"p50": 1.10, "p99": 1.20, "throughput": 0.95}
"""Ratio headway / best: at most for latencies, at least for throughput."""

NOISY_FROM = 0.9
"""Loads from which on a percentile depends much on the draw: several are played."""
DRAWS = 3
SATURATING = 4000
"""Requests by which a capacity is measured."""


@dataclass(frozen=True, slots=True)
class Cell:
    """load: share of what the workers serve at the best fixed setting."""

    shape: str
    load: float
    arrivals: str
    workers: int

    def __str__(self) -> str:
        return f"{self.shape} {self.load:g} {self.arrivals} x{self.workers}"


@dataclass(frozen=True, slots=True)
class Load:
    """Arrivals in order, and the length of each."""

    at: Sequence[Instant]
    lengths: Sequence[int]


@dataclass(slots=True)
class Score:
    """p50, p99 in ms, of completed requests; throughput: completed per second while they came.

    batch: mean rows. busy: use of the workers. Of several draws: the mean of each.
    """

    p50: float
    p99: float
    throughput: float
    batch: float
    busy: float

    def of(self, metric: str) -> float:
        return float(getattr(self, metric))


@dataclass(slots=True)
class Best:
    """The fixed setting that is best at one metric, draw by draw."""

    metric: str
    setting: str
    draws: list[Score]


@dataclass(slots=True)
class Verdict:
    """ours: headway's scores, draw by draw."""

    cell: Cell
    count: int
    ours: list[Score]
    best: list[Best]

    def comparisons(self) -> list[Comparison]:
        return [Comparison(self.cell, best.metric, best.setting, self.ours, best.draws) for best in self.best]


@dataclass(slots=True)
class Comparison:
    cell: Cell
    metric: str
    setting: str
    ours: list[Score]
    best: list[Score]

    @property
    def ratio(self) -> float:
        return mean(self.ours).of(self.metric) / max(1e-9, mean(self.best).of(self.metric))

    @property
    def singly(self) -> list[float]:
        """The ratio in each draw."""
        pairs = zip(self.ours, self.best, strict=True)
        return [mine.of(self.metric) / max(1e-9, its.of(self.metric)) for mine, its in pairs]

    @property
    def badness(self) -> float:
        """Above 1: the goal is missed."""
        goal = GOALS[self.metric]
        return goal / self.ratio if self.metric == "throughput" else self.ratio / goal


def mean(scores: Sequence[Score]) -> Score:
    return Score(*(sum(values) / len(scores) for values in zip(*map(astuple, scores), strict=True)))


def read_verdicts(text: str) -> dict[Cell, Verdict]:
    """What `write_verdicts` wrote."""
    verdicts = []
    for entry in json.loads(text):
        best = [Best(b["metric"], b["setting"], [Score(**score) for score in b["draws"]]) for b in entry["best"]]
        verdicts.append(Verdict(Cell(**entry["cell"]), entry["count"], [Score(**s) for s in entry["ours"]], best))
    return {verdict.cell: verdict for verdict in verdicts}


def write_verdicts(verdicts: Sequence[Verdict]) -> str:
    return json.dumps([asdict(verdict) for verdict in verdicts], indent=1)


# -- what comes ---------------------------------------------------------------------------------------


@cache
def read_load(path: Path, count: int) -> Load:
    """The first `count` requests of a trace."""
    rows = list(islice(read_trace(path), count))
    return Load([row.at for row in rows], [row.length for row in rows])


@cache
def _lengths(seed: str, count: int) -> list[int]:
    rng = Random(f"{seed} lengths")
    return [lognormal_length(rng) for _ in range(count)]


@cache
def capacity_of(shape: str, trace: Path | None) -> float:
    """Requests per second and worker, at the best fixed setting for the trace's lengths, or for invented ones."""
    lengths = read_load(trace, SATURATING).lengths if trace else _lengths("capacity", SATURATING)
    return capacity(lengths, SHAPES[shape], grid(MAX_LENGTH))


def draws(cell: Cell, count: int, traces: Path) -> list[Load]:
    """count: requests in each. A trace is played once, its time stretched to the load."""
    trace = traces / TRACES[cell.arrivals] if cell.arrivals in TRACES else None
    rate = cell.load * cell.workers * capacity_of(cell.shape, trace)
    if trace:
        return [stretched(read_load(trace, 2 * count), rate)]
    seeds = range(DRAWS if NOISY_FROM <= cell.load <= 1 else 1)
    return [_drawn(cell.arrivals, f"{cell.arrivals} {seed}", rate, count) for seed in seeds]


def stretched(trace: Load, rate: float) -> Load:
    """The trace with its time drawn out or pressed together to so many requests per second."""
    span = trace.at[-1] - trace.at[0]
    speed = rate * span / (len(trace.at) * SECOND)
    return Load([round(at / speed) for at in trace.at], trace.lengths)


def _drawn(kind: str, seed: str, rate: float, count: int) -> Load:
    rng = Random(f"{seed} gaps")
    gaps = poisson(rng, rate) if kind == "poisson" else bursty(rng, rate, cv=4)
    at, now = [], 0
    for gap in islice(gaps, count):
        now += gap
        at.append(now)
    return Load(at, _lengths(seed, count))


# -- who serves it ------------------------------------------------------------------------------------


@dataclass(slots=True)
class Ends:
    """An observer: when each request was answered; NEVER = it was not."""

    ends: list[Instant]
    batches: int = 0

    def observe(self, now: Instant, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        for effect in effects:
            if type(effect) is ResolveRequest:
                self.ends[effect.request - 1] = now if effect.outcome is Outcome.COMPLETED else NEVER
            elif type(effect) is DispatchBatch:
                self.batches += 1


@dataclass(slots=True)
class Run:
    """What one server made of one load."""

    load: Load
    ends: Sequence[Instant]
    batches: int
    busy: Duration


def play_core(
    load: Load, cost: Cost, workers: int, policy: BatchPolicy | None = None, patience: Duration = NEVER
) -> Run:
    """headway, by default as it comes."""
    seen = Ends([NEVER] * len(load.at))
    arrivals = [
        Arrival(at, KEY, (Part(1, length),), patience=patience)
        for at, length in zip(load.at, load.lengths, strict=True)
    ]
    scenario = Scenario(arrivals, policy=policy or BatchPolicy(), cost=cost, workers=workers)
    report = simulate(scenario, (seen,))
    return Run(load, seen.ends, seen.batches, round(report.utilisation * workers * report.duration_s * SECOND))


def play_setting(load: Load, setting: Setting, cost: Cost, workers: int, patience: Duration = NEVER) -> Run:
    played = play_fixed(load.at, load.lengths, setting, cost, workers, patience)
    return Run(load, played.ends, played.batches, played.busy)


def score(run: Run, workers: int) -> Score:
    answered = [(end, at) for end, at in zip(run.ends, run.load.at, strict=True) if end != NEVER]
    latencies = sorted(end - at for end, at in answered)
    first, until = run.load.at[0], run.load.at[-1]
    lasted = max((end for end, _ in answered), default=until) - first
    return Score(
        p50=percentile(latencies, 0.5) / MILLISECOND,
        p99=percentile(latencies, 0.99) / MILLISECOND,
        throughput=sum(end <= until for end, _ in answered) * SECOND / max(1, until - first),
        batch=len(latencies) / max(1, run.batches),
        busy=run.busy / max(1, workers * lasted),
    )


def judge(
    cell: Cell, count: int, traces: Path, policy: BatchPolicy | None = None, known: Verdict | None = None
) -> Verdict:
    """headway against every fixed setting, each metric by itself.

    known: an earlier verdict on the cell, whose fixed settings need not be played again.
    """
    loads, cost, workers = draws(cell, count, traces), SHAPES[cell.shape], cell.workers
    ours = [score(play_core(load, cost, workers, policy), workers) for load in loads]
    if known is not None and known.count == count:
        return Verdict(cell, count, ours, known.best)
    fixed = {
        setting: [score(play_setting(load, setting, cost, workers), workers) for load in loads]
        for setting in grid(MAX_LENGTH)
    }
    metrics = ("throughput",) if cell.load > 1 else tuple(GOALS)
    return Verdict(cell, count, ours, [_best(metric, fixed) for metric in metrics])


def _best(metric: str, fixed: dict[Setting, list[Score]]) -> Best:
    choose = max if metric == "throughput" else min
    setting = choose(fixed, key=lambda setting: mean(fixed[setting]).of(metric))
    return Best(metric, str(setting), fixed[setting])
