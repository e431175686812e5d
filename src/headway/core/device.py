"""What the workers of several pools share: so many cores, and one fair order of tenants over all of them.

Each pool has batches of its own; a core is whose turn it is. The pool whose head is next by the rule
that holds within a pool (least counter of its tenant, then the most urgent) gets the cores that are
free, or about to be: a batch is handed over so long before as that takes. Where they are too few for
its next batch it waits for more of them and nobody overtakes it: small batches that always fit would
keep a large one out for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import TypeAlias

from headway.core.fairness import Account, FairOrder
from headway.core.ids import VersionId
from headway.core.patience import leaves_at
from headway.core.placing import pick
from headway.core.policy import Style
from headway.core.pool import Pool
from headway.core.queue import KeyQueue
from headway.core.tenancy import Tenancy
from headway.core.units import NEVER, Instant
from headway.core.workers import Worker, WorkerState

LOOK_AT_KEYS = 16
"""Other keys that wait, up to which their heads are considered when a batch is formed."""

Turn: TypeAlias = tuple[Pool, Worker, KeyQueue]
"""Who is next: from which queue a batch is to be formed, and for which worker."""


class Device:
    """number: order of first use.  cores: that may be in use at once; 0 = without limit.
    trouble: why it is of no use at present; "" = it works.  tried_at: when it is tried again.
    wake: when it is to be decided again even if nothing happens: a worker may be staged for, or what
        waits beside an idle one has waited long enough.
    """

    __slots__ = ("_numbers", "cores", "fair", "name", "number", "pools", "tried_at", "trouble", "wake")

    def __init__(self, name: str, number: int, cores: int, tenancy: Tenancy) -> None:
        self.name = name
        self.number = number
        self.cores = cores
        self.fair = FairOrder(tenancy)
        self.pools: dict[VersionId, Pool] = {}
        self.wake: Instant = NEVER
        self.trouble = ""
        self.tried_at: Instant = 0
        self._numbers = 0

    def next_number(self) -> int:
        """For a queue."""
        self._numbers += 1
        return self._numbers

    # -- cores -----------------------------------------------------------------------------

    @property
    def in_use(self) -> int:
        """Cores taken by batches that run. One that is staged takes those of the one before it.

        More than there are for a moment, when a batch was handed over and the one before it took a little longer.
        """
        return sum(self.need(worker.pool) for worker in self._busy())

    def need(self, pool: Pool) -> int:
        """Cores that a batch of the pool takes: never more than there are, or it could not run at all."""
        return min(pool.policy.cores, self.cores) if self.cores else pool.policy.cores

    def has_cores_for(self, *pools: Pool, now: Instant, after: Worker | None = None) -> bool:
        """Whether a batch of each may be handed over now.

        after: the worker that one of them is staged for; it passes its cores on.
        """
        if not self.cores:
            return True
        wanted, taken, free_soon = sum(map(self.need, pools)), 0, 0
        for worker in self._busy():
            if worker is not after:
                need = self.need(worker.pool)
                taken += need
                free_soon += need if worker.frees(now) else 0
        # a core passes to one batch ahead of time: where batches are shorter than a hand-over all would seem free soon
        return wanted + taken - free_soon <= self.cores and wanted + taken <= 2 * self.cores

    def _busy(self) -> Iterator[Worker]:
        """Who keeps cores busy. One that is suspected keeps none: nobody is to wait for what may never end."""
        busy = (worker for pool in self.pools.values() for worker in pool.placement.busy.values())
        return (worker for worker in busy if not worker.is_suspected)

    @property
    def is_contended(self) -> bool:
        """Its workers could use more cores than there are: whoever runs keeps others of them waiting."""
        if not self.cores:
            return False
        return sum(self.need(pool) * len(pool.placement.workers) for pool in self.pools.values()) > self.cores

    def capacity(self, pool: Pool) -> int:
        """Cores (or whole workers, where they take none) that serve what waits for the pool, at most."""
        cores = self.need(pool) or 1
        workers = cores * max(1, sum(worker.state is WorkerState.READY for worker in pool.placement.workers.values()))
        return min(workers, self.cores) if self.cores and not self.is_contended else (self.cores or workers)

    # -- turns -----------------------------------------------------------------------------

    def next_turn(self, now: Instant) -> Turn | None:
        """Whose turn it is, of those that have a worker to go to and nothing to wait for. None: nobody's."""
        self.wake = NEVER
        turn: Turn | None = None
        coreless: Turn | None = None  # it takes nothing that anybody could be waiting for
        for pool in self.pools.values():
            if not pool.waiting:
                continue
            worker = pick(pool, now) if pool.policy.style is Style.SEQUENCE else pool.placement.pick(now)
            if worker is None:
                self.wake = min(self.wake, pool.placement.next_stage(now))
                continue
            queue = pool.agenda.first()
            if queue is None:
                continue
            if (at := leaves_at(pool, queue, worker, now)) > now:
                self.wake = min(self.wake, at)
                continue
            if turn is None or _entry(queue) < _entry(turn[2]):
                turn = (pool, worker, queue)
            if not pool.policy.cores and (coreless is None or _entry(queue) < _entry(coreless[2])):
                coreless = (pool, worker, queue)
        if turn is None or self.has_cores_for(turn[0], now=now, after=turn[1]):
            return turn
        for worker in self._busy():
            if now < worker.free_at < self.wake:
                self.wake = worker.free_at
        return coreless

    def crowd(self, pool: Pool) -> tuple[int, int]:
        """Parts that wait for what a batch of the pool takes, and how many such batches run side by side."""
        if not self.is_contended:
            return pool.waiting, len(pool.placement.workers)
        waiting = sum(other.waiting for other in self.pools.values())
        return waiting, max(1, self.cores // max(1, self.need(pool)))

    def latest_end(self, pool: Pool, queue: KeyQueue, now: Instant) -> Instant:
        """When the batch that is about to leave must be over lest the head of another key be late.

        NEVER where that head can be taken meanwhile, and where too many keys wait to look at all: which
        of them were looked at would be a matter of history, that no snapshot tells.
        """
        others = list(islice(self._held_up_by(pool, queue, now), LOOK_AT_KEYS + 1))
        if len(others) > LOOK_AT_KEYS:
            return NEVER
        heads = (other.head() for other in others)
        return min((head.latest_start for head in heads if head is not None), default=NEVER)

    def _held_up_by(self, pool: Pool, queue: KeyQueue, now: Instant) -> Iterator[KeyQueue]:
        """Other queues that wait and cannot be served beside a batch from this one."""

        def beside(other: Pool) -> bool:
            return self.has_cores_for(pool, other, now=now)

        if pool.waiting > queue.count and (len(pool.placement.free) < 2 or not beside(pool)):
            yield from (other for other in pool.keys.values() if other.count and other is not queue)
        if not self.cores:
            return
        for other in self.pools.values():
            if other is not pool and other.waiting and other.placement.free and not beside(other):
                yield from (queue for queue in other.keys.values() if queue.count)

    # -- tenants ---------------------------------------------------------------------------

    def correct(self, account: Account, service: float) -> None:
        """Charge what a batch took beyond (or, negative, below) what was charged for it."""
        account.charge(service)
        if service < 0:
            _sooner(account)

    def release(self, account: Account, amount: int) -> None:
        """See `Account.release`."""
        account.release(amount)
        _sooner(account)


def _sooner(account: Account) -> None:
    """Its counter has become smaller: its turn may come before that of others."""
    for tenant_queue in account.queues.values():
        queue = tenant_queue.queue
        queue.turns.update(tenant_queue)
        queue.pool.agenda.update(queue)


def _entry(queue: KeyQueue) -> tuple[int, Instant, int]:
    """Of the tenant whose turn it is within the key: its counter, its head's due time and arrival."""
    assert queue.entry is not None
    return queue.entry
