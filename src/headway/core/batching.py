"""Who joins a batch.

A batch is built around a head, looking outward to its neighbours in length. With n members, adding
j costs each of them `added = cost(n + 1, L') - cost(n, L)` and saves the device
`saved = cost(1, L_j) - added`. Joining lowers the total waiting of everyone while
`saved * (parts left waiting + 1) > added * n`; that difference is the joiner's gain.

Every prefix is looked at, and the one with the greatest sum of gains is the batch: on a device with
fixed kernel sizes a second member may cost dearly and the next six nothing. Where the cost model has
no step ahead, each joiner costs at least what the one before it did, and the first that does not
gain ends the search. An operator who holds batches has decided that company pays: the caps alone
end such a batch.

Fairness: the next member comes from the tenant whose counter, with what it has in this batch
already, is least; where its neighbour does not pay, the batch is done.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace

from headway.core.cost import CostModel
from headway.core.policy import AUTOMATIC_BATCH_TIME, BatchPolicy
from headway.core.queue import KeyQueue, TenantQueue
from headway.core.requests import RUNNING, WAITING, QueuedPart
from headway.core.units import NEVER, Duration, Instant


class Forming:
    """A batch being built, and the rule by which it grows.

    length: of the longest member.  deadline: the earliest of the members'.  oldest: the first arrival.
    filled: a cap kept somebody out.
    """

    __slots__ = (
        "_cost",
        "_latest_end",
        "_others",
        "_policy",
        "_predicted",
        "_start",
        "_time_limit",
        "deadline",
        "filled",
        "length",
        "members",
        "oldest",
        "owners",
        "rows",
    )

    members: list[QueuedPart]
    owners: list[TenantQueue]
    rows: int
    length: int
    deadline: Instant
    oldest: Instant
    filled: bool
    _predicted: Duration

    def __init__(
        self,
        head: QueuedPart,
        owner: TenantQueue,
        policy: BatchPolicy,
        cost: CostModel,
        others: int,
        latest_end: Instant,
        start: Instant,
    ) -> None:
        """others: parts of the pool that wait, the head included.
        latest_end: when the worker must be free again for somebody else's sake.
        start: when the batch will begin to run."""
        self._policy = policy
        self._cost = cost
        self._others = others
        self._latest_end = latest_end
        self._start = start
        self._time_limit = policy.max_batch_time or _automatic_limit(head, policy, cost)
        self._clear()
        self.add(head, owner)

    def better(self, shorter: QueuedPart | None, longer: QueuedPart | None) -> tuple[QueuedPart | None, int]:
        """Of the two neighbours that fit the one that gains more, and its gain (which may be negative)."""
        best: QueuedPart | None = None
        best_gain = 0
        for part in (shorter, longer):
            if part is None:
                continue
            gain = self._gain(part)
            if (best is None or gain > best_gain) and self._fits(part, gain):
                best, best_gain = part, gain
        return best, best_gain

    def add(self, part: QueuedPart, owner: TenantQueue) -> None:
        self.members.append(part)
        self.owners.append(owner)
        part.state = RUNNING
        self.rows += part.rows
        if part.length > self.length:
            self.length = part.length
        request = part.request
        if request.deadline < self.deadline:
            self.deadline = request.deadline
        if request.arrived < self.oldest:
            self.oldest = request.arrived
        self._predicted = self._cost.median(self.rows, self.length)
        self._others -= 1

    def cut(self, size: int) -> None:
        """Give all but the first `size` members back to their queues: not a cap, their cost keeps them out."""
        if size == len(self.members):
            return
        kept, owners = self.members[:size], self.owners[:size]
        for part, owner in zip(reversed(self.members[size:]), reversed(self.owners[size:]), strict=True):
            part.state = WAITING
            owner.by_length.put_back(part)
        self._others += len(self.members)
        self._clear()
        for part, owner in zip(kept, owners, strict=True):
            self.add(part, owner)

    def _clear(self) -> None:
        self.members = []
        self.owners = []
        self.rows = self.length = 0
        self.deadline = self.oldest = NEVER
        self.filled = False
        self._predicted = 0

    @property
    def is_full(self) -> bool:
        """A cap is reached."""
        policy = self._policy
        return (
            self.filled or self.rows >= policy.max_batch_size or 0 < policy.max_batch_tokens <= self.rows * self.length
        )

    def is_over(self, gain: int) -> bool:
        """Nobody after a joiner that gains so much can gain."""
        return gain <= 0 and self.rows >= self._cost.steady_from

    def _gain(self, part: QueuedPart) -> int:
        """What joining takes off everybody's waiting, in nanoseconds."""
        if self._policy.hold:
            return 1
        cost = self._cost
        length = part.length if part.length > self.length else self.length
        added = cost.median(self.rows + part.rows, length) - self._predicted
        saved = cost.median(part.rows, part.length) - added
        return saved * self._others - added * len(self.members)

    def _fits(self, part: QueuedPart, gain: int) -> bool:
        rows = self.rows + part.rows
        length = part.length if part.length > self.length else self.length
        run_time = self._cost.upper(rows, length)
        policy = self._policy
        if rows > policy.max_batch_size or 0 < policy.max_batch_tokens < rows * length or run_time > self._time_limit:
            if gain > 0:
                self.filled = True
            return False
        return not self._harms(part, self._start + run_time)

    def _harms(self, part: QueuedPart, end: Instant) -> bool:
        """Whether somebody who would be in time is late by this joiner: a member, the joiner itself, or the
        head of another key. Who is late anyway is no reason against company."""
        margin = self._policy.deadline_margin
        if end + margin <= self.deadline and end + margin <= part.request.deadline and end <= self._latest_end:
            return False
        without = self._start + self._cost.upper(self.rows, self.length)
        alone = self._start + self._cost.upper(part.rows, part.length)
        return (
            without + margin <= self.deadline < end + margin
            or without <= self._latest_end < end
            or alone + margin <= part.request.deadline < end + margin
        )


