"""How the prefill of a step is dealt out among the prompts under way.

The shortest rest first, so that a short prompt gets through beside a long one; but a part of it to the oldest, so that
a long one gets through beside any number of short ones. In multiples of a tile, but for the last chunk of a prompt.
"""

from __future__ import annotations

from headway.llm.plan.sequence import RUNNING, Sequence
from headway.llm.plan.step_time import StepTime


class Prefill:
    """What a step has left for prompts. time: ns.  tokens: at most.  part: 1 / part goes to the oldest."""

    __slots__ = ("_part", "_rest", "_tile", "_time", "_tokens", "_unfinished", "steps", "under_way")

    def __init__(self, steps: StepTime, time: float, tokens: int, tile: int, part: int) -> None:
        self.steps = steps
        self.under_way: list[Sequence] = []
        self._time = time
        self._tokens = tokens
        self._tile = tile
        self._part = part
        self._rest = [time, float(tokens)]
        """Of time and tokens, what is not spoken for."""
        self._unfinished = 0

    def add(self, sequence: Sequence) -> None:
        """A prompt that is under way already, or from now on."""
        self.under_way.append(sequence)
        rest = sequence.to_prefill
        time = self.steps.chunk(sequence.computed, rest)
        if time <= self._rest[0] and rest <= self._rest[1]:
            self._rest[0] -= time
            self._rest[1] -= rest
        else:
            self._unfinished += 1

    def has_place(self, start: int, rest: int, most_unfinished: int) -> bool:
        """Whether one more prompt is worth admitting, from position `start` on: few are under way that will not get
        through in this step, or it will."""
        if self._unfinished < most_unfinished:
            return True
        part = 1 - 1 / self._part if self._unfinished else 1.0  # the oldest has its own of it
        time = self.steps.chunk(start, rest)
        return (
            time <= self._rest[0] - self._time + part * self._time
            and rest <= self._rest[1] - self._tokens + part * self._tokens
        )

    def deal(self, must: bool) -> list[tuple[Sequence, int]]:
        """Tokens of each; must: somebody gets at least a tile, whatever it takes."""
        self.under_way = [sequence for sequence in self.under_way if sequence.status is RUNNING]
        if not self.under_way:
            return []
        given: dict[int, int] = {}
        time, tokens = self._time, self._tokens
        oldest = min(self.under_way, key=lambda sequence: sequence.number)
        count = self._fit(oldest, 0, time / self._part, tokens // self._part)
        if count == 0:
            count = self._fit(oldest, 0, time, min(self._tile, tokens))
        given[oldest.number] = count
        if count:
            time -= self.steps.chunk(oldest.computed, count)
            tokens -= count
        for sequence in sorted(self.under_way, key=lambda s: (s.to_prefill, s.number)):
            so_far = given.get(sequence.number, 0)
            count = self._fit(sequence, so_far, time, tokens)
            if count:
                time -= self.steps.chunk(sequence.computed + so_far, count)
                tokens -= count
                given[sequence.number] = so_far + count
        dealt = [(s, given[s.number]) for s in self.under_way if given.get(s.number)]
        if must and not dealt:
            return [(oldest, min(self._tile, oldest.to_prefill))]
        return dealt

    def _fit(self, sequence: Sequence, so_far: int, time: float, tokens: int) -> int:
        """Tokens of its next chunk, within what is left."""
        rest = sequence.to_prefill - so_far
        count = min(rest, tokens, self.steps.fits(time, sequence.computed + so_far))
        if count < rest:
            count -= (so_far + count) % self._tile
        return max(0, count)
