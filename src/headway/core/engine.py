"""An engine as the core sees it: what it has reported, and what it has been handed that it has not heard of yet.

An engine computes the tokens of many sequences, step by step, by a planner of its own. What it reports is true of the
moment at which it had heard of so many orders; what was ordered since then is counted on top, each order exactly once:
so that a report that is late undoes nothing. What waits in it is at most one step's worth, so that the order of what
waits stays one order over all engines: the core's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from headway.core.ids import Capacity, RequestId, Tenant

if TYPE_CHECKING:
    from headway.core.fairness import Account
    from headway.core.workers import RunningSequence

MOST_PREFIXES = 2048
"""That are remembered of one engine; of more the one least recently used is forgotten."""


class Engine:
    """capacity: what it holds in all.
    slots, blocks: of its sequences and key-value blocks, free by the last report; what waits there is not taken off.
    prefilling: tokens of prompts under way that it had yet to compute then.
    report: number of that report.  heard: orders that it had heard of.  orders: given so far, counted from 1.
    waiting: what it has not heard of, and what it has said waits there.
    owed: what accounts are charged in advance for prompts that are under way, in units of the counter.
    prefixes: beginnings of prompts that its cache should have, by their hashes; least recently used first.
    """

    __slots__ = (
        "blocks",
        "capacity",
        "heard",
        "orders",
        "owed",
        "prefilling",
        "prefixes",
        "report",
        "slots",
        "waiting",
    )

    def __init__(self, capacity: Capacity) -> None:
        self.capacity = capacity
        self.slots = capacity.sequences
        self.blocks = capacity.kv_blocks
        self.prefilling = 0
        self.report = self.heard = self.orders = 0
        self.waiting: dict[RequestId, RunningSequence] = {}
        self.owed: dict[Tenant, tuple[Account, int]] = {}
        self.prefixes: dict[int, None] = {}

    # -- room ------------------------------------------------------------------------------

    def blocks_of(self, tokens: int) -> int:
        return -(-tokens // self.capacity.block_size)

    def never(self, tokens: int) -> str:
        """Why so many known tokens and one more can never be held; "" = they can."""
        capacity = self.capacity
        most = min(capacity.kv_blocks * capacity.block_size, capacity.max_context or tokens + 1)
        if tokens < most:
            return ""
        return f"{tokens} tokens, and one of output, need room for {tokens + 1}: the engine holds {most}"

    def holds(self, tokens: int) -> bool:
        """Whether there is room for so many now, when all that waits there has had its own."""
        blocks = self.blocks - sum([self.blocks_of(running.tokens) for running in self.waiting.values()])
        return self.slots > len(self.waiting) and self.blocks_of(tokens) <= blocks

    def takes(self, tokens: int, priority: int) -> bool:
        """Whether a sequence may be handed to it now: as long as there is room, and what waits there is less than a
        step computes. Beyond room one waits there, for the next step not to lack one; and whoever is of a more urgent
        class than all that wait, as only the engine can make room for it."""
        ahead = [running.tokens for running in self.waiting.values() if running.part.request.priority <= priority]
        return not ahead or (sum(ahead) < max(1, self.capacity.step_tokens) and self.holds(tokens))

    @property
    def ahead(self) -> int:
        """Tokens of prompts that it has yet to compute."""
        return self.prefilling + sum([running.tokens for running in self.waiting.values()])

    # -- prefixes --------------------------------------------------------------------------

    def held(self, prefix: tuple[tuple[int, int], ...]) -> int:
        """Tokens of the longest beginning that its cache should have."""
        return max([tokens for tokens, hash in prefix if hash in self.prefixes], default=0)

    def will_hold(self, prefix: tuple[tuple[int, int], ...]) -> None:
        for _, hash in prefix:
            self.prefixes.pop(hash, None)
            self.prefixes[hash] = None
        while len(self.prefixes) > MOST_PREFIXES:
            del self.prefixes[next(iter(self.prefixes))]

    # -- accounts --------------------------------------------------------------------------

    def in_advance(self, account: Account) -> int:
        """What of the account's counter is charged for what this engine has yet to compute, and reports itself."""
        _, owed = self.owed.get(account.tenant, (account, 0))
        return owed + sum([running.reserved for running in self.waiting.values() if running.account is account])
