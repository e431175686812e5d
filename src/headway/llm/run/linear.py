"""Linear maps of a layer, in the form in which this machine is fastest at them."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import linear

Linear: TypeAlias = Callable[[Tensor], Tensor]
"""[tokens, in] -> [tokens, out]"""

Make: TypeAlias = Callable[[Tensor, Tensor | None], Linear]
"""A linear map of a weight, [out, in], and a bias."""

_log = logging.getLogger(__name__)


def plain(weight: Tensor, bias: Tensor | None) -> Linear:
    return lambda x: linear(x, weight, bias)


def packed(weight: Tensor, bias: Tensor | None) -> Linear:
    """The weight lies in the order in which oneDNN reads it. These functions of torch are private: its version is
    pinned. Raises RuntimeError or AttributeError where they are not as expected."""
    ours = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous())
    run = torch.ops.mkldnn._linear_pointwise.default
    return lambda x: run(x, ours, bias, "none", [], "")


def maker(dtype: torch.dtype) -> Make:
    """What is fastest for weights of this type, tried out on a small one."""
    if dtype != torch.bfloat16:
        return plain
    try:
        weight, x = torch.randn(48, 32).to(dtype), torch.randn(3, 32).to(dtype)
        expected = linear(x, weight)
        if (packed(weight, None)(x) - expected).abs().max() <= 0.02 * expected.abs().max():
            return packed
        reason = "it computed something else"
    except (RuntimeError, AttributeError) as error:
        reason = str(error).splitlines()[0][:200]
    _log.warning("weights are not packed, linear maps are slower: %s", reason)
    return plain
