"""The table of regimes: headway's default beside every fixed setting, chosen in hindsight cell by cell.

    python benchmarks/regimes.py                    # all 280 cells, some minutes on two cores
    python benchmarks/regimes.py --quick            # a tenth of them, under 90 s
    python benchmarks/regimes.py --shape gpu --load 0.7 --arrivals poisson
    python benchmarks/regimes.py --json table.json  # and later, after a change of the scheduler:
    python benchmarks/regimes.py --fixed table.json # the fixed settings as they were played then

Everything happens in virtual time: the figures depend on the seed alone, not on this machine. Prints
the cells beyond a goal, worst first, then a summary. Exit status 1 with --strict if there are any.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterator
from functools import partial
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import geometric_mean
from time import perf_counter

from headway.sim.crowd import Crowd, crowds, serve_crowd
from headway.sim.regimes import (
    ARRIVALS,
    GOALS,
    LOADS,
    TRACES,
    WORKERS,
    Cell,
    Comparison,
    Verdict,
    judge,
    mean,
    read_verdicts,
    write_verdicts,
)
from headway.sim.shapes import SHAPES

ROOT = Path(__file__).parents[1]
COUNT, QUICK_COUNT = 8000, 3000
QUICK_LOADS = (0.3, 0.7, 0.95, 1.2)
QUICK_ARRIVALS = ("poisson", "conv")


def main() -> int:
    options = _options()
    traces = Path(os.environ.get("HEADWAY_TRACES") or ROOT.parent / "shared" / "data" / "traces")
    missing = [name for name in TRACES if not (traces / TRACES[name]).exists()]
    if missing:
        print(f"left out: {', '.join(missing)}; HEADWAY_TRACES names the folder that has {', '.join(TRACES.values())}")
    cells = [cell for cell in _cells(options) if cell.arrivals not in missing]
    count = options.requests or (QUICK_COUNT if options.quick else COUNT)
    began = perf_counter()
    known = read_verdicts(options.fixed.read_text(encoding="utf-8")) if options.fixed else {}
    with get_context("spawn").Pool(options.processes) as pool:
        verdicts = []
        for verdict in pool.imap(partial(_judge, count, traces), [(cell, known.get(cell)) for cell in cells]):
            verdicts.append(verdict)
            print(f"\r{len(verdicts)}/{len(cells)} cells, {perf_counter() - began:.0f} s", end="", file=sys.stderr)
        served = pool.map(serve_crowd, crowds(options.shape, options.workers)) if options.crowds else []
    print(file=sys.stderr)
    compared = [comparison for verdict in verdicts for comparison in verdict.comparisons()]
    print(_report(len(verdicts), compared, served, count))
    if options.json:
        options.json.write_text(write_verdicts(verdicts), encoding="utf-8")
    failed = any(c.badness > 1 for c in compared) or any(crowd.collapses for crowd in served)
    return 1 if options.strict and failed else 0


def _judge(count: int, traces: Path, job: tuple[Cell, Verdict | None]) -> Verdict:
    cell, known = job
    return judge(cell, count, traces, known=known)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--quick", action="store_true", help="fewer cells, and fewer requests in each")
    parser.add_argument(
        "--requests", type=int, default=0, help=f"in each draw (default {COUNT}; traces: twice as many)"
    )
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--shape", action="append", choices=list(SHAPES))
    parser.add_argument("--load", action="append", type=float)
    parser.add_argument("--arrivals", action="append", choices=ARRIVALS)
    parser.add_argument("--workers", action="append", type=int)
    parser.add_argument("--no-crowds", dest="crowds", action="store_false", help="leave out 10 against 1,000 waiting")
    parser.add_argument("--json", type=Path, help="write every verdict there")
    parser.add_argument("--fixed", type=Path, help="take the fixed settings' scores from such a file")
    parser.add_argument("--strict", action="store_true", help="exit status 1 if a goal is missed")
    return parser.parse_args()


def _cells(options: argparse.Namespace) -> Iterator[Cell]:
    loads = options.load or (QUICK_LOADS if options.quick else LOADS)
    arrivals = options.arrivals or (QUICK_ARRIVALS if options.quick else ARRIVALS)
    workers = options.workers or WORKERS
    for shape, load, kind, number in product(options.shape or SHAPES, loads, arrivals, workers):
        yield Cell(shape, load, kind, number)


# -- what is printed ----------------------------------------------------------------------------------


def _report(cells: int, compared: list[Comparison], served: list[Crowd], count: int) -> str:
    beyond = sorted((c for c in compared if c.badness > 1), key=lambda c: -c.badness)
    lines = [f"{cells} cells of {count} requests a draw.", ""]
    lines += [f"## Beyond a goal: {len(beyond)} of {len(compared)} comparisons, worst first", ""]
    if beyond:
        lines += [
            "| device, load, arrivals, workers | of | headway | best fixed | ratio (single draws) | its setting "
            "| rows a batch: ours, its | busy: ours, its |",
            "|---|---|---|---|---|---|---|---|",
            *map(_line, beyond),
        ]
    lines += ["", "## All cells: ratio headway / best fixed setting", "", *_summary(compared)]
    if served:
        lines += ["", "## Completions per second with so many waiting", "", *_crowds(served)]
    return "\n".join(lines)


def _line(c: Comparison) -> str:
    draws = f" ({min(c.singly):.2f} to {max(c.singly):.2f})" if len(c.singly) > 1 else ""
    ours, best = mean(c.ours), mean(c.best)
    values = f"{ours.of(c.metric):.4g} | {best.of(c.metric):.4g} | {c.ratio:.2f}{draws}"
    return (
        f"| {c.cell} | {c.metric} | {values} | {c.setting} | {ours.batch:.1f}, {best.batch:.1f} "
        f"| {ours.busy:.0%}, {best.busy:.0%} |"
    )


def _summary(compared: list[Comparison]) -> list[str]:
    """By device and metric: mean and worst ratio, and how many cells are within the goal."""
    lines = ["| device | of | cells | within the goal | geometric mean | worst | in |", "|---|---|---|---|---|---|---|"]
    for shape, metric in product(SHAPES, GOALS):
        some = [c for c in compared if c.cell.shape == shape and c.metric == metric]
        if some:
            worst = max(some, key=lambda c: c.badness)
            within = sum(c.badness <= 1 for c in some)
            middle = geometric_mean(max(1e-9, c.ratio) for c in some)
            lines.append(
                f"| {shape} | {metric} | {len(some)} | {within} | {middle:.3f} | {worst.ratio:.2f} | {worst.cell} |"
            )
    return lines


def _crowds(served: list[Crowd]) -> list[str]:
    lines = ["| device, workers | 10 | 100 | 1,000 |", "|---|---|---|---|"]
    for crowd in served:
        rates = " | ".join(f"{rate:.1f}" for rate in crowd.rates.values())
        lines.append(f"| {crowd.shape} x{crowd.workers}{' COLLAPSES' if crowd.collapses else ''} | {rates} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
