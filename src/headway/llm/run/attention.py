"""Attention over blocks with what torch has: gather what a row may see, then scaled_dot_product_attention.

Works everywhere. Blocks that nobody may see can hold anything, of other sequences or of none (also what is not a
number), so that what is gathered beyond a row's length is overwritten before it is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from headway.llm.run.batch import Batch, Chunk
from headway.llm.run.kv import KeysAndValues

WASTE = 1.25
"""Rows are gathered together where that makes at most so much of what they see themselves, on the whole."""

SLACK = 64
"""Positions that a row may be padded by whatever WASTE says."""


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


def chunk_mask(chunk: Chunk, window: int) -> Tensor | None:
    """[size, positions]: True where a token may look. None: at all up to itself, from the beginning."""
    if chunk.start == 0 and (not window or chunk.size <= window):
        return None
    ahead = torch.arange(chunk.start, chunk.start + chunk.size)[:, None] - torch.arange(chunk.start + chunk.size)
    return (ahead >= 0) & (ahead < window) if window else ahead >= 0


def attend_chunk(
    queries: Tensor, chunk: Chunk, mask: Tensor | None, kv: KeysAndValues, layer: int, scale: float
) -> Tensor:
    """queries: [size, heads, head_size] -> the same. mask: of `chunk_mask`."""
    keys, values = kv.gather(layer, chunk.table)
    seen = chunk.start + chunk.size
    result = scaled_dot_product_attention(
        queries.transpose(0, 1)[None],
        keys[None, :, :seen],
        values[None, :, :seen],
        attn_mask=mask,
        is_causal=mask is None,
        scale=scale,
        enable_gqa=queries.shape[1] != keys.shape[0],
    )
    return result[0].transpose(0, 1)
