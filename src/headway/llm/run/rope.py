"""Rotary positions (Su et al. 2021), as Llama and its family have them: the first half of a head turns with the
second."""

from __future__ import annotations

from math import pi

import torch
from torch import Tensor

from headway.llm.run.config import Rope


def frequencies(rope: Rope, head_size: int, divisors: Tensor | None = None) -> Tensor:
    """[head_size / 2] float32, in radians per position. divisors: of each, as some GGUF files have them ready."""
    plain = 1.0 / rope.theta ** (torch.arange(0, head_size, 2, dtype=torch.float32) / head_size)
    if divisors is not None:
        return plain / divisors
    if rope.llama3 is None:
        return plain / rope.factor
    low, high, original = rope.llama3
    length = 2 * pi / plain
    smooth = (original / length - low) / (high - low)
    between = (1 - smooth) * plain / rope.factor + smooth * plain
    return torch.where(
        length > original / low, plain / rope.factor, torch.where(length < original / high, plain, between)
    )


def angles(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """cos and sin, [tokens, head_size / 2] float32. positions: [tokens]"""
    turned = positions.to(torch.float32)[:, None] * frequencies[None]
    return turned.cos(), turned.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """x: [tokens, heads, head_size], of any type; turned in float32."""
    one, other = x.float().chunk(2, dim=-1)
    cos, sin = cos[:, None], sin[:, None]
    return torch.cat((one * cos - other * sin, other * cos + one * sin), dim=-1).to(x.dtype)
