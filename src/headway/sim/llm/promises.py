"""What a planner promises of a single plan, each as a function that raises PlanViolation where it is broken."""

from __future__ import annotations

from collections.abc import Callable

from headway.core.units import NEVER, Instant
from headway.llm.plan.policy import Admit
from headway.llm.plan.prefix import chained
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.sequence import Sequence
from headway.llm.plan.state import State
from headway.llm.plan.step import End, Refusal, Row, StepPlan
from headway.llm.plan.step_time import pairs
from headway.llm.plan.victims import IMMUNE_AFTER
from headway.sim.llm.device import PlanViolation
from headway.sim.llm.told import Told

LOOK_PAST = 16
"""Sequences of a tenant that wait for what another computes, behind which others are looked for."""
ROUNDING = 1_000
"""Of a counter, whose unit is about a million."""


def require(holds: bool, what: str) -> None:
    if not holds:
        raise PlanViolation(what)


class Before:
    """What there was before a plan was made: who ran, who is to resume, whose turn it was, what was preempted so far.
    heads: of each tenant with something waiting, in the order of the tenant."""

    def __init__(self, state: State, told: dict[SequenceId, Told]) -> None:
        self.running = [told[id] for id in state.running]
        self.resuming = [told[id] for id in state.resuming]
        self.turns = {tenant: account.turn for tenant, account in state.tenants.accounts.items()}
        self.preemptions = dict(state.counts.preemptions)
        self.waiting: dict[str, list[Told]] = {}
        for each in sorted((t for t in told.values() if not t.runs), key=lambda t: t.order):
            self.waiting.setdefault(each.request.tenant, []).append(each)


def refusal(state: State, request: SequenceRequest, refused: Refusal | None) -> None:
    """What can never be served is refused, and nothing else but for its deadline."""
    length, most = len(request.prompt), state.pool.usable * state.block_size
    need = length + len(request.output) + (request.max_tokens > 0)
    never = length + request.max_tokens > state.policy.max_context or need > most
    if refused is None:
        require(not never, f"{length} tokens can never fit, and are taken")
    elif refused.code == "context_length_exceeded":
        require(never, f"{length} tokens fit, and are refused: {refused.message}")
    elif refused.code == "invalid_n":
        require(request.choices > (state.policy.max_choices if request.max_tokens else 1), refused.message)
    else:
        require(
            refused.code == "deadline_unmeetable" and (request.first_by < NEVER or request.itl > 0), refused.message
        )


def ending(state: State, told: Told, end: End) -> None:
    """One that ends without a result."""
    if end is End.DEADLINE:
        require(told.request.first_by < NEVER and not told.produced, f"{told!r} has no deadline, or has begun")
    elif end is End.LENGTH and told.request.max_tokens == 0:
        require(told.done == told.num_prompt, f"{told!r} is not computed")
    elif end is End.TOO_LONG:
        require(len(told.tokens) + 1 > state.pool.usable * state.block_size, f"{told!r} fits")
    else:
        full = told.done == len(told.tokens) - 1 and told.done % state.block_size == 0
        require(end is End.LENGTH and full, f"{told!r} ends with {end.value}")
        before = [s for s in state.running.values() if s.confirmed > s.cached * state.block_size]
        require(not before, f"{told!r} is at the wall, and is not alone: {before}")


def beginning(state: State, told: Told, sequence: Sequence) -> None:
    """It is admitted: with all blocks that it needs, and nothing found of what it must not read."""
    cached = sequence.cached * state.block_size
    require(len(sequence.blocks) == state.blocks_of(len(told.tokens)), f"{told!r} has {len(sequence.blocks)} blocks")
    require(cached < len(told.tokens), f"{told!r} has {cached} tokens computed: there are no logits")
    if not told.reads_cache or not state.policy.prefix_cache:
        require(cached == 0, f"{told!r} reads the cache")


