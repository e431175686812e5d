"""Answers within an SLO on a recorded trace: headway beside the best fixed settings, chosen in hindsight."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from statistics import median

from headway.core.units import Duration
from headway.sim.fixed import Setting, grid
from headway.sim.regimes import Load, Run, capacity_of, play_core, play_setting, read_load, stretched
from headway.sim.shapes import SHAPES
from headway.sim.workloads import MAX_LENGTH


@dataclass(frozen=True, slots=True)
class Slo:
    """times: allowed, in run times of the trace's median request alone. load: of one worker's capacity."""

    times: float
    load: float


SLOS = (Slo(1.5, 0.7), Slo(3, 0.7), Slo(10, 0.7), Slo(3, 1.2))


def compare(slo: Slo, shape: str, path: Path, count: int) -> tuple[float, float, str]:
    """Shares in time of headway and of the best fixed setting, and that setting.

    A fixed server drops what has waited too long when it forms a batch, as the better ones do.
    """
    cost = SHAPES[shape]
    trace = read_load(path, count)
    load = stretched(trace, slo.load * capacity_of(shape, path))
    allowed = round(slo.times * median(cost(1, length) for length in trace.lengths))
    ours = in_time(play_core(load, cost, 1, patience=allowed), allowed)
    shares = {
        setting: max(in_time(_fixed(load, setting, shape, drop, allowed), allowed) for drop in (True, False))
        for setting in grid(MAX_LENGTH)
    }
    best = max(shares, key=lambda setting: shares[setting])
    return ours, shares[best], str(best)


def _fixed(load: Load, setting: Setting, shape: str, drop: bool, allowed: Duration) -> Run:
    cost = SHAPES[shape]
    return play_setting(load, setting, cost, 1, allowed) if drop else play_setting(load, setting, cost, 1)


def in_time(run: Run, allowed: Duration) -> float:
    return sum(end - at <= allowed for end, at in zip(run.ends, run.load.at, strict=True)) / len(run.load.at)
