"""Many seeded worlds by command: the same options whatever kind they are; the first that fails is the end."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple


class Played(NamedTuple):
    """counts: of what happened in a world.  digest: equal for two that went alike."""

    counts: Counter[str]
    digest: str


def options(program: str, about: str) -> argparse.ArgumentParser:
    """To which a kind of worlds may add its own. about: of its docstring, the first line counts."""
    parser = argparse.ArgumentParser(prog=f"python -m {program}", description=about.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1, help="the first seed (default 1)")
    parser.add_argument("--seeds", type=_some, default=1, help="how many seeds, counting up (default 1)")
    parser.add_argument("--digests", action="store_true", help="print seed and digest of each world, and nothing else")
    return parser


def play(chosen: argparse.Namespace, run: Callable[[int], Played], failed: type[Exception]) -> int:
    """The exit status. run: the world of a seed; raises `failed`, whose message is shown."""
    began = perf_counter()
    totals: Counter[str] = Counter()
    for seed in range(chosen.seed, chosen.seed + chosen.seeds):
        try:
            counts, digest = run(seed)
        except failed as failure:
            print(failure, file=sys.stderr)
            return 1
        totals.update(counts)
        if chosen.digests:
            print(seed, digest)
    if not chosen.digests:
        told = ", ".join(f"{name} {count}" for name, count in sorted(totals.items()))
        print(f"{chosen.seeds} worlds held in {perf_counter() - began:.1f} s: {told}")
    return 0


def _some(text: str) -> int:
    count = int(text)
    if count < 1:
        raise argparse.ArgumentTypeError(f"{count} worlds show nothing: at least 1")
    return count