def row(state: State, told: Told, row: Row) -> None:
    """Each position once and in order; blocks for all of it; a sample exactly behind the last known token."""
    require(told.runs and row.attempt == told.attempt, f"{told!r} is planned as attempt {row.attempt}")
    expected = state.running[told.id].cached * state.block_size if told.done is None else told.done
    require(row.start == expected, f"{told!r} is to compute from {row.start} on, expected {expected}")
    last = row.start + row.size
    require(row.size > 0 and last <= told.known, f"{told!r} is to compute to {last}")
    samples = last == told.known and told.request.max_tokens > 0
    require(row.samples is samples, f"{told!r} samples: {row.samples}, {last} of {told.known}")
    if row.samples:
        require(told.known < told.num_prompt + told.request.max_tokens, f"{told!r} has all that it may have")
        require(told.known < state.policy.max_context, f"{told!r} is at the end of the context")
    require(row.tokens == told.tokens[row.start : last], f"{told!r} is told other tokens: {row}")
    table = list(row.block_table)
    require(len(table) * state.block_size >= last, f"{told!r} has {len(table)} blocks for {last} positions")
    require(len(dict.fromkeys(table)) == len(table), f"{told!r} has a block twice: {table}")
    require(table[: len(told.table)] == told.table, f"{told!r} had {told.table}, and has {table}")


