"""A real server with load on, and everything that may happen to its workers, in seeded random order: `make chaos`.

    python -m tests.chaos.run --seed 1 --kills 1000
    python -m tests.chaos.run --seed 1 --kills 50 --model minilm

The seed decides what is asked and which faults come in which order; when exactly, the machine does. Judged from what
clients were told and from what the server recorded.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from tests.chaos import minilm
from tests.chaos.faults import NoVictim, do, schedule
from tests.chaos.stage import Plan, Stage, staged

SHOWN = 20
LOG = 40
"""Breaches, and last lines of the log, that are shown."""


class ChaosFailed(AssertionError):
    """Says what is wrong, and how to see it again."""


async def chaos(root: Path, plan: Plan) -> str:
    """What came of it. Raises ChaosFailed."""
    began = time.monotonic()
    async with staged(root, plan) as stage:
        faults = plan.rng("schedule")
        try:
            for name in schedule(faults, plan.kills):
                await do(stage.scene, name)
                await asyncio.sleep(faults.expovariate(1 / plan.gap_s))
        except NoVictim as missing:
            stage.breaches.append(str(missing))
        await stage.heal()
        await stage.end()
        played = time.monotonic() - began
    if stage.breaches:
        raise ChaosFailed(failure(stage, replay_line(plan)))
    return report(stage, played)


def failure(stage: Stage, replay: str) -> str:
    """replay: the command that does it again."""
    breaches = stage.breaches
    more = [f"... and {len(breaches) - SHOWN} more"] if len(breaches) > SHOWN else []
    log = ["the log ends with", *stage.server.printed[-LOG:]]
    return "\n".join([*breaches[:SHOWN], *more, *log, f"replay: {replay}"])


def replay_line(plan: Plan) -> str:
    model = " --model minilm" if plan.minilm else ""
    return f"python -m tests.chaos.run --seed {plan.seed} --kills {plan.kills} --gap {plan.gap_s:g}{model}"


def report(stage: Stage, played: float) -> str:
    ledger, judgement = stage.ledger, stage.judgement
    assert judgement is not None
    watched, innocents = judgement.watched, ledger.innocents()
    again = sum(len(chain.tries) > 1 for chain in innocents)
    took = sorted(chain.took for chain in innocents)
    lines = [
        f"seed {stage.plan.seed}, {played:.0f} s: everything held",
        f"faults: {_counts(stage.scene.done)}",
        f"workers lost: {_counts({' '.join(key): count for key, count in watched.losses.items()})}",
        f"replies: {_counts(ledger.codes())}; {ledger.left()} clients left",
        f"innocents: {len(innocents)}, of which {again} were told to try again; p50 {_ms(took, 0.5)}, "
        f"p99 {_ms(took, 0.99)}, longest {_ms(took, 1)}",
        f"recording: {judgement.report.calls} calls, {watched.batches} batches, parts run again: "
        f"{_counts(watched.retries) or 'none'}",
    ]
    return "\n".join(lines)


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count} x {name}" for name, count in sorted(counts.items()))


def _ms(sorted_s: list[float], quantile: float) -> str:
    return f"{1000 * sorted_s[min(len(sorted_s) - 1, int(quantile * len(sorted_s)))]:.0f} ms"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos.run", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--gap", type=float, default=Plan.gap_s, help="seconds between two faults, on average")
    parser.add_argument("--model", choices=["tiny", "minilm"], default="tiny", help="whose workers are killed")
    parser.add_argument("--bug", default="", help="one of tests/chaos/planted.py, which must be noticed")
    given = parser.parse_args()
    if given.model == "minilm" and not minilm.is_there():
        parser.error(f"{minilm.NAME} was not exported: make ready")
    plan = Plan(given.seed, given.kills, given.model == "minilm", given.gap, bug=given.bug)
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(asyncio.run(chaos(Path(folder), plan)))
        except ChaosFailed as failed:
            sys.exit(str(failed))


if __name__ == "__main__":
    main()
