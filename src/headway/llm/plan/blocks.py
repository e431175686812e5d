"""The pool of KV blocks: who holds which, and what lies in those that nobody holds.

A block is *held* (by one sequence or several), *idle* (held by nobody, its content is in the prefix cache) or *free*.
Idle blocks are evicted when blocks are wanted: of the tenant furthest beyond its share first, and of a tenant's the one
that has been idle longest. That is a leaf: whoever holds a block holds all that come before it, and gives them back
last block first, so that a block never becomes idle before those that continue it. Only where tenants share may another
tenant's blocks continue it: they are idle as well, of no use without it, and go with it.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from itertools import islice

from headway.core.ids import Tenant

NOBODY = ""


class BlockPool:
    """size: blocks in all.  holders: of each, how many.  owner: of each block that is held or idle, who computed it.
    held: blocks held, by owner.  idle: idle blocks by owner, in the order in which they became so.
    evicted: blocks whose content was thrown away, by why.  debt: blocks that are to go as soon as nobody holds them.
    """

    __slots__ = (
        "_forget",
        "_free",
        "_weight",
        "debt",
        "evicted",
        "gone",
        "held",
        "holders",
        "idle",
        "idle_count",
        "owner",
        "size",
    )

    def __init__(self, size: int, forget: Callable[[int], list[int]], weight: Callable[[Tenant], float]) -> None:
        """forget: told of a block whose content is lost; the blocks whose content is lost with it, itself included.
        weight: of a tenant."""
        self.size = size
        self.holders = [0] * size
        self.owner: list[Tenant] = [NOBODY] * size
        self.held: dict[Tenant, int] = {}
        self.idle: dict[Tenant, OrderedDict[int, None]] = {}
        """Ordered, since the first of a dict is found by a search past all that have gone."""
        self.idle_count = 0
        self.evicted = {"room": 0, "shrunk": 0}
        self.debt = 0
        self.gone: list[int] = []
        self._free: deque[int] = deque(range(size))
        self._forget = forget
        self._weight = weight

    @property
    def available(self) -> int:
        """Blocks that can be had now."""
        return len(self._free) + self.idle_count

    @property
    def free(self) -> int:
        return len(self._free)

    @property
    def in_use(self) -> int:
        """Blocks that are held."""
        return self.size - self.available - len(self.gone)

    @property
    def usable(self) -> int:
        """Blocks there will be once the debt is paid."""
        return self.size - len(self.gone) - self.debt

    def take(self, count: int, tenant: Tenant) -> list[int]:
        """So many blocks, held once each; there must be as many available."""
        free = self._free
        while len(free) < count:
            self._evict(count - len(free), "room")
        taken = [free.popleft() for _ in range(count)]
        for block in taken:
            self.holders[block] = 1
            self.owner[block] = tenant
        self.held[tenant] = self.held.get(tenant, 0) + count
        return taken

    def share(self, block: int) -> None:
        """One more holds it."""
        if self.holders[block] == 0:
            owner = self.owner[block]
            idle = self.idle[owner]
            del idle[block]
            if not idle:
                del self.idle[owner]
            self.idle_count -= 1
            self.held[owner] = self.held.get(owner, 0) + 1
        self.holders[block] += 1

    def give_back(self, blocks: list[int], keeps: Callable[[int], bool]) -> None:
        """Of one holder, in the order of its sequence. keeps: asked of each that nobody holds any more: whether its
        content is worth keeping."""
        for block in reversed(blocks):
            holders = self.holders[block] = self.holders[block] - 1
            if holders > 0:
                continue
            owner = self.owner[block]
            left = self.held[owner] = self.held[owner] - 1
            if left == 0:
                del self.held[owner]
            if keeps(block):
                self.idle.setdefault(owner, OrderedDict())[block] = None
                self.idle_count += 1
            else:
                self.owner[block] = NOBODY
                self._free.append(block)
        if self.debt:
            self._pay()

    def is_idle(self, block: int) -> bool:
        return self.holders[block] == 0 and self.owner[block] != NOBODY

    def let_go(self, block: int) -> None:
        """An idle block, whose content is in another."""
        self._drop(block)
        if self.debt:
            self._pay()

    def resize(self, usable: int) -> None:
        """So many blocks from now on; those that are held go when they are given back."""
        while self.usable < usable and self.debt:
            self.debt -= 1
        while self.usable < usable and self.gone:
            self._free.append(self.gone.pop())
        grown = usable - self.usable
        if grown > 0:
            self._free.extend(range(self.size, self.size + grown))
            self.holders.extend([0] * grown)
            self.owner.extend([NOBODY] * grown)
            self.size += grown
        self.debt += max(0, self.usable - usable)
        self._pay()

    def _pay(self) -> None:
        while self.debt and self.available:
            if not self._free:
                self._evict(1, "shrunk")
            self.gone.append(self._free.popleft())
            self.debt -= 1

    def _evict(self, count: int, why: str) -> None:
        """Up to so many idle blocks of the tenant furthest beyond its share."""
        owner = max(self.idle, key=self._beyond) if len(self.idle) > 1 else next(iter(self.idle))
        idle = self.idle[owner]
        if len(self.idle) > 1:  # one at a time, so that tenants end up even
            count = min(count, 1 + len(idle) // 8)
        for block in list(islice(idle, count)):
            for lost in self._forget(block):
                self._drop(lost)
                self.evicted[why] += 1

    def _drop(self, block: int) -> None:
        """It was idle, and is free."""
        owner = self.owner[block]
        idle = self.idle[owner]
        del idle[block]
        if not idle:
            del self.idle[owner]
        self.owner[block] = NOBODY
        self._free.append(block)
        self.idle_count -= 1

    def _beyond(self, tenant: Tenant) -> float:
        """How much it has for each unit of its weight."""
        return (self.held.get(tenant, 0) + len(self.idle[tenant])) / self._weight(tenant)
