"""What a tenant got beside others, as tables with their goals.

Shares are judged in tokens: a tenant is owed time of the worker, and long texts take more of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean, median

from lab.beside import Got, Run
from lab.figures import markdown
from lab.returning import Return

POLITE, AGGRESSOR = "polite", "aggressor"
ONE, MANY, FIRST = "one tenant", "eight tenants", "first-come 32"
BURST = 32
"""Requests that the polite tenant comes back with."""
GOAL = 0.95
"""Of its share, of all that workers can do, and of what is answered without eight tenants."""

HALF = 0.65
"""Of its share: what is asked for by whoever means to ask for half, give or take what is left to chance."""

Row = list[str]


def verdict(met: bool) -> str:
    return "met" if met else "**missed**"


HEADER = (
    *("load", "polite/s", "asked : share", "got of it", "p50 ms", "p99 ms", "p99 goal", "refused", "all/s"),
    *("worker busy", "cores of gateway, worker, loads"),
)


def polite_table(alone: Got, usual: Sequence[Run], max_batch_ms: float, runs: Sequence[tuple[float, int, Run]]) -> str:
    """usual: of the aggressor alone.  runs: with the share that was meant and the aggressor's requests under way."""
    rows: list[Row] = [
        ["polite alone", f"{alone.per_s:.1f}", "", "", f"{alone.ms(0.5):.0f}", f"{alone.ms(0.99):.0f}", *[""] * 5]
    ]
    rows += [["aggressor alone", *[""] * 7, f"{run.per_s:.1f}", f"{run.busy:.2f}", cores(run)] for run in usual]
    limit = alone.ms(0.99) + 2 * max_batch_ms
    busy = GOAL * fmean(run.busy for run in usual)
    rows += [beside_row(share, outstanding, run, limit, busy) for share, outstanding, run in runs]
    return markdown(HEADER, rows)


def beside_row(share: float, outstanding: int, run: Run, limit_ms: float, busy: float) -> Row:
    """limit_ms: of its p99, where it asked for about half its share at most.  busy: what the worker has to be."""
    got, part, asked = run.streams[POLITE], part_of_share(run), asked_of_share(run)
    refused = sum(got.errors.values())
    if share == 1:
        on_time = ""
    elif asked > HALF:
        on_time = "none: the machine slowed"
    else:
        on_time = f"{limit_ms:.0f}: {verdict(got.ms(0.99) <= limit_ms)}"
    return [
        f"polite at {'half its' if share < 1 else 'its full'} share, beside {outstanding:,}",
        f"{got.per_s:.1f}",
        f"{asked:.2f}",
        f"{part:.2f}: {verdict(part >= GOAL)}",
        f"{got.ms(0.5):.0f}",
        f"{got.ms(0.99):.0f}",
        on_time,
        f"{refused}: {verdict(not refused)}",
        f"{run.per_s:.1f}",
        f"{run.busy:.2f}: {verdict(run.busy >= busy)}",
        cores(run),
    ]


def cores(run: Run) -> str:
    return ", ".join(f"{used:.2f}" for used in run.cpu.values())


def asked_of_share(run: Run) -> float:
    """Tokens that it asked for, beside half of all that were answered in that window."""
    return 2 * run.streams[POLITE].offered_tokens / run.tokens if run.tokens else 0.0


def part_of_share(run: Run) -> float:
    """Tokens that it got of those it was owed in that very window: half of all, or all that it asked for."""
    got = run.streams[POLITE]
    owed = min(got.offered_tokens, run.tokens / 2)
    return got.tokens / owed if owed else 0.0


def returned(each: Sequence[Return], outstanding: int) -> str:
    if not each:
        return f"Beside {outstanding:,}: it never came back, or was never served."
    late = max(r.in_hand + r.passed for r in each)
    passed = max(r.passed for r in each)
    waited = [r.waited_ms for r in each]
    good = passed == 0 and late <= 2
    return (
        f"Beside {outstanding:,} it came back {len(each)} times with {BURST} requests: first batch with it left after "
        f"{median(waited):.0f} ms (at most {max(waited):.0f}); batches before it: at most {late}, "
        f"handed over already but for {passed} (goal: 2 and 0): {verdict(good)}. "
        f"From there on it had {fmean(r.share for r in each):.2f} of the tokens until nothing of it waited."
    )


def cost_table(runs: dict[str, list[Run]]) -> str:
    """runs: of each load, by round."""
    rows: list[Row] = []
    for name, each in runs.items():
        ratios = [mine.tokens / other.tokens for mine, other in zip(runs[MANY], each, strict=True) if other.tokens]
        by_round = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        ratio = f"{median(ratios):.2f} ({by_round}): {verdict(median(ratios) >= GOAL)}" if ratios else "no answers"
        per_s = [f"{median(run.per_s for run in each):.1f}", f"{median(run.tokens / run.seconds for run in each):,.0f}"]
        rows.append([name, *per_s, "" if name == MANY else ratio])
    return markdown(["load", "answers/s", "tokens/s", f"tokens, eight tenants to it, by round (goal: {GOAL})"], rows)
