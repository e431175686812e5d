"""Judging every tenant that waits, window by window: whoever gets less than half of its share is named, and
whoever is furthest ahead of it borrows no room until that is over."""

from __future__ import annotations

from headway.core.device import Device
from headway.core.effects import ReportStarvation
from headway.core.fairness import Account, Starved
from headway.core.shares import WINDOW
from headway.core.state import State
from headway.core.units import Instant


def judge(state: State, device: Device, now: Instant) -> None:
    fair = device.fair
    clock, starving = fair.clock, fair.starving
    while (account := clock.due(now)) is not None:
        starves = clock.neglects(account) and _is_servable(account)
        received, owed = clock.window(account)
        if starves != (account.tenant in starving):
            ahead = fair.ahead_of(account) if starves else ""
            state.effects.append(ReportStarvation(device.name, account.tenant, starves, received, owed, WINDOW, ahead))
            if starves:
                starving[account.tenant] = Starved(ahead, now)
                account.tally.spells += 1
            else:
                del starving[account.tenant]
        clock.watch(account, now)
    for tenant in [tenant for tenant in starving if not fair.has_waiting(tenant)]:
        del starving[tenant]
        state.effects.append(ReportStarvation(device.name, tenant, False, 0, 0, 0))


def _is_servable(account: Account) -> bool:
    """Whether something of it waits for a worker that there is: one that is only starting serves nobody yet."""
    pools = {queue.queue.pool.version: queue.queue.pool for queue in account.queues.values()}
    return any(pool.placement.is_ready for pool in pools.values())
