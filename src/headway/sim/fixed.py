"""First-come, first-served batches by fixed settings: what headway is measured against.

Independent of the core: requests leave in the order in which they came, so each batch is a run of
consecutive arrivals and one pass over them is enough.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from itertools import product

from headway.core.units import NEVER, Duration, Instant, ms
from headway.sim.costs import Cost

ROWS = (1, 2, 4, 8, 16, 32)
TOKENS = (256, 1024, 4096, 0)
LINGER_MS = (0, 1, 5, 20)


@dataclass(frozen=True, slots=True)
class Setting:
    """rows, tokens (padded; 0 = no cap): of one batch. linger: an idle worker waits until the oldest has waited it."""

    rows: int
    tokens: int = 0
    linger: Duration = 0

    def __str__(self) -> str:
        return f"{self.rows} rows, {self.tokens or 'any'} tokens, {self.linger / ms(1):g} ms"


@dataclass(slots=True)
class Played:
    """ends: when each request was answered, in order of arrival; NEVER = dropped. busy: of all workers together."""

    ends: list[Instant]
    batches: int
    busy: Duration


def grid(longest: int) -> list[Setting]:
    """Every setting that differs from the others for lengths up to `longest`."""
    distinct: dict[Setting, None] = {}
    for rows, tokens, linger in product(ROWS, TOKENS, LINGER_MS):
        one = rows == 1  # full as it comes
        never_reached = tokens >= rows * longest
        distinct[Setting(rows, 0 if one or never_reached else tokens, 0 if one else ms(linger))] = None
    return list(distinct)


def play_fixed(
    at: Sequence[Instant],
    lengths: Sequence[int],
    setting: Setting,
    cost: Cost,
    workers: int = 1,
    patience: Duration = NEVER,
) -> Played:
    """at: arrivals, in order. patience: who has waited longer when a batch leaves is dropped from it.

    A batch leaves when it is full (its rows reached, its tokens reached, or the next would not fit) or
    its first has waited the linger, as soon as a worker is free.
    """
    rows, tokens, linger = setting.rows, setting.tokens, setting.linger
    free = [0] * workers
    heapify(free)
    ends: list[Instant] = []
    count, first, batches, busy = len(at), 0, 0, 0
    while first < count:
        ready = max(free[0], at[first])
        if patience != NEVER and at[first] + patience < ready:
            ends.append(NEVER)
            first += 1
            continue
        leave = max(ready, at[first] + linger)
        last = bisect_right(at, leave, first, min(count, first + rows))
        if tokens:
            last, closed = _cut(lengths, first, last, tokens)
            if closed < last or last - first == rows:  # full by its own members
                leave = max(ready, at[last - 1])
            elif closed > last:  # by the next, who did not fit
                leave = max(ready, at[last])
        elif last - first == rows:
            leave = max(ready, at[last - 1])
        duration = cost(last - first, max(lengths[first:last]))
        end = leave + duration
        heapreplace(free, end)
        ends.extend([end] * (last - first))
        batches += 1
        busy += duration
        first = last
    return Played(ends, batches, busy)


def _cut(lengths: Sequence[int], first: int, last: int, tokens: int) -> tuple[int, int]:
    """Where a batch from `first` ends under the cap, at most at `last`; and what closed it.

    The second is less than the first if the batch reached the cap, more if the next one did not fit,
    equal if nothing closed it. One row always fits.
    """
    longest = 0
    for index in range(first, last):
        longest = max(longest, lengths[index])
        padded = longest * (index - first + 1)
        if padded > tokens and index > first:
            return index, index + 1
        if padded >= tokens:
            return index + 1, index
    return last, last


def capacity(lengths: Sequence[int], cost: Cost, settings: Sequence[Setting]) -> float:
    """Requests per second of one worker that never lacks work, at the best of the settings."""
    at = [0] * len(lengths)
    fastest = min(play_fixed(at, lengths, setting, cost).busy for setting in settings if not setting.linger)
    return len(lengths) * 1e9 / fastest
