"""What the planner says, and what it is told."""

from __future__ import annotations

from collections.abc import Sequence as Listed
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from headway.core.units import Duration
from headway.llm.plan.request import SequenceId


class End(Enum):
    """Why a sequence is finished."""

    STOP = "stop"
    LENGTH = "length"
    """As many tokens as it may have; or the context, or the whole pool, is full."""
    DEADLINE = "deadline_exceeded"
    """Its first token could no longer come in time."""
    TOO_LONG = "context_length_exceeded"
    """The pool has shrunk, and it fits no more."""


class Row(NamedTuple):
    """Of one sequence in a step: compute positions start to start + size - 1.

    tokens: of those positions; one fewer where the last is what the plan before this one samples.
    block_table: numbers of the blocks that hold the sequence's keys and values, in order; do not change it.
    samples: the step brings a token for the position after the last.
    """

    id: SequenceId
    attempt: int
    start: int
    size: int
    tokens: list[int]
    block_table: Listed[int]
    samples: bool


@dataclass(frozen=True, slots=True)
class StepPlan:
    """number: of the step, counted from 1.  rows: decodes first.
    preempted: that have lost their blocks.  finished: that have ended without a result, and why.
    prefill, decodes, context, pairs: its size, as the step-time model counts it.  predicted: ns.
    """

    number: int
    rows: list[Row]
    preempted: list[SequenceId] = field(default_factory=list)
    finished: list[tuple[SequenceId, End]] = field(default_factory=list)
    prefill: int = 0
    decodes: int = 0
    context: int = 0
    pairs: int = 0
    predicted: Duration = 0


class Emitted(NamedTuple):
    """position: of the token among those that the sequence has produced, counted from 0.
    end: None while it goes on."""

    id: SequenceId
    position: int
    token: int
    end: End | None


class Refusal(NamedTuple):
    """A request that is not taken. code: as clients see it; message: what was wrong, with the numbers."""

    code: str
    message: str
