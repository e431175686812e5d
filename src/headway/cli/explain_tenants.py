"""The part of the page of `headway explain` that is about tenants."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from headway.cli.explain_columns import columns, figure

Told = dict[str, Any]

SHOWN = 30
"""Tenants on the page; the server's JSON has all."""


def tenants(told: Sequence[Told]) -> Iterator[str]:
    """Those first that have something waiting, then who received most of late."""
    busy = [each for each in told if each["waiting_parts_on_device"] or each["waiting_requests"] or lately(each)]
    busy.sort(key=lambda each: (-each["waiting_requests"], -each["last"]["received_s"], each["tenant"]))
    rows = [row(each) for each in busy[:SHOWN]]
    if rows:
        yield f"of the device, seconds x cores, over the last {told[0]['last']['span_s']:.0f} s:"
        yield from columns(
            ("", "weight", "received", "owed", "waiting", "borrowed", "reclaimed", "next answered"), rows
        )
    idle = [each["tenant"] for each in told if each not in busy]
    if len(busy) > SHOWN:
        yield f"and {len(busy) - SHOWN} more: --json has all"
    if idle:
        yield f"nothing of late: {', '.join(idle[:SHOWN])}{' ...' if len(idle) > SHOWN else ''}"
    for each in told:
        yield from limits(each)
    for each in told:
        yield from starving(each)


def lately(each: Told) -> bool:
    return bool(each["last"]["received_s"] or each["last"]["owed_s"] or each["starving"])


def row(each: Told) -> tuple[str, ...]:
    return (
        each["tenant"],
        f"{each['weight']:g}",
        figure(each["last"]["received_s"]),
        figure(each["last"]["owed_s"]),
        str(each["waiting_requests"]),
        str(each["borrowed"]),
        str(each["reclaimed"]),
        foreseen(each["foreseen_ms"]),
    )


def foreseen(ms: float | None) -> str:
    if ms is None:
        return "-"
    return f"in about {figure(ms)} ms" if ms else "at once"


def limits(each: Told) -> Iterator[str]:
    """One line per limit, and how far each is used."""
    if each["max_queued_requests"] and each["tenant"] != "other":
        most, now = each["max_queued_requests"], each["waiting_requests"]
        yield f"{each['tenant']} may have {most} requests waiting, has {now}"
    for limit in each["limits"]:
        kinds = []
        for kind in ("requests", "tokens"):
            if limit[f"{kind}_per_second"]:
                left = max(0.0, limit[f"{kind}_left"])
                kinds.append(f"{limit[f'{kind}_per_second']:g} {kind} per second, {figure(left)} left now")
        if limit["concurrent"]:
            kinds.append(f"{limit['concurrent']} open requests, has {limit['open']}")
        of = f" of length {limit['for']}" if limit["for"] else ""
        yield f"{each['tenant']} may have{of}: {'; '.join(kinds) or 'any number'}"


def starving(each: Told) -> Iterator[str]:
    why = each["neglect"]
    if why is None:
        if each["starvations"]:
            yield f"{each['tenant']} starved {each['starvations']} times, not now"
        return
    who = each["tenant"] if each["tenant"] != "other" else f"{each['starving']} of those without a name"
    yield (
        f"{who} starves, for {each['starving_for_s']:.0f} s now: it got {figure(why['received_s'])} s of the "
        f"{figure(why['owed_s'])} s that it was owed in the last {figure(why['window_s'])} s; {cause(why)}"
    )


def cause(why: Told) -> str:
    if not why["has_worker"]:
        return "nothing that it waits for has a worker"
    ahead = f"{why['ahead']} is furthest ahead of it, and borrows no room meanwhile" if why["ahead"] else ""
    return ahead or f"nobody that waits is ahead of it, and {why['running_parts']} parts of its own run"


def forecast(told: Told | None) -> Iterator[str]:
    """What the refusals of those who would be late rest on."""
    if told is None:
        return
    if not told["answers"]:
        yield "no answer was compared with what was foreseen of it yet: nobody had to wait long"
        return
    yield (
        f"{told['answers']} answers were compared: they take {told['usual_ratio']:.2f} of what is foreseen as a rule, "
        f"and hardly ever {told['margin_seconds']:.3f} s more than that"
    )
    if not told["counts"]:
        yield "that is too few to go by: so far only who would be late if it took half as long is refused"
