"""Weights that lie quantised in a file, used as they lie there: one or few rows read a third of the bytes.

The reading of weights is what a step of one row takes its time for. With more rows computing takes over, and there the
weights are unpacked to bfloat16 once and for all.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from headway.llm.run.linear import Linear

FEW = 4
"""Rows up to which it is faster, for 4 bits."""

BLOCK = 32
"""Weights of a block, in all three kinds."""

KINDS = {"Q4_0": (4, False), "Q4_1": (4, True), "Q8_0": (8, False)}
"""Bits of a code, and whether a block says its least value. A weight of Q4_0 is scale x (code - 8)."""


class Blocks(NamedTuple):
    """scales, leasts: [out, blocks] float16; leasts None where they are zero.  codes: [out, bytes] uint8"""

    bits: int
    scales: Tensor
    leasts: Tensor | None
    codes: Tensor


def blocks_of(data: Any, kind: str) -> Blocks | None:
    """data: [out, bytes] uint8, as it lies in a GGUF file. None for a kind that is only ever unpacked."""
    if kind not in KINDS:
        return None
    bits, has_least = KINDS[kind]
    head, codes = (4 if has_least else 2), bits * BLOCK // 8
    split = np.ascontiguousarray(data).reshape(len(data), -1, head + codes)
    scales = split[..., :2].copy().view(np.float16)[..., 0]
    leasts = None
    if has_least:
        leasts = split[..., 2:4].copy().view(np.float16)[..., 0]
    elif bits == 4:
        leasts = (-8 * scales.astype(np.float32)).astype(np.float16)
    return Blocks(
        bits,
        torch.from_numpy(scales),
        None if leasts is None else torch.from_numpy(leasts),
        torch.from_numpy(split[..., head:].reshape(len(data), -1).copy()),
    )


def joined(parts: Sequence[Blocks | None]) -> Blocks | None:
    """One below the other. None where they are not all of a kind."""
    found = [part for part in parts if part is not None]
    if len(found) < len(parts) or any(part.bits != found[0].bits for part in found):
        return None
    leasts = [part.leasts for part in found]
    if any((least is None) != (leasts[0] is None) for least in leasts):
        return None
    return Blocks(
        found[0].bits,
        torch.cat([part.scales for part in found]),
        None if leasts[0] is None else torch.cat([least for least in leasts if least is not None]),
        torch.cat([part.codes for part in found]),
    )


def few_rows(kernels: ctypes.CDLL, blocks: Blocks, bias: Tensor | None, many: Linear) -> Linear:
    """bfloat16 rows times the blocks; many: the same map for more rows than FEW."""
    out, count = blocks.scales.shape
    leasts = None if blocks.leasts is None else blocks.leasts.data_ptr()

    def run(x: Tensor) -> Tensor:
        if len(x) > FEW:
            return many(x)
        x = x.contiguous()
        to = x.new_empty(len(x), out)
        kernels.hw_few(
            blocks.bits,
            len(x),
            out,
            count,
            x.data_ptr(),
            blocks.scales.data_ptr(),
            leasts,
            blocks.codes.data_ptr(),
            to.data_ptr(),
            torch.get_num_threads(),
        )
        return to if bias is None else to.add_(bias)

    return run
