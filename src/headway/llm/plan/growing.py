"""The streams of a step: one token each, and one block more where the last is full."""

from __future__ import annotations

from headway.llm.plan import victims
from headway.llm.plan.sequence import RUNNING, Sequence
from headway.llm.plan.state import State
from headway.llm.plan.step import End


def grow(state: State, wanting: list[Sequence]) -> None:
    """A block for each of them, the oldest first. Where there are too few, others lose theirs, in one pass: what is
    still in use by a plan that runs comes back after it, and whoever wanted it stalls until then."""
    short = len(wanting) - state.pool.available - state.leaving
    if short > 0:
        _preempt(state, wanting, short)
    for sequence in sorted(wanting, key=lambda sequence: sequence.number):
        if sequence.status is not RUNNING:
            continue
        sequence.stalled = state.pool.available == 0
        if not sequence.stalled:
            sequence.blocks += state.pool.take(1, sequence.account.tenant)


def _preempt(state: State, wanting: list[Sequence], short: int) -> None:
    """Those that are taken want no block themselves."""
    running = state.running.values()
    oldest = min(running, key=lambda sequence: sequence.number)
    for sequence in victims.in_order(running, oldest, lambda s: beyond_share(state, s)):
        short -= state.gives(sequence) + (sequence in wanting)
        state.preempt(sequence, "growth")
        if short <= 0:
            return


def unlock(state: State) -> None:
    """Nothing runs and nothing can be planned: all that run want a block. Whatever was preempted how often, the last
    to come goes, until the oldest can go on; where it is alone with the pool, it has come to the end of it."""
    order = sorted(state.running.values(), key=lambda sequence: sequence.number)
    while len(order) > 1 and state.pool.available == 0:
        state.preempt(order.pop(), "growth")
    if state.pool.available:
        grow(state, order[:1])
    else:
        state.end(order[0], End.LENGTH)


def beyond_share(state: State, sequence: Sequence) -> bool:
    """Whether its tenant holds more of the pool than its share."""
    account = sequence.account
    return state.pool.held.get(account.tenant, 0) > state.tenants.share(account) * state.pool.usable
