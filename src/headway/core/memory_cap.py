"""How many tokens a batch may have, as learned from batches that were more than a worker's memory holds.

Halved at once, raised by an eighth at a time after many batches that went well, and after ever more of them where that
went wrong: additive-increase schemes in networks look for a limit that moves in the same way.
"""

from __future__ import annotations

PATIENCE = 512
"""Batches that must go well before the cap is raised the first time."""
LONGEST = 1 << 16
RAISE = 8
"""By one part in so many."""


class MemoryCap:
    """Of one version. tokens: padded ones; 0 = none is known.  failed: the least number that was too many.
    well: batches since the last change.  patience: so many before the next raise.
    """

    __slots__ = ("failed", "patience", "tokens", "well")

    def __init__(self) -> None:
        self.tokens = 0
        self.failed = 0
        self.well = 0
        self.patience = PATIENCE

    def lower(self, tokens: int) -> int:
        """A batch of so many was too large. Returns the cap from now on."""
        if self.tokens and tokens > self.tokens // 2:
            self.patience = min(LONGEST, 2 * self.patience)
        self.failed = min(self.failed or tokens, tokens)
        self.tokens = max(1, min(self.tokens or tokens, tokens // 2))
        self.well = 0
        return self.tokens

    def went_well(self, ceiling: int) -> bool:
        """One more batch has. ceiling: the operator's cap, 0 = none. True: the cap is another one by that."""
        self.well += 1
        if not self.tokens or self.well < self.patience:
            return False
        self.well = 0
        self.tokens += max(1, self.tokens // RAISE)
        if 0 < ceiling <= self.tokens or self.tokens >= 2 * self.failed:
            self.tokens = self.failed = 0  # as much as ever again, or many times what once failed: forget it
            self.patience = PATIENCE
        return True

    def snapshot(self) -> list[int]:
        return [self.tokens, self.failed, self.well, self.patience]

    def restore(self, state: list[int]) -> None:
        self.tokens, self.failed, self.well, self.patience = state
