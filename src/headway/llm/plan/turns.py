"""Whose turn it is, again and again, while a step is filled."""

from __future__ import annotations

from bisect import bisect_left

from headway.core.units import NEVER
from headway.llm.plan.request import SequenceId
from headway.llm.plan.sequence import Sequence
from headway.llm.plan.state import State
from headway.llm.plan.tenants import Account

LOOK_PAST = 16
"""Sequences of a tenant that wait for what another computes, behind which one that does not is looked for."""


class Turns:
    """The most urgent sequence of the tenant whose turn is least; before it, those of its class that were preempted for
    want of blocks: their tenants have paid already. Nobody is skipped for want of room, which keeps the bound of
    fairness. Three are passed over: one that waits for what another computes just now; one with a long prompt, when
    as many long ones are under way as may be, for those that get through at once and whose tenants are no further ahead
    with that than its own will be with it; and one that wants shorter steps than others do, by those others, until a
    tenant, or its own, has had as much meanwhile as the pool is worth. Then fewer and fewer run, until it has its way.
    """

    __slots__ = ("_aside", "_ceiling", "_passed", "_state")

    def __init__(self, state: State) -> None:
        self._state = state
        self._aside: dict[SequenceId, None] = {}
        self._passed: list[Account] = []
        self._ceiling = NEVER

    def next(self) -> Sequence | None:
        """To be admitted, passed over, or the last."""
        state = self._state
        while True:
            account = state.tenants.first()
            if account is None:
                return None
            sequence = account.first()
            assert sequence is not None
            if state.resuming:
                resuming = self._resuming()
                if resuming is not None and resuming.priority <= sequence.priority:
                    return resuming
            defers = _defers(state, sequence)
            if defers or sequence.id in self._aside:
                state.counts.deferred += defers
                others = [
                    other
                    for other in account.some(LOOK_PAST)
                    if other.id not in self._aside and not _defers(state, other)
                ]
                if not others:
                    self._without(account)
                    continue
                sequence = others[0]
            if account.turn + self._cost(sequence) > self._ceiling:
                return None
            return sequence

    def passes(self, sequence: Sequence) -> None:
        """There is no place for its prompt in this step: others may have theirs, within reason."""
        self._ceiling = min(self._ceiling, sequence.account.turn + self._cost(sequence))
        self._without(sequence.account)

    def steps_aside(self, sequence: Sequence) -> None:
        """Steps are too long for it, and for nobody else: others may go on, its tenant's own among them, but not for
        ever."""
        if not sequence.ceiling:
            policy, pool = self._state.policy, self._state.pool
            worth = max(policy.prices.prompt, policy.prices.output) * pool.usable * self._state.block_size
            sequence.ceiling = sequence.account.turn + sequence.account.units(worth)
        self._ceiling = min(self._ceiling, sequence.ceiling)
        self._aside[sequence.id] = None

    def end(self) -> None:
        for account in self._passed:
            self._state.tenants.update(account)

    def _resuming(self) -> Sequence | None:
        """The most urgent of those that were preempted for want of blocks."""
        waiting = [s for s in self._state.resuming.values() if s.id not in self._aside]
        return min(waiting, key=lambda s: (s.priority, s.number)) if waiting else None

    def _cost(self, sequence: Sequence) -> int:
        """Of its prompt, in counter units."""
        return sequence.account.units(self._state.policy.prices.prompt * (sequence.num_prompt - sequence.paid))

    def _without(self, account: Account) -> None:
        self._state.tenants.without(account)
        self._passed.append(account)


def _defers(state: State, sequence: Sequence) -> bool:
    """Whether the first block that it would have to compute is being computed for another; for another choice of its
    request, unless the policy says that all may wait. A block that is cached continues one that is, so that it is found
    without a look at all."""
    if not state.computing or not state.policy.prefix_cache or not sequence.reads_cache:
        return False
    hashes = sequence.hashes
    end = min((len(sequence.tokens) - 1) // state.block_size, len(hashes))
    number = bisect_left(range(end), True, key=lambda number: not state.cache.knows(hashes[number]))
    by = state.computing.get(hashes[number]) if number < end else None
    return by is not None and (state.policy.defer or by.request == sequence.id.request)
