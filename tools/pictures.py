"""The pictures of docs/tradeoffs.md, from the simulator.

    python tools/pictures.py            # all of them, into docs/pictures; a few minutes
    python tools/pictures.py linger     # one

Needs matplotlib: pip install -e '.[plots]'.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from statistics import fmean

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from headway.core.effects import DispatchBatch, Effect
from headway.core.events import Event
from headway.core.ids import Part
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, ms
from headway.sim.fixed import Setting, play_fixed
from headway.sim.regimes import Cell, Load, Score, capacity_of, draws, play_core, play_setting, score
from headway.sim.scenario import KEY, Scenario, simulate
from headway.sim.shapes import SHAPES
from headway.sim.workloads import Arrival, lognormal_length

FOLDER = Path(__file__).parents[1] / "docs" / "pictures"
COUNT = 8000
GREYS = {0: "#1b6ca8", 1: "#2a9d8f", 5: "#e9a13b", 20: "#d1495b"}
OURS = "#111111"


def main(names: Sequence[str]) -> int:
    unknown = [name for name in names if name not in PICTURES]
    if unknown:
        print(f"no picture named {', '.join(unknown)}; there are {', '.join(PICTURES)}", file=sys.stderr)
        return 2
    plt.rcParams.update({"font.size": 9, "axes.grid": True, "grid.alpha": 0.3, "axes.axisbelow": True})
    FOLDER.mkdir(exist_ok=True)
    for name in names or PICTURES:
        figure = PICTURES[name]()
        figure.tight_layout()
        figure.savefig(FOLDER / f"{name}.png", dpi=110, metadata={"Software": None})
        plt.close(figure)
        print(f"docs/pictures/{name}.png")
    return 0


def fixed(cell: Cell, setting: Setting) -> Score:
    return _mean(
        [score(play_setting(load, setting, SHAPES[cell.shape], cell.workers), cell.workers) for load in _loads(cell)]
    )


def ours(cell: Cell) -> Score:
    return _mean([score(play_core(load, SHAPES[cell.shape], cell.workers), cell.workers) for load in _loads(cell)])


def _loads(cell: Cell) -> list[Load]:
    return draws(cell, COUNT, Path())


def _mean(scores: list[Score]) -> Score:
    names = ("p50", "p99", "throughput", "batch", "busy")
    return Score(*(fmean(one.of(name) for one in scores) for name in names))


# -- linger -------------------------------------------------------------------------------------------


def linger() -> Figure:
    """p50 and p99 over the linger of a fixed server, one and four workers, three loads."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True)
    waits = (0, 0.5, 1, 2, 5, 10, 20)
    for column, workers in enumerate((1, 4)):
        for load, colour in ((0.3, GREYS[0]), (0.7, GREYS[5]), (0.95, GREYS[20])):
            cell = Cell("gpu", load, "poisson", workers)
            scores = [fixed(cell, Setting(32, 0, ms(wait))) for wait in waits]
            default = ours(cell)
            for row, metric in enumerate(("p50", "p99")):
                ax = axes[row][column]
                ax.plot(waits, [one.of(metric) for one in scores], "o-", color=colour, ms=3, label=f"load {load:g}")
                ax.axhline(default.of(metric), color=colour, ls=":", lw=1.5)
        axes[0][column].set_title(f"GPU (2 ms + 0.6 µs a token), {workers} worker{'s' * (workers > 1)}")
    for row, metric in enumerate(("p50", "p99")):
        axes[row][0].set_ylabel(f"{metric}, ms")
        for ax in axes[row]:
            ax.set_ylim(bottom=0)
    for ax in axes[1]:
        ax.set_xlabel("linger of first-come batches of up to 32 rows, ms")
    axes[0][0].plot([], [], color="grey", ls=":", label="headway's default")
    axes[0][0].legend()
    return figure


# -- caps ---------------------------------------------------------------------------------------------


