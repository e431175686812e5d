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
from headway.core.units import Duration, Instant


class Forming:
    """A batch being built, and the rule by which it grows.

    length: of the longest member.  deadline: the earliest of the members'.  oldest: the first arrival.
    filled: a cap, and not the cost, kept somebody out.
    """

    __slots__ = (
        "_cost",
        "_now",
        "_others",
        "_policy",
        "_predicted",
        "deadline",
        "filled",
        "length",
        "members",
        "oldest",
        "owners",
        "rows",
    )

    def __init__(
        self, head: QueuedPart, owner: Account, policy: BatchPolicy, cost: CostModel, others: int, now: Instant
    ) -> None:
        """others: parts of the pool that wait besides the head."""
        self.members = [head]
        self.owners = [owner]
        self.rows = head.rows
        self.length = head.length
        self.deadline = head.request.deadline
        self.oldest = head.request.arrived
        self.filled = head.rows >= policy.max_batch_size
        self._policy = policy
        self._cost = cost
        self._others = others
        self._now = now
        self._predicted: Duration = cost.median(head.rows, head.length)
        head.state = RUNNING

    def better(self, shorter: QueuedPart | None, longer: QueuedPart | None) -> QueuedPart | None:
        """Of the two neighbours the one that gains more, if it gains and fits."""
        best = None
        best_gain = 0
        for part in (shorter, longer):
            if part is None:
                continue
            gain = self._gain(part)
            if gain > best_gain and self._fits(part):
                best, best_gain = part, gain
        return best

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
        self._predicted = self._cost.median(self.rows, self.length)
        self._others -= 1
        part.state = RUNNING

    def _gain(self, part: QueuedPart) -> int:
        """What joining takes off everybody's waiting, in nanoseconds."""
        if self._policy.hold:
            return 1
        cost = self._cost
        length = part.length if part.length > self.length else self.length
        added = cost.median(self.rows + part.rows, length) - self._predicted
        saved = cost.median(part.rows, part.length) - added
        return saved * self._others - added * len(self.members)

    def _fits(self, part: QueuedPart) -> bool:
        policy = self._policy
        rows = self.rows + part.rows
        length = part.length if part.length > self.length else self.length
        run_time = self._cost.upper(rows, length)
        if (
            rows > policy.max_batch_size
            or 0 < policy.max_batch_tokens < rows * length
            or 0 < policy.max_batch_time < run_time
        ):
            self.filled = True
            return False
        finish = self._now + run_time + policy.deadline_margin
        return (finish <= self.deadline and finish <= part.request.deadline) or self._is_late()

    def _is_late(self) -> bool:
        """Somebody will be late anyway: that is no reason against company."""
        alone = self._cost.upper(self.rows, self.length)
        return self._now + alone + self._policy.deadline_margin > self.deadline


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
    batch = Forming(head, head_queue.account, policy, cost, waiting - 1, now)
    if len(queue.tenants) == 1:
        if not batch.filled and queue.count > 1:
            _join_neighbours(batch, head_queue)
        queue.left_together(batch.members, head_queue)
        return batch
    queue.left(head, head_queue.account)
    if not batch.filled:
        _join_in_turn(batch, queue, head_queue, cost)
    return batch


def _join_neighbours(batch: Forming, tenant: TenantQueue) -> None:
    """All from one tenant: nothing but length and cost decides."""
    index, owner = tenant.by_length, tenant.account
    shorter, longer = index.shorter(batch.length), index.longer(batch.length)
    while (part := batch.better(shorter, longer)) is not None:
        batch.add(part, owner)
        if part is longer:
            longer = index.longer(part.length)
            shorter = index.shorter(part.length)  # its own bucket may hold more
        else:
            shorter = index.shorter(part.length)


def _join_in_turn(batch: Forming, queue: KeyQueue, head_queue: TenantQueue, cost: CostModel) -> None:
    """Members in the order of tentative counters. Tenants leave the key's agenda while they are considered."""
    tentative: list[tuple[int, int, TenantQueue]] = []
    reached: list[TenantQueue] = []

    def consider(tenant: TenantQueue, counter: int) -> None:
        queue.turns.remove(tenant)
        reached.append(tenant)
        heappush(tentative, (counter, len(reached), tenant))

    def share(part: QueuedPart, tenant: TenantQueue) -> int:
        return int(cost.median(part.rows, part.length) / tenant.account.weight)

    if head_queue.count:
        consider(head_queue, head_queue.account.counter + share(batch.members[0], head_queue))
    while True:
        following = queue.turns.first()
        if following is not None and (not tentative or following.account.counter <= tentative[0][0]):
            consider(following, following.account.counter)
            continue
        if not tentative:
            break
        counter, order, tenant = tentative[0]
        index = tenant.by_length
        part = batch.better(index.shorter(batch.length), index.longer(batch.length))
        if part is None:
            break
        batch.add(part, tenant.account)
        queue.left(part, tenant.account)
        if tenant.count:
            heapreplace(tentative, (counter + share(part, tenant), order, tenant))
        else:
            heappop(tentative)
    for tenant in reached:
        if tenant.count:
            queue.turns.update(tenant)
