"""A sequence of tokens, as the planner keeps it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from headway.core.units import Instant
from headway.llm.plan.prefix import Found
from headway.llm.plan.request import SequenceId, SequenceRequest

if TYPE_CHECKING:
    from headway.llm.plan.tenants import Account


class Status(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    PREEMPTED = "preempted"
    """It waits, and has lost its blocks. What it has produced stays produced."""
    FINISHED = "finished"


LEGAL: dict[Status, tuple[Status, ...]] = {
    Status.WAITING: (Status.RUNNING, Status.FINISHED),
    Status.RUNNING: (Status.PREEMPTED, Status.FINISHED),
    Status.PREEMPTED: (Status.RUNNING, Status.FINISHED),
    Status.FINISHED: (),
}
WAITING, RUNNING, PREEMPTED, FINISHED = Status.WAITING, Status.RUNNING, Status.PREEMPTED, Status.FINISHED


class Sequence:
    """tokens: those that are known, prompt first; num_prompt of them are the prompt, whatever becomes of it.
    computed: positions whose keys and values are in its blocks once all plans handed out have run.
    confirmed: the same, of plans whose results are in.
    pending: samples that plans handed out will bring.
    blocks: numbers; the list is only ever appended to, and given up whole: a plan may hold on to it.
    hashes: of its full blocks of known tokens, chained.  cached: blocks that it found computed.
    reads_cache: whether it may begin with what others have computed.
    found: while it waits, those that it would find, as of the last look.
    attempt: results of an earlier one are void.
    paid: prompt positions that its tenant was charged for, or got for nothing.  reserved: those that it will be.
    expected: how long it will be in all, as others turned out.
    first_at, emitted: when its first token came (0: it has none), and how many since it is here.
    last_plan: the last that it is in.
    reached: positions that were handed out before it lost its blocks.
    stalled: it could not go on for want of a block.
    ceiling: of others' turns, up to which they pass it while it waits for steps as short as it wants them; 0: none do.
    """

    __slots__ = (
        "account",
        "arrived",
        "attempt",
        "blocks",
        "cached",
        "ceiling",
        "computed",
        "confirmed",
        "emitted",
        "expected",
        "first_at",
        "found",
        "hashes",
        "id",
        "itl",
        "last_plan",
        "max_tokens",
        "num_prompt",
        "number",
        "paid",
        "pending",
        "preemptions",
        "priority",
        "reached",
        "reads_cache",
        "request",
        "reserved",
        "stalled",
        "status",
        "tokens",
    )

    def __init__(self, id: SequenceId, request: SequenceRequest, account: Account, number: int, now: Instant) -> None:
        self.id = id
        self.request = request
        self.account = account
        self.number = number
        self.priority = request.priority
        self.arrived = now
        self.tokens = [*request.prompt, *request.output]
        self.num_prompt = len(request.prompt)
        self.max_tokens = request.max_tokens
        self.itl = request.itl
        self.reads_cache = request.read_cache
        self.status = Status.WAITING
        self.blocks: list[int] = []
        self.hashes: list[bytes] = []
        self.cached = 0
        self.found = Found()
        self.computed = self.confirmed = self.pending = 0
        self.attempt = request.attempt
        self.preemptions = 0
        self.paid = self.reserved = 0
        self.expected = 0
        self.first_at: Instant = 0
        self.emitted = 0
        self.last_plan = 0
        self.stalled = False
        self.ceiling = 0
        self.reached = 0

    @property
    def produced(self) -> int:
        return len(self.tokens) - self.num_prompt

    @property
    def to_prefill(self) -> int:
        """Known tokens whose positions no plan has yet, but for the one that a decode computes."""
        return max(0, len(self.tokens) - self.computed) if self.pending == 0 else 0

    def become(self, status: Status) -> None:
        if status not in LEGAL[self.status]:
            raise AssertionError(f"{self!r} cannot become {status.value}")
        self.status = status

    def __repr__(self) -> str:
        return (
            f"<{self.id.request}.{self.id.choice} of {self.account.tenant}, {self.status.value}:"
            f" {self.num_prompt}+{self.produced} tokens, {self.computed} computed, {len(self.blocks)} blocks,"
            f" attempt {self.attempt}>"
        )
