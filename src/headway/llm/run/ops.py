"""What a layer does besides its linear maps: `Ops`, with what torch has. `compiled.py` has the same, faster."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import gelu, silu

from headway.llm.run import rope
from headway.llm.run.attention import Piece, attend_chunk, attend_singles, pieces
from headway.llm.run.batch import Batch
from headway.llm.run.config import ModelConfig
from headway.llm.run.kv import KeysAndValues


@dataclass(frozen=True, slots=True)
class Kind:
    """What attention of a layer shares with others: how positions turn, and how far it sees."""

    frequencies: Tensor
    window: int


@dataclass(slots=True)
class Seen:
    """Of a step and a `Kind`, made once: cos and sin of its tokens, [tokens, size / 2]; pieces of each of its
    chunks."""

    cos: Tensor
    sin: Tensor
    chunks: list[list[Piece]]


class Ops:
    single = 1
    """Rows of up to so many tokens are looked at token by token."""

    def __init__(self, config: ModelConfig) -> None:
        self.config = config

    def seen(self, batch: Batch, kind: Kind) -> Seen:
        cos, sin = rope.angles(batch.positions, kind.frequencies)
        return Seen(cos, sin, [pieces(chunk, kind.window) for chunk in batch.chunks])

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        """By the root of the mean square of the last dimension. weight: float32"""
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.config.eps) * weight).to(x.dtype)

    def add_norm(self, states: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        """x is added to the states, in place; they are returned normed."""
        return self.norm(states.add_(x), weight)

    def gated(self, both: Tensor) -> Tensor:
        """both: gate, then up: [tokens, 2 x inner] -> activation(gate) x up"""
        gate, up = both.chunk(2, dim=-1)
        return (silu(gate) if self.config.activation == "silu" else gelu(gate, approximate="tanh")) * up

    def attend(
        self,
        qkv: Tensor,
        norms: tuple[Tensor, Tensor] | None,
        batch: Batch,
        seen: Seen,
        kind: Kind,
        kv: KeysAndValues,
        layer: int,
    ) -> Tensor:
        """qkv: [tokens, (heads + 2 x kv_heads) x size] -> [tokens, heads x size]. norms: of queries and keys."""
        c = self.config
        heads = qkv.view(len(qkv), c.heads + 2 * c.kv_heads, c.head_size)
        queries, keys, values = heads.split((c.heads, c.kv_heads, c.kv_heads), dim=1)
        if norms is not None:
            queries, keys = self.norm(queries, norms[0]), self.norm(keys, norms[1])
        queries, keys = rope.rotate(queries, seen.cos, seen.sin), rope.rotate(keys, seen.cos, seen.sin)
        blocks, places = batch.slots // kv.block_size, batch.slots % kv.block_size
        kv.keys[layer][blocks, :, places] = keys
        kv.values[layer][blocks, :, places] = values
        out = torch.empty_like(queries)
        if len(batch.singles):
            chosen = queries[batch.singles]
            out[batch.singles] = attend_singles(chosen, batch, kv, layer, c.scale, kind.window)
        for chunk, parts in zip(batch.chunks, seen.chunks, strict=True):
            part = slice(chunk.first, chunk.first + chunk.size)
            out[part] = attend_chunk(queries[part], chunk, parts, kv, layer, c.scale)
        return out.view(len(qkv), c.heads * c.head_size)
