"""A model of the Llama family: one pass over all tokens of a step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from headway.llm.run import rope
from headway.llm.run.batch import Batch
from headway.llm.run.config import ModelConfig
from headway.llm.run.kv import KeysAndValues
from headway.llm.run.linear import Linear, Make
from headway.llm.run.ops import Kind, Ops
from headway.llm.run.quantised import Blocks, joined
from headway.llm.run.weights import Weights

Few: TypeAlias = Callable[[Blocks, Tensor | None, Linear], Linear]
"""A linear map of quantised weights, a bias, and the map for more rows."""


@dataclass(frozen=True, slots=True)
class Layer:
    """before_*: weights of the norm before attention and MLP, after_*: of that behind, where there is one."""

    kind: int
    before_attention: Tensor
    qkv: Linear
    qk_norms: tuple[Tensor, Tensor] | None
    out: Linear
    after_attention: Tensor | None
    before_mlp: Tensor
    gate_up: Linear
    down: Linear
    after_mlp: Tensor | None


class Model:
    def __init__(
        self, config: ModelConfig, weights: Weights, ops: Ops, make: Make, dtype: torch.dtype, few: Few | None = None
    ) -> None:
        """Takes all that is in `weights`. few: what makes of quantised weights a map for few rows.
        ModelError where the weights are not what the configuration says."""
        self.config = c = config
        self._ops = ops
        self._weights = weights
        self._dtype = dtype
        self._make = make
        self._few = few
        divisors = weights.maybe("rope_divisors", (c.head_size // 2,))
        pairs = list(dict.fromkeys(zip(c.ropes, c.windows, strict=True)))
        self._kinds = [Kind(rope.frequencies(r, c.head_size, divisors), window) for r, window in pairs]
        head_name = "model.embed_tokens.weight" if c.tied else "lm_head.weight"
        head_blocks = weights.blocks(head_name) if few else None
        self._embeddings = weights.take("model.embed_tokens.weight", (c.vocabulary, c.width)).to(dtype)
        self._scale = float(torch.tensor(c.embedding_scale, dtype=dtype))
        self._layers = [self._layer(n, pairs.index((c.ropes[n], c.windows[n]))) for n in range(c.layers)]
        self._norm = self._norm_of("model.norm", c.width)
        head = self._embeddings if c.tied else weights.take(head_name, (c.vocabulary, c.width)).to(dtype)
        self._head = self._map(head, None, head_blocks)
        weights.finish()
        del self._weights

    def _layer(self, number: int, kind: int) -> Layer:
        c, at = self.config, f"model.layers.{number}."
        q, k = c.heads * c.head_size, c.kv_heads * c.head_size
        norm = self._norm_of
        return Layer(
            kind=kind,
            before_attention=norm(f"{at}input_layernorm", c.width),
            qkv=self._joined(at + "self_attn.", {"q_proj": q, "k_proj": k, "v_proj": k}, c.width),
            qk_norms=(norm(f"{at}self_attn.q_norm", c.head_size), norm(f"{at}self_attn.k_norm", c.head_size))
            if c.qk_norm
            else None,
            out=self._joined(at + "self_attn.", {"o_proj": c.width}, q),
            after_attention=norm(f"{at}post_attention_layernorm", c.width) if c.post_norms else None,
            before_mlp=norm(at + ("pre_feedforward" if c.post_norms else "post_attention") + "_layernorm", c.width),
            gate_up=self._joined(at + "mlp.", {"gate_proj": c.inner, "up_proj": c.inner}, c.width),
            down=self._joined(at + "mlp.", {"down_proj": c.width}, c.inner),
            after_mlp=norm(f"{at}post_feedforward_layernorm", c.width) if c.post_norms else None,
        )

    def _norm_of(self, name: str, size: int) -> Tensor:
        weight = self._weights.take(f"{name}.weight", (size,)).float()
        return weight + 1 if self.config.norm_plus_one else weight

    def _joined(self, at: str, parts: dict[str, int], width: int) -> Linear:
        """Maps of the same input as one. parts: how wide the output of each is."""
        names = [f"{at}{name}.weight" for name in parts]
        blocks = joined([self._weights.blocks(name) for name in names]) if self._few else None
        taken = [self._weights.take(f"{at}{name}.weight", (out, width)) for name, out in parts.items()]
        biases = [self._weights.maybe(f"{at}{name}.bias", (out,)) for name, out in parts.items()]
        bias = None
        if any(part is not None for part in biases):
            sizes = parts.values()
            bias = torch.cat([torch.zeros(n) if b is None else b.float() for b, n in zip(biases, sizes, strict=True)])
            bias = bias.to(self._dtype)
        return self._map(torch.cat([part.to(self._dtype) for part in taken]), bias, blocks)

    def _map(self, weight: Tensor, bias: Tensor | None, blocks: Blocks | None) -> Linear:
        many = self._make(weight, bias)
        return many if blocks is None or self._few is None else self._few(blocks, bias, many)

    def states(self, batch: Batch, kv: KeysAndValues, wanted: Tensor) -> Tensor:
        """Writes the keys and values of the batch's tokens. -> [wanted, width]: the last states, normed.
        wanted: [n] int64, of tokens in the batch."""
        ops, layers = self._ops, self._layers
        seen = [ops.seen(batch, kind) for kind in self._kinds]
        states = self._embeddings[batch.ids]
        if self._scale != 1.0:
            states = states * self._scale
        x = ops.norm(states, layers[0].before_attention)
        for number, layer in enumerate(layers):
            kind = layer.kind
            x = ops.attend(layer.qkv(x), layer.qk_norms, batch, seen[kind], self._kinds[kind], kv, number)
            if number + 1 == len(layers):  # nobody looks at the others any more
                x, states = x[wanted], states[wanted]
            x = layer.out(x)
            if layer.after_attention is not None:
                x = ops.norm(x, layer.after_attention)
            x = layer.down(ops.gated(layer.gate_up(ops.add_norm(states, x, layer.before_mlp))))
            if layer.after_mlp is not None:
                x = ops.norm(x, layer.after_mlp)
            x = ops.add_norm(states, x, layers[number + 1].before_attention if number + 1 < len(layers) else self._norm)
        return x

    def logits(self, states: Tensor) -> Tensor:
        """states: [n, width] -> [n, vocabulary] float32"""
        return self._head(states).float()


def ranges(parts: Sequence[tuple[int, int]]) -> Tensor:
    """All numbers in [first, end) of each."""
    return torch.cat([torch.arange(first, end) for first, end in parts]) if parts else torch.zeros(0, dtype=torch.int64)
