"""Whether a request is taken at all."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from headway.core.units import MILLISECOND, NEVER, Duration, Instant
from headway.llm.plan.request import SequenceRequest
from headway.llm.plan.sequence import Sequence
from headway.llm.plan.state import State
from headway.llm.plan.step import Refusal


def with_deadlines(state: State, request: SequenceRequest, now: Instant) -> SequenceRequest:
    """With its tenant's, where it has none of its own. Who has begun to answer elsewhere has had its first token."""
    wanted = state.deadlines(request.tenant)
    if wanted.first_token and request.first_by == NEVER and not request.output:
        request = replace(request, first_by=now + wanted.first_token)
    if wanted.itl and not request.itl:
        request = replace(request, itl=wanted.itl)
    return request


def refusal(state: State, request: SequenceRequest, now: Instant) -> Refusal | None:
    """Why not; None where it is."""
    length = len(request.prompt)
    policy = state.policy
    if length == 0:
        return Refusal("invalid_prompt", "the prompt must contain at least one token")
    if request.choices < 1:
        return Refusal("invalid_n", f"n must be at least 1, not {request.choices}")
    if request.choices > policy.max_choices:
        return Refusal("invalid_n", f"n must be at most {policy.max_choices}, not {request.choices}")
    produced = len(request.output)
    scores = request.max_tokens == 0 and not produced and not request.read_cache
    if scores and request.choices > 1:
        return Refusal("invalid_n", f"n must be 1 where max_tokens is 0, not {request.choices}")
    if request.max_tokens <= produced and not scores:
        return Refusal("invalid_max_tokens", f"max_tokens must be at least {produced + 1}, not {request.max_tokens}")
    if length + request.max_tokens > policy.max_context:
        return Refusal(
            "context_length_exceeded",
            f"the prompt has {length} tokens and max_tokens is {request.max_tokens}:"
            f" {length + request.max_tokens} together, and the context holds {policy.max_context}",
        )
    most = state.pool.usable * state.block_size
    if scores and length > most:
        return Refusal("context_length_exceeded", f"the prompt has {length} tokens: the pool holds {most}")
    if length + produced + 1 > most and not scores:
        before = f" with {produced} tokens of output" if produced else ""
        return Refusal(
            "context_length_exceeded",
            f"the prompt has {length} tokens{before}, and with one token of output more it needs"
            f" {length + produced + 1}: the pool holds {most}",
        )
    if request.first_by < NEVER:
        left = max(0, request.first_by - now)
        estimate = first_token(state, request, left)
        if estimate > left:
            return Refusal(
                "deadline_unmeetable",
                f"the first token would come in {estimate / MILLISECOND:.0f} ms, and {left / MILLISECOND:.0f} ms are"
                " left",
            )
    if 0 < request.itl < policy.promised_itl:
        return Refusal(
            "deadline_unmeetable",
            f"tokens no more than {request.itl / MILLISECOND:.1f} ms apart are asked for, and no less than"
            f" {policy.promised_itl / MILLISECOND:.1f} ms is promised",
        )
    if request.itl:
        least = state.steps.predict(0, 1, length, 0)
        if least > request.itl:
            return Refusal(
                "deadline_unmeetable",
                f"tokens would come {least / MILLISECOND:.1f} ms apart, and no more than"
                f" {request.itl / MILLISECOND:.1f} ms are asked for",
            )
    return None


def first_token(state: State, request: SequenceRequest, left: Duration) -> int:
    """In ns from now, as is expected: the tenant's own prompts that wait ahead of it, those of classes no less urgent,
    at its part of what a step computes; then its own. What is cached, or is being computed, or comes of an earlier one
    of them, is not to be computed. Nothing is assumed of sequences that have to end first. Beyond `left` it may be more
    than it says."""
    steps, policy = state.steps, state.policy
    account = state.tenants.accounts.get(request.tenant)
    weight = state.tenants.weight(request.tenant)
    weights = state.tenants.weights + (weight if account is None or not (account.waiting or account.running) else 0.0)
    classes = {} if account is None else account.ahead
    ahead = sum([tokens for priority, tokens in classes.items() if priority <= request.priority])
    full = min(policy.max_step_tokens, max(policy.tile, steps.fits(policy.target_itl - steps.now.step, 0)))
    per_token = (steps.now.step + steps.chunk(0, full)) / full
    per_token *= weights / weight
    most = ahead * per_token + _alone(state, len(request.prompt), 0)
    if most <= left:
        return int(most)  # though nothing is found: it need not be looked for
    others: dict[bytes, None] = {}
    waits = 0.0
    for sequence in account.queued() if account is not None else ():
        if waits > left:
            break
        if sequence.priority <= request.priority:
            waits += per_token * _to_compute(state, sequence, others)
    hashes: list[bytes] = []
    start = 0
    if policy.prefix_cache and request.read_cache:
        state.cache.extend(state.root(request.tenant, request.salt, request.adapter), hashes, request.prompt)
        start = state.block_size * _there(state, hashes, len(request.prompt), others)
    return int(waits + _alone(state, len(request.prompt), start))


def _alone(state: State, length: int, start: int) -> float:
    """What a prompt takes in an engine that has nothing else to do, from position `start` on, in ns."""
    steps, count = state.steps, length - start
    return -(-count // state.policy.max_step_tokens) * steps.now.step + steps.chunk(start, count)


def _to_compute(state: State, sequence: Sequence, others: dict[bytes, None]) -> int:
    """Tokens of one that waits. others: blocks that are computed for those before it; its own are among them then."""
    count = len(sequence.tokens)
    if not state.policy.prefix_cache:
        return count
    there = _there(state, sequence.hashes, count, others) if sequence.reads_cache else 0
    for hash in sequence.hashes[there:]:
        others[hash] = None
    return count - there * state.block_size


def _there(state: State, hashes: list[bytes], length: int, others: dict[bytes, None]) -> int:
    """Blocks of it that need not be computed for it. Of each that is there all that it continues are."""

    def is_missing(number: int) -> bool:
        hash = hashes[number]
        return not (state.cache.knows(hash) or hash in state.computing or hash in others)

    return bisect_left(range(min(len(hashes), (length - 1) // state.block_size)), True, key=is_missing)
