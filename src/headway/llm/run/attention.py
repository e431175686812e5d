"""Attention over blocks with what torch has: gather what a row may see, then scaled_dot_product_attention.

Works everywhere. Blocks that nobody may see can hold anything, of other sequences or of none (also what is not a
number), so that what is gathered beyond a row's length is overwritten before it is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from headway.llm.run.batch import Batch, Chunk
from headway.llm.run.kv import KeysAndValues

WASTE = 1.25
"""Rows are gathered together where that makes at most so much of what they see themselves, on the whole."""

SLACK = 64
"""Positions that a row may be padded by whatever WASTE says."""

PIECE = 128
"""Tokens of a chunk that look back together."""


def attend_singles(queries: Tensor, batch: Batch, kv: KeysAndValues, layer: int, scale: float, window: int) -> Tensor:
    """Each token looks at the row that it belongs to. queries: [n, heads, size], of `batch.singles` -> the same"""
    out = torch.empty_like(queries)
    for group in _groups(batch.lengths):
        lengths = batch.lengths[group]
        blocks = -(-int(lengths.max()) // kv.block_size)
        tables = batch.tables[batch.rows[group].long(), :blocks].long()
        keys, values = kv.gather(layer, tables)
        n, kv_heads, seen, size = keys.shape
        at = torch.arange(seen)
        allowed = at < lengths[:, None]
        if window:
            allowed = allowed & (at >= lengths[:, None] - window)
        hidden = ~allowed[:, None, :, None]
        keys.masked_fill_(hidden, 0)
        values.masked_fill_(hidden, 0)
        folded = queries[group].reshape(n, kv_heads, -1, size)  # heads that share keys, as if they were tokens
        result = scaled_dot_product_attention(folded, keys, values, attn_mask=allowed[:, None, None], scale=scale)
        out[group] = result.reshape(n, -1, size)
    return out


def _groups(lengths: Tensor) -> Iterator[Tensor]:
    """Of tokens that are looked at together, longest first."""
    order = torch.argsort(lengths, descending=True, stable=True)
    sizes = lengths[order].tolist()
    first = total = 0
    for end, size in enumerate(sizes):
        if (end + 1 - first) * sizes[first] > WASTE * (total + size) and sizes[first] > size + SLACK:
            yield order[first:end]
            first, total = end, 0
        total += size
    if sizes:
        yield order[first:]


class Piece(NamedTuple):
    """Tokens first to end - 1 of a chunk, which see positions low to high - 1 at most.
    mask: [tokens, positions], True where one sees the other."""

    first: int
    end: int
    low: int
    high: int
    mask: Tensor


def pieces(chunk: Chunk, window: int) -> list[Piece]:
    """A chunk of 512 in one would look at all that its last token sees, and hide a half of it again."""
    made = []
    for first in range(0, chunk.size, PIECE):
        end = min(first + PIECE, chunk.size)
        high = chunk.start + end
        low = max(0, chunk.start + first + 1 - window) if window else 0
        ahead = torch.arange(chunk.start + first, high)[:, None] - torch.arange(low, high)
        made.append(Piece(first, end, low, high, (ahead >= 0) & (ahead < window) if window else ahead >= 0))
    return made


def attend_chunk(
    queries: Tensor, chunk: Chunk, parts: list[Piece], kv: KeysAndValues, layer: int, scale: float
) -> Tensor:
    """queries: [size, heads, head_size] -> the same. parts: of `pieces`."""
    keys, values = kv.gather(layer, chunk.table)
    heads_first, grouped = queries.transpose(0, 1)[None], queries.shape[1] != keys.shape[0]
    results = [
        scaled_dot_product_attention(
            heads_first[:, :, part.first : part.end],
            keys[None, :, part.low : part.high],
            values[None, :, part.low : part.high],
            attn_mask=part.mask,
            scale=scale,
            enable_gqa=grouped,
        )
        for part in parts
    ]
    return torch.cat(results, dim=2)[0].transpose(0, 1)
