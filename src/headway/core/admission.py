"""A request arrives: it is refused at once, with the reason, or it waits."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.effects import ResolveRequest
from headway.core.errors import InvariantViolation
from headway.core.events import RequestArrived
from headway.core.fairness import TIGHT
from headway.core.forecast import foresee
from headway.core.ids import Part, VersionId
from headway.core.limits import short
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.core.pool import Pool
from headway.core.requests import QueuedPart, Request
from headway.core.room import doubling
from headway.core.rooms import RETRY_FLOOR, find_room, retry_after
from headway.core.state import State
from headway.core.units import NEVER, SECOND, Duration, Instant, seconds

RETRY_ELSEWHERE: Duration = seconds(1)
"""A server that drains will not come back: one behind the same address may take it."""


def arrived(state: State, event: RequestArrived, now: Instant) -> None:
    key = event.key
    pool = state.pools.get(VersionId(key.model, key.version))
    if pool is None:
        state.effects.append(ResolveRequest(event.request, Outcome.UNKNOWN_VERSION, f"{key.model}/{key.version}"))
        return
    shares = shares_of(event.bytes, event.parts)
    refusal = _refusal(state, pool, event, shares, now)
    if refusal is not None:
        state.effects.append(refusal)
        return
    pool.arrivals.add(len(event.parts), now)
    _enqueue(state, pool, event, shares, now)
    state.touch(pool)


def shares_of(size: int, parts: Sequence[Part]) -> list[int]:
    """Bytes of each part, by its rows x length. Whole numbers, equal for equal parts, together at most `size`."""
    if len(parts) == 1:
        return [size]
    tokens = sum([part.rows * part.length for part in parts]) or 1  # 0: of no length, so there is nothing to share
    return [size * part.rows * part.length // tokens for part in parts]


def _refusal(state: State, pool: Pool, event: RequestArrived, shares: list[int], now: Instant) -> ResolveRequest | None:
    """What can never be, then what may not be now. Nothing is taken from anybody before it is sure to be let in."""
    request = event.request
    if request in state.requests:
        raise InvariantViolation(f"request id {request} arrived while it was in use")
    if not event.parts:
        raise InvariantViolation(f"request {request} arrived without parts")
    if state.draining or pool.draining:
        return ResolveRequest(request, Outcome.DRAINING, f"{pool.version} is draining", RETRY_ELSEWHERE)
    if event.deadline <= now:
        return ResolveRequest(request, Outcome.DEADLINE_EXCEEDED, "its deadline had passed when it arrived")
    policy = pool.policy
    rows = tokens = longest = 0
    for part, size in zip(event.parts, shares, strict=True):
        if part.rows > 1 and not policy.lets_in(part.rows, part.length, size):
            what = f"a part of {part.rows} rows of length {part.length}, {size} bytes,"
            detail = f"{what} exceeds what a batch may hold ({_caps(policy)})"
            return ResolveRequest(request, Outcome.TOO_LARGE, detail)
        rows += part.rows
        tokens += part.rows * part.length
        longest = max(longest, part.length)
    if rows > policy.max_queued_rows or event.bytes > state.policy.max_queued_bytes:
        detail = f"{rows} rows and {event.bytes} bytes are more than ever may wait ({policy.max_queued_rows} and "
        return ResolveRequest(request, Outcome.TOO_LARGE, f"{detail}{state.policy.max_queued_bytes})")
    meters = state.limits.covering(event.tenant, longest, now)
    shortage = short(meters, tokens, now) if meters else None
    if shortage is not None:
        after = shortage.retry_after or retry_after(pool, now)
        return ResolveRequest(request, Outcome.RATE_LIMITED, shortage.detail, after)
    refusal = _too_late(state, pool, event, now) or find_room(state, pool, event, rows, doubling(longest), now)
    if refusal is None:
        state.limits.take(meters, tokens)
    return refusal


def _too_late(state: State, pool: Pool, event: RequestArrived, now: Instant) -> ResolveRequest | None:
    """It is refused at once where it would be answered after its deadline, or too late for the SLO.

    state.foreseen: what was foreseen of it, if it is let in.
    """
    state.foreseen = 0
    policy = pool.policy
    if not policy.shed:
        return None
    slo = state.tenancy.of(event.tenant).slo(pool.version.model, policy.slo)
    left = event.deadline - now - policy.deadline_margin if event.deadline < NEVER else NEVER
    budget = min(left, slo or NEVER)
    if budget == NEVER:
        return None
    patience = state.policy.patience
    due_in = min(left, patience[_class(patience, event.priority)])
    foreseen = state.foreseen = foresee(pool, event, budget, due_in, patience)
    outlook = pool.outlook
    at_most = outlook.at_most(foreseen)
    if at_most <= budget or not outlook.is_tried:
        return None
    if foreseen <= budget:
        outlook.doubt()
    takes = outlook.expect(foreseen)
    told = f"it would be answered in about {takes / SECOND:.3g} s"
    if at_most > left:
        detail = f"{told}, and has {left / SECOND:.3g} s left"
        return ResolveRequest(event.request, Outcome.DEADLINE_UNMEETABLE, detail)
    detail = f"{told}, {slo / SECOND:.3g} s are aimed for"
    return ResolveRequest(event.request, Outcome.OVERLOADED, detail, max(RETRY_FLOOR, takes - slo))


def _caps(policy: BatchPolicy) -> str:
    caps = (
        (policy.max_batch_size, "rows"),
        (policy.max_batch_tokens, "padded tokens"),
        (policy.max_batch_bytes, "bytes"),
    )
    return ", ".join(f"{cap} {what}" for cap, what in caps if cap)


def _enqueue(state: State, pool: Pool, event: RequestArrived, shares: list[int], now: Instant) -> None:
    deadline = event.deadline
    longest = max([part.length for part in event.parts])
    request = Request(event.request, event.tenant, event.key, pool, event.bytes, deadline, event.priority, now)
    request.doubling = doubling(longest)
    request.foreseen = state.foreseen
    request.meters = state.limits.covering(event.tenant, longest, now)
    state.requests[request.id] = request
    state.bytes += event.bytes
    state.room.enter(request, (event.bytes,))
    state.deadlines.add(request)
    request.unfinished = len(event.parts)
    of_class = _class(state.policy.patience, event.priority)
    due_by_class = now + state.policy.patience[of_class]
    seq = state.seq
    for index, ((rows, length), size) in enumerate(zip(event.parts, shares, strict=True)):
        seq += 1
        latest_start = pool.latest_start(deadline, rows, length)
        due, lane = (latest_start, TIGHT) if latest_start < due_by_class else (due_by_class, of_class)
        part = QueuedPart(request, index, rows, length, size, due, latest_start, seq, pool.work(rows, length), lane)
        request.parts.append(part)
        queue = pool.push(part)
        if pool.policy.hold:
            state.timers.arm(pool, queue, now)
    state.seq = seq


def _class(patience: tuple[Duration, ...], priority: int) -> int:
    """A class beyond the last counts as the last, one before the first as the first."""
    return min(max(0, priority), len(patience) - 1)
