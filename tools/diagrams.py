"""Draws the lifecycles from the tables that the code obeys: `python tools/diagrams.py > docs/lifecycles.md`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum

from headway.core.requests import PART_LIFECYCLE
from headway.core.workers import WORKER_LIFECYCLE
from headway.runtime.worker_process import LEGAL

HEAD = """\
# Lifecycles

Written by `make diagrams` from the tables that the code obeys. For a worker, a transition that is not drawn raises.
"""

LIFECYCLES: list[tuple[str, str, Mapping[Enum, Sequence[Enum]]]] = [
    ("A part of a request", "headway.core.requests.PART_LIFECYCLE", dict(PART_LIFECYCLE)),
    ("A worker, as the scheduler sees it", "headway.core.workers.WORKER_LIFECYCLE", dict(WORKER_LIFECYCLE)),
    ("A worker's process, as the supervisor sees it", "headway.runtime.worker_process.LEGAL", dict(LEGAL)),
]


def page() -> Iterator[str]:
    yield HEAD
    for title, source, table in LIFECYCLES:
        yield f"## {title}\n\n`{source}`\n\n```mermaid\nstateDiagram-v2"
        yield f"    [*] --> {next(iter(table)).value}"
        for state, following in table.items():
            yield from (f"    {state.value} --> {after.value}" for after in following)
            if not following:
                yield f"    {state.value} --> [*]"
        yield "```\n"


if __name__ == "__main__":
    print("\n".join(page()).rstrip())
