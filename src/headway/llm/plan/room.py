"""Whether there is room in the pool for one sequence more, now and in the time to come: one function, by policy.

A sequence that is admitted is given all the blocks of the tokens that are known, so that nobody waits for the rest of
a prompt while it holds a part; its growth, a token a step, is what is judged here.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable
from math import sqrt

from headway.llm.plan.lengths import OutputLengths
from headway.llm.plan.policy import Admit
from headway.llm.plan.sequence import Sequence

FIRST_RATIO = 0.7
LEAST_RATIO = 0.1
MARGIN = 0.5
"""Standard deviations of what all of them come to together, that are kept free beyond what is expected."""
DECAY = 0.99
"""Of the ratio, per step without a preemption."""


Growth = tuple[int, int]
"""Of a sequence: minus the tokens to come, so that the longest sorts first; tokens in blocks of its own."""


class Room:
    """What those that run will come to need.

    is_surveyed: whether it knows who runs in this step; that takes a look at all, so it is only done when asked for.
    ratio: of what may yet be produced, that is counted with (ESTIMATE).
    lengths: how answers turned out (FUTURE_PEAK).
    """

    __slots__ = ("_block_size", "_growths", "_left", "_policy", "_shared", "is_surveyed", "lengths", "ratio")

    def __init__(self, policy: Admit, block_size: int, expected_output: int = 0) -> None:
        self.lengths = OutputLengths(expected_output)
        self.ratio = FIRST_RATIO
        self.is_surveyed = False
        self._policy = policy
        self._block_size = block_size
        self._growths: list[Growth] = []
        self._left = 0
        """Tokens that one of them may yet produce, at most."""
        self._shared = 0

    def stepped(self) -> None:
        self.ratio = max(LEAST_RATIO, self.ratio * DECAY)

    def preempted(self) -> None:
        self.ratio = FIRST_RATIO

    def survey(self, running: Iterable[Sequence], in_use: int) -> None:
        """Before sequences are judged in a step. in_use: blocks that are held."""
        growths: list[Growth] = []
        own = left = 0
        for sequence in running:
            own += len(sequence.blocks) - sequence.cached
            left = max(left, _left(sequence))
            growths.append(self._growth(sequence, sequence.cached))
        growths.sort()
        self._left = left
        self._growths = growths
        self.is_surveyed = True
        self._shared = max(0, in_use - own)

    def add(self, sequence: Sequence, idle: int) -> None:
        """It was admitted. idle: of the blocks that it found computed, those that nobody held."""
        if self.is_surveyed:
            insort(self._growths, self._growth(sequence, sequence.cached))
            self._left = max(self._left, _left(sequence))
            self._shared += idle

    def holds(self, sequence: Sequence, cached: int, idle: int, usable: int) -> bool:
        """Whether it can be admitted, so many of its blocks being computed already, into so many usable blocks."""
        if self._policy is Admit.UNLIMITED:
            return True
        mine = self._growth(sequence, cached)
        shared = self._shared + idle
        if self._policy is Admit.FUTURE_PEAK:
            at = bisect_left(self._growths, mine)
            together = [*self._growths[:at], mine, *self._growths[at:]]
            return shared + self._most(together, max(self._left, _left(sequence))) <= usable
        return shared + sum(map(self._blocks, self._growths)) + self._blocks(mine) <= usable

    def free(self, running: Iterable[Sequence], in_use: int, usable: int) -> int:
        """Blocks that those that run will not come to need. in_use: blocks that are held."""
        if self._policy is Admit.UNLIMITED:
            return usable - in_use
        growths: list[Growth] = []
        own = left = 0
        for sequence in running:
            own += len(sequence.blocks) - sequence.cached
            left = max(left, _left(sequence))
            growths.append(self._growth(sequence, sequence.cached))
        shared = max(0, in_use - own)
        if self._policy is Admit.FUTURE_PEAK:
            return usable - shared - self._most(sorted(growths), left)
        return usable - shared - sum(map(self._blocks, growths))

    def _growth(self, sequence: Sequence, cached: int) -> Growth:
        produced = len(sequence.tokens) - sequence.num_prompt
        most = sequence.max_tokens - produced
        if self._policy is Admit.FUTURE_PEAK:
            if sequence.expected <= produced:
                sequence.expected = self.lengths.expect(produced, sequence.max_tokens, sequence.number)
            most = sequence.expected - produced
        elif self._policy is Admit.ESTIMATE:
            most = int(self.ratio * most)
        return (-most if most > 1 else -1), len(sequence.tokens) - cached * self._block_size

    def _blocks(self, growth: Growth) -> int:
        to_come, tokens = growth
        return -(-(tokens - to_come) // self._block_size)

    def _most(self, growths: list[Growth], left: int) -> int:
        """Blocks in use when most are: each keeps what it has until it has produced all it comes to. In the order of
        what is to come, longest first, the use is greatest as one of them ends. Nobody knows what it comes to: the sum
        strays from what is expected by the root of their number. left: that one of them may produce at most."""
        total = 0
        peak = 0.0
        waste = self._block_size // 2  # of the last block of each
        spread = MARGIN * min(self.lengths.spread, left / 2)
        for count, (to_come, tokens) in enumerate(growths, 1):
            total += tokens + waste
            use = total - count * to_come + spread * sqrt(count)
            if use > peak:
                peak = use
        return int(-(-peak // self._block_size))


def _left(sequence: Sequence) -> int:
    """Tokens that it may yet produce."""
    return sequence.max_tokens - (len(sequence.tokens) - sequence.num_prompt)
