"""A pool: the workers that hold one model version, and everything that waits for them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from headway.core.breaker import Breaker
from headway.core.budget import Budget
from headway.core.cost import CostModel
from headway.core.effects import Reason
from headway.core.fairness import Account
from headway.core.ids import BatchKey, VersionId
from headway.core.lazy import Agenda, PartHeap
from headway.core.leaving import why
from headway.core.linger import Linger
from headway.core.memory_cap import MemoryCap
from headway.core.outlook import Outlook
from headway.core.placement import Placement
from headway.core.policy import BatchPolicy, Style
from headway.core.queue import KeyQueue, TenantQueue
from headway.core.rate import ArrivalRate, RateMeter
from headway.core.requests import QueuedPart
from headway.core.room import Room
from headway.core.units import NEVER, Duration, Instant

if TYPE_CHECKING:
    from headway.core.device import Device

KEEP_KEYS = 16
"""Empty queues beyond this many are forgotten, so that clients cannot grow the pool by odd shapes."""


class Pool:
    """device: that its workers run on.
    queued: requests with a part that waits.  waiting: parts that wait.  rows, tokens: of those.
    work_waiting: what those would take one by one, in device nanoseconds.
    outlook: how forecasts of answers turned out.
    max_queue_delay: the ceiling of waiting for company that is in force: the policy's, or what `linger` says.
    room: what waits, in requests and rows, by tenant.
    breaker: whether it is refused for a while.  quarantine: content -> until when it is refused.
    rules: the operator's; policy: the same within what was learned of its workers' memory.
    budget: of executions that are tried again.  failed_in_a_row: batches, up to the last answer without a fault.
    starts: the waiting parts whose deadline makes them due, by their latest start.
    linger: None where the operator has fixed that ceiling.
    """

    __slots__ = (
        "agenda",
        "arrivals",
        "breaker",
        "budget",
        "cost",
        "device",
        "draining",
        "failed_in_a_row",
        "fair",
        "keys",
        "linger",
        "max_queue_delay",
        "memory",
        "now",
        "outlook",
        "placement",
        "policy",
        "pressure",
        "quarantine",
        "queued",
        "rate",
        "room",
        "rows",
        "rules",
        "starts",
        "tokens",
        "version",
        "waiting",
        "work_waiting",
    )

    def __init__(self, version: VersionId, device: Device, policy: BatchPolicy) -> None:
        self.version = version
        self.device = device
        self.now: Instant = 0
        self.cost = CostModel()
        self.memory = MemoryCap()
        self.fair = device.fair
        self.rate = RateMeter()
        self.outlook = Outlook()
        self.arrivals = ArrivalRate()
        self.placement = Placement()
        self.keys: dict[BatchKey, KeyQueue] = {}
        self.agenda: Agenda[KeyQueue] = Agenda(self._priority)
        self.starts = PartHeap()
        self.queued = 0
        self.waiting = 0
        self.rows = self.tokens = 0
        self.work_waiting = 0
        self.draining = False
        self.pressure = False
        self.breaker = Breaker()
        self.budget = Budget()
        self.quarantine: dict[int, Instant] = {}
        self.failed_in_a_row = 0
        self.linger: Linger | None = None
        self.room = Room((policy.max_queued_requests, policy.max_queued_rows), device.fair.tenancy.weight)
        self._govern(policy)

    # -- parts -----------------------------------------------------------------------------

    def push(self, part: QueuedPart) -> KeyQueue:
        """It waits from now on."""
        return self.put_back(part, self.fair.open(part.request.tenant, self.now))

    def put_back(self, part: QueuedPart, account: Account) -> KeyQueue:
        """It waits again (after a restore): nobody returns from idleness by that."""
        request = part.request
        self.fair.enter(account)
        self.fair.waits(account, part)
        if request.waiting == 0:
            self.queued += 1
            self.room.enter(request, (1, part.rows))
        else:
            self.room.grow(request, (0, part.rows))
        request.waiting += 1
        self.waiting += 1
        self.rows += part.rows
        self.tokens += part.rows * part.length
        self.work_waiting += part.work
        return self._insert(part, account)

    def _insert(self, part: QueuedPart, account: Account) -> KeyQueue:
        name = self._name(part)
        queue = self.keys.get(name)
        if queue is None:
            queue = self.keys[name] = KeyQueue(self, part.request.key, name, self.device.next_number(), part.apart)
        hold = self.policy.hold
        if part.tight:
            self.starts.push(part.latest_start, part, self.waiting)
        if queue.push(part, account, keep_starts=hold) or hold:
            self.agenda.update(queue)
        return queue

    def _name(self, part: QueuedPart) -> BatchKey:
        """Of the queue that it waits in."""
        key = part.request.key
        if self.policy.equal_lengths:
            key = key.of_length(part.length)
        return key.of_group(part.apart) if part.apart else key

    def taken(self, parts: Sequence[QueuedPart], accounts: Sequence[Account]) -> None:
        """They no longer wait; their key's queue knows already. accounts: whose each of them was."""
        for part, account in zip(parts, accounts, strict=True):
            self.fair.waits_no_more(account, part)
            request = part.request
            request.waiting -= 1
            if request.waiting == 0:
                self.queued -= 1
                self.room.leave(request, (1, part.rows), whole=True)
            else:
                self.room.leave(request, (0, part.rows), whole=False)
            self.rows -= part.rows
            self.tokens -= part.rows * part.length
            self.work_waiting -= part.work
        self.waiting -= len(parts)

    def waiting_parts(self) -> list[QueuedPart]:
        """All that wait, in order of arrival."""
        return sorted((part for queue in self.keys.values() for part in queue.waiting()), key=lambda part: part.seq)

    def give_up(self, part: QueuedPart) -> KeyQueue:
        """A waiting part leaves without having run. Its state says so already."""
        queue = self.keys[self._name(part)]
        account = self.fair.accounts[part.request.tenant]
        queue.left((part,), (queue.tenants[account.tenant],))
        self.taken((part,), (account,))
        self.fair.leave(account)
        self.tidy(queue)
        return queue

    def tidy(self, queue: KeyQueue) -> None:
        """After parts have left a queue: its turn in the agenda can only have moved back."""
        if queue.count == 0 and (queue.apart or len(self.keys) > KEEP_KEYS):
            del self.keys[queue.name]

    def reconfigure(self, policy: BatchPolicy) -> list[KeyQueue]:
        """Other rules: every waiting part is put back by them. Returns the queues."""
        parts = self.waiting_parts()
        self._govern(policy)
        for queue in self.keys.values():
            queue.timer = NEVER  # a timer of a queue that is no more
        self.keys = {}
        self.starts = PartHeap()
        self.agenda = Agenda(self._priority)
        for account in self.fair.accounts.values():
            account.queues = {n: tenant for n, tenant in account.queues.items() if tenant.queue.pool is not self}
        for part in parts:
            self._insert(part, self.fair.accounts[part.request.tenant])
        return list(self.keys.values())

    def cap_memory(self) -> None:
        """What was learned of it is another thing now."""
        learned, operators = self.memory.tokens, self.rules.max_batch_tokens
        tokens = min(learned, operators) if learned and operators else learned or operators
        self.policy = replace(self.rules, max_batch_tokens=tokens) if tokens != operators else self.rules

    def _govern(self, policy: BatchPolicy) -> None:
        self.rules = policy
        self.cap_memory()
        self.room.limits = (policy.max_queued_requests, policy.max_queued_rows)
        self.room.reweigh()
        if not (policy.derive_delay and policy.slo and policy.style is Style.BATCH):
            self.linger = None
            self.max_queue_delay = policy.max_queue_delay
            return
        if self.linger is None:
            self.linger = Linger()
        self.renew_delay()

    def renew_delay(self) -> None:
        """The ceiling that is derived, from what is known now. Times of queues that wait may have changed."""
        if self.linger is not None:
            self.max_queue_delay = self.linger.renew(self.policy.slo, self.cost, self.now)

    def work(self, rows: int, length: int) -> Duration:
        """Device nanoseconds (times cores) that a part would take alone."""
        return self.cost.median(rows, length) * max(1, self.policy.cores)

    def mean_length(self) -> int:
        """Of the rows that wait, at least 1; 0 = none waits."""
        return max(1, self.tokens // self.rows) if self.rows else 0

    def latest_start(self, deadline: Instant, rows: int, length: int) -> Instant:
        """When a part must start, alone, to be in time at the upper quantile of what it takes."""
        if deadline == NEVER:
            return NEVER
        return deadline - self.cost.upper(rows, length) - self.policy.deadline_margin

    def is_hopeless(self, part: QueuedPart, start: Instant) -> bool:
        """Whether it would be late even at the lower quantile of what it takes alone."""
        return start + self.cost.lower(part.rows, part.length) > part.request.deadline

    # -- keys ------------------------------------------------------------------------------

    def reconsider(self) -> None:
        """Queues that hold their parts may have a reason to let go now."""
        for queue in self.keys.values():
            self.agenda.update(queue)

    def reason(self, queue: KeyQueue, now: Instant) -> Reason | None:
        """Why something of this key should leave now; None = nothing should."""
        policy = self.policy
        if queue.count == 0:
            return None
        if queue.apart:
            return None if queue.apart < 0 and self._tries_a_suspect() else Reason.RETRY
        if not policy.hold or policy.style is Style.SEQUENCE:
            return Reason.IDLE
        return why(
            policy,
            filled=self._fills_a_batch(queue),
            latest_start=queue.latest_start(),
            oldest=queue.oldest(),
            delay=self.max_queue_delay,
            draining=self.draining,
            pressure=self.pressure,
            now=now,
        )

    def _tries_a_suspect(self) -> bool:
        """One at a time: of several that might kill a worker two would cost two."""
        busy = self.placement.busy.values()
        return any(batch.is_suspect for worker in busy for batch in worker.batches.values())

    def _fills_a_batch(self, queue: KeyQueue) -> bool:
        """Whether what waits reaches a cap. Padding is not known before the batch is formed: as if there were none."""
        policy = self.policy
        if policy.is_filled_by(queue.rows, queue.tokens, queue.bytes):
            return True
        mean_length = -(-queue.tokens // queue.rows)
        limit = policy.time_limit(self.cost.upper(1, mean_length))
        return limit < NEVER and limit <= self.cost.upper(queue.rows, mean_length)

    def promoted(self, queue: KeyQueue, now: Instant) -> TenantQueue | None:
        """Whose deadline is so near that one more batch would make it late goes before the tenant whose turn it is, as
        long as its own tenant is within its share: not more than one of the longest batches ahead. None: nobody's.

        queue: whose turn it is. One who comes too near beyond its share has missed its chance to be promoted.
        """
        leader = queue.turns.first()
        if leader is None or self.policy.hold or self.policy.style is Style.SEQUENCE:
            return None
        while (part := self.starts.first()) is not None:
            longest = self.policy.time_limit(self.cost.upper(part.rows, part.length))
            if part.latest_start > now + longest:
                return None
            tenant = self.keys[self._name(part)].tenants[part.request.tenant]
            account = tenant.account
            if account is leader.account or self.is_hopeless(part, now):
                return None
            if account.counter <= leader.account.counter + longest * max(1, self.policy.cores) / account.weight:
                return tenant
            part.tight = False
            self.starts.drop_first()
        return None

    def wake_at(self, queue: KeyQueue) -> Instant:
        """When a queue that holds its parts has a reason to let them go, if nothing else happens."""
        if queue.count == 0 or queue.apart or not self.policy.hold:
            return NEVER
        return min(queue.oldest() + self.max_queue_delay, queue.latest_start())

    def _priority(self, queue: KeyQueue) -> tuple[Any, ...] | None:
        """Between keys that have a reason: the one whose tenant is furthest behind."""
        if self.reason(queue, self.now) is None:
            return None
        leader = queue.turns.first()
        return None if leader is None else leader.entry
