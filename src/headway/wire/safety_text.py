"""A report on batch safety in lines for people: in the worker's log, in `headway verify` and `headway explain`."""

from __future__ import annotations

from collections.abc import Iterator

from headway.wire.safety import (
    BATCHED,
    EQUAL_LENGTHS,
    NOT_DETERMINISTIC,
    NOT_JUDGED,
    OFF,
    SAFE,
    UNBATCHED,
    UNSAFE,
    Difference,
    InvariantReport,
    SafetyReport,
)

VERDICTS = {
    SAFE: "safe",
    UNSAFE: "not safe",
    NOT_DETERMINISTIC: "not deterministic",
    NOT_JUDGED: "not judged",
    OFF: "not checked",
}
SERVED = {
    BATCHED: "in batches as configured",
    EQUAL_LENGTHS: "in batches of equal length",
    UNBATCHED: "row by row",
}


def lines(report: SafetyReport) -> Iterator[str]:
    yield f"{VERDICTS[report.verdict]}, served {_served(report)}"
    if report.reason:
        yield report.reason
    if report.worst is not None:
        yield _worst(report.worst, report.verdict)
    if report.probes:
        together = f" and {report.batches} of {report.planned} batches of them" if report.planned else ""
        yield f"tried: {report.probes} inputs alone, twice,{together} in {report.seconds:.2f} s"
    yield from report.notes
    if report.invariant is not None:
        yield from _invariant(report.invariant, report)


def _served(report: SafetyReport) -> str:
    if report.length_classes:
        return f"at fixed sizes, rows padded to {_listed(report.length_classes)}"
    if report.invariant is not None and report.mode == EQUAL_LENGTHS:
        return "at fixed sizes"
    return SERVED[report.mode]


def _worst(worst: Difference, verdict: str) -> str:
    where = f"output {worst.output!r}" if worst.output else "the batch"
    if worst.index:
        where += f" at {list(worst.index)}"
    kind = "largest difference" if verdict == SAFE else "worst difference"
    if worst.detail:
        return f"{kind}: {where}, in {worst.batch}: {worst.detail}"
    if not worst.difference:
        return f"{kind}: none, every answer is the very same"
    if worst.batch.startswith("alone"):
        values = f"{worst.one} and {worst.other}, alone both times"
    else:
        values = f"{worst.one} alone, {worst.other} in {worst.batch}"
    allowed = f"{worst.allowed:.3g} is allowed" if worst.allowed else "it must be the same"
    return f"{kind}: {where}: {values}; {worst.difference:.3g} apart, {allowed}"


def _invariant(found: InvariantReport, report: SafetyReport) -> Iterator[str]:
    if found.broken is not None:
        yield _worst(found.broken, UNSAFE)
    elif found.proven:
        at = f" at {_listed(found.proven)}" if report.length_classes else ""
        yield f"bit-equal in every company and place that was tried, {found.runs} runs{at}"
    if found.unproven and found.broken is None and report.mode != UNBATCHED:
        yield f"no time for lengths {_listed(found.unproven)}: rows of these run one by one"
    for cost in found.costs:
        yield (
            f"length {cost.length}: {cost.fixed_ms:.3g} ms for a batch of {cost.rows} rows, whatever is in it; "
            f"{cost.alone_ms:.3g} ms for one row as it comes"
        )


def _listed(sizes: tuple[int, ...]) -> str:
    return ", ".join(map(str, sizes))
