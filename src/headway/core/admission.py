"""A request arrives: it is refused at once, with the reason, or it waits."""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.breaker import Circuit
from headway.core.effects import ResolveRequest
from headway.core.errors import InvariantViolation
from headway.core.events import RequestArrived
from headway.core.fairness import TIGHT
from headway.core.forecast import foresee
from headway.core.ids import Part
from headway.core.limits import Meter, short, take
from headway.core.outcomes import Outcome
from headway.core.placing import never
from headway.core.policy import BatchPolicy
from headway.core.pool import Pool
from headway.core.requests import QueuedPart, Request
from headway.core.room import doubling
from headway.core.rooms import RETRY_FLOOR, find_room, retry_after
from headway.core.state import State
from headway.core.units import NEVER, SECOND, Duration, Instant, seconds

RETRY_ELSEWHERE: Duration = seconds(1)
"""A server that drains will not come back: one behind the same address may take it."""


class Candidate:
    """A request at the door, and what is worked out about it once.

    shares: bytes of each part.  rows, tokens: of all parts.  longest: length of the longest.
    meters: of the limits that it counts on.
    foreseen: when it would be answered, from now, as is foreseen; 0: soon enough, or nobody asked.
    """

    __slots__ = ("event", "foreseen", "longest", "meters", "rows", "shares", "tokens")

    def __init__(self, event: RequestArrived) -> None:
        self.event = event
        self.shares = shares_of(event.bytes, event.parts)
        self.rows = sum([part.rows for part in event.parts])
        self.tokens = sum([part.rows * part.length for part in event.parts])
        self.longest = max([part.length for part in event.parts], default=0)
        self.meters: tuple[Meter, ...] = ()
        self.foreseen: Duration = 0


def arrived(state: State, event: RequestArrived, now: Instant) -> None:
    pool = state.pools.get(event.key.version_id)
    if pool is None:
        state.effects.append(ResolveRequest(event.request, Outcome.UNKNOWN_VERSION, str(event.key.version_id)))
        return
    candidate = Candidate(event)
    refusal = _never(state, pool, candidate, now) or _not_now(state, pool, candidate, now)
    if refusal is not None:
        state.effects.append(refusal)
        return
    admit(state, pool, candidate, now)


