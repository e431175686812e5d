"""What waits for one batch key, by tenant."""

from __future__ import annotations

from bisect import insort
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from headway.core.fairness import Account
from headway.core.ids import BatchKey, Tenant
from headway.core.lazy import SLACK, Agenda, PartHeap
from headway.core.lengths import LengthIndex
from headway.core.requests import WAITING, QueuedPart
from headway.core.units import NEVER, Instant

if TYPE_CHECKING:
    from headway.core.pool import Pool


class TenantQueue:
    """One tenant's waiting parts of one key: by urgency for the head, by length for its neighbours."""

    __slots__ = ("account", "by_length", "count", "entry", "queue", "urgent")

    def __init__(self, queue: KeyQueue, account: Account) -> None:
        self.queue = queue
        self.account = account
        self.count = 0
        self.urgent = PartHeap()
        self.by_length = LengthIndex()
        self.entry: tuple[Any, ...] | None = None


def turn(queue: TenantQueue) -> tuple[int, Instant, int] | None:
    """Priority of a tenant within a key: least counter; ties by its head (due, then arrival)."""
    head = queue.urgent.first()
    return None if head is None else (queue.account.counter, head.due, head.seq)


class KeyQueue:
    """All waiting parts of one key, or of one key and length where lengths keep apart.

    name: what the pool knows it by.
    rows, tokens, bytes: sums over what waits.
    number: a short name for it, unique on its device.
    apart: the group that alone may be in it (see QueuedPart); 0: anybody.
    timer: when it is to be looked at again (NEVER: no timer).
    """

    __slots__ = (
        "_arrivals",
        "_starts",
        "apart",
        "bytes",
        "count",
        "entry",
        "key",
        "name",
        "number",
        "pool",
        "rows",
        "tenants",
        "timer",
        "tokens",
        "turns",
    )

    def __init__(self, pool: Pool, key: BatchKey, name: BatchKey, number: int, apart: int = 0) -> None:
        self.pool = pool
        self.apart = apart
        self.key = key
        self.name = name
        self.number = number
        self.count = 0
        self.rows = 0
        self.tokens = 0
        self.bytes = 0
        self.tenants: dict[Tenant, TenantQueue] = {}
        self.turns: Agenda[TenantQueue] = Agenda(turn)
        self.entry: tuple[Any, ...] | None = None
        self.timer: Instant = NEVER
        self._arrivals: deque[QueuedPart] = deque()
        self._starts = PartHeap()

    def push(self, part: QueuedPart, account: Account, keep_starts: bool) -> bool:
        """keep_starts: somebody will ask for the latest starts. True when it may be the key's new head."""
        tenant = self.tenants.get(account.tenant)
        if tenant is None:
            tenant = self.tenants[account.tenant] = TenantQueue(self, account)
            account.queues[self.number] = tenant
        self.count += 1
        self.rows += part.rows
        self.tokens += part.rows * part.length
        self.bytes += part.bytes
        tenant.count += 1
        tenant.urgent.push(part.due, part, tenant.count)
        tenant.by_length.push(part, tenant.count)
        if self._arrivals and part.seq < self._arrivals[-1].seq:
            insort(self._arrivals, part)  # it is tried again
        else:
            self._arrivals.append(part)
        if len(self._arrivals) > 2 * self.count + SLACK:
            self._arrivals = deque(p for p in self._arrivals if p.state is WAITING)
        if keep_starts and part.latest_start != NEVER:
            self._starts.push(part.latest_start, part, self.count)
        entry = tenant.entry
        if entry is None or part.due < entry[1]:  # of equals the earlier arrival stays ahead
            self.turns.update(tenant)
            return True
        return False

    def left(self, parts: Sequence[QueuedPart], tenants: Sequence[TenantQueue]) -> None:
        """They no longer wait (their states say so already). tenants: whose each of them was."""
        for part, tenant in zip(parts, tenants, strict=True):
            self.rows -= part.rows
            self.tokens -= part.rows * part.length
            self.bytes -= part.bytes
            tenant.count -= 1
            if tenant.count == 0:
                account = tenant.account
                del self.tenants[account.tenant]
                del account.queues[self.number]
        self.count -= len(parts)

    def head(self) -> QueuedPart | None:
        """The most urgent part of the tenant whose turn it is."""
        tenant = self.turns.first()
        return None if tenant is None else tenant.urgent.first()

    def oldest(self) -> Instant:
        """When the longest-waiting part arrived. NEVER when none waits."""
        arrivals = self._arrivals
        while arrivals:
            if arrivals[0].state is WAITING:
                return arrivals[0].request.arrived
            arrivals.popleft()
        return NEVER

    def latest_start(self) -> Instant:
        """The first latest safe start among what waits. NEVER when not kept, or none has one."""
        at = self._starts.first_at()
        return NEVER if at is None else at

    def waiting(self) -> list[QueuedPart]:
        """In order of arrival."""
        return [part for part in self._arrivals if part.state is WAITING]
