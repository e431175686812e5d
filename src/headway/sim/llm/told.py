"""What an observer of the planner knows of a sequence: from what it has asked for, and what it was told."""

from __future__ import annotations

from headway.core.units import Instant
from headway.llm.plan.request import SequenceId, SequenceRequest


class Told:
    """tokens: prompt and whatever came since.  done: positions that were handed out to be computed, in this attempt;
    None before any was.  awaited: samples that are under way.  table: its blocks, when last seen.
    reads_cache: whether it may begin with what others have computed.
    paid: tokens of its prompt that are charged, or were found.  values: of its tokens, as the device has them.
    preemptions: how often it has lost its blocks here.  reached: positions that were handed out before it did.
    """

    __slots__ = (
        "attempt",
        "awaited",
        "done",
        "emitted",
        "first_at",
        "id",
        "number",
        "paid",
        "preemptions",
        "reached",
        "reads_cache",
        "request",
        "root",
        "runs",
        "table",
        "tokens",
        "values",
    )

    def __init__(self, id: SequenceId, request: SequenceRequest, number: int, first: bool, pays: bool) -> None:
        """first: of its choices.  pays: for its prompt."""
        self.id = id
        self.request = request
        self.number = number
        whose = f"salt {request.salt}" if request.salt else f"tenant {request.tenant}"
        self.root = f"{request.adapter}, {whose}"
        self.tokens = [*request.prompt, *request.output]
        self.values: list[int] = []
        self.attempt = request.attempt
        self.preemptions = self.reached = 0
        self.runs = False
        self.done: int | None = None
        self.awaited = 0
        self.table: list[int] = []
        self.reads_cache = request.read_cache or not first
        self.paid = request.paid if pays else len(request.prompt)
        self.first_at: Instant = 0
        self.emitted = 0

    @property
    def num_prompt(self) -> int:
        return len(self.request.prompt)

    @property
    def produced(self) -> int:
        return len(self.tokens) - len(self.request.prompt)

    @property
    def known(self) -> int:
        """Tokens, with those that are under way."""
        return len(self.tokens) + self.awaited

    @property
    def order(self) -> tuple[int, bool, int]:
        """By which it is its turn within its tenant."""
        return self.request.priority, self.preemptions == 0, self.number

    def begins(self, cached: int) -> None:
        """It runs from now on; so many of its tokens are computed already."""
        self.runs = True
        self.done = None
        self.awaited = 0
        self.table = []
        self.paid = max(self.paid, min(cached, self.num_prompt))

    def loses(self) -> None:
        """Its blocks."""
        self.runs = False
        self.attempt += 1
        self.preemptions += 1
        self.reached = max(self.reached, self.done or 0)
        self.done = None
        self.awaited = 0

    def due(self, computed: int) -> int:
        """Tokens of its prompt that are to be charged now that so many are computed."""
        due = max(0, min(computed, self.num_prompt) - self.paid)
        self.paid += due
        return due

    def shares_a_beginning(self, other: Told, block_size: int) -> bool:
        return self is not other and self.root == other.root and self.tokens[:block_size] == other.tokens[:block_size]

    def __repr__(self) -> str:
        return (
            f"<{self.id.request}.{self.id.choice} of {self.request.tenant}: {self.num_prompt}+{self.produced} tokens,"
            f" {self.done} handed out, {self.awaited} awaited, attempt {self.attempt}>"
        )
