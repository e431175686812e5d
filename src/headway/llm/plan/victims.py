"""Who loses its blocks when they are short. Whatever was computed in them is computed again later.

Of a strictly lower class first, then of a tenant beyond its share of the pool, then whoever loses the least work, then
the last to come. The oldest that runs is not taken, so that it finishes whatever happens (but for a strictly higher
class, if nothing else helps); nor, while there are others, whoever was preempted twice.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from headway.llm.plan.sequence import Sequence

IMMUNE_AFTER = 2
"""Preemptions, after which it is somebody else's turn."""


def in_order(running: Iterable[Sequence], oldest: Sequence, beyond: Callable[[Sequence], bool]) -> list[Sequence]:
    """Those that may be taken, the first first. oldest: of all that run.  beyond: whether its tenant has more than its
    share."""

    def worth(sequence: Sequence) -> tuple[Any, ...]:
        return (-sequence.priority, not beyond(sequence), sequence.computed, -sequence.number)

    return sorted((s for s in running if s is not oldest and s.preemptions < IMMUNE_AFTER), key=worth)


def enough(
    candidates: Iterable[Sequence], blocks: int, slots: int, freed: Callable[[Sequence], int]
) -> list[Sequence] | None:
    """The first of them that give so many blocks and slots; None where all of them do not: then nobody is taken."""
    taken: list[Sequence] = []
    for sequence in candidates:
        if blocks <= 0 and slots <= 0:
            break
        gain = freed(sequence)
        if gain == 0 and slots <= 0:
            continue
        taken.append(sequence)
        blocks -= gain
        slots -= 1
    return taken if blocks <= 0 and slots <= 0 else None
