"""Goodput under deadlines: beside a scheduler that knows the future, and beside the best fixed settings.

    python benchmarks/offline.py              # 200 small instances solved exactly, then the two traces
    python benchmarks/offline.py --instances 2000 --no-traces

Everything happens in virtual time: the figures do not depend on this machine.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections import defaultdict
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean

from headway.core.policy import BatchPolicy
from headway.sim.goodput import SLOS, Slo, compare
from headway.sim.offline import Instance, achieved, instances, optimum
from headway.sim.regimes import TRACES
from headway.sim.shapes import SHAPES

ROOT = Path(__file__).parents[1]
GOAL, WORST = 0.90, 8
NEVER_BATCHING = BatchPolicy(max_batch_size=1)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--instances", type=int, default=200)
    parser.add_argument("--no-traces", dest="traces", action="store_false")
    parser.add_argument("--requests", type=int, default=6000, help="of each trace")
    options = parser.parse_args()
    with get_context("spawn").Pool(2) as pool:
        drawn = list(instances(options.instances))
        solved = list(zip(drawn, pool.map(_solve, drawn, chunksize=10), strict=True))
        print(_instances(solved))
        if options.traces:
            folder = Path(os.environ.get("HEADWAY_TRACES") or ROOT.parent / "shared" / "data" / "traces")
            print(_traces(folder, options.requests, pool))
    return 0


def _solve(instance: Instance) -> tuple[int, int, int]:
    """Answered in time by headway, by headway without batching, and at best."""
    return achieved(instance), achieved(instance, NEVER_BATCHING), optimum(instance)


def _instances(solved: list[tuple[Instance, tuple[int, int, int]]]) -> str:
    shares: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for instance, (ours, single, best) in solved:
        for name in (f"{instance.shape} x{instance.workers}", "all"):
            shares[name].append((ours / max(1, best), single / max(1, best)))
    lines = [f"## In time, as a share of what was possible: {len(solved)} instances (goal {GOAL:.2f} on average)", ""]
    lines += ["| device, workers | instances | headway | all possible | one by one |", "|---|---|---|---|---|"]
    for name, pairs in sorted(shares.items()):
        ours, single = (fmean(column) for column in zip(*pairs, strict=True))
        reached = sum(share >= 1 for share, _ in pairs) / len(pairs)
        lines.append(f"| {name} | {len(pairs)} | {ours:.3f} | {reached:.0%} | {single:.3f} |")
    lines += ["", "Furthest off:", ""]
    furthest = sorted(solved, key=lambda pair: pair[1][0] / max(1, pair[1][2]))[:WORST]
    lines += [f"- {ours} of {best}: {_told(instance)}" for instance, (ours, _, best) in furthest]
    return "\n".join(lines) + "\n"


def _told(instance: Instance) -> str:
    jobs = ", ".join(f"{job.length} tokens {job.at / 1e6:.1f}..{job.deadline / 1e6:.1f}" for job in instance.jobs)
    return f"{instance.shape} x{instance.workers}: {jobs} ms"


def _traces(folder: Path, count: int, pool: object) -> str:
    present = {name: folder / file for name, file in TRACES.items() if (folder / file).exists()}
    if len(present) < len(TRACES):
        return f"no traces in {folder}: HEADWAY_TRACES names the folder that has {', '.join(TRACES.values())}"
    jobs = [(slo, shape, path, count) for slo, shape, path in product(SLOS, SHAPES, present.values())]
    lines = ["## Answered within the SLO, of all that came; beside the best fixed pair in hindsight", ""]
    lines += ["| trace, device, SLO | headway | best fixed | its setting | ratio |", "|---|---|---|---|---|"]
    results = pool.starmap(compare, jobs)  # type: ignore[attr-defined]
    for (slo, shape, path, _), (ours, best, setting) in zip(jobs, results, strict=True):
        name = next(key for key, where in present.items() if where == path)
        lines.append(f"| {name}, {shape}, {_named(slo)} | {ours:.3f} | {best:.3f} | {setting} | {ours / best:.3f} |")
    return "\n".join(lines)


def _named(slo: Slo) -> str:
    return f"{slo.times:g} x solo at {slo.load:g}"


if __name__ == "__main__":
    sys.exit(main())
