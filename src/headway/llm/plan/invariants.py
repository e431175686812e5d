"""What must hold of the planner's state between two calls."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headway.core.errors import InvariantViolation
from headway.llm.plan.blocks import NOBODY
from headway.llm.plan.prefix import ROOT
from headway.llm.plan.sequence import RUNNING

if TYPE_CHECKING:
    from headway.llm.plan.state import State


def check(state: State) -> None:
    """InvariantViolation: with what was expected. Takes a look at everything."""
    _blocks(state)
    _cache(state)
    _sequences(state)
    _places(state)
    _tenants(state)


def check_idle(state: State) -> None:
    """Nothing runs: nobody holds anything. Cheap."""
    _equal("blocks in use while nothing runs", state.pool.in_use, 0)
    _equal("blocks that are leaving while nothing runs", state.leaving, 0)
    _equal("hashes being computed while nothing runs", len(state.computing), 0)
    _equal("reserved while nothing runs", sum(a.reserved for a in state.tenants.accounts.values()), 0)


def _blocks(state: State) -> None:
    pool = state.pool
    holders = [0] * pool.size
    tables = [sequence.blocks for sequence in state.running.values()]
    leaving = [blocks for lists in state.later.values() for blocks in lists]
    for blocks in [*tables, *leaving]:
        _equal("distinct blocks of a table", len(dict.fromkeys(blocks)), len(blocks))
        for block in blocks:
            holders[block] += 1
    _equal("holders of blocks", pool.holders, holders)
    _equal("blocks that are leaving", state.leaving, sum(map(len, leaving)))
    idle = [block for blocks in pool.idle.values() for block in blocks]
    _equal("idle blocks", pool.idle_count, len(idle))
    free = list(pool._free)
    everywhere = sorted([*idle, *free, *pool.gone, *(b for b in range(pool.size) if holders[b])])
    _equal("every block is in one place", everywhere, list(range(pool.size)))
    held: dict[str, int] = {}
    for block in range(pool.size):
        if holders[block]:
            held[pool.owner[block]] = held.get(pool.owner[block], 0) + 1
        elif block in state.cache:
            if block not in pool.idle.get(pool.owner[block], {}):
                raise InvariantViolation(f"block {block} is cached and neither held nor idle")
        elif pool.owner[block] != NOBODY:
            raise InvariantViolation(f"block {block} is free and owned by {pool.owner[block]!r}")
    _equal("blocks held by owner", pool.held, held)


def _cache(state: State) -> None:
    held = state.cache.held()
    by_block = {entry.block: entry for entry in held}
    for entry in held:
        if entry.before != ROOT and entry.before not in by_block:
            raise InvariantViolation(f"block {entry.block} is cached, and {entry.before} that it continues is not")
        if len(entry.tokens) != state.block_size:
            raise InvariantViolation(f"block {entry.block} is cached with {len(entry.tokens)} tokens")
    for twin, block in state.cache.twins():
        if twin in by_block or block not in by_block or 0 in (state.pool.holders[twin], state.pool.holders[block]):
            raise InvariantViolation(
                f"block {twin} is the twin of {block}, and one of them is cached or held by nobody"
            )
    for sequence in state.running.values():
        confirmed = sequence.confirmed // state.block_size
        for number, block in enumerate(sequence.blocks):
            cached = by_block.get(block)
            if cached is None:
                continue
            start = number * state.block_size
            expected = tuple(sequence.tokens[start : start + state.block_size])
            if cached.tokens != expected or number >= max(confirmed, sequence.cached):
                raise InvariantViolation(f"block {block} of {sequence!r} is cached with other tokens, or too early")


def _places(state: State) -> None:
    """Of those in blocks that are held: what is shared is full, so that nothing is counted twice."""
    size = state.block_size
    filled: dict[int, int] = {}
    for sequence in state.running.values():
        for number, block in enumerate(sequence.blocks):
            places = max(0, min(size, sequence.computed - number * size))
            filled[block] = max(filled.get(block, 0), places)
    _equal("places with nothing in them", state.unfilled, len(filled) * size - sum(filled.values()))


def _sequences(state: State) -> None:
    for id, sequence in state.sequences.items():
        runs = sequence.status is RUNNING
        if (id in state.running) is not runs or (not runs and sequence.blocks):
            raise InvariantViolation(f"{sequence!r} has blocks, or a place, that it should not")
        if not runs:
            continue
        if sequence.computed > len(sequence.blocks) * state.block_size:
            raise InvariantViolation(f"{sequence!r} has computed more than its blocks hold")
        if not sequence.confirmed <= sequence.computed <= len(sequence.tokens) + sequence.pending:
            raise InvariantViolation(f"{sequence!r} has computed {sequence.confirmed} or more than is known")
        flying = sum(row.samples for plan in state.plans for row in plan.rows if row[:2] == (id, sequence.attempt))
        _equal(f"samples under way of {sequence!r}", sequence.pending, flying)


def _tenants(state: State) -> None:
    waiting: dict[str, int] = {}
    running: dict[str, int] = {}
    reserved: dict[str, int] = {}
    for sequence in state.sequences.values():
        tenant = sequence.account.tenant
        counts = running if sequence.status is RUNNING else waiting
        counts[tenant] = counts.get(tenant, 0) + 1
        reserved[tenant] = reserved.get(tenant, 0) + sequence.reserved
    for tenant, account in state.tenants.accounts.items():
        _equal(f"waiting of {tenant}", account.waiting, waiting.get(tenant, 0))
        _equal(f"running of {tenant}", account.running, running.get(tenant, 0))
        _equal(f"reserved of {tenant}", account.reserved, reserved.get(tenant, 0))
        ahead: dict[int, int] = {}
        for s in state.sequences.values():
            if s.account is account and s.status is not RUNNING:
                ahead[s.priority] = ahead.get(s.priority, 0) + len(s.tokens)
        _equal(f"tokens of {tenant} that wait", account.ahead, ahead)
    weights = sum(a.weight for a in state.tenants.accounts.values() if a.waiting or a.running)
    if abs(weights - state.tenants.weights) > 1e-6 * max(1.0, weights):
        raise InvariantViolation(f"weights: {state.tenants.weights}, expected {weights}")


def _equal(what: str, found: Any, expected: Any) -> None:
    if found != expected:
        raise InvariantViolation(f"{what}: {found}, expected {expected}")