def caps() -> Figure:
    """What a device can serve, and p99 at 70 % of its best, over the cap in rows."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    rows = (1, 2, 4, 8, 16, 32)
    rng = Random("caps")
    lengths = [lognormal_length(rng) for _ in range(4000)]
    for (shape, cost), colour in zip(SHAPES.items(), plt.get_cmap("tab10").colors, strict=False):
        rates = [len(lengths) / play_fixed([0] * len(lengths), lengths, Setting(cap), cost).busy for cap in rows]
        left.plot(rows, [rate / max(rates) for rate in rates], "o-", color=colour, ms=3, label=shape)
        cell = Cell(shape, 0.7, "poisson", 1)
        latencies = [fixed(cell, Setting(cap)).p99 for cap in rows]
        default = ours(cell).p99
        right.plot(rows, [latency / default for latency in latencies], "o-", color=colour, ms=3, label=shape)
    left.set_ylabel("capacity, of the best cap's")
    left.set_ylim(0, 1.05)
    right.set_ylabel("p99 at load 0.7, in units of headway's")
    right.set_yscale("log")
    right.set_ylim(0.8, 100)
    right.axhline(1, color=OURS, ls=":")
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.set_xticks(rows, [str(cap) for cap in rows])
        ax.set_xlabel("cap in rows of first-come batches, no linger")
    left.legend()
    return figure


# -- eager and patient --------------------------------------------------------------------------------


class Departures:
    """An observer: (time, worker, rows) of every batch."""

    def __init__(self) -> None:
        self.seen: list[tuple[int, int, int]] = []

    def observe(self, now: int, events: list[Event], effects: list[Effect], scheduler: Scheduler) -> None:
        self.seen += [(now, e.worker, len(e.parts)) for e in effects if type(e) is DispatchBatch]


def eager() -> Figure:
    """Four workers and a launch-bound model: when batches leave, and p50 and p99 over load."""
    figure = plt.figure(figsize=(9, 7))
    spaces = figure.add_gridspec(3, 2, height_ratios=(1, 1, 2))
    _timelines(figure.add_subplot(spaces[0, :]), figure.add_subplot(spaces[1, :]))
    loads = (0.2, 0.3, 0.5, 0.7, 0.85, 0.95)
    cells = [Cell("launch", load, "poisson", 4) for load in loads]
    axes = [figure.add_subplot(spaces[2, column]) for column in (0, 1)]
    lines = {f"linger {wait} ms": [fixed(cell, Setting(32, 0, ms(wait))) for cell in cells] for wait in GREYS}
    colours = dict(zip(lines, GREYS.values(), strict=True))
    lines["headway"] = [ours(cell) for cell in cells]
    for ax, metric in zip(axes, ("p50", "p99"), strict=True):
        for name, scores in lines.items():
            style = {"color": colours.get(name, OURS), "lw": 2.2 if name == "headway" else 1.2}
            ax.plot(loads, [one.of(metric) for one in scores], "o-", ms=3, label=name, **style)
        ax.set_xlabel("load")
        ax.set_ylabel(f"{metric}, ms")
        ax.set_ylim(4, 20)
    axes[0].legend()
    return figure


def _timelines(above: Axes, below: Axes) -> None:
    load = draws(Cell("launch", 0.3, "poisson", 4), 600, Path())[0]
    seen = Departures()
    arrivals = [Arrival(at, KEY, (Part(1, length),)) for at, length in zip(load.at, load.lengths, strict=True)]
    simulate(Scenario(arrivals, cost=SHAPES["launch"], workers=4), (seen,))
    _bars(above, _eager_departures(load), "at once (no linger)")
    _bars(below, seen.seen, "headway")
    below.set_xlabel("ms; a bar is a batch, the number its rows (launch-bound, load 0.3)")


def _eager_departures(load: Load) -> list[tuple[int, int, int]]:
    """Batches of a fixed server without linger; the worker that is free for longest runs the next."""
    played = play_fixed(load.at, load.lengths, Setting(32), SHAPES["launch"], 4)
    free, seen, first = [0] * 4, [], 0
    while first < len(played.ends):
        last = first
        while last < len(played.ends) and played.ends[last] == played.ends[first]:
            last += 1
        start = played.ends[first] - SHAPES["launch"](last - first, 1)
        worker = min(range(4), key=lambda index: free[index])
        free[worker] = played.ends[first]
        seen.append((start, worker + 1, last - first))
        first = last
    return seen


def _bars(ax: Axes, seen: list[tuple[int, int, int]], title: str) -> None:
    begin, until = 20, 44
    for at, worker, rows in seen:
        start, runs = at / ms(1), SHAPES["launch"](rows, 1) / ms(1)
        if begin <= start + runs and start <= until:
            ax.barh(
                worker,
                runs,
                left=start,
                height=0.8,
                color=plt.get_cmap("YlGnBu")(0.15 + min(rows, 32) / 45),
                ec="white",
            )
            if start > begin and start + runs < until:
                ax.text(start + runs / 2, worker, str(rows), ha="center", va="center", fontsize=7)
    ax.set_xlim(begin, until)
    ax.set_yticks((1, 2, 3, 4))
    ax.set_ylabel("worker")
    ax.set_title(title, fontsize=9)
    ax.grid(False)


# -- padding ------------------------------------------------------------------------------------------


def padding() -> Figure:
    """What padding costs a CPU: tokens computed for each real one, and capacity; in order of arrival and sorted."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.6))
    rows, rng, cost = (1, 2, 4, 8, 16, 32), Random("padding"), SHAPES["cpu"]
    lengths = [lognormal_length(rng) for _ in range(6400)]
    orders = {
        "in order of arrival": lengths,
        "best of a window of 32, sorted": [n for at in range(0, 6400, 32) for n in sorted(lengths[at : at + 32])],
        "best of a window of 256, sorted": [n for at in range(0, 6400, 256) for n in sorted(lengths[at : at + 256])],
    }
    for (name, ordered), colour in zip(orders.items(), (GREYS[20], GREYS[5], GREYS[0]), strict=True):
        cut = {cap: [ordered[at : at + cap] for at in range(0, 6400, cap)] for cap in rows}
        padded = [sum(max(batch) * len(batch) for batch in cut[cap]) / sum(lengths) for cap in rows]
        rates = [6400e9 / sum(cost(len(batch), max(batch)) for batch in cut[cap]) for cap in rows]
        label = name.replace("best of a window", "windows")
        left.plot(rows, padded, "o-", ms=3, color=colour, label=label)
        right.plot(rows, rates, "o-", ms=3, color=colour, label=label)
    right.axhline(capacity_of("cpu", None), color="grey", ls="--", lw=1, label="best fixed first-come setting")
    arrivals = [Arrival(0, KEY, (Part(1, length),), patience=NEVER) for length in lengths]
    rate = simulate(Scenario(arrivals, cost=cost, clients=1000)).throughput_per_s
    right.axhline(rate, color=OURS, ls=":", label="headway, 1,000 waiting")
    left.set_ylabel("tokens computed for each real token")
    right.set_ylabel("CPU: requests per second, saturated")
    right.set_ylim(bottom=0)
    for ax in (left, right):
        ax.set_xscale("log", base=2)
        ax.set_xticks(rows, [str(cap) for cap in rows])
        ax.set_xlabel("rows in a batch (median 44 tokens, at most 256)")
        ax.legend(fontsize=7.5)
    return figure


