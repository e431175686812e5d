"""A histogram of whole numbers: fixed bounds, plain counts."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence

MICROSECOND, SECOND = 1_000, 1_000_000_000

DURATION_BOUNDS = tuple(
    step * 10**power for power in range(4, 11) for step in (1, 2, 5)
)  # 10 us .. 50 s, in ns; three to a decade: a percentile read from it is right within a factor of 2.5
ROW_BOUNDS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024)


class Histogram:
    """bounds: upper ends of the buckets, inclusive, ascending; what is larger goes into one more.
    counts: values per bucket.  total: sum of all values."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def add(self, value: int) -> None:
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value

    def add_counted(self, counts: Sequence[int], total: int) -> None:
        """Values that somebody else has sorted into these buckets already, and their sum."""
        self.counts = [have + more for have, more in zip(self.counts, counts, strict=True)]
        self.total += total

    @property
    def count(self) -> int:
        return sum(self.counts)

    def quantile(self, q: float) -> float:
        """Below it lies a share q of the values, taken to be spread evenly within their bucket; 0 where there are
        none, the last bound for what is beyond it."""
        wanted = q * self.count
        low = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            if count and wanted <= count:
                return low + (bound - low) * wanted / count
            wanted -= count
            low = bound
        return low if self.count else 0

    def cumulative(self, unit: int = 1) -> Iterator[tuple[str, float]]:
        """(upper end, values up to it) as the exposition format wants them; bounds are divided by `unit`."""
        so_far = 0
        for bound, count in zip(self.bounds, self.counts, strict=False):
            so_far += count
            yield str(bound / unit), so_far
        yield "+Inf", so_far + self.counts[-1]
