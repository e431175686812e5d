"""What a model's files say of its shape: `ModelConfig`, from a Hugging Face config.json."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

from headway.llm.run.errors import ModelError

FAMILIES = ("llama", "mistral", "qwen2", "qwen3", "gemma3_text")
"""By `model_type`. SmolLM2 is a llama; gemma3 with a picture tower is taken for its text part."""

ACTIVATIONS = {"silu": "silu", "swish": "silu", "gelu_pytorch_tanh": "gelu_tanh"}

T = TypeVar("T")


class Rope(NamedTuple):
    """Rotary positions. theta: base.  factor: positions are divided by it (1 = as they are).
    llama3: (low_freq_factor, high_freq_factor, original context): only long wavelengths are divided; None: all are."""

    theta: float
    factor: float = 1.0
    llama3: tuple[float, float, int] | None = None


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """width: of a token's state.  inner: of the MLP.  context: positions that it was trained for.
    ropes, windows: by layer; a window of 0 sees everything before.  scale: of scores before the softmax.
    activation: silu or gelu_tanh.  qk_norm: queries and keys are normed by head.
    post_norms: so are the outputs of attention and MLP, before they are added.
    norm_plus_one: the files hold norm weights less 1.  embedding_scale: states are multiplied by it at the start.
    ends: token ids that end an answer, as the files say.
    """

    family: str
    vocabulary: int
    width: int
    inner: int
    layers: int
    heads: int
    kv_heads: int
    head_size: int
    eps: float
    context: int
    ropes: tuple[Rope, ...]
    windows: tuple[int, ...]
    scale: float
    activation: str = "silu"
    tied: bool = False
    qk_norm: bool = False
    post_norms: bool = False
    norm_plus_one: bool = False
    embedding_scale: float = 1.0
    ends: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        """ModelError where the sizes contradict each other."""
        if self.heads % self.kv_heads:
            raise ModelError(f"{self.heads} heads cannot share {self.kv_heads} heads of keys: not a multiple")
        if self.head_size % 2:
            raise ModelError(f"heads of size {self.head_size}: rotary positions need an even one")
        if not len(self.ropes) == len(self.windows) == self.layers:
            raise ModelError(f"{self.layers} layers, but kinds of {len(self.windows)} are said")


def from_huggingface(raw: Mapping[str, Any]) -> ModelConfig:
    """raw: config.json. ModelError for what is not supported."""
    family = str(raw.get("model_type"))
    if family == "gemma3":
        raw, family = {**raw["text_config"], "tie_word_embeddings": raw.get("tie_word_embeddings", True)}, "gemma3_text"
    if family not in FAMILIES:
        raise ModelError(f"model_type is {family!r}; supported are {', '.join(FAMILIES)} and gemma3")
    if raw.get("quantization_config"):
        method = raw["quantization_config"].get("quant_method")
        raise ModelError(f"weights quantised by {method!r}; expected float32, float16 or bfloat16, or a GGUF file")
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if raw.get(name):
            raise ModelError(f"{name} is {raw[name]}; expected none")
    if raw.get("use_bidirectional_attention"):
        raise ModelError("attention is bidirectional; expected causal")
    if float(_of(raw, "partial_rotary_factor", 1.0)) != 1.0:
        raise ModelError(f"partial_rotary_factor is {raw['partial_rotary_factor']}; expected 1")
    gemma = family == "gemma3_text"
    activation = str(raw.get("hidden_activation" if gemma else "hidden_act") or "silu")
    if activation not in ACTIVATIONS:
        raise ModelError(f"activation is {activation!r}; supported are {', '.join(ACTIVATIONS)}")
    width, heads = int(_needed(raw, "hidden_size")), int(_needed(raw, "num_attention_heads"))
    layers = int(_needed(raw, "num_hidden_layers"))
    head_size = int(raw.get("head_dim") or width // heads)
    kinds = _kinds(raw, layers, family)
    ropes = {kind: _rope(raw, kind, gemma) for kind in ("full_attention", "sliding_attention")}
    window = int(raw.get("sliding_window") or 0)
    ends = raw.get("eos_token_id")
    return ModelConfig(
        family=family,
        vocabulary=int(_needed(raw, "vocab_size")),
        width=width,
        inner=int(_needed(raw, "intermediate_size")),
        layers=layers,
        heads=heads,
        kv_heads=int(raw.get("num_key_value_heads") or heads),
        head_size=head_size,
        eps=float(_of(raw, "rms_norm_eps", 1e-6)),
        context=int(_of(raw, "max_position_embeddings", 2048)),
        ropes=tuple(ropes[kind] for kind in kinds),
        windows=tuple(window if kind == "sliding_attention" else 0 for kind in kinds),
        scale=float(_of(raw, "query_pre_attn_scalar", 256) if gemma else head_size) ** -0.5,
        activation=ACTIVATIONS[activation],
        tied=bool(_of(raw, "tie_word_embeddings", gemma)),
        qk_norm=family in ("qwen3", "gemma3_text"),
        post_norms=gemma,
        norm_plus_one=gemma,
        embedding_scale=width**0.5 if gemma else 1.0,
        ends=tuple(ends) if isinstance(ends, list) else () if ends is None else (int(ends),),
    )


def _kinds(raw: Mapping[str, Any], layers: int, family: str) -> list[str]:
    """By layer: full_attention or sliding_attention."""
    said = raw.get("layer_types")
    if said:
        strange = [kind for kind in said if kind not in ("full_attention", "sliding_attention")]
        if strange:
            raise ModelError(f"layer_types has {strange[0]!r}; supported are full_attention and sliding_attention")
        return list(said)
    if family == "gemma3_text":
        every = int(_of(raw, "sliding_window_pattern", 6))
        return ["full_attention" if (layer + 1) % every == 0 else "sliding_attention" for layer in range(layers)]
    if not raw.get("sliding_window") or family == "llama":
        return ["full_attention"] * layers
    if family == "mistral":
        return ["sliding_attention"] * layers
    if not raw.get("use_sliding_window"):
        return ["full_attention"] * layers
    first = int(_of(raw, "max_window_layers", 28))
    return ["sliding_attention" if layer >= first else "full_attention" for layer in range(layers)]


def _rope(raw: Mapping[str, Any], kind: str, gemma: bool) -> Rope:
    """Newer files have it all in `rope_parameters`, older ones in `rope_theta` and `rope_scaling`."""
    said = raw.get("rope_parameters") or {}
    said = said.get(kind, said)
    if not said:
        said = dict(raw.get("rope_scaling") or {})
        said["rope_theta"] = raw.get("rope_theta")
        if gemma and kind == "sliding_attention":
            said = {"rope_theta": _of(raw, "rope_local_base_freq", 10_000.0)}  # what is scaled is the others
    default = 10_000.0 if not gemma or kind == "sliding_attention" else 1_000_000.0
    theta = float(_of(said, "rope_theta", default))
    method = str(_of(said, "rope_type", said.get("type") or "default"))
    if float(_of(said, "partial_rotary_factor", 1.0)) != 1.0:
        raise ModelError(f"partial_rotary_factor is {said['partial_rotary_factor']}; expected 1")
    if method == "default":
        return Rope(theta)
    if method == "linear":
        return Rope(theta, float(_needed(said, "factor")))
    if method == "llama3":
        low, high = float(_needed(said, "low_freq_factor")), float(_needed(said, "high_freq_factor"))
        return Rope(
            theta, float(_needed(said, "factor")), (low, high, int(_needed(said, "original_max_position_embeddings")))
        )
    raise ModelError(f"rotary positions are of type {method!r}; supported are default, linear and llama3")


def _needed(raw: Mapping[str, Any], name: str) -> Any:
    value = raw.get(name)
    if value is None:
        raise ModelError(f"the configuration does not say {name}")
    return value


def _of(raw: Mapping[str, Any], name: str, default: T) -> T:
    value = raw.get(name)
    return default if value is None else value
