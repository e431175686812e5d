"""Linear maps of a layer, in the form in which this machine is fastest at them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from torch import Tensor
from torch.nn.functional import linear

Linear: TypeAlias = Callable[[Tensor], Tensor]
"""[tokens, in] -> [tokens, out]"""


def plain(weight: Tensor, bias: Tensor | None) -> Linear:
    """weight: [out, in]"""
    return lambda x: linear(x, weight, bias)
