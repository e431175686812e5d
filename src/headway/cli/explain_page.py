"""The page of `headway explain`: the server's JSON as lines for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from headway.cli import explain_engines, explain_failures, explain_tenants
from headway.cli.explain_columns import columns, figure
from headway.wire import safety_text
from headway.wire.safety import SafetyReport

Told = dict[str, Any]

PHASES = ("total", "queue", "hand_over", "execute", "outside")
MEANINGS = {
    "total": "from the last byte read to the last byte written",
    "queue": "waiting",
    "hand_over": "padding and stacking",
    "execute": "the model",
    "outside": "gateway, scheduler and channel",
}


def page(told: Told) -> Iterator[str]:
    default = ", answers where no version is named" if told["default"] else ""
    reason = f": {told['reason']}" if told["reason"] else ""
    yield f"{told['model']}/{told['version']} is {told['state']}{reason}{default}"
    for heading, lines in (
        ("in force", in_force(told["values"])),
        ("run time of a batch, as predicted", cost(told["cost"])),
        ("answers in batches, as found at load", safety(told["batch_safety"])),
        ("now", now(told)),
        ("engines", explain_engines.engines(told.get("language"))),
        ("failures, since the start", explain_failures.failures(told["failures"])),
        ("tenants", explain_tenants.tenants(told["tenants"])),
        ("when answers are foreseen to come", explain_tenants.forecast(told["forecast"])),
        ("memory of a batch at its peak, beside the loaded model", memory(told.get("memory"))),
        ("completed requests, as measured", phases(told["phases"])),
        ("what the SLO leaves for waiting", budget(told["slo"])),
    ):
        body = list(lines)
        if body:
            yield from ("", f"{heading}:", *(f"  {line}".rstrip() for line in body))


def in_force(values: Sequence[Told]) -> Iterator[str]:
    rows = [(v["name"], f"{shown(v['value'])} {v['unit']}".strip(), v["origin"], v["note"]) for v in values]
    yield from columns(("", "", "decided by", ""), rows)


def cost(told: Told | None) -> Iterator[str]:
    if told is None:
        return
    if not told["measured"]:
        yield "nothing is measured yet"
        return
    yield f"fitted to {told['measured']} batches and warm-up runs of {told['sizes_seen']} sizes; median ="
    yield from columns(("", ""), [("+ " + duration(term["ns"]), "for " + term["of"]) for term in told["terms"]])
    yield (
        f"lower and upper are {told['lower_ratio']:.2f} and {told['upper_ratio']:.2f} of it; typical error "
        f"{100 * told['error']:.0f} %, {100 * told['coverage']:.0f} % of the batches were within upper (aim 95 %)"
    )
    if told["probes"]:
        yield f"{told['probes']} batches were probes: larger than would pay, to see what a size takes not run of late"
    yield ""
    rows = [
        (
            str(p["rows"]),
            str(p["length"]),
            *(figure(p[name]) for name in ("lower_ms", "median_ms", "upper_ms", "per_row_ms")),
            f"{p['speedup']:.2f}",
            "" if p["allowed"] else "over the cap in time",
        )
        for p in told["predictions"]
    ]
    yield from columns(("rows", "length", "lower ms", "median ms", "upper ms", "ms per row", "speed-up", ""), rows)
    yield "speed-up: against its rows one by one; where it is 1, batching gains nothing"


def safety(told: Told | None) -> Iterator[str]:
    if told is not None:
        yield from safety_text.lines(msgspec.convert(told, SafetyReport))


def memory(told: Told | None) -> Iterator[str]:
    """As measured while warming up."""
    if told is None:
        return
    limit, cap = told["limit"], told["max_batch_tokens"]
    line = f"at most {mebibytes(told['fixed'])} and {told['per_token'] / 1024:.3g} KiB per token"
    yield line + (f"; of {mebibytes(limit)} that gives {cap} tokens" if limit and cap else "")
    rows = [(str(rows), str(length), mebibytes(peak)) for rows, length, peak in told["points"]]
    yield from columns(("rows", "length", "peak"), rows)


def mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.1f} MiB"


def now(told: Told) -> Iterator[str]:
    rates, waiting = told["rates"], told["waiting"]
    arrived = "" if rates["arrived_per_s"] is None else f"{rates['arrived_per_s']:.1f} parts/s arrive, "
    yield f"{arrived}{rates['completed_per_s']:.1f} parts/s are completed"
    if waiting["requests"]:
        yield (
            f"{waiting['requests']} requests wait ({waiting['parts']} parts, {waiting['rows']} rows), the oldest for "
            f"{waiting['oldest_ms']:.0f} ms; at this rate they are done in {waiting['clears_in_ms']:.0f} ms"
        )
    else:
        yield "nothing waits"
    yield f"{waiting['running_batches']} batches and {waiting['running_sequences']} sequences run"
    yield device(told["device"])
    if told["hand_over_ms"]:
        yield f"a batch spends {figure(told['hand_over_ms'])} ms on its way to the worker and back"
    yield "workers: " + (", ".join(worker(each, len(told["workers"])) for each in told["workers"]) or "none")


def device(told: Told) -> str:
    """What its workers run on, and with whom they share it."""
    if told["trouble"]:
        return f"on {told['name']}, which is lost, and tried until it works again: {told['trouble']}"
    if not told["cores"]:
        return f"on {told['name']}, of which no core is counted"
    others = told["shared_with"]
    alone = f"shared with {', '.join(others)}" if others else "which it has to itself"
    return f"{told['in_use']} of {told['cores']} cores of {told['name']} are in use now, {alone}"


def worker(told: Told, of: int) -> str:
    """pace: told where there are others to compare it with."""
    pace = f" (takes {told['pace']:.2f} of what the others take)" if told["pace"] and of > 1 else ""
    return f"{told['worker']} {told['state']}{pace}"


def phases(told: Told) -> Iterator[str]:
    if not told["requests"]:
        return
    rows = [
        (name, *(figure(told[name][q]) for q in ("mean_ms", "p50_ms", "p99_ms")), MEANINGS[name])
        for name in PHASES
        if name in told
    ]
    yield f"{told['requests']} of them; quantiles are read from coarse histograms"
    yield from columns(("", "mean ms", "p50 ms", "p99 ms", ""), rows)


def budget(told: Told | None) -> Iterator[str]:
    if told is None:
        return
    outside = told["outside"]
    yield f"{told['slo_ms']:g} ms - run time (median, upper) - gateway, scheduler and channel (p50, p99) = left"
    if not outside["requests"]:
        yield "no request was completed yet: the part of gateway, scheduler and channel is taken as 0"
    if not told["batches"]:
        yield "run times are not known yet"
    rows = [
        (
            str(batch["rows"]),
            str(batch["length"]),
            *(
                f"{told['slo_ms']:g} - {figure(batch[f'run_{how}_ms'])} - {figure(outside[f'{how}_ms'])} = "
                f"{figure(batch[f'left_{how}_ms'])}"
                for how in ("usual", "rare")
            ),
            "" if batch["left_rare_ms"] > 0 else "does not fit",
        )
        for batch in told["batches"]
    ]
    if rows:
        yield from columns(("rows", "length", "usually", "with upper and p99", ""), rows)
    yield from linger(told["linger"], told["slo_ms"])


def linger(told: Told | None, slo_ms: float) -> Iterator[str]:
    """The wait for company in parts, and where each comes from."""
    yield ""
    if told is None:
        yield "the wait for company is not derived from it: max_queue_delay_ms is set"
        return
    parts = [("", f"{slo_ms:g} ms", "the SLO", "slo_ms")]
    batch = f"predicted for {told['rows']} rows, the longest of {told['length']}: the dearest of the last window"
    parts.append(("-", f"{figure(told['run_ms'])} ms", "run time, upper", batch if told["rows"] else "not known yet"))
    measured = "running 95 % quantile, as measured" if told["outside_ms"] else "not measured yet"
    parts.append(("-", f"{figure(told['outside_ms'])} ms", "gateway, scheduler and channel", measured))
    parts.append(("=", f"{figure(told['left_ms'])} ms", "left", ""))
    adapted = "up a little while p95 is below 0.8 of the SLO, halved when p99 is above it"
    parts.append(("x", f"{told['fraction']:.3g}", "the fraction that is waited", adapted))
    late = f"in force; since it was set {told['answers']} answers, {told['late']} of them late"
    parts.append(("=", f"{figure(told['ceiling_ms'])} ms", "the longest wait for company", late))
    yield from columns(("", "", "", ""), parts)


def shown(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:g}" if isinstance(value, float) else str(value)


def duration(nanoseconds: float) -> str:
    """In the unit in which it has one to three digits before the point."""
    for unit, size in (("s", 1e9), ("ms", 1e6), ("µs", 1e3)):
        if nanoseconds >= size:
            return f"{nanoseconds / size:.3g} {unit}"
    return f"{nanoseconds:.3g} ns"
