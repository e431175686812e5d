"""Sizes that were not run of late are tried again, and what that may cost.

The cost model learns from what is run, and the join rule runs what the model calls cheap: a size wrongly
believed dear would never be run, and the belief never corrected. So when the join rule has made its
batch and others wait, the smallest larger size of which nothing recent is known is run all the same:
a probe. Nothing is drawn by lot. Held batches leave nobody to probe with: the caps alone end them.

What a probe adds to everybody's waiting, by the model's own account, is paid from a credit: a
hundredth of the time that requests spend in the system. What a size took beyond its prediction is
paid from it too, so that a bad surprise is not repeated at once.
"""

from __future__ import annotations

from math import log
from typing import Any, TypeAlias

from headway.core.units import NEVER, Duration

STALE = 2048
"""Batches after which what is known of a size is doubted."""
DRIFT, LASTING = 0.4, 8
"""Change of the logarithm of the device's speed after which all that was known before is doubted: by half, by so many
batches more than not. What is over sooner was a run of slow batches: much of what was learned would be thrown away by
chance every few hundred batches of a noisy device, and what took its place would be as noisy."""
TRIES = 2
"""Batches of a size, none of them longer ago, until it is known: the first may have been compiled for."""
PAUSE = 16
"""Batches from one look for something to probe to the next: most batches pay one comparison."""
SHARE = 100
"""One part in so many of all time spent in the system may be spent on probing."""
BANK = 64
"""Time in the system, of so many batches like the present one, that is saved up at most."""
SLACK = 4
"""Who has a deadline is probed with only if it would be met at so many times the predicted upper run time."""
BUSIEST = 32
"""Device time lost delays not only those who wait but all who come until nobody waits any more: where n wait, about n
times as many, since they tell of a load of n / (n + 1). Loads above that of this n are not told apart."""

Size: TypeAlias = tuple[int, int]
NEVER_TRIED = (0, 0)


class Probes:
    """Of one cost model.

    count: batches that were probes.  credit: waiting that they may add, of all requests together, in nanoseconds.
    seen: batches observed.
    """

    __slots__ = ("_adrift", "_look_at", "_pace", "_since", "_tried", "count", "credit", "seen")

    def __init__(self) -> None:
        self.count = 0
        self.credit = 0
        self.seen = 0
        self._look_at = 0
        self._since = -1
        """What was last run by this batch or before is doubted."""
        self._pace = 0.0
        """log(scale) of the cost model at that time."""
        self._adrift = 0
        """Batches that were run at another speed than that, less those that were not."""
        self._tried: dict[Size, tuple[int, int]] = {}
        """(the batch by which it was last run, how often until then): as many entries as the caps allow sizes."""

    # -- what is known ---------------------------------------------------------------------

    def is_stale(self, rows: int, length: int) -> bool:
        """Nothing recent is known of batches of about this size."""
        last, tries = self._tried.get(_size(rows, length), NEVER_TRIED)
        return tries < TRIES or self.is_old(last)

    def was_run(self, rows: int, length: int) -> bool:
        """A batch of about this size has come back once, in a warm-up or since."""
        entry = self._tried.get(_size(rows, length))
        return entry is not None and entry[0] != NEVER

    def is_old(self, last: int) -> bool:
        """last: what `seen` was then."""
        return last <= self._since or self.seen - last > STALE

    def follow(self, scale: float) -> None:
        """How fast the device is by the last batch. It may be another one."""
        pace = log(scale)
        self._adrift = self._adrift + 1 if abs(pace - self._pace) > DRIFT else max(0, self._adrift - 1)
        if self._adrift >= LASTING:
            self._adrift = 0
            self._pace = pace
            self._since = self.seen

    def measured(self, rows: int, length: int) -> None:
        """It was run to warm up."""
        size = _size(rows, length)
        if self._tried.get(size, NEVER_TRIED)[0] != NEVER:
            self._tried[size] = (self.seen, TRIES)

    def observed(self, rows: int, length: int) -> bool:
        """A batch has completed. Returns whether its size was stale."""
        size = _size(rows, length)
        last, tries = self._tried.get(size, NEVER_TRIED)
        if self.is_old(last):
            tries = 0
        self.seen += 1
        self._tried[size] = (self.seen, min(TRIES, tries + 1))
        return tries < TRIES

    def failed(self, rows: int, length: int) -> None:
        """A probe of it failed, or took its worker along: nobody is to suffer from curiosity twice. A warm-up does not
        prove it harmless, only a batch that the join rule makes of this size."""
        self._tried[_size(rows, length)] = (NEVER, TRIES)

    # -- what to try -----------------------------------------------------------------------

    def is_due(self) -> bool:
        """Whether it is time to look for something to try. Then the next time is later."""
        if self.seen < self._look_at:
            return False
        self._look_at = self.seen + PAUSE
        return True

    def wanted(self, rows: int, length: int, most: int) -> int:
        """Of the sizes above that of `rows`, up to `most` rows, the smallest that is stale. 0: none."""
        while rows < most:
            rows = min(2 << (rows - 1).bit_length(), most)
            if self.is_stale(rows, length):
                return rows
        return 0

    # -- what it costs ---------------------------------------------------------------------

    def earn(self, spent: Duration) -> None:
        """spent: time in the system, of all requests together."""
        if self.credit < BANK * spent:
            self.credit += spent // SHARE

    def pay(self, added: Duration) -> None:
        """added: to the waiting of all requests together."""
        self.credit -= max(0, added)

    # -- kept ------------------------------------------------------------------------------

    def snapshot(self) -> dict[str, Any]:
        return {
            "state": [self.count, self.credit, self.seen, self._look_at, self._since, self._pace, self._adrift],
            "tried": [[*size, *tried] for size, tried in self._tried.items()],
        }

    @classmethod
    def restore(cls, saved: dict[str, Any]) -> Probes:
        probes = cls()
        probes.count, probes.credit, probes.seen, probes._look_at, *drift = saved["state"]
        probes._since, probes._pace, probes._adrift = drift
        probes._tried = {(rows, length): (last, tries) for rows, length, last, tries in saved["tried"]}
        return probes


def _size(rows: int, length: int) -> Size:
    """Sizes that are known together: rows to a power of two (1, 2, 3-4, 5-8 ...), lengths to one of four (8-31,
    32-127 ...), as far apart as those of the warm-up grid. The fit knows what lies between."""
    return (rows - 1).bit_length(), length.bit_length() // 2
