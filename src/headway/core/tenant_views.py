"""What others may see of tenants: plain values, of each that the operator has named, and of all the others together.

Of a device: what a tenant received and was owed, and whether it starves. Of a version: what waits, in whose room.
To look changes nothing. It takes time for every tenant that is named, and for none of the others.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from headway.core.device import Device
from headway.core.events import RequestArrived
from headway.core.forecast import foresee
from headway.core.ids import BatchKey, Part, Tenant, VersionId
from headway.core.limits import Meter
from headway.core.policy import Style
from headway.core.pool import Pool
from headway.core.record import record
from headway.core.tenancy import STRANGERS, RateLimit, Tenancy, TenantPolicy
from headway.core.units import NEVER, SECOND, Duration, Instant

if TYPE_CHECKING:
    from headway.core.scheduler import Scheduler
    from headway.core.state import State

Spell: TypeAlias = tuple[Instant, Tenant]
"""Since when it was found to starve, and who."""

USUAL_CLASS = 1
"""Of requests that name none."""


@record
class TenantShare:
    """Of one device.  tenant: STRANGERS = all that were never named, together.

    received: device nanoseconds of batches that were answered and of results of sequences, as measured.
    owed: its part by weight of what batches took while it had something waiting.  Neither ever falls.
    starving: how many of them starve now.  since: when the first of those was found to, NEVER = none.
    spells: how often one began to.
    """

    device: str
    tenant: Tenant
    received: int
    owed: int
    starving: int
    since: Instant
    spells: int


@record
class TenantRoom:
    """Of one version.  waiting: requests.  borrowed: of those, how many are beyond its part of the room.
    lost: borrowed ones that had to go for whose room it was.  regained: of others', for this one."""

    version: VersionId
    tenant: Tenant
    waiting: int
    borrowed: int
    lost: int
    regained: int


def shares(scheduler: Scheduler) -> list[TenantShare]:
    """Device by device."""
    state = scheduler._state
    found = []
    for device in state.devices.values():
        starving = _starving(device)
        found += [_share(device, name, starving.get(name, ())) for name in _names(state.tenancy)]
    return found


def rooms(scheduler: Scheduler) -> list[TenantRoom]:
    """Version by version."""
    state = scheduler._state
    return [_room(pool, name, state.tenancy) for pool in state.pools.values() for name in _names(state.tenancy)]


def _names(tenancy: Tenancy) -> Iterable[Tenant]:
    return (*tenancy.known, STRANGERS)


def _starving(device: Device) -> dict[Tenant, list[Spell]]:
    """Who starves now, by where it is counted."""
    fair = device.fair
    found: dict[Tenant, list[Spell]] = {}
    for name, starved in fair.starving.items():
        if fair.has_waiting(name):
            found.setdefault(fair.tenancy.label(name), []).append((starved.since, name))
    return found


def _share(device: Device, tenant: Tenant, starving: Sequence[Spell]) -> TenantShare:
    tallies = device.fair.clock.tallies
    tally = tallies.by_tenant.get(tenant)
    return TenantShare(
        device=device.name,
        tenant=tenant,
        received=tally.received if tally else 0,
        owed=int(tally.owed_by(tallies.clock)) if tally else 0,
        starving=len(starving),
        since=min(starving)[0] if starving else NEVER,
        spells=tally.spells if tally else 0,
    )


