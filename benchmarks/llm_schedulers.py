"""Schedulers of a language model's steps over real traffic, in simulation: headway's beside simple ones.

    python benchmarks/llm_schedulers.py [--preset a100-8b] [--requests 1500] [--loads 0.6 0.9 1.2] [--blocks 0] [--json]

The first so many requests of three production traces (Azure conversation and code, Mooncake conversation with its
prefix blocks), played so fast that they ask for that part of what the device can do at most (`Preset.capacity` by
their mean lengths, nothing found in the cache). The same arrivals for each scheduler; two tenants, dealt out evenly.
Everything is in virtual time: the figures do not depend on the machine.

Of each cell: p99 of the time to the first token and between tokens in ms; "stall", p99 of the longest gap between two
tokens of a sequence (a scheduler that stops all streams for seconds does so once in hundreds of tokens, which p99 of
all gaps does not see); tokens (prompts and answers) a second;
share of sequences preempted, and of those the ones preempted just once; mean use of the pool. A cell is on the Pareto
front if no other scheduler is at least as good in first token, between tokens, throughput and preemptions, and better
in one by 2 %; "front*" if it is with stalls in the place of between tokens.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from itertools import islice
from multiprocessing import Pool
from pathlib import Path

from headway.sim.llm.baselines import SCHEDULERS
from headway.sim.llm.presets import PRESETS
from headway.sim.llm.simulation import LlmScenario, simulate
from headway.sim.llm.traces import lengths, paced, rate, read

TRACES = Path(__file__).resolve().parents[2] / "shared" / "data" / "traces"
FILES = {
    "azure conversation": "azure-llm-2023-conv.csv",
    "azure code": "azure-llm-2023-code.csv",
    "mooncake": "mooncake-conversation.jsonl",
}
TENANTS = (("a", 0.5), ("b", 0.5))
SAME = 0.02
"""Two figures that differ by less, as a share, are alike."""


@dataclass(frozen=True)
class Cell:
    """One simulation."""

    preset: str
    trace: str
    load: float
    scheduler: str
    requests: int
    blocks: int
    folder: str


def run(cell: Cell) -> dict[str, float]:
    preset = PRESETS[cell.preset]
    arrivals = list(islice(read(Path(cell.folder) / FILES[cell.trace], TENANTS), cell.requests))
    speed = cell.load * preset.capacity(*lengths(arrivals)) / rate(arrivals)
    scenario = LlmScenario(preset, blocks=cell.blocks)
    report = simulate(scenario, paced(arrivals, speed), make=SCHEDULERS[cell.scheduler])
    return {
        "first_token_p50_ms": report.first_token.p50_ms,
        "first_token_p99_ms": report.first_token.p99_ms,
        "between_tokens_p50_ms": report.between_tokens.p50_ms,
        "between_tokens_p99_ms": report.between_tokens.p99_ms,
        "longest_gap_p99_ms": report.longest_gap.p99_ms,
        "tokens_per_s": report.input_tokens_per_s + report.output_tokens_per_s,
        "preempted": report.preempted,
        "preempted_once": report.preempted_once,
        "kv_mean": report.kv_mean,
        "kv_peak": report.kv_peak,
        "cache_hits": report.cache_hit_rate,
        "in_time": report.in_time,
    }


def beats(one: dict[str, float], other: dict[str, float], between: str) -> bool:
    """Whether `one` is as good in everything, and better in something. between: what is held against it of the time
    between tokens."""
    better = False
    for name, sign in (
        ("first_token_p99_ms", -1),
        (between, -1),
        ("tokens_per_s", 1),
        ("preempted", -1),
    ):
        ours, theirs = sign * one[name], sign * other[name]
        margin = SAME * abs(theirs) if name != "preempted" else 0.001
        if ours < theirs - margin:
            return False
        better = better or ours > theirs + margin
    return better


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--preset", choices=PRESETS, default="a100-8b")
    parser.add_argument("--requests", type=int, default=1_500)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.6, 0.9, 1.2])
    parser.add_argument("--traces", nargs="+", choices=FILES, default=list(FILES))
    parser.add_argument("--schedulers", nargs="+", choices=SCHEDULERS, default=list(SCHEDULERS))
    parser.add_argument("--blocks", type=int, default=0, help="of the pool; 0: the preset's")
    parser.add_argument("--folder", type=Path, default=TRACES)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    if not options.folder.is_dir():
        raise SystemExit(f"there are no traces in {options.folder}")
    cells = [
        Cell(options.preset, trace, load, scheduler, options.requests, options.blocks, str(options.folder))
        for trace in options.traces
        for load in options.loads
        for scheduler in options.schedulers
    ]
    group: list[tuple[Cell, dict[str, float]]] = []
    with Pool(options.processes) as pool:
        for cell, figures in zip(cells, pool.imap(run, cells), strict=True):
            if options.json:
                print(json.dumps({"cell": cell.__dict__, **figures}), flush=True)
                continue
            group.append((cell, figures))
            if len(group) == len(options.schedulers):
                show(group)
                group = []


def show(group: list[tuple[Cell, dict[str, float]]]) -> None:
    cell = group[0][0]
    print(f"\n{cell.preset}, {cell.trace}, load {cell.load}", flush=True)
    print("scheduler      first p50      p99  between    p99   stall  tokens/s  preempted  once  KV mean  cached")
    for cell, f in group:
        front = not any(beats(other, f, "between_tokens_p99_ms") for _, other in group)
        steady = not any(beats(other, f, "longest_gap_p99_ms") for _, other in group)
        latencies = f"{f['first_token_p50_ms']:10.0f} {f['first_token_p99_ms']:8.0f} {f['between_tokens_p50_ms']:8.1f}"
        gaps = f"{f['between_tokens_p99_ms']:6.1f} {f['longest_gap_p99_ms']:7.0f}"
        shares = f"{f['preempted']:10.1%} {f['preempted_once']:5.0%} {f['kv_mean']:8.0%} {f['cache_hits']:7.0%}"
        mark = "front" if front else "front*" if steady else ""
        print(f"{cell.scheduler:13} {latencies} {gaps} {f['tokens_per_s']:9.0f} {shares}  {mark}", flush=True)


if __name__ == "__main__":
    main()
