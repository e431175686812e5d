"""BERT and its family without padding: the tokens of a batch lie end to end.

Embeddings, linear layers, activations and norms see one long row of tokens, [tokens, width], and only attention knows
where a text begins and ends: texts come in order of length, and each block of equal lengths is one call of torch's
scaled_dot_product_attention, without a mask. The modules are those that transformers made; what differs is the order
in which they are called. So the result is compared with transformers' own when a model is loaded (`differs`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Any

import torch

FAMILY = ("bert", "roberta", "xlm-roberta", "camembert")
FIRST_POSITION_AFTER_PADDING = ("roberta", "xlm-roberta", "camembert")

LENGTHS = (1, 3, 3, 17, 44)
"""Of the probes; equal ones share a block."""

TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 3e-2}
"""Largest distance of the packed states from the padded ones, as a part of their size. A wrong order of modules,
position or neighbour makes it about 1; rounding alone made it 7e-7, 1e-3 and 9e-3 for MiniLM."""

INT8_TOLERANCE = 0.1
"""A difference in the last bit may round to another step of 256, and the next layer carries that on: up to 5e-2 for
MiniLM, on some kinds of processor. int8 itself is 0.1 to 0.2 away from float32."""

Block = tuple[int, int]
"""(texts, tokens of each)"""


class PackedEncoder:
    """module: transformers' own, of a type in FAMILY.

    without_position: a token that is not counted where it stands in a text, so that such a text cannot be packed;
        None where there is none.
    """

    def __init__(self, module: Any) -> None:
        config = module.config
        self._embeddings = module.embeddings
        self._layers = list(module.encoder.layer)
        self._heads = int(config.num_attention_heads)
        offset = config.model_type in FIRST_POSITION_AFTER_PADDING
        self.without_position = int(config.pad_token_id) if offset else None
        self._first = int(config.pad_token_id) + 1 if offset else 0

    @classmethod
    def of(cls, module: Any) -> PackedEncoder | None:
        """None where it is another architecture."""
        return cls(module) if module.config.model_type in FAMILY else None

    def states(self, ids: Any, types: Any | None, blocks: Sequence[Block]) -> Any:
        """The last hidden states. ids, types: [tokens] int64, texts in the order of `blocks`. -> [tokens, width]"""
        embeddings = self._embeddings
        positions = torch.cat([torch.arange(length, device=ids.device).repeat(texts) for texts, length in blocks])
        x = embeddings.word_embeddings(ids)
        x = x + embeddings.token_type_embeddings(torch.zeros_like(ids) if types is None else types)
        x = x + embeddings.position_embeddings(positions + self._first)
        x = embeddings.LayerNorm(x)
        for layer in self._layers:
            attended = layer.attention.output.dense(self._attend(layer.attention.self, x, blocks))
            x = layer.attention.output.LayerNorm(attended + x)
            inner = layer.intermediate.intermediate_act_fn(layer.intermediate.dense(x))
            x = layer.output.LayerNorm(layer.output.dense(inner) + x)
        return x

    def _attend(self, attention: Any, x: Any, blocks: Sequence[Block]) -> Any:
        query, key, value = attention.query(x), attention.key(x), attention.value(x)
        out = torch.empty_like(query)
        at = 0
        for texts, length in blocks:
            place = slice(at, at + texts * length)
            shape = (texts, length, self._heads, -1)
            q, k, v = (one[place].view(shape).transpose(1, 2) for one in (query, key, value))
            attended = torch.nn.functional.scaled_dot_product_attention(q, k, v)
            out[place] = attended.transpose(1, 2).reshape(texts * length, -1)
            at = place.stop
        return out


def differs(padded: Sequence[Any], packed: Sequence[Any], dtype: str) -> str:
    """What is wrong with outputs that should be alike, with both numbers; "" where nothing is.

    padded, packed: float arrays, pair by pair of the same shape. dtype: of the settings.
    """
    tolerance = INT8_TOLERANCE if dtype == "int8" else TOLERANCES[getattr(torch, dtype)]
    worst = 0.0
    for expected, got in zip(padded, packed, strict=True):
        wanted, came = torch.from_numpy(expected), torch.from_numpy(got)
        distance = float((came - wanted).norm() / wanted.norm().clamp(min=1e-12))
        worst = max(worst, distance if distance == distance else float("inf"))  # not a number is as far as can be
    return f"it is off by {worst:.1e} of its size, allowed is {tolerance:.0e}" if worst > tolerance else ""


def faster(one: Callable[[], object], other: Callable[[], object], turns: int = 3) -> bool:
    """Whether `one` takes no longer than `other`: the best of alternating turns, after one untimed of each."""
    best = [0, 0]
    for turn in range(turns + 1):
        for number, run in enumerate((one, other)):
            begun = perf_counter_ns()
            run()
            took = perf_counter_ns() - begun
            if turn:
                best[number] = min(took, best[number]) if turn > 1 else took
    return best[0] <= best[1]
