"""Dynamic int8 for linear layers on a CPU, in which no row sees its neighbours.

torch's own dynamic quantisation scales the activations of a whole batch together, so that an answer depends on who
shares the batch (MiniLM: the vector of a text alone and among seven others had a cosine of 0.95 to 0.97). Here every
row (token) has its own scale: it is brought to the range [-1, 1], and one row that spans exactly that range is added,
so that torch's kernel finds the same scale for every batch. Weights have one scale per output. Integer sums are exact,
so a row's result does not depend on the others at all.
"""

from __future__ import annotations

import warnings
from typing import Any

import torch

LEVELS = 127
SMALLEST = 1e-12
"""So that a row of zeros has a scale."""


class Int8Linear(torch.nn.Module):
    """In place of a torch.nn.Linear. x: [..., inputs] float32 -> [..., outputs] float32. Needs at least two inputs."""

    def __init__(self, linear: Any) -> None:
        super().__init__()
        weight = linear.weight.detach().float()
        scales = (weight.abs().amax(1) / LEVELS).clamp(min=SMALLEST).double()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # quantised tensors are to leave torch one day; its version is pinned
            quantised = torch.quantize_per_channel(weight, scales, torch.zeros(len(scales)).long(), 0, torch.qint8)
        self._packed = torch.ops.quantized.linear_prepack(quantised, None)
        self._bias = None if linear.bias is None else linear.bias.detach().float()

    def forward(self, x: Any) -> Any:
        rows = x.reshape(-1, x.shape[-1])
        spanning = x.new_zeros(len(rows) + 1, x.shape[-1])
        scales = rows.abs().amax(1, keepdim=True).clamp_(min=SMALLEST)
        torch.div(rows, scales, out=spanning[:-1])
        spanning[-1, 0], spanning[-1, 1] = 1, -1
        # seven bits (True): without VNNI instructions sums of eight-bit products overflow
        y = torch.ops.quantized.linear_dynamic(spanning, self._packed, True)[:-1].mul_(scales)
        if self._bias is not None:
            y.add_(self._bias)
        return y.reshape(*x.shape[:-1], y.shape[-1])


def quantise(module: Any) -> int:
    """Replaces all linear layers below `module`; returns how many."""
    count = 0
    for name, child in list(module.named_children()):
        if isinstance(child, torch.nn.Linear) and child.in_features > 1:
            setattr(module, name, Int8Linear(child))
            count += 1
        else:
            count += quantise(child)
    return count
