"""Who runs from this step on: in fair order, and as far as there is room."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from headway.core.ids import Tenant
from headway.core.units import Instant
from headway.llm.plan import victims
from headway.llm.plan.chunks import Prefill
from headway.llm.plan.growing import beyond_share
from headway.llm.plan.sequence import Sequence
from headway.llm.plan.state import State
from headway.llm.plan.turns import Turns


class Room(Enum):
    """What came of asking for it."""

    YES = "yes"
    PLACE = "place"
    """Enough prompts are under way."""
    TIME = "time"
    """Streams would get their tokens too late."""
    OWN = "own"
    """It would, and nobody else."""
    SLOTS = "slots"
    BLOCKS = "blocks"


def admit(state: State, prefill: Prefill, decodes: int, context: int, limit: float) -> None:
    """decodes, context: of the streams that go on.  limit: that a step of streams alone may take, in ns."""
    if not state.sequences or len(state.sequences) == len(state.running):
        return
    state.room.is_surveyed = False
    turns = Turns(state)
    while (sequence := turns.next()) is not None:
        if sequence.id in state.preempted:
            break  # in this very pass: it would take what others were to have of it
        found = state.found(sequence)
        answer = _has_room(state, sequence, found, prefill, decodes, context, limit)
        if answer in (Room.SLOTS, Room.BLOCKS) and _displace(state, sequence, found):
            state.room.is_surveyed = False
            found = state.found(sequence)
            answer = _has_room(state, sequence, found, prefill, decodes, context, limit)
        if answer is Room.PLACE and sequence.id not in state.resuming:
            turns.passes(sequence)
            continue
        if answer is Room.OWN:
            turns.steps_aside(sequence)
            continue
        if answer is not Room.YES:
            break
        idle = state.idle_of(found)
        state.start(sequence, found)
        state.room.add(sequence, idle)
        prefill.add(sequence)
        decodes += 1
        context += len(sequence.tokens)
    turns.end()


def _has_room(
    state: State,
    sequence: Sequence,
    found: list[int],
    prefill: Prefill,
    decodes: int,
    context: int,
    limit: float,
) -> Room:
    policy, pool = state.policy, state.pool
    start = len(found) * state.block_size
    if not prefill.has_place(start, len(sequence.tokens) - start, policy.max_partial_prefills):
        return Room.PLACE
    if state.running:
        step = state.steps.predict(0, decodes + 1, context + len(sequence.tokens), 0) * state.steps.upper
        if step > min(limit, max(policy.target_itl, sequence.itl)):
            return Room.TIME
        if 0 < sequence.itl < step:
            return Room.OWN
    if len(state.running) >= policy.max_sequences:
        return Room.SLOTS
    idle = state.idle_of(found)
    need = state.blocks_of(len(sequence.tokens)) - len(found)
    growing = -(-len(state.running) // state.block_size)  # so many want a block in the next step
    if need + idle + growing > pool.available:
        return Room.BLOCKS
    if not state.room.is_surveyed:
        state.room.survey(state.running.values(), pool.in_use)
    if state.running and not state.room.holds(sequence, len(found), idle, pool.usable):
        return Room.BLOCKS
    return Room.YES


def _displace(state: State, sequence: Sequence, found: list[int]) -> bool:
    """For one that has no room others lose theirs: those of a strictly lower class, if its tenant is not ahead of
    theirs; and what tenants have borrowed beyond their share. All that it needs, or nothing. Whether there is anything
    to be had at once."""
    need = state.blocks_of(len(sequence.tokens)) - len(found) + -(-len(state.running) // state.block_size)
    slots = 0 if len(state.running) < state.policy.max_sequences else 1
    short = need - state.pool.available
    if 0 < short <= state.leaving and not slots:
        return False  # it comes free with the plan that runs
    short = max(0, short - state.leaving)
    # where there is room now, but not for what those that run come to need, as much must go as comes
    candidates = _lower(state, sequence)
    lower = _in_order(state, candidates)
    oldest = min(state.running.values(), key=lambda s: s.number, default=None)
    if oldest in candidates and oldest.preemptions < victims.IMMUNE_AFTER:
        lower.append(oldest)  # where the others are not enough; another is the oldest then, and so it comes back
    taken, why = victims.enough(_behind(sequence, lower), short or (0 if slots else need), slots, state.gives), "class"
    if taken is None and (short or slots):
        borrowed = _in_order(state, _ahead(state, sequence, need))
        taken, why = victims.enough(_beyond(state, borrowed), short, slots, state.gives), "reclaim"
    if not taken:
        return False
    for other in taken:
        state.preempt(other, why)
    return not state.leaving


def _in_order(state: State, sequences: list[Sequence]) -> list[Sequence]:
    if not sequences:
        return sequences
    oldest = min(state.running.values(), key=lambda sequence: sequence.number)
    return victims.in_order(sequences, oldest, lambda s: beyond_share(state, s))


def _lower(state: State, sequence: Sequence) -> list[Sequence]:
    account, priority = sequence.account, sequence.priority
    return [
        other
        for other in state.running.values()
        if other.priority > priority and (other.account is account or account.turn <= other.account.turn)
    ]


def _behind(sequence: Sequence, order: list[Sequence]) -> Iterator[Sequence]:
    """Those without which their tenants still come after it: what was reserved for a prompt is theirs again once it
    has lost its blocks, and where that makes it their turn they would take the blocks back at once."""
    account = sequence.account
    released: dict[Tenant, int] = {}
    for other in order:
        tenant = other.account.tenant
        if other.account is not account:
            less = released.get(tenant, 0) + other.reserved
            if (other.account.turn - less, tenant) < (account.turn, account.tenant):
                continue
            released[tenant] = less
        yield other


def _ahead(state: State, sequence: Sequence, need: int) -> list[Sequence]:
    """What a tenant that has less than half of its share in use may have of others: of those that are ahead of it by
    more than the work that is lost, and a step. In the ordinary ups and downs of tenants that all wait nobody is."""
    account = sequence.account
    share = state.tenants.share(account)
    held = state.pool.held.get(account.tenant, 0)
    slots = share * state.policy.max_sequences
    if 2 * (held + need) > share * state.pool.usable or (account.running and 2 * (account.running + 1) > slots):
        return []
    price, margin, turn = state.policy.prices.prompt, state.policy.max_step_tokens, account.turn
    ahead = {
        a.tenant: a.counter - turn
        for a in state.tenants.accounts.values()
        if a.running and a is not account and a.counter - turn > a.units(price * margin)
    }
    if not ahead:
        return []
    return [
        other
        for other in state.running.values()
        if other.account.units(price * (other.computed + margin)) < ahead.get(other.account.tenant, 0)
    ]


def _beyond(state: State, order: list[Sequence]) -> Iterator[Sequence]:
    """Those without which their tenants still have their shares."""
    blocks: dict[Tenant, int] = {}
    slots: dict[Tenant, int] = {}
    for other in order:
        account = other.account
        share = state.tenants.share(account)
        held = blocks.setdefault(account.tenant, state.pool.held.get(account.tenant, 0))
        running = slots.setdefault(account.tenant, account.running)
        gives = state.gives(other)
        if held - gives >= share * state.pool.usable or running - 1 >= share * state.policy.max_sequences:
            blocks[account.tenant] -= gives
            slots[account.tenant] -= 1
            yield other


def latest_start(state: State, sequence: Sequence) -> Instant:
    """When its prompt must be begun for its first token to be in time, alone in the engine."""
    start = len(state.found(sequence)) * state.block_size
    count = len(sequence.tokens) - start
    chunk = state.policy.max_step_tokens
    steps = -(-count // chunk)
    alone = steps * state.steps.now.step + state.steps.chunk(start, count)
    return sequence.request.first_by - int(alone)
