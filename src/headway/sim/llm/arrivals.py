"""Requests to a language model as their clients see them, and the tokens they are made of.

A prompt is made when its request arrives, and from pieces: equal pieces are equal tokens. So an hour of traces does not
need to be in memory at once, and prefixes are shared as they were in the trace. All tokens are made up from numbers
alone: the same arrival always has the same prompt, and the same answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headway.core.ids import RequestId, Tenant
from headway.core.units import NEVER, Duration, Instant
from headway.llm.plan.request import SequenceId, SequenceRequest

STOP = 0
"""The token that ends every answer. No prompt has it."""
VOCABULARY = 32_000
_TABLE = 1 << 14
_ODD = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1


class Piece(NamedTuple):
    """Of a prompt. key: equal keys are equal tokens (the first `tokens` of them)."""

    key: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Arrival:
    """at: when it is sent.  output: tokens that its answer has, the stop token included: nobody is told.
    max_tokens: that it asks for at most, for each choice.  pieces: its prompt.
    first_within: from then on, when its first token is worthless.  itl: between its tokens at most, in ns (0: as the
    policy says).  leaves_after: when its client goes away (NEVER: it stays).
    """

    at: Instant
    pieces: tuple[Piece, ...]
    output: int
    max_tokens: int
    tenant: Tenant = "default"
    priority: int = 0
    first_within: Duration = NEVER
    itl: Duration = 0
    choices: int = 1
    leaves_after: Duration = NEVER

    @property
    def prompt_tokens(self) -> int:
        return sum(piece.tokens for piece in self.pieces)

    def request(self, id: RequestId) -> SequenceRequest:
        """As the planner is told of it. Makes the prompt."""
        first_by = NEVER if self.first_within == NEVER else self.at + self.first_within
        return SequenceRequest(
            id,
            self.tenant,
            prompt(self.pieces),
            self.max_tokens,
            self.priority,
            first_by,
            self.itl,
            (STOP,),
            self.choices,
        )


def prompt(pieces: tuple[Piece, ...]) -> list[int]:
    tokens: list[int] = []
    for piece in pieces:
        tokens += _piece(piece.key, piece.tokens)
    return tokens


def answer(id: SequenceId, position: int, length: int) -> int:
    """The token at that position of an answer of so many tokens."""
    if position >= length - 1:
        return STOP
    mixed = (id.request * 1_000_003 + id.choice * 8_191 + position) * _ODD & _MASK
    return 1 + (mixed >> 33) % (VOCABULARY - 1)


def _made_up() -> list[int]:
    """One list for all, so that a token of a prompt takes no memory but its place."""
    state = 1
    table: list[int] = []
    for _ in range(_TABLE):
        state = (state * 6364136223846793005 + 1442695040888963407) & _MASK
        table.append(1 + (state >> 33) % (VOCABULARY - 1))
    return table


_TOKENS = _made_up()


def _piece(key: int, count: int) -> list[int]:
    """The key itself in digits, so that no two pieces begin alike; then a stretch of the table."""
    tokens: list[int] = []
    rest = key
    for _ in range(3):
        rest, digit = divmod(rest, VOCABULARY - 1)
        tokens.append(1 + digit)
    at = (key * _ODD & _MASK) % _TABLE
    while len(tokens) < count:
        tokens += _TOKENS[at : at + count - len(tokens)]
        at = 0
    return tokens[:count]
