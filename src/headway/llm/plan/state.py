"""All that the planner knows, and the few ways in which a sequence comes to its blocks and loses them."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable

from headway.core.ids import RequestId, Tenant
from headway.llm.plan.blocks import BlockPool
from headway.llm.plan.policy import NO_DEADLINES, Deadlines, PlanPolicy
from headway.llm.plan.prefix import Found, Hash, PrefixCache, chained, root
from headway.llm.plan.request import SequenceId
from headway.llm.plan.room import Room
from headway.llm.plan.sequence import FINISHED, PREEMPTED, RUNNING, Sequence
from headway.llm.plan.step import End, StepPlan
from headway.llm.plan.step_time import DEFAULT, Coefficients, StepTime
from headway.llm.plan.tenants import Tenants


class Counts:
    """Since the engine began.

    preemptions: by why.  preempted_once: sequences that ever were.  computed: tokens.
    recomputed: of those, the ones that had been handed out before and were lost; what is found again is not.
    void: rows whose results came to nothing.
    """

    __slots__ = ("computed", "deferred", "preempted_once", "preemptions", "recomputed", "steps", "void")

    def __init__(self) -> None:
        self.preemptions = {"growth": 0, "class": 0, "reclaim": 0}
        self.preempted_once = 0
        self.recomputed = 0
        self.computed = 0
        self.deferred = 0
        self.steps = 0
        self.void = 0


class State:
    """sequences: all that are not finished.  running: of those, by when they were admitted.
    resuming: those that were preempted for want of blocks: they go on before anything new of their class.
    plans: handed out, without results so far.  step: the number of the last.
    later: blocks that are given back once the plan of that number has run; `leaving` in all.
    computing: hashes of blocks of prompts that somebody computes just now.
    ended: that ended without a result, since the last plan.
    dry: plans in a row that had nothing for the prompts under way.
    """

    __slots__ = (
        "cache",
        "computing",
        "counts",
        "deadlines",
        "dry",
        "ended",
        "later",
        "leaving",
        "names",
        "number",
        "plans",
        "policy",
        "pool",
        "preempted",
        "requests",
        "resuming",
        "room",
        "running",
        "sequences",
        "step",
        "steps",
        "tenants",
    )

    def __init__(
        self,
        policy: PlanPolicy,
        blocks: int,
        block_size: int,
        names: tuple[str, ...] = (),
        weight: Callable[[Tenant], float] = lambda tenant: 1.0,
        prior: Coefficients = DEFAULT,
        hash: Hash = chained,
        deadlines: Callable[[Tenant], Deadlines] = lambda tenant: NO_DEADLINES,
    ) -> None:
        """names: of what all keys and values depend on besides the tokens: the model's version."""
        self.policy = policy
        self.names = names
        self.deadlines = deadlines
        self.tenants = Tenants(weight)
        self.cache = PrefixCache(block_size, hash)
        self.pool = BlockPool(blocks, self.cache.forget, weight)
        self.room = Room(policy.admit, block_size, policy.expected_output)
        self.steps = StepTime(prior)
        self.sequences: dict[SequenceId, Sequence] = {}
        self.requests: dict[RequestId, list[SequenceId]] = {}
        self.running: dict[SequenceId, Sequence] = {}
        self.resuming: dict[SequenceId, Sequence] = {}
        self.computing: dict[bytes, SequenceId] = {}
        self.plans: deque[StepPlan] = deque()
        self.later: dict[int, list[list[int]]] = {}
        self.leaving = 0
        self.preempted: list[SequenceId] = []
        self.ended: list[tuple[SequenceId, End]] = []
        self.number = 0
        self.step = 0
        self.dry = 0
        self.counts = Counts()

    @property
    def block_size(self) -> int:
        return self.cache.block_size

    def blocks_of(self, tokens: int) -> int:
        """That hold so many tokens."""
        return -(-tokens // self.cache.block_size)

    @property
    def unfilled(self) -> int:
        """Places in blocks that are held, in which nothing is, nor comes of a plan that runs: what fragmentation takes,
        and prompts that are not computed yet. Takes a look at all that run."""
        size = self.cache.block_size
        return sum([len(s.blocks) * size - s.computed for s in self.running.values()])

    def root(self, tenant: Tenant, salt: str, adapter: str = "") -> bytes:
        """Where chains of hashes begin of those that share what they computed: those of an adapter and of a salt, or of
        a tenant. Who takes a tenant's name for a salt shares nothing with it."""
        whose, name = ("salt", salt) if salt else ("tenant", tenant)
        return root(*self.names, adapter, whose, name)

    def root_of(self, sequence: Sequence) -> bytes:
        return self.root(sequence.account.tenant, sequence.request.salt, sequence.request.adapter)

    # -- coming to run -----------------------------------------------------------------------

    def found(self, sequence: Sequence) -> list[int]:
        """Blocks of it that are computed already; to be read only. The last known token is always left: its logits are
        wanted."""
        if not self.policy.prefix_cache or not sequence.reads_cache:
            return []
        limit = (len(sequence.tokens) - 1) // self.block_size
        self.cache.look(self.root_of(sequence), sequence.hashes, sequence.tokens, limit, sequence.found)
        return sequence.found.blocks

    def idle_of(self, found: list[int]) -> int:
        """How many of them nobody holds: those from one on, as who holds a block holds all that it continues."""
        return len(found) - bisect_left(found, True, key=self.pool.is_idle)

    def start(self, sequence: Sequence, found: list[int]) -> None:
        """It runs from now on, with all the blocks of what is known of it."""
        account = sequence.account
        for block in found:
            self.pool.share(block)
        fresh = self.pool.take(self.blocks_of(len(sequence.tokens)) - len(found), account.tenant)
        sequence.blocks = found + fresh
        sequence.found = Found()
        sequence.cached = len(found)
        sequence.computed = sequence.confirmed = len(found) * self.block_size
        self.cache.asked += len(sequence.tokens)
        self.cache.hits += sequence.computed
        sequence.first_at = sequence.emitted = 0  # what it lost while it waited is not made up for at others' cost
        sequence.become(RUNNING)
        self.running[sequence.id] = sequence
        self.resuming.pop(sequence.id, None)
        sequence.ceiling = 0
        sequence.paid = max(sequence.paid, min(sequence.computed, sequence.num_prompt))
        sequence.reserved = account.units(self.policy.prices.prompt * (sequence.num_prompt - sequence.paid))
        account.reserved += sequence.reserved
        account.adds_ahead(sequence, -1)
        self.tenants.runs(account)
        self.tenants.waits_no_more(account)
        if self.policy.defer or (sequence.request.choices > 1 and self.policy.prefix_cache):
            for hash in sequence.hashes[len(found) :]:
                self.computing.setdefault(hash, sequence.id)

    def unite(self, block: int) -> None:
        """It was computed a second time: where nobody holds the first one any more, that is not kept."""
        first = self.cache.twin(block)
        if first is not None and self.pool.is_idle(first):
            self.cache.move(first, block)
            self.pool.let_go(first)

    # -- losing its blocks -------------------------------------------------------------------

    def preempt(self, sequence: Sequence, why: str) -> None:
        """It waits again; what it has produced stays produced, what runs of it is void."""
        self.counts.preemptions[why] += 1
        self.counts.preempted_once += sequence.preemptions == 0
        if sequence.computed > sequence.cached * self.block_size:
            sequence.reached = max(sequence.reached, sequence.computed)
        self.room.preempted()
        released = self._stop(sequence)
        sequence.become(PREEMPTED)
        sequence.preemptions += 1
        sequence.attempt += 1
        sequence.computed = sequence.confirmed = sequence.pending = sequence.cached = 0
        sequence.stalled = False
        sequence.account.adds_ahead(sequence, 1)
        self.tenants.waits(sequence, sequence.account.tenant, released)
        self.tenants.runs_no_more(sequence.account)
        if why == "growth":
            self.resuming[sequence.id] = sequence
        self.preempted.append(sequence.id)
        if len(sequence.tokens) > self.pool.usable * self.block_size:
            self.end(sequence, End.TOO_LONG)  # the pool has shrunk while it ran

    def finish(self, sequence: Sequence) -> None:
        """It is over, wherever it is; results that still come are void."""
        account = sequence.account
        if sequence.status is RUNNING:
            self._stop(sequence)
            sequence.become(FINISHED)
            self.tenants.runs_no_more(account)
        else:
            self.resuming.pop(sequence.id, None)
            sequence.become(FINISHED)
            account.adds_ahead(sequence, -1)
            self.tenants.waits_no_more(account)
        del self.sequences[sequence.id]
        choices = self.requests[sequence.id.request]
        choices.remove(sequence.id)
        if not choices:
            del self.requests[sequence.id.request]

    def end(self, sequence: Sequence, end: End) -> None:
        """It ends without a result."""
        self.finish(sequence)
        self.ended.append((sequence.id, end))

    def _stop(self, sequence: Sequence) -> int:
        """What was still reserved for it, in counter units."""
        del self.running[sequence.id]
        self.charge(sequence, sequence.computed)
        account = sequence.account
        released, sequence.reserved = sequence.reserved, 0
        account.reserved -= released
        if account.waiting:
            self.tenants.update(account)
        for hash in sequence.hashes[sequence.confirmed // self.block_size :]:
            if self.computing.get(hash) == sequence.id:
                del self.computing[hash]
        blocks, sequence.blocks = sequence.blocks, []
        if self.plans and sequence.last_plan >= self.plans[0].number:
            self.later.setdefault(sequence.last_plan, []).append(blocks)
            self.leaving += len(blocks)
        else:
            self.pool.give_back(blocks, self.cache.keeps)
        return released

    def ran(self, number: int) -> None:
        """The plan of that number has: blocks that waited for it are given back."""
        for blocks in self.later.pop(number, ()):
            self.leaving -= len(blocks)
            self.pool.give_back(blocks, self.cache.keeps)

    def gives(self, sequence: Sequence) -> int:
        """Blocks that nobody else holds."""
        holders = self.pool.holders
        return sum(1 for block in sequence.blocks if holders[block] == 1)

    # -- charging ----------------------------------------------------------------------------

    def charge(self, sequence: Sequence, computed: int) -> None:
        """So many positions of it have been computed: what of its prompt was not paid is due."""
        due = min(computed, sequence.num_prompt) - sequence.paid
        if due <= 0:
            return
        account = sequence.account
        sequence.paid += due
        service = self.policy.prices.prompt * due
        self.tenants.charge(account, service)
        units = min(sequence.reserved, account.units(service))
        if sequence.paid == sequence.num_prompt:
            units = sequence.reserved  # what rounding has left
        sequence.reserved -= units
        account.reserved -= units
