"""A `StepPlan` as tensors: all its tokens end to end, and who may look at which blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from torch import Tensor

from headway.llm.plan.request import SequenceId
from headway.llm.plan.step import Row, StepPlan

Attempt: TypeAlias = tuple[SequenceId, int]
"""Of a sequence. What one of them sampled is not another's."""


class Chunk(NamedTuple):
    """A row of several tokens. first: of its tokens in the batch.  start: position of that.  table: [blocks] int64"""

    first: int
    size: int
    start: int
    table: Tensor


@dataclass(frozen=True, slots=True)
class Batch:
    """ids, positions: [tokens] int64.  slots: [tokens] int64, block x block_size + position in the block.
    chunks: rows that are longer than `single`.  The others are looked at token by token:
    singles: [n] int64, of their tokens in the batch.  lengths: [n] int32, positions that each may see, with its own.
    tables: [rows, most blocks] int32, padded with 0.  rows: [n] int32, which of the tables.
    last: [m] int64, of those tokens in the batch whose row samples.  sampling: their rows in the plan.
    ranges: (first, end) in the batch of each row of the plan.
    """

    ids: Tensor
    positions: Tensor
    slots: Tensor
    chunks: list[Chunk]
    singles: Tensor
    lengths: Tensor
    tables: Tensor
    rows: Tensor
    last: Tensor
    sampling: list[int]
    ranges: list[tuple[int, int]]


def batch_of(plan: StepPlan, block_size: int, sampled: Mapping[Attempt, int], single: int = 1) -> Batch:
    """sampled: what the step before brought.  single: rows of up to so many tokens are not chunks.
    ValueError for a plan that contradicts itself."""
    ids: list[int] = []
    positions: list[np.ndarray] = []
    slots: list[np.ndarray] = []
    chunks: list[Chunk] = []
    tables: list[np.ndarray] = []
    singles: list[np.ndarray] = []
    lengths: list[np.ndarray] = []
    rows: list[int] = []
    ranges: list[tuple[int, int]] = []
    last: list[int] = []
    sampling: list[int] = []
    for number, row in enumerate(plan.rows):
        first = len(ids)
        ids.extend(_tokens(row, sampled))
        at = np.arange(row.start, row.start + row.size)
        table = _table(row, block_size)
        positions.append(at)
        slots.append(table[at // block_size] * block_size + at % block_size)
        if row.size > single:
            chunks.append(Chunk(first, row.size, row.start, torch.from_numpy(table)))
        else:
            rows.extend([len(tables)] * row.size)
            tables.append(table)
            singles.append(np.arange(first, first + row.size))
            lengths.append(at + 1)
        if row.samples:
            last.append(first + row.size - 1)
            sampling.append(number)
        ranges.append((first, first + row.size))
    return Batch(
        ids=torch.tensor(ids, dtype=torch.int64),
        positions=_joined(positions, np.int64),
        slots=_joined(slots, np.int64),
        chunks=chunks,
        singles=_joined(singles, np.int64),
        lengths=_joined(lengths, np.int32),
        tables=torch.from_numpy(_padded(tables)),
        rows=torch.tensor(rows, dtype=torch.int32),
        last=torch.tensor(last, dtype=torch.int64),
        sampling=sampling,
        ranges=ranges,
    )


def _tokens(row: Row, sampled: Mapping[Attempt, int]) -> list[int]:
    missing = row.size - len(row.tokens)
    if missing == 0:
        return row.tokens
    token = sampled.get((row.id, row.attempt))
    if missing != 1 or token is None:
        raise ValueError(f"{row.id}: {len(row.tokens)} tokens for {row.size} positions, and none from the step before")
    return [*row.tokens, token]


def _table(row: Row, block_size: int) -> np.ndarray:
    """Of the blocks that hold what it may see."""
    wanted = -(-(row.start + row.size) // block_size)
    if row.size < 1 or wanted > len(row.block_table):
        raise ValueError(
            f"{row.id}: {row.size} tokens from {row.start} in {len(row.block_table)} blocks of {block_size}"
        )
    return np.array(row.block_table[:wanted], dtype=np.int64)


def _joined(parts: Sequence[np.ndarray], kind: type[np.generic]) -> Tensor:
    return torch.from_numpy(np.concatenate(parts).astype(kind) if parts else np.zeros(0, kind))


def _padded(tables: Sequence[np.ndarray]) -> np.ndarray:
    padded = np.zeros((len(tables), max((len(table) for table in tables), default=0)), np.int32)
    for number, table in enumerate(tables):
        padded[number, : len(table)] = table
    return padded
