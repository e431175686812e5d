"""The blocks that hold keys and values: [block, head, position in the block, head_size] of each layer."""

from __future__ import annotations

import torch
from torch import Tensor

from headway.llm.run.config import ModelConfig


def block_bytes(config: ModelConfig, block_size: int, dtype: torch.dtype) -> int:
    """Of a block, in all layers together."""
    return 2 * config.layers * config.kv_heads * block_size * config.head_size * int(dtype.itemsize)


class KeysAndValues:
    """keys, values: by layer. Memory is taken from the system where blocks are first written."""

    def __init__(self, config: ModelConfig, blocks: int, block_size: int, dtype: torch.dtype) -> None:
        if blocks < 1 or block_size < 1:
            raise ValueError(f"{blocks} blocks of {block_size} tokens: at least one of each is needed")
        self.blocks = blocks
        self.block_size = block_size
        shape = (blocks, config.kv_heads, block_size, config.head_size)
        self.keys = [torch.zeros(shape, dtype=dtype) for _ in range(config.layers)]
        self.values = [torch.zeros(shape, dtype=dtype) for _ in range(config.layers)]

    def gather(self, layer: int, table: Tensor) -> tuple[Tensor, Tensor]:
        """Keys and values of the blocks in a table, in order. table: [..., n] -> [..., heads, n x block_size, size]"""
        return _in_order(self.keys[layer][table]), _in_order(self.values[layer][table])


def _in_order(blocks: Tensor) -> Tensor:
    *rows, n, heads, size, head_size = blocks.shape
    return blocks.transpose(-4, -3).reshape(*rows, heads, n * size, head_size)
