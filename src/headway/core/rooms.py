"""Whether there is room for a request to wait in, and whose it is taken from where it is only lent.

The rooms: requests and rows that wait for the version, and bytes of all requests without an outcome.
While there is room anybody gets it. In a full one who has its own part, or more, is refused; who has
less gets what others have borrowed.
"""

from __future__ import annotations

from collections.abc import Callable

from headway.core.effects import ResolveRequest
from headway.core.events import RequestArrived
from headway.core.ids import Tenant
from headway.core.outcomes import Outcome
from headway.core.pool import Pool
from headway.core.requests import Request
from headway.core.room import Amount, Room
from headway.core.state import State
from headway.core.tenancy import Tenancy
from headway.core.units import Duration, Instant, ms, seconds

RETRY_FLOOR: Duration = ms(100)
RETRY_CEILING: Duration = seconds(60)


def retry_after(pool: Pool, now: Instant) -> Duration:
    """When what waits now will have been worked off, at the rate of the last seconds."""
    return min(RETRY_CEILING, max(RETRY_FLOOR, pool.rate.time_for(pool.waiting, now)))


def find_room(
    state: State, pool: Pool, event: RequestArrived, rows: int, doubling: int, now: Instant
) -> ResolveRequest | None:
    """Makes room where the tenant has a right to it. None: there is room now."""
    if state.pressure:
        detail = f"the host is short of memory; {state.bytes} bytes of requests are held"
        return ResolveRequest(event.request, Outcome.OVERLOADED, detail, retry_after(pool, now))
    tenant, room = event.tenant, pool.room
    own = state.tenancy.of(tenant).max_queued_requests
    holding = room.holdings.get(tenant)
    if own and holding is not None and holding.used[0] >= own:
        detail = f"{holding.used[0]} requests of tenant {tenant} wait for {pool.version}; {own} may"
        return ResolveRequest(event.request, Outcome.TENANT_QUEUE_FULL, detail, retry_after(pool, now))
    starving = pool.fair.starving
    if (
        starving
        and any(starved.ahead == tenant for starved in starving.values())
        and not room.has_part_left(tenant, (1, rows))
    ):
        detail = f"tenant {tenant} may borrow no room while others starve"
        return ResolveRequest(event.request, Outcome.TENANT_QUEUE_FULL, detail, retry_after(pool, now))
    plan = _Plan(event, doubling)
    if not plan.makes(room, (1, rows), _waiting):
        plan.undo()
        return _no_room(pool, event, rows, now)
    if not plan.makes(state.room, (event.bytes,), _bytes):
        plan.undo()
        detail = f"{state.bytes} bytes of requests are held; {state.policy.max_queued_bytes} are allowed"
        return ResolveRequest(event.request, Outcome.OVERLOADED, detail, retry_after(pool, now))
    plan.undo()
    for victim in plan.victims:
        lent = "was lent to its tenant, and whose room it is came back for it"
        detail = f"it waited in room that {lent if victim.tenant != tenant else 'another length of its tenant needs'}"
        if victim.tenant != tenant:
            _reclaimed(state.tenancy, victim, pool, tenant)
        state.resolve(victim, Outcome.RECLAIMED, detail, retry_after(victim.pool, now))
    return None


def _reclaimed(tenancy: Tenancy, victim: Request, pool: Pool, owner: Tenant) -> None:
    """For whoever looks on."""
    lost, regained = victim.pool.room.lost, pool.room.regained
    name = tenancy.label(victim.tenant)
    lost[name] = lost.get(name, 0) + 1
    name = tenancy.label(owner)
    regained[name] = regained.get(name, 0) + 1


class _Plan:
    """Who has to go for a request to come in: tried out first, for nobody shall go in vain."""

    __slots__ = ("_doubling", "_left", "_tenant", "victims")

    def __init__(self, event: RequestArrived, doubling: int) -> None:
        self._tenant = event.tenant
        self._doubling = doubling
        self._left: list[tuple[Room, Request, Amount]] = []
        self.victims: list[Request] = []

    def makes(self, room: Room, amount: Amount, of: Callable[[Request], Amount]) -> bool:
        """Whether there is room for so much once the victims are out. of: what a request that waits as a whole has."""
        for victim in self.victims:
            self._leaves(room, victim, of(victim))
        while room.lacks(amount):
            found = self._next(room, amount)
            if found is None:
                return False
            if found in self.victims:
                continue  # on account of the room before this one, and out of this one already
            self.victims.append(found)
            self._leaves(room, found, of(found))
        return True

    def undo(self) -> None:
        """Everybody is where he was."""
        for room, request, amount in reversed(self._left):
            room.enter(request, amount)
        self._left = []

    def _next(self, room: Room, amount: Amount) -> Request | None:
        if room.has_part_left(self._tenant, amount):
            return room.newest_borrowed(self._tenant)
        return room.newest_of(self._tenant) if room.has_length_left(self._tenant, self._doubling) else None

    def _leaves(self, room: Room, request: Request, amount: Amount) -> None:
        room.leave(request, amount, whole=True)
        self._left.append((room, request, amount))


def _waiting(request: Request) -> Amount:
    return 1, sum([part.rows for part in request.parts])


def _bytes(request: Request) -> Amount:
    return (request.bytes,)


def _no_room(pool: Pool, event: RequestArrived, rows: int, now: Instant) -> ResolveRequest:
    policy, tenant, after = pool.policy, event.tenant, retry_after(pool, now)
    holding = pool.room.holdings.get(tenant)
    if holding is not None and pool.room.is_shared(tenant):
        detail = f"{holding.used[0]} requests of tenant {tenant} wait for {pool.version}, with those of others "
        detail += f"{pool.queued}; {policy.max_queued_requests} may, {pool.room.part(tenant):.0%} of them its own"
        return ResolveRequest(event.request, Outcome.TENANT_QUEUE_FULL, detail, after)
    if pool.queued >= policy.max_queued_requests:
        detail = f"{pool.queued} requests wait for {pool.version}; {policy.max_queued_requests} may"
    else:
        detail = f"{pool.rows} rows wait for {pool.version}, {rows} came; {policy.max_queued_rows} may wait"
    return ResolveRequest(event.request, Outcome.QUEUE_FULL, detail, after)
