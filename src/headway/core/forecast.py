"""When a request that arrives would be answered, if it were let in.

Ahead of it is what its tenant has waiting that is due before it; and of every other tenant as much as
the fair order serves until then, which is at most what that one has waiting, and at most what brings its
counter to where this tenant's will be. Fluid fair sharing, that is, on what is known: nobody's future.
All of it is in device time that each part would take alone; batches take less, by what one of the size
that waits saves.

What the model does not see (who else will come, padding, gaps between batches) is learned from how long
requests really took, beside what was foreseen (`Outlook`).
"""

from __future__ import annotations

from collections.abc import Sequence

from headway.core.events import RequestArrived
from headway.core.fairness import TIGHT, Account, FairOrder
from headway.core.ids import Part, Tenant
from headway.core.policy import Style
from headway.core.pool import Pool
from headway.core.shares import units
from headway.core.units import Duration, Instant

LOOK_AT_TENANTS = 32
"""That wait, up to which each is looked at; of more it is what they have together, and their weights, that count."""
EASILY = 4
"""Who has so many times as long as all that waits would take one by one is let in unseen."""


def foresee(pool: Pool, event: RequestArrived, budget: Duration, due_in: Duration, patience: Sequence[Duration]) -> int:
    """Nanoseconds until it would be answered, before anything is learned from. 0: it is sure to be soon enough.

    due_in: when it will be due.  patience: of the classes.
    """
    device, now = pool.device, pool.now
    fair = device.fair
    if pool.policy.style is Style.SEQUENCE or (not pool.waiting and pool.placement.free):
        return 0
    own = sum([pool.work(rows, length) for rows, length in event.parts])
    free_in = _until_free(pool, now)
    if EASILY * (fair.work + own + free_in) < budget:
        return 0
    account = fair.accounts.get(event.tenant)
    ahead = own + (_due_before(account, due_in, patience) if account is not None and account.waiting else 0)
    ahead += _served_meanwhile(fair, event.tenant, account, ahead)
    if fair.work > pool.work_waiting and not device.is_contended:
        ahead = own + int((ahead - own) * pool.work_waiting / fair.work)  # the others' workers take the rest
    length = pool.mean_length() or max(part.length for part in event.parts)
    rows = _rows_together(pool, length)
    saves = pool.cost.median(rows, length) / max(1, rows * pool.cost.median(1, length))
    last = max(event.parts, key=_length)
    run = pool.cost.median(max(last.rows, rows), max(last.length, length))
    before_it_runs = max(0, int(ahead * saves / device.capacity(pool)) - run)
    return max(1, free_in + before_it_runs + run)


def _length(part: Part) -> int:
    return part.length


def _due_before(account: Account, due_in: Duration, patience: Sequence[Duration]) -> int:
    """Of the tenant's own work that waits: all that is due sooner, as far as its class tells."""
    ahead = account.lanes.get(TIGHT, 0)
    for lane in range(len(patience)):
        if patience[lane] <= due_in:
            ahead += account.lanes.get(lane, 0)
    return ahead


def _served_meanwhile(fair: FairOrder, tenant: Tenant, account: Account | None, work: int) -> int:
    """Of the others' work, while the tenant is served so much of its own."""
    weight = fair.tenancy.weight(tenant) if account is None else account.weight
    counter = fair.level
    if account is not None and (account.waiting or account.counter > counter):
        counter = account.counter
    if len(fair.backlogged) > LOOK_AT_TENANTS:
        mine = account.work if account is not None else 0
        return int(min(fair.work - mine, work * fair.clock.weights / units(weight)))
    until = counter + work / weight
    served = 0.0
    for other in fair.backlogged.values():
        if other is not account and until > other.counter:
            served += min(other.work, (until - other.counter) * other.weight)
    return int(served)


def _rows_together(pool: Pool, length: int) -> int:
    """Of such a length, in the cheapest batch per row that what waits would fill."""
    policy, cost = pool.policy, pool.cost
    rows = max(1, min(policy.max_batch_size, pool.rows + 1))
    if policy.max_batch_tokens:
        rows = max(1, min(rows, policy.max_batch_tokens // max(1, length)))
    limit = policy.time_limit(cost.upper(1, length))
    best, best_cost = 1, float(cost.median(1, length))
    tried = 2
    while tried <= rows:
        if cost.upper(tried, length) > limit:
            break
        each = cost.median(tried, length) / tried
        if each < best_cost:
            best, best_cost = tried, each
        tried = min(rows, 2 * tried) if tried < rows else rows + 1
    return best


def _until_free(pool: Pool, now: Instant) -> Duration:
    """Until the first worker is through with what it has."""
    if pool.placement.free:
        return 0
    busy = pool.placement.next_free(now)
    staged = sum(batch.predicted for batch in busy.batches.values() if batch.waits) if busy is not None else 0
    return staged + (max(0, busy.ends_at - now) if busy is not None else 0)