# -- when batching loses ------------------------------------------------------------------------------


def loses() -> Figure:
    """p50 and p99 on a CPU and on kernels of fixed sizes over the load: one by one, first-come caps, headway."""
    figure, axes = plt.subplots(2, 2, figsize=(9, 6), sharex=True)
    loads = (0.2, 0.3, 0.5, 0.7, 0.85, 0.95)
    for column, (shape, top) in enumerate((("cpu", 600), ("sizes", 80))):
        cells = [Cell(shape, load, "poisson", 1) for load in loads]
        lines = {
            f"first come, {cap} row{'s' * (cap > 1)}": [fixed(c, Setting(cap)) for c in cells] for cap in (1, 2, 8, 32)
        }
        lines["headway"] = [ours(cell) for cell in cells]
        colours = [*GREYS.values(), OURS]
        for row, metric in enumerate(("p50", "p99")):
            ax = axes[row][column]
            for (name, scores), colour in zip(lines.items(), colours, strict=True):
                width = 2.2 if name == "headway" else 1.2
                ax.plot(loads, [one.of(metric) for one in scores], "o-", ms=3, color=colour, lw=width, label=name)
            ax.set_ylim(0, top / (4 if metric == "p50" else 1))
            ax.set_ylabel(f"{metric}, ms")
        axes[0][column].set_title({"cpu": "CPU, linear in tokens", "sizes": "kernels of 1, 8, 16, 32 rows"}[shape])
        axes[1][column].set_xlabel("load, of the best fixed setting's capacity")
    axes[0][0].legend(fontsize=8)
    return figure


PICTURES: dict[str, Callable[[], Figure]] = {
    "linger": linger,
    "caps": caps,
    "eager": eager,
    "padding": padding,
    "loses": loses,
}

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