def _automatic_limit(head: QueuedPart, policy: BatchPolicy, cost: CostModel) -> Duration:
    if policy.hold:
        return NEVER
    return max(AUTOMATIC_BATCH_TIME, 2 * cost.upper(head.rows, head.length))


def fits_alone(rows: int, length: int, policy: BatchPolicy) -> bool:
    """Whether a part respects the caps all by itself. One row always does: there is nothing to cut."""
    if rows == 1:
        return True
    return rows <= policy.max_batch_size and not 0 < policy.max_batch_tokens < rows * length


def form_batch(
    queue: KeyQueue,
    head_queue: TenantQueue,
    policy: BatchPolicy,
    cost: CostModel,
    waiting: int,
    latest_end: Instant,
    start: Instant,
) -> Forming:
    """Take the batch around the head of `head_queue` out of `queue`. Its members are RUNNING afterwards.

    waiting: parts of the pool that wait, the head included.
    latest_end: when the worker must be free again lest somebody of another key be late (NEVER: no matter).
    start: when it will begin to run: now, or when what its worker runs is expected to end.
    """
    head = head_queue.urgent.first()
    assert head is not None
    batch = Forming(head, head_queue, policy, cost, waiting, latest_end, start)
    if queue.count > 1 and head.rows < policy.max_batch_size:
        if len(queue.tenants) == 1:
            _grow(batch, _Neighbours(head_queue))
        else:
            turns = _InTurn(queue, head_queue, head, cost)
            _grow(batch, turns)
            turns.close()
    queue.left(batch.members, batch.owners)
    return batch


def _grow(batch: Forming, source: _Neighbours | _InTurn) -> None:
    """The best of all prefixes, in the order in which `source` proposes."""
    total = best_total = 0
    best = 1
    while True:
        proposal = source.propose(batch)
        if proposal is None:
            break
        part, tenant, gain = proposal
        if batch.is_over(gain):
            break
        batch.add(part, tenant)
        source.taken(part)
        total += gain
        if total > best_total:
            best_total, best = total, len(batch.members)
    batch.cut(best)


class _Neighbours:
    """All from one tenant: nothing but length and cost decides."""

    __slots__ = ("_index", "_longer", "_shorter", "_stale", "_tenant")

    def __init__(self, tenant: TenantQueue) -> None:
        self._tenant = tenant
        self._index = tenant.by_length
        self._shorter: QueuedPart | None = None
        self._longer: QueuedPart | None = None
        self._stale = True

    def propose(self, batch: Forming) -> tuple[QueuedPart, TenantQueue, int] | None:
        if self._stale:
            self._shorter, self._longer = self._index.shorter(batch.length), self._index.longer(batch.length)
            self._stale = False
        part, gain = batch.better(self._shorter, self._longer)
        return None if part is None else (part, self._tenant, gain)

    def taken(self, part: QueuedPart) -> None:
        if part is self._longer:
            self._stale = True  # its own bucket may hold more, which are not longer any more
        else:
            self._shorter = self._index.shorter(part.length)


class _InTurn:
    """Several tenants: proposals in the order of tentative counters.

    Tenants leave the key's agenda while they are considered, until `close`.
    """

    __slots__ = ("_cost", "_queue", "_reached", "_tentative")

    def __init__(self, queue: KeyQueue, head_queue: TenantQueue, head: QueuedPart, cost: CostModel) -> None:
        self._queue = queue
        self._cost = cost
        self._tentative: list[tuple[int, int, TenantQueue]] = []
        self._reached: list[TenantQueue] = []
        self._consider(head_queue, head_queue.account.counter + self._share(head, head_queue))

    def propose(self, batch: Forming) -> tuple[QueuedPart, TenantQueue, int] | None:
        while True:
            following = self._queue.turns.first()
            if following is not None and (not self._tentative or following.account.counter <= self._tentative[0][0]):
                self._consider(following, following.account.counter)
                continue
            if not self._tentative:
                return None
            tenant = self._tentative[0][2]
            index = tenant.by_length
            shorter, longer = index.shorter(batch.length), index.longer(batch.length)
            if shorter is None and longer is None:
                heappop(self._tentative)  # all it had is in the batch
                continue
            part, gain = batch.better(shorter, longer)
            return None if part is None else (part, tenant, gain)

    def taken(self, part: QueuedPart) -> None:
        counter, order, tenant = self._tentative[0]
        heapreplace(self._tentative, (counter + self._share(part, tenant), order, tenant))

    def close(self) -> None:
        for tenant in self._reached:
            self._queue.turns.update(tenant)

    def _consider(self, tenant: TenantQueue, counter: int) -> None:
        self._queue.turns.remove(tenant)
        self._reached.append(tenant)
        heappush(self._tentative, (counter, len(self._reached), tenant))

    def _share(self, part: QueuedPart, tenant: TenantQueue) -> int:
        return int(self._cost.median(part.rows, part.length) / tenant.account.weight)
