"""MiniLM by PyTorch, padded with its best token budget beside packed end to end, in this very process.

    python benchmarks/packed.py                                    float32 and bfloat16, one and two threads
    python benchmarks/packed.py --dtypes float32 --threads 1 --seconds 20

Texts have a lognormal length of median 44 and at most 256 tokens. Both take them in windows of 32. Padded: sorted by
length and cut where the next would pass a budget of padded tokens; the budgets are tried first and the best is kept.
Packed: cut by a budget of tokens, which is searched likewise. Then they take turns, window by window the same, until
each has had its seconds; the figures are medians over the turns, the ratio that of the two within a turn.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random
from statistics import median
from time import perf_counter

import numpy as np

from headway.bench.lengths import parse_lengths
from headway.config.settings import ModelSettings, Torch
from headway.registry.encoders import filled_in
from headway.registry.minilm import find_source
from headway.worker.executor import Durations, LoadContext, PartArrays
from headway.worker.torch_executor import TorchExecutor

WINDOW = 32
BUDGETS = (128, 256, 512, 1024, 2048, 8192)
"""Tokens of a batch; the last is more than any window has."""

LENGTHS = "lognormal:44:256"
LEAST_TURNS = 4


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--dtypes", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--threads", nargs="+", type=int, default=[1, 2])
    parser.add_argument("--seconds", type=float, default=10, help="of each way, after the search")
    parser.add_argument("--turn", type=int, default=2, help="windows of one turn, and of each try in the search")
    parser.add_argument("--model", type=Path, default=None, help="another encoder's folder")
    options = parser.parse_args()
    folder = options.model or find_source()
    print("| dtype, threads | padded/s (budget) | packed/s (budget) | packed : padded |")
    print("|---|---|---|---|")
    for threads in options.threads:
        for dtype in options.dtypes:
            print(line(folder, dtype, threads, options.seconds, options.turn), flush=True)
    return 0


def line(folder: Path, dtype: str, threads: int, seconds: float, size: int) -> str:
    """size: windows of a turn."""
    padded, packed = (loaded(folder, dtype, threads, packing) for packing in ("off", "on"))
    drawn = windows(vocabulary(folder))
    budgets = [best(executor, drawn[:size], sums) for executor, sums in ((padded, False), (packed, True))]
    ways = [(padded, budgets[0], False), (packed, budgets[1], True)]
    spent: list[list[float]] = [[], []]
    turn = 0
    while min(map(sum, spent)) < seconds or turn < LEAST_TURNS:
        chosen = [drawn[(turn * size + number) % len(drawn)] for number in range(size)]
        for number in (0, 1) if turn % 2 else (1, 0):
            spent[number].append(run(*ways[number], chosen))
        turn += 1
    rates = [size * WINDOW / median(times) for times in spent]
    ratio = median(slow / fast for slow, fast in zip(*spent, strict=True))
    figures = [f"{rate:.1f} ({budget})" for rate, budget in zip(rates, budgets, strict=True)]
    return f"| {dtype}, {threads} | {' | '.join(figures)} | {ratio:.2f} |"


def loaded(folder: Path, dtype: str, threads: int, packing: str) -> TorchExecutor:
    settings = filled_in(folder, ModelSettings(torch=Torch(dtype=dtype, packing=packing)))  # type: ignore[arg-type]
    executor = TorchExecutor()
    executor.load(LoadContext("packed", 1, str(folder), "cpu", threads, settings))
    return executor


def vocabulary(folder: Path) -> int:
    maximum = filled_in(folder, ModelSettings()).bounds["input_ids"].maximum
    return int(maximum or 0)


def windows(last_token: int, count: int = 16) -> list[list[PartArrays]]:
    draw, ids = parse_lengths(LENGTHS), np.random.default_rng(1)
    lengths = Random(1)
    return [
        sorted((text(ids.integers(1, last_token, (1, draw(lengths)))) for _ in range(WINDOW)), key=lambda p: p.length)
        for _ in range(count)
    ]


def text(ids: np.ndarray) -> PartArrays:
    return PartArrays(1, ids.shape[1], {"input_ids": ids}, {})


def cut(window: Sequence[PartArrays], budget: int, sums: bool) -> list[list[PartArrays]]:
    """window: in order of length. sums: the budget is of the sum of lengths, not of rows x longest."""
    batches: list[list[PartArrays]] = []
    tokens = 0
    for part in window:
        if batches:
            tokens = tokens + part.length if sums else (len(batches[-1]) + 1) * part.length
        if not batches or tokens > budget:
            batches.append([])
            tokens = part.length
        batches[-1].append(part)
    return batches


def run(executor: TorchExecutor, budget: int, sums: bool, chosen: Sequence[Sequence[PartArrays]]) -> float:
    """Seconds."""
    begun = perf_counter()
    for window in chosen:
        for batch in cut(window, budget, sums):
            executor.execute(batch, Durations())
    return perf_counter() - begun


def best(executor: TorchExecutor, chosen: Sequence[Sequence[PartArrays]], sums: bool) -> int:
    """The budget that is fastest, each having had a turn before it counts."""
    run(executor, BUDGETS[0], sums, chosen[:1])
    return min(BUDGETS, key=lambda budget: run(executor, budget, sums, chosen))


if __name__ == "__main__":
    sys.exit(main())
