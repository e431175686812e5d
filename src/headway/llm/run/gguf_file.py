"""A model from one GGUF file: shape from its metadata, tensors dequantised by the `gguf` package."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from headway.llm.run.config import ModelConfig, Rope
from headway.llm.run.errors import ModelError
from headway.llm.run.quantised import KINDS, Blocks, blocks_of
from headway.llm.run.weights import Weights

FAMILIES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3_text"}
"""By `general.architecture`. Mistral's models call themselves llama."""

NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
    "rope_freqs.weight": "rope_divisors",
}

PARTS = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}

GEMMA_PARTS = {
    **PARTS,
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}


def from_file(file: Path) -> tuple[ModelConfig, Weights]:
    """ModelError for what is not supported, or where the `gguf` package is not installed."""
    try:
        import gguf
    except ImportError:
        raise ModelError(f"{file}: reading GGUF needs the package gguf: install headway[llm]") from None
    try:
        reader = gguf.GGUFReader(file)
    except (ValueError, OSError) as error:
        raise ModelError(f"{file}: not GGUF: {error}") from None
    metadata = {name: field.contents() for name, field in reader.fields.items() if not name.startswith("tokenizer.")}
    ends = reader.fields.get("tokenizer.ggml.eos_token_id")
    shapes = {tensor.name: [int(size) for size in reversed(tensor.shape)] for tensor in reader.tensors}
    try:
        config = _config(metadata, shapes, () if ends is None else (int(ends.contents()),))
    except ModelError as error:
        raise ModelError(f"{file}: {error}") from None
    read: dict[str, Callable[[], Tensor]] = {}
    blocks: dict[str, Callable[[], Blocks | None]] = {}
    for tensor in reader.tensors:
        name = _name(tensor.name, config.family)
        read[name] = _reader(gguf, tensor, config)
        blocks[name] = _as_it_lies(tensor, config)
    return config, Weights(str(file), read, blocks)


def _config(said: dict[str, Any], shapes: dict[str, list[int]], ends: tuple[int, ...]) -> ModelConfig:
    kind = str(said.get("general.architecture"))
    if kind not in FAMILIES:
        raise ModelError(f"general.architecture is {kind!r}; supported are {', '.join(FAMILIES)}")
    family = FAMILIES[kind]
    gemma = family == "gemma3_text"

    def needed(name: str) -> Any:
        if f"{kind}.{name}" not in said:
            raise ModelError(f"the metadata does not say {kind}.{name}")
        return said[f"{kind}.{name}"]

    if said.get(f"{kind}.expert_count"):
        raise ModelError(f"{said[f'{kind}.expert_count']} experts; expected none")
    if "token_embd.weight" not in shapes:
        raise ModelError("there is no tensor 'token_embd.weight'")
    width, heads, layers = (int(needed(n)) for n in ("embedding_length", "attention.head_count", "block_count"))
    head_size = int(said.get(f"{kind}.attention.key_length", width // heads))
    if int(said.get(f"{kind}.rope.dimension_count", head_size)) != head_size:
        turned = said[f"{kind}.rope.dimension_count"]
        raise ModelError(f"rotary positions turn {turned} of {head_size} dimensions; expected all")
    rope = _rope(said, kind, 1_000_000.0 if gemma else 10_000.0)
    window = int(said.get(f"{kind}.attention.sliding_window") or 0)
    slides = [bool(window) and (not gemma or (layer + 1) % 6 != 0) for layer in range(layers)]
    return ModelConfig(
        family=family,
        vocabulary=shapes["token_embd.weight"][0],
        width=width,
        inner=int(needed("feed_forward_length")),
        layers=layers,
        heads=heads,
        kv_heads=int(said.get(f"{kind}.attention.head_count_kv", heads)),
        head_size=head_size,
        eps=float(needed("attention.layer_norm_rms_epsilon")),
        context=int(needed("context_length")),
        ropes=tuple(Rope(10_000.0) if gemma and slid else rope for slid in slides),
        windows=tuple(window if slid else 0 for slid in slides),
        # The largest Gemma 3 alone scales by its width over its heads, and no file says so.
        scale=float(width / heads if gemma and layers == 62 else head_size) ** -0.5,
        activation="gelu_tanh" if gemma else "silu",
        tied="output.weight" not in shapes,
        qk_norm=family in ("qwen3", "gemma3_text"),
        post_norms=gemma,
        norm_plus_one=False,  # added when the file was made
        embedding_scale=width**0.5 if gemma else 1.0,
        ends=ends,
    )


def _rope(said: dict[str, Any], kind: str, default: float) -> Rope:
    theta = float(said.get(f"{kind}.rope.freq_base", default))
    method = said.get(f"{kind}.rope.scaling.type", "none")
    if method not in ("none", "linear"):
        raise ModelError(f"rotary positions are scaled by {method!r}; supported are none and linear")
    factor = float(said.get(f"{kind}.rope.scaling.factor", said.get(f"{kind}.rope.scale_linear", 1.0)))
    return Rope(theta, factor if method == "linear" else 1.0)


def _name(name: str, family: str) -> str:
    """Hugging Face's; its own where it has none, so that it is left over and complained of."""
    if name in NAMES:
        return NAMES[name]
    matched = re.fullmatch(r"blk\.(\d+)\.(\w+)\.(weight|bias)", name)
    part = (GEMMA_PARTS if family == "gemma3_text" else PARTS).get(matched[2]) if matched else None
    return f"model.layers.{matched[1]}.{part}.{matched[3]}" if matched and part else name


def _reader(gguf: Any, tensor: Any, config: ModelConfig) -> Callable[[], Tensor]:
    def read() -> Tensor:
        try:
            values = gguf.dequantize(tensor.data, tensor.tensor_type)
        except NotImplementedError:
            raise ModelError(
                f"{tensor.name} is quantised as {tensor.tensor_type.name}, which is not supported"
            ) from None
        return _in_order(torch.from_numpy(values.copy()), tensor.name, config)

    return read


def _as_it_lies(tensor: Any, config: ModelConfig) -> Callable[[], Blocks | None]:
    def read() -> Blocks | None:
        kind = tensor.tensor_type.name
        if kind not in KINDS:
            return None
        return blocks_of(_in_order(torch.from_numpy(tensor.data.copy()), tensor.name, config).numpy(), kind)

    return read


def _in_order(tensor: Tensor, name: str, config: ModelConfig) -> Tensor:
    """Files of llamas have rows of queries and keys in the order in which neighbours turn together, not halves."""
    heads = {"attn_q": config.heads, "attn_k": config.kv_heads}.get(name.split(".")[-2])
    if not heads or config.family != "llama":
        return tensor
    pairs = tensor.reshape(heads, -1, 2, *tensor.shape[1:])
    return pairs.transpose(1, 2).reshape(tensor.shape)
