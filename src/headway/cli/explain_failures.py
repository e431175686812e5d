"""What `headway explain` says of failures: what was lost, what was done about it, what is refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from headway.cli.explain_columns import columns

Told = dict[str, Any]

RUN = {"again": "as before", "alone": "each alone", "halves": "with half of their batch"}
FATES = {
    "started": "started",
    "refused": "not started for want of memory",
    "took_over": "in the place of one that was killed",
    "retired": "no longer needed",
    "lost": "lost",
}
SHOWN = 20
"""Contents in quarantine that the page lists."""


def failures(told: Told) -> Iterator[str]:
    """Nothing where nothing ever failed."""
    if told["losses"]:
        kinds = ", ".join(f"{count} {kind.replace('_', ' ')}" for kind, count in told["losses"].items())
        yield f"workers lost: {kinds}"
    if told["suspected"]:
        yield f"workers suspected because they did not answer: {told['suspected']}, of which {told['hung']} were killed"
    if told["reliefs"]:
        fates = ", ".join(f"{count} {FATES.get(what, what)}" for what, count in told["reliefs"].items())
        yield f"workers to stand in for those: {fates}"
    if told["retried_parts"]:
        ways = ", ".join(f"{count} {RUN.get(how, how)}" for how, count in told["retried_parts"].items())
        yield f"parts that were run again: {ways}"
    if told["poison_requests"]:
        yield f"requests that made whatever ran them fail, or were refused as such: {told['poison_requests']}"
    if told["suspects"]:
        yield f"suspected now, and given no work: worker {', '.join(map(str, told['suspects']))}"
    retries = told["retries"]
    if retries["left"] < retries["of"]:
        yield f"{retries['left']} of {retries['of']} executions may still be repeated in this minute"
    yield from circuit(told["circuit"])
    yield from quarantine(told["quarantine"])


def circuit(told: Told) -> Iterator[str]:
    deaths = f"{told['deaths']} workers died in a row"
    if told["state"] == "open":
        yield f"refused: {deaths}; a request is let in to try in {told['tried_in_s']:.0f} s"
    elif told["state"] == "half_open":
        yield f"refused but for a single request that tries whether it lives: {deaths}"
    elif told["openings"]:
        yield f"it was refused {told['openings']} times because workers died in a row, and is not now"


def quarantine(told: list[Told]) -> Iterator[str]:
    if not told:
        return
    yield ""
    yield f"{len(told)} contents are refused because they killed workers; `headway quarantine` tells whose they were"
    yield from columns(("content", "for s more"), [(each["content"], f"{each['left_s']:.0f}") for each in told[:SHOWN]])