def shares_of(size: int, parts: Sequence[Part]) -> list[int]:
    """Bytes of each part, by its rows x length. Whole numbers, equal for equal parts, together at most `size`."""
    if len(parts) == 1:
        return [size]
    tokens = sum([part.rows * part.length for part in parts]) or 1  # 0: of no length, so there is nothing to share
    return [size * part.rows * part.length // tokens for part in parts]


def _never(state: State, pool: Pool, candidate: Candidate, now: Instant) -> ResolveRequest | None:
    """What no waiting and no trying again would change, here."""
    event, policy = candidate.event, pool.rules
    request = event.request
    if request in state.requests:
        raise InvariantViolation(f"request id {request} arrived while it was in use")
    if not event.parts:
        raise InvariantViolation(f"request {request} arrived without parts")
    if state.draining or pool.draining:
        return ResolveRequest(request, Outcome.DRAINING, f"{pool.version} is draining", RETRY_ELSEWHERE)
    if event.content and pool.quarantine.get(event.content, 0) > now:
        left = (pool.quarantine[event.content] - now) / SECOND
        detail = f"requests of the same content have killed workers; such are refused for {left:.0f} s more"
        return ResolveRequest(request, Outcome.POISON_REQUEST, detail)
    if event.deadline <= now:
        return ResolveRequest(request, Outcome.DEADLINE_EXCEEDED, "its deadline had passed when it arrived")
    for part, size in zip(event.parts, candidate.shares, strict=True):
        if part.rows > 1 and not policy.lets_in(part.rows, part.length, size):
            what = f"a part of {part.rows} rows of length {part.length}, {size} bytes,"
            detail = f"{what} exceeds what a batch may hold ({_caps(policy)})"
            return ResolveRequest(request, Outcome.TOO_LARGE, detail)
    if why_not := never(pool, candidate.longest):
        return ResolveRequest(request, Outcome.TOO_LARGE, why_not)
    if candidate.rows > policy.max_queued_rows or event.bytes > state.policy.max_queued_bytes:
        detail = f"{candidate.rows} rows and {event.bytes} bytes are more than ever may wait "
        detail += f"({policy.max_queued_rows} and {state.policy.max_queued_bytes})"
        return ResolveRequest(request, Outcome.TOO_LARGE, detail)
    return None


def _not_now(state: State, pool: Pool, candidate: Candidate, now: Instant) -> ResolveRequest | None:
    """Its tenant's limits, the time that it has, and room, which is taken from others last: for one that is let in."""
    event = candidate.event
    circuit = pool.breaker.circuit(now)
    if circuit is not Circuit.CLOSED and not _may_try(state, pool, circuit):
        wait = max(RETRY_FLOOR, pool.breaker.until - now)
        detail = (
            f"{pool.breaker.deaths} workers of {pool.version} died in a row; it is tried again in {wait / SECOND:.0f} s"
        )
        return ResolveRequest(event.request, Outcome.CIRCUIT_OPEN, detail, wait)
    candidate.meters = state.limits.covering(event.tenant, candidate.longest, now)
    shortage = short(candidate.meters, candidate.tokens, now) if candidate.meters else None
    if shortage is not None:
        after = shortage.retry_after or retry_after(pool, now)
        return ResolveRequest(event.request, Outcome.RATE_LIMITED, shortage.detail, after)
    return _too_late(state, pool, candidate, now) or find_room(
        state, pool, event, candidate.rows, doubling(candidate.longest), now
    )


def _may_try(state: State, pool: Pool, circuit: Circuit) -> bool:
    """One at a time."""
    return circuit is Circuit.HALF_OPEN and pool.breaker.trial not in state.requests


def _too_late(state: State, pool: Pool, candidate: Candidate, now: Instant) -> ResolveRequest | None:
    """It is refused at once where it would be answered after its deadline, or too late for the SLO."""
    policy, event = pool.policy, candidate.event
    if not policy.shed:
        return None
    slo = state.tenancy.of(event.tenant).slo(pool.version.model, policy.slo)
    left = event.deadline - now - policy.deadline_margin if event.deadline < NEVER else NEVER
    budget = min(left, slo or NEVER)
    if budget == NEVER:
        return None
    patience = state.policy.patience
    due_in = min(left, patience[_class(patience, event.priority)])
    foreseen = candidate.foreseen = foresee(pool, event, budget, due_in, patience)
    if not foreseen:
        return None
    outlook = pool.outlook
    at_most = outlook.at_most(foreseen)
    if at_most <= budget:
        return None
    if foreseen <= budget:
        outlook.doubt()
    takes = outlook.expect(foreseen)
    latest = max(at_most, takes)
    told = f"it would be answered in about {takes / SECOND:.3g} s, or as late as {latest / SECOND:.3g} s"
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


def admit(state: State, pool: Pool, candidate: Candidate, now: Instant) -> None:
    """It waits from now on."""
    event = candidate.event
    deadline = event.deadline
    request = Request(event.request, event.tenant, event.key, pool, event.bytes, deadline, event.priority, now)
    request.doubling = doubling(candidate.longest)
    request.foreseen = candidate.foreseen
    request.meters = candidate.meters
    request.prefix = event.prefix
    take(candidate.meters, candidate.tokens)
    state.requests[request.id] = request
    state.bytes += event.bytes
    state.room.enter(request, (event.bytes,))
    state.deadlines.add(request)
    request.unfinished = len(event.parts)
    pool.arrivals.add(len(event.parts), now)
    if pool.breaker.until != NEVER:
        pool.breaker.trial = event.request
    of_class = _class(state.policy.patience, event.priority)
    due_by_class = now + state.policy.patience[of_class]
    seq = state.seq
    for index, ((rows, length), size) in enumerate(zip(event.parts, candidate.shares, strict=True)):
        seq += 1
        latest_start = pool.latest_start(deadline, rows, length)
        due, lane = (latest_start, TIGHT) if latest_start < due_by_class else (due_by_class, of_class)
        part = QueuedPart(request, index, rows, length, size, due, latest_start, seq, pool.work(rows, length), lane)
        request.parts.append(part)
        queue = pool.push(part)
        if pool.policy.hold:
            state.timers.arm(pool, queue, now)
    state.seq = seq
    state.touch(pool)


def _class(patience: tuple[Duration, ...], priority: int) -> int:
    """A class beyond the last counts as the last, one before the first as the first."""
    return min(max(0, priority), len(patience) - 1)
