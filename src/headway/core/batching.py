"""Who joins a batch.

A batch is built around a head, looking outward to its neighbours in length. With n members, adding
j costs each of them `added = cost(n + 1, L') - cost(n, L)` and saves the device
`saved = cost(1, L_j) - added`. Joining lowers the total waiting of everyone while
`saved * (parts left waiting + 1) > added * n`.

The cost model is affine in rows and padded tokens, so in either direction of length the gain of the
next neighbour only falls: taking the better of the two neighbours until neither gains is the best
batch, not a first refusal. An operator who holds batches has decided that company pays: the caps
alone end such a batch.

Fairness: the next member comes from the tenant whose counter, with what it has in this batch
already, is least; where its neighbour does not pay, the batch is done.
"""

from __future__ import annotations

from heapq import heappop, heappush, heapreplace

from headway.core.cost import CostModel
from headway.core.fairness import Account
from headway.core.policy import BatchPolicy
from headway.core.queue import KeyQueue, TenantQueue
from headway.core.requests import RUNNING, QueuedPart
from headway.core.units import Instant


class Forming:
    """A batch being built. filled: a cap, and not the cost, kept somebody out.

    length: of the longest member.  deadline: the earliest of the members'.
    """

    __slots__ = ("deadline", "filled", "length", "members", "oldest", "owners", "rows")

    def __init__(self, head: QueuedPart, owner: Account) -> None:
        self.members = [head]
        self.owners = [owner]
        self.rows = head.rows
        self.length = head.length
        self.deadline = head.request.deadline
        self.oldest = head.request.arrived
        self.filled = False

    def add(self, part: QueuedPart, owner: Account) -> None:
        self.members.append(part)
        self.owners.append(owner)
        self.rows += part.rows
        if part.length > self.length:
            self.length = part.length
        request = part.request
        if request.deadline < self.deadline:
            self.deadline = request.deadline
        if request.arrived < self.oldest:
            self.oldest = request.arrived


class Joiner:
    """The join rule for one batch. waiting: parts of the pool that wait, the head not among them."""

    __slots__ = ("_added", "_batch", "_cost", "_cost_now", "_now", "_policy", "_waiting")

    def __init__(self, batch: Forming, policy: BatchPolicy, cost: CostModel, waiting: int, now: Instant) -> None:
        self._batch = batch
        self._policy = policy
        self._cost = cost
        self._waiting = waiting
        self._now = now
        self._cost_now = cost.median(batch.rows, batch.length)
        self._added = 0

    def best(self, queue: TenantQueue) -> QueuedPart | None:
        """The neighbour that gains most, of those that fit and gain at all."""
        length = self._batch.length
        shorter = queue.by_length.shorter(length)
        longer = queue.by_length.longer(length)
        best: QueuedPart | None = None
        best_gain = 0
        for part in (shorter, longer):
            if part is None:
                continue
            gain = self._gain(part)
            if gain > best_gain:
                rows, length = self._batch.rows + part.rows, max(self._batch.length, part.length)
                if self._capped(rows, length):
                    self._batch.filled = True
                elif not self._makes_late(part, rows, length):
                    best, best_gain = part, gain
        return best

    def take(self, part: QueuedPart, owner: Account) -> None:
        batch = self._batch
        batch.add(part, owner)
        self._cost_now = self._cost.median(batch.rows, batch.length)
        self._waiting -= 1

    def _gain(self, part: QueuedPart) -> int:
        if self._policy.hold:
            return 1 if part.length <= self._batch.length else 2  # both neighbours, in a fixed order
        batch = self._batch
        cost = self._cost
        added = cost.median(batch.rows + part.rows, max(batch.length, part.length)) - self._cost_now
        saved = cost.median(part.rows, part.length) - added
        return saved * self._waiting - added * len(batch.members)

    def _capped(self, rows: int, length: int) -> bool:
        policy = self._policy
        if rows > policy.max_batch_size or 0 < policy.max_batch_tokens < rows * length:
            return True
        return 0 < policy.max_batch_time < self._cost.upper(rows, length)

    def _makes_late(self, part: QueuedPart, rows: int, length: int) -> bool:
        """Whether somebody would miss a deadline by it. Who is late anyway is no reason against joining."""
        batch, margin = self._batch, self._policy.deadline_margin
        finish = self._now + self._cost.upper(rows, length) + margin
        if finish <= min(batch.deadline, part.request.deadline):
            return False
        alone = self._now + self._cost.upper(batch.rows, batch.length) + margin
        return alone <= batch.deadline


def fits_alone(rows: int, length: int, policy: BatchPolicy) -> bool:
    """Whether a part respects the caps all by itself. One row always does: there is nothing to cut."""
    if rows == 1:
        return True
    return rows <= policy.max_batch_size and not 0 < policy.max_batch_tokens < rows * length


def form_batch(
    queue: KeyQueue, head_queue: TenantQueue, policy: BatchPolicy, cost: CostModel, waiting: int, now: Instant
) -> Forming:
    """Take the batch around the head of `head_queue` out of `queue`. Its members are RUNNING afterwards.

    waiting: parts of the pool that wait, the head included.
    """
    head = head_queue.urgent.first()
    assert head is not None
    owner = head_queue.account
    batch = Forming(head, owner)
    _leave(queue, head, owner)
    if batch.rows >= policy.max_batch_size:
        batch.filled = True
    elif len(queue.tenants) == 1 and head_queue.count:
        _join_from_one(batch, Joiner(batch, policy, cost, waiting - 1, now), queue, head_queue)
    elif queue.tenants:
        _join_in_turn(batch, Joiner(batch, policy, cost, waiting - 1, now), queue, head_queue, cost)
    return batch


def _leave(queue: KeyQueue, part: QueuedPart, owner: Account) -> None:
    part.state = RUNNING
    queue.left(part, owner)


def _join_from_one(batch: Forming, joiner: Joiner, queue: KeyQueue, tenant: TenantQueue) -> None:
    owner = tenant.account
    while tenant.count:
        part = joiner.best(tenant)
        if part is None:
            return
        joiner.take(part, owner)
        _leave(queue, part, owner)


def _join_in_turn(batch: Forming, joiner: Joiner, queue: KeyQueue, head_queue: TenantQueue, cost: CostModel) -> None:
    """Members in the order of tentative counters. Tenants leave the key's agenda as they are reached."""
    tentative: list[tuple[int, int, TenantQueue]] = []
    reached: list[TenantQueue] = []
    if head_queue.count:
        head = batch.members[0]
        alone = int(cost.median(head.rows, head.length) / head_queue.account.weight)
        queue.turns.remove(head_queue)
        reached.append(head_queue)
        tentative.append((head_queue.account.counter + alone, 0, head_queue))
    while True:
        following = queue.turns.first()
        if following is not None and (not tentative or following.account.counter <= tentative[0][0]):
            queue.turns.remove(following)
            heappush(tentative, (following.account.counter, len(reached) + 1, following))
            reached.append(following)
            continue
        if not tentative:
            break
        counter, order, tenant = tentative[0]
        part = joiner.best(tenant)
        if part is None:
            break
        account = tenant.account
        joiner.take(part, account)
        _leave(queue, part, account)
        if tenant.count:
            alone = cost.median(part.rows, part.length)
            heapreplace(tentative, (counter + int(alone / account.weight), order, tenant))
        else:
            heappop(tentative)
    for tenant in reached:
        if tenant.count:
            queue.turns.update(tenant)