def _room(pool: Pool, tenant: Tenant, tenancy: Tenancy) -> TenantRoom:
    """What strangers borrow is what they have together beyond their parts together: of the named ones, that is."""
    room = pool.room
    if tenant != STRANGERS:
        holding = room.holdings.get(tenant)
        waiting, borrowed = (holding.used[0], room.borrowed(tenant)) if holding is not None else (0, 0)
    else:
        named = [room.holdings[name] for name in tenancy.known if name in room.holdings]
        waiting = room.used[0] - sum(holding.used[0] for holding in named)
        weight = room.weights - sum(holding.weight for holding in named)
        borrowed = max(0, waiting - weight * room.limits[0] // room.weights) if waiting else 0
    return TenantRoom(pool.version, tenant, waiting, borrowed, room.lost.get(tenant, 0), room.regained.get(tenant, 0))


# -- for the curious: more than a scrape should pay for ----------------------------------------


@record
class Lately:
    """The last while, of `span` nanoseconds.  received, owed: in it, device nanoseconds."""

    span: Duration
    received: int
    owed: int


@record
class LimitUse:
    """One of a tenant's limits, and what of it is used now.  open: requests without an outcome.
    requests, tokens: left of what may come at once, negative = in debt."""

    limit: RateLimit
    open: int
    requests: float
    tokens: float


@record
class Neglect:
    """Why a tenant starves; of strangers, the one that has for longest.

    window: for how long it was looked at, up to now.  received, owed: in that window, device nanoseconds.
    ahead: who is furthest ahead of it, "" = nobody.  running: how many parts of its own run.
    served: whether a version that it waits for has a worker.
    """

    window: Duration
    received: int
    owed: int
    ahead: Tenant
    running: int
    served: bool


@record
class TenantDetail:
    """One tenant, at one version.  policy: of STRANGERS what holds for each.

    limits: of STRANGERS none are told, for each has his own.
    waiting_parts: on the device.  lead: how far its counter is beyond the least of those that wait, in device
        nanoseconds per unit of weight; None where it has nothing waiting.
    foreseen: until a request of one row, of the usual length and class, would be answered if it came now, as such
        forecasts usually turn out; 0 = at once, None = nothing is foreseen for the version.
    """

    tenant: Tenant
    policy: TenantPolicy
    share: TenantShare
    room: TenantRoom
    lately: Lately
    limits: list[LimitUse]
    waiting_parts: int
    lead: int | None
    neglect: Neglect | None
    foreseen: Duration | None


@record
class ForecastDetail:
    """How forecasts of answers turned out.  answers: how many were compared.
    counts: whether that is enough for anybody to be refused by them.
    usual: what it takes on average, over what was foreseen.  margin: what it hardly ever takes beyond that."""

    answers: int
    counts: bool
    usual: float
    margin: Duration


def forecast(pool: Pool) -> ForecastDetail | None:
    """None where nobody is refused by one."""
    if not pool.policy.shed or pool.policy.style is Style.SEQUENCE:
        return None
    outlook = pool.outlook
    return ForecastDetail(outlook.seen, outlook.is_tried, outlook.expect(SECOND) / SECOND, int(outlook.margin))


def tenants(state: State, pool: Pool, now: Instant) -> list[TenantDetail]:
    starving, length = _starving(pool.device), max(1, pool.mean_length() or round(pool.cost.mean_length()))
    least = min((account.counter for account in pool.fair.backlogged.values()), default=0)
    return [_detail(state, pool, n, starving.get(n, ()), length, least, now) for n in _names(state.tenancy)]


def _detail(
    state: State, pool: Pool, tenant: Tenant, starving: Sequence[Spell], length: int, least: int, now: Instant
) -> TenantDetail:
    """least: the counter of who is next."""
    account = pool.fair.backlogged.get(tenant)
    return TenantDetail(
        tenant=tenant,
        policy=state.tenancy.of(tenant),
        share=_share(pool.device, tenant, starving),
        room=_room(pool, tenant, state.tenancy),
        lately=_lately(pool.device, tenant, now),
        limits=[] if tenant == STRANGERS else _limits(state, tenant, now),
        waiting_parts=account.waiting if account is not None else 0,
        lead=account.counter - least if account is not None else None,
        neglect=_neglect(pool.device, min(starving)[1], now) if starving else None,
        foreseen=_foreseen(state, pool, tenant, length),
    )


def _lately(device: Device, tenant: Tenant, now: Instant) -> Lately:
    tallies = device.fair.clock.tallies
    tally = tallies.by_tenant.get(tenant)
    span = now - tallies.began[0]
    if tally is None:
        return Lately(span, 0, 0)
    received, owed = tally.marks[0]
    return Lately(span, tally.received - received, int(tally.owed_by(tallies.clock) - owed))


def _limits(state: State, tenant: Tenant, now: Instant) -> list[LimitUse]:
    meters = state.limits.meters
    return [_use(limit, meters.get((tenant, limit)), now) for limit in state.tenancy.of(tenant).limits]


def _use(limit: RateLimit, meter: Meter | None, now: Instant) -> LimitUse:
    """A meter that was forgotten was full."""
    requests, tokens = limit.requests_per_second * limit.burst, limit.tokens_per_second * limit.burst
    if meter is None:
        return LimitUse(limit, 0, requests, tokens)
    span = (now - meter.at) / SECOND
    return LimitUse(
        limit,
        meter.open,
        min(requests, meter.requests + span * limit.requests_per_second),
        min(tokens, meter.tokens + span * limit.tokens_per_second),
    )


def _neglect(device: Device, tenant: Tenant, now: Instant) -> Neglect:
    fair = device.fair
    account = fair.accounts[tenant]
    received, owed = fair.clock.window(account)
    pools = [queue.queue.pool for queue in account.queues.values()]
    return Neglect(
        window=now - account.watched,
        received=received,
        owed=owed,
        ahead=fair.starving[tenant].ahead,
        running=account.active - account.waiting,
        served=any(pool.placement.is_ready for pool in pools),
    )


def _foreseen(state: State, pool: Pool, tenant: Tenant, length: int) -> Duration | None:
    if not pool.policy.shed or pool.policy.style is Style.SEQUENCE:
        return None
    patience = state.policy.patience
    event = RequestArrived(0, tenant, BatchKey(*pool.version, ""), (Part(1, length),))
    return pool.outlook.expect(foresee(pool, event, 0, patience[min(USUAL_CLASS, len(patience) - 1)], patience))
