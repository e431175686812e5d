"""What was found of a model's answers in batches, beside its answers alone: carried by Ready, shown by explain."""

from __future__ import annotations

import msgspec

BATCHED, EQUAL_LENGTHS, UNBATCHED = "batched", "equal_lengths", "unbatched"
MODES = (BATCHED, EQUAL_LENGTHS, UNBATCHED)
"""How a version is served, from the loosest to the strictest: any rows together, rows of one length, one row."""

SAFE, UNSAFE, NOT_DETERMINISTIC, NOT_JUDGED, OFF = "safe", "unsafe", "not_deterministic", "not_judged", "off"
VERDICTS = (SAFE, UNSAFE, NOT_DETERMINISTIC, NOT_JUDGED, OFF)


class Difference(msgspec.Struct, frozen=True):
    """Two answers to one input.

    output: its name; "" where there is no answer to compare.  index: of the element within the row.
    one, other: the two values: alone and in the batch, or both times alone.
    difference, allowed: between the two numbers; 0 where they are none.
    batch: in which company, in words.  detail: what differs where it is not a value.
    """

    output: str
    index: tuple[int, ...]
    one: str
    other: str
    difference: float
    allowed: float
    batch: str
    detail: str = ""

    @property
    def size(self) -> float:
        """In tolerances: more than 1 is too much."""
        if self.detail:
            return float("inf")
        if not self.difference:
            return 0.0
        return self.difference / self.allowed if self.allowed else float("inf")

    @property
    def too_large(self) -> bool:
        return self.size > 1


class FixedCost(msgspec.Struct, frozen=True):
    """What a batch takes in invariant mode, whatever is in it, beside one row as it comes; milliseconds."""

    length: int
    rows: int
    fixed_ms: float
    alone_ms: float


class InvariantReport(msgspec.Struct, frozen=True):
    """proven: the lengths at which answers were found to be bit-equal in any company and place.
    unproven: those for which there was no time.  runs: that were compared.
    broken: what was not bit-equal; each row runs alone then.
    """

    proven: tuple[int, ...]
    unproven: tuple[int, ...]
    runs: int
    costs: tuple[FixedCost, ...] = ()
    broken: Difference | None = None


class SafetyReport(msgspec.Struct, frozen=True):
    """verdict: one of VERDICTS.  mode: one of MODES, how the version is served.  reason: why, in a sentence.
    probes: inputs that were compared.  batches, planned: that were run, and that would have been with more time.
    seconds: spent.  worst: the largest difference in tolerances, also where it is within them.
    notes: what was not covered, and what the inputs were.
    length_classes: lengths that rows are padded to in invariant mode, the least that holds them; () = their own.
    """

    verdict: str = OFF
    mode: str = BATCHED
    reason: str = ""
    probes: int = 0
    batches: int = 0
    planned: int = 0
    seconds: float = 0
    worst: Difference | None = None
    notes: tuple[str, ...] = ()
    length_classes: tuple[int, ...] = ()
    invariant: InvariantReport | None = None


def stricter(one: SafetyReport | None, other: SafetyReport) -> SafetyReport:
    """Of what two workers of a version found: what was seen to differ once has differed."""
    if one is None or MODES.index(other.mode) >= MODES.index(one.mode):
        return other
    return one


def class_of(length: int, classes: tuple[int, ...]) -> int:
    """The length that a row is padded to; its own where no class holds it."""
    for size in classes:
        if size >= length:
            return size
    return length
