"""`Ops` by the compiled kernels. Long chunks are still torch's: scaled_dot_product_attention is good at those."""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from headway.llm.run.attention import attend_chunk
from headway.llm.run.batch import Batch
from headway.llm.run.config import ModelConfig
from headway.llm.run.kv import KeysAndValues
from headway.llm.run.ops import Kind, Ops, Seen


class FastOps(Ops):
    single = 8
    """A token on its own reads all keys and values that it sees; a chunk reads them once, but gathers them first."""

    def __init__(self, config: ModelConfig, kernels: ctypes.CDLL, dtype: torch.dtype) -> None:
        super().__init__(config)
        self._kernels = kernels
        self._type = int(dtype == torch.bfloat16)
        self._activation = int(config.activation != "silu")

    def norm(self, x: Tensor, weight: Tensor) -> Tensor:
        return self._norm(x.contiguous(), None, weight)

    def add_norm(self, states: Tensor, x: Tensor, weight: Tensor) -> Tensor:
        return self._norm(states, x.contiguous(), weight)

    def _norm(self, states: Tensor, x: Tensor | None, weight: Tensor) -> Tensor:
        out = torch.empty_like(states)
        width = states.shape[-1]
        self._kernels.hw_add_norm(
            self._type,
            states.numel() // width,
            width,
            states.data_ptr(),
            None if x is None else x.data_ptr(),
            weight.data_ptr(),
            self.config.eps,
            out.data_ptr(),
            torch.get_num_threads(),
        )
        return out

    def gated(self, both: Tensor) -> Tensor:
        both = both.contiguous()
        tokens, twice = both.shape
        out = both.new_empty(tokens, twice // 2)
        self._kernels.hw_gated(
            self._type,
            tokens,
            twice // 2,
            both.data_ptr(),
            out.data_ptr(),
            self._activation,
            torch.get_num_threads(),
        )
        return out

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
        c, threads = self.config, torch.get_num_threads()
        qkv = qkv.contiguous()
        keys, values = kv.keys[layer].data_ptr(), kv.values[layer].data_ptr()
        sizes = (c.heads, c.kv_heads, c.head_size)
        self._kernels.hw_rope_write(
            self._type,
            len(qkv),
            *sizes,
            qkv.data_ptr(),
            seen.cos.data_ptr(),
            seen.sin.data_ptr(),
            batch.slots.data_ptr(),
            kv.block_size,
            keys,
            values,
            *((None, None) if norms is None else (norms[0].data_ptr(), norms[1].data_ptr())),
            c.eps,
            threads,
        )
        out = qkv.new_empty(len(qkv), c.heads * c.head_size)
        if len(batch.singles):
            self._kernels.hw_attend(
                self._type,
                len(batch.singles),
                batch.singles.data_ptr(),
                batch.rows.data_ptr(),
                batch.lengths.data_ptr(),
                batch.tables.data_ptr(),
                batch.tables.shape[1],
                *sizes,
                kv.block_size,
                qkv.data_ptr(),
                keys,
                values,
                out.data_ptr(),
                c.scale,
                kind.window,
                threads,
            )
        for chunk, parts in zip(batch.chunks, seen.chunks, strict=True):
            part = slice(chunk.first, chunk.first + chunk.size)
            queries = qkv[part, : c.heads * c.head_size].view(chunk.size, c.heads, c.head_size)
            out[part] = attend_chunk(queries, chunk, parts, kv, layer, c.scale).reshape(chunk.size, -1)
        return out
