"""Who joins a batch.

A batch is built around a head, looking outward to its neighbours in length. With n members, adding
j costs each of them `added = cost(n + 1, L') - cost(n, L)` and saves the device
`saved = cost(1, L_j) - added`. Joining lowers the total waiting of everyone while
`saved * (parts left waiting + 1) / workers > added * n`.

Not only the next one is looked at: on a device with fixed kernel sizes a second member may cost
dearly and the next six nothing. Those behind the best batch so far are a block on trial, judged as a
whole against running in a batch of its own right after; once it gains it belongs to the batch.
Where the cost model has no step ahead, each joiner costs at least what the one before it did, and
the first that does not gain ends the search. An operator who holds batches has decided that company
pays: the caps alone end such a batch.

Now and then a batch is made larger than that, to see what a size takes that was not run of late: a
probe (`probing`).

Fairness: the next member comes from the tenant whose counter, with what it has in this batch
already, is least. Where its neighbour does not pay, others may still come along, in turn, if the
batch takes no longer for them; they are not charged for it.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush, heapreplace
from typing import TypeAlias

from headway.core.cost import CostModel
from headway.core.forming import Forming, Setting
from headway.core.queue import KeyQueue, TenantQueue
from headway.core.requests import QueuedPart

LOOK_AT_TENANTS = 8
"""That are asked for something to fill a batch up with, where the one whose turn it is has nothing that pays."""

Proposal: TypeAlias = tuple[QueuedPart, TenantQueue, int]
"""The next that might join, whose it is, and what it gains."""


def form_batch(queue: KeyQueue, head_queue: TenantQueue, setting: Setting) -> Forming:
    """Take the batch around the head of `head_queue` out of `queue`. Its members are RUNNING afterwards."""
    head = head_queue.urgent.first()
    assert head is not None
    batch = Forming(head, head_queue, setting)
    if queue.apart:
        _gather(batch, queue)
    elif queue.count > 1 and head.rows < setting.policy.max_batch_size:
        source = _source(queue, batch, setting.cost)
        _grow(batch, source)
        _fill(batch, source)
        source.close()
        rows = batch.worth_trying(queue.rows)
        if rows:
            _probe(batch, rows, _source(queue, batch, setting.cost))
    setting.cost.probes.earn(batch.time_spent())
    queue.left(batch.members, batch.owners)
    return batch


def _gather(batch: Forming, queue: KeyQueue) -> None:
    """All of a group that is tried again by itself, as far as the caps of today allow."""
    for part in queue.waiting():
        if batch.has_room_for(part):
            batch.add(part, queue.tenants[part.request.tenant])
    batch.keep()


def _grow(batch: Forming, source: _Neighbours | _InTurn) -> None:
    while (proposal := source.propose(batch)) is not None:
        part, tenant, gain = proposal
        if batch.is_over(gain):
            break
        batch.try_on(part, tenant)
        source.taken(part)
        if batch.trial_gains():
            batch.keep()
    batch.drop_trial()


def _fill(batch: Forming, source: _Neighbours | _InTurn) -> None:
    """Those whose turn it is not may come along where that costs nobody anything, and are not charged for it.

    Charged by their solo cost, a tenant that often comes along would be ahead without end of one whose turn it always
    is and whose parts leave room for others but not for each other.
    """
    before = batch.predicted
    for tenant in source.others():
        while (part := batch.best_of_tenant(tenant)[0]) is not None and batch.is_free(part, before):
            batch.add(part, tenant, pays=False)
            batch.keep()


def _probe(batch: Forming, rows: int, source: _Neighbours | _InTurn) -> None:
    """Fill it to so many rows, or leave it as it is."""
    while batch.rows < rows and (proposal := source.propose(batch)) is not None:
        part, tenant, _ = proposal
        batch.try_on(part, tenant)
        source.taken(part)
    if not batch.become_probe(rows, batch.owners[0].urgent.first()):
        batch.drop_trial()
        batch.filled = False
    source.close()


def _source(queue: KeyQueue, batch: Forming, cost: CostModel) -> _Neighbours | _InTurn:
    return _Neighbours(batch.owners[0]) if len(queue.tenants) == 1 else _InTurn(queue, batch, cost)


class _Neighbours:
    """All from one tenant: nothing but length and cost decides."""

    __slots__ = ("_longer", "_shorter", "_stale", "_tenant")

    def __init__(self, tenant: TenantQueue) -> None:
        self._tenant = tenant
        self._shorter: QueuedPart | None = None
        self._longer: QueuedPart | None = None
        self._stale = True

    def propose(self, batch: Forming) -> Proposal | None:
        tenant = self._tenant
        if self._stale:
            index = tenant.by_length
            self._shorter, self._longer = index.shorter(batch.length), index.longer(batch.length)
            self._stale = False
        part, gain = batch.best_of(self._shorter, self._longer, tenant.urgent.first())
        return None if part is None else (part, tenant, gain)

    def taken(self, part: QueuedPart) -> None:
        if part is self._shorter:
            self._shorter = self._tenant.by_length.shorter(part.length)
        else:
            self._stale = True  # it was longer, or out of the order of lengths

    def others(self) -> Iterator[TenantQueue]:
        """There are none."""
        return iter(())

    def close(self) -> None:
        """Nothing was taken out of any order."""


class _InTurn:
    """Several tenants: proposals in the order of tentative counters.

    Tenants leave the key's agenda while they are considered, until `close`.
    """

    __slots__ = ("_cost", "_queue", "_reached", "_tentative")

    def __init__(self, queue: KeyQueue, batch: Forming, cost: CostModel) -> None:
        self._queue = queue
        self._cost = cost
        self._tentative: list[tuple[int, int, TenantQueue]] = []
        self._reached: list[TenantQueue] = []
        shares: dict[str, int] = {}
        owners: dict[str, TenantQueue] = {}
        for part, owner, pays in zip(batch.members, batch.owners, batch.pays, strict=True):
            tenant = owner.account.tenant
            owners[tenant] = owner
            shares[tenant] = shares.get(tenant, 0) + (self._share(part, owner) if pays else 0)
        for tenant, owner in owners.items():
            self._consider(owner, owner.account.counter + shares[tenant])

    def propose(self, batch: Forming) -> Proposal | None:
        while True:
            following = self._queue.turns.first()
            if following is not None and (not self._tentative or following.account.counter <= self._tentative[0][0]):
                self._consider(following, following.account.counter)
                continue
            if not self._tentative:
                return None
            tenant = self._tentative[0][2]
            urgent = tenant.urgent.first()
            if urgent is None:
                heappop(self._tentative)  # all it had is in the batch
                continue
            part, gain = batch.best_of_tenant(tenant)
            return None if part is None else (part, tenant, gain)

    def taken(self, part: QueuedPart) -> None:
        counter, order, tenant = self._tentative[0]
        heapreplace(self._tentative, (counter + self._share(part, tenant), order, tenant))

    def others(self) -> Iterator[TenantQueue]:
        """Some of those that have something left to give, in turn; the first had nothing that pays."""
        looked_at = 0
        while looked_at < LOOK_AT_TENANTS:
            following = self._queue.turns.first()
            if following is not None and (not self._tentative or following.account.counter <= self._tentative[0][0]):
                self._consider(following, following.account.counter)
                continue
            if not self._tentative:
                return
            yield heappop(self._tentative)[2]
            looked_at += 1

    def close(self) -> None:
        for tenant in self._reached:
            self._queue.turns.update(tenant)

    def _consider(self, tenant: TenantQueue, counter: int) -> None:
        self._queue.turns.remove(tenant)
        self._reached.append(tenant)
        heappush(self._tentative, (counter, len(self._reached), tenant))

    def _share(self, part: QueuedPart, tenant: TenantQueue) -> int:
        return int(self._cost.median(part.rows, part.length) / tenant.account.weight)