def apart(rows: list[tuple[Row, list[int]]], block_size: int) -> None:
    """Blocks that a row of a plan that runs, or will, writes to are no other's in any of them."""
    holders: dict[int, tuple[SequenceId, int]] = {}
    shared: dict[int, tuple[SequenceId, int]] = {}
    for row, table in rows:
        key = (row.id, row.attempt)
        for block in table:
            if holders.setdefault(block, key) != key:
                shared[block] = key
    for row, table in rows:
        for block in table[row.start // block_size : -(-(row.start + row.size) // block_size)]:
            if block in shared:
                raise PlanViolation(
                    f"{row.id} writes to block {block}, which {shared[block]} and {holders[block]} have"
                )


def budget(state: State, plan: StepPlan, told: Callable[[SequenceId], Told], now: Instant) -> None:
    """As many sequences and tokens as the policy says; as long as the streams in it allow."""
    policy = state.policy
    streams, chunks = plan.rows[: plan.decodes], plan.rows[plan.decodes :]
    require(len(state.running) <= policy.max_sequences, f"{len(state.running)} run")
    require(sum(row.size for row in plan.rows) <= policy.max_step_tokens, f"{plan.prefill}+{plan.decodes} tokens")
    size = (
        sum(row.size for row in chunks),
        len(streams),
        sum(row.start + row.size for row in plan.rows),
        sum(pairs(row.start, row.size) for row in chunks),
    )
    require(size == (plan.prefill, plan.decodes, plan.context, plan.pairs), f"step {plan.number} is of size {size}")
    require(plan.predicted == state.steps.predict(*size), f"step {plan.number} is predicted otherwise")
    require(all(row.size == 1 and row.samples for row in streams), "streams go on by a token")
    for row in chunks:
        if not row.samples and row.start + row.size < len(told(row.id).tokens):
            require(row.size % policy.tile == 0, f"{row.size} tokens of {row.id} are no multiple of a tile")
    if not chunks or (len(chunks) == 1 and chunks[0].size <= policy.tile):
        return  # a tile may come where there is no time for it, lest a prompt starve
    limit = policy.target_itl * policy.slack
    for row in streams:
        stream = told(row.id)
        itl = float(stream.request.itl or policy.target_itl)
        ahead = stream.first_at + itl * stream.emitted - now if stream.first_at else itl
        limit = min(limit, max(0.5 * itl, min(ahead, policy.slack * itl)))
    spare = 2 + state.steps.now.context * plan.decodes  # their new tokens are not counted beforehand
    allowed = limit / state.steps.upper + spare
    require(plan.predicted <= allowed, f"step {plan.number} takes {plan.predicted} ns, allowed are {allowed:.0f}")


def defers(state: State, told: Told, others: list[Told]) -> bool:
    """Whether it may wait for what another computes."""
    policy = state.policy
    if not (policy.prefix_cache and told.reads_cache):
        return False
    if not policy.defer:
        others = [other for other in others if other.id.request == told.id.request]
    return any(told.shares_a_beginning(other, state.block_size) for other in others)


def steps_aside(state: State, told: Told) -> bool:
    """Whether it may wait for steps shorter than others want them."""
    return 0 < told.request.itl < state.policy.target_itl * state.policy.slack


def gives_way(state: State, told: Told, others: list[Told]) -> bool:
    return defers(state, told, others) or steps_aside(state, told)


def may_be_passed(state: State, turns: dict[str, int], told: Told, queue: list[Told], others: list[Told]) -> bool:
    """Whether these of another tenant wait for what is computed, or short steps; or are long while many long ones are
    under way, and will be further on in turns, once they are computed, than whoever is admitted before them."""
    alone = [each for each in queue[:LOOK_PAST] if not gives_way(state, each, others)]
    if not alone:
        return True
    unfinished = sum(len(s.tokens) + s.pending > s.computed + 1 for s in state.running.values())
    if unfinished < state.policy.max_partial_prefills:
        return False
    mine = turns[told.request.tenant] + cost(state, told)
    candidates = queue[: queue.index(alone[0]) + 1]
    return any(mine <= turns[each.request.tenant] + cost(state, each) + ROUNDING for each in candidates)


def cost(state: State, told: Told) -> int:
    """Of what of its prompt is to be paid, in counter units."""
    account = state.tenants.accounts[told.request.tenant]
    return account.units(state.policy.prices.prompt * (told.num_prompt - told.paid))


def order(state: State, before: Before, begun: list[Told], plan: StepPlan, all_of_them: list[Told]) -> None:
    """Whoever is admitted was first of its class and tenant, whose turn it was; or waits for nobody who was before it;
    or resumes. Where others lost their blocks for it, or ended, turns have changed on the way: that is left out."""
    if plan.preempted or plan.finished or state.cache._hash is not chained:
        return
    turns, waiting = before.turns, before.waiting
    others = [*before.running, *begun]
    for told in begun:
        tenant = told.request.tenant
        mine = waiting[tenant]
        ahead = [each for each in mine[: mine.index(told)] if not gives_way(state, each, others)]
        if told not in before.resuming:
            require(not ahead, f"{told!r} is admitted before {ahead[:1]} of the same tenant")
            for other, queue in waiting.items():
                if queue and turns[other] < turns[tenant] - ROUNDING:
                    passed = may_be_passed(state, turns, told, queue, others)
                    require(passed, f"{told!r} is admitted, and it was the turn of {queue[0]!r}")
            first = [each for each in before.resuming if not each.runs or each in begun]
            for each in first:
                late = each.request.priority <= min(told.request.priority, mine[0].request.priority)
                gone = each in begun and begun.index(each) < begun.index(told)
                require(gone or not late or steps_aside(state, each), f"{told!r} is admitted before {each!r} resumes")
        mine.remove(told)
        turns[tenant] += state.running[told.id].reserved


def victims(
    state: State, before: Before, begun: list[Told], plan: StepPlan, told: dict[SequenceId, Told], flying: int
) -> None:
    """Who has lost its blocks: the oldest only for a strictly higher class; nobody for one of its own; nobody a third
    time while there was anything else to do."""
    counts = state.counts.preemptions
    by_why = {why: counts[why] - before.preemptions[why] for why in counts}
    require(sum(by_why.values()) == len(plan.preempted), f"{plan.preempted} are preempted: {by_why}")
    if not plan.preempted:
        return
    ran = [*before.running, *begun]
    oldest = min(ran, key=lambda each: each.number)
    left = [*begun, *(each for each in told.values() if not each.runs and each.id not in plan.preempted)]
    best = min((each.request.priority for each in left), default=99)
    displaced = by_why["class"] > 0 and best < oldest.request.priority
    lost_it = oldest.id in plan.preempted and not displaced
    require(not lost_it, f"{oldest!r} is the oldest that runs, and has lost its blocks")
    if state.policy.admit is Admit.WORST_CASE and not state.pool.debt and not state.pool.gone:
        require(by_why["growth"] == 0, "with the worst case counted, somebody lacks a block")
    lost = [each for each in [*before.running, *told.values()] if each.id in plan.preempted]
    if sum(by_why.values()) == by_why["class"]:
        for each in lost:
            require(best < each.request.priority, f"{each!r} has made room for one of its own class")
    walled = any(end is End.LENGTH for _, end in plan.finished)  # nothing could go on, and others have come since
    if (flying or len(plan.rows) > 1) and not walled:
        for each in lost:
            require(each.preemptions <= IMMUNE_AFTER, f"{each!r} has lost its blocks {each.preemptions} times")
