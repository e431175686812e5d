"""A language model's files: what is read from them, and what is said of those that cannot be run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="needs the extra: pip install headway[llm]")
pytest.importorskip("transformers", reason="needs the extra: pip install headway[torch]")

from safetensors.torch import load_file, save_file  # noqa: E402

from headway.llm.plan.request import SequenceId  # noqa: E402
from headway.llm.plan.step import Row, StepPlan  # noqa: E402
from headway.llm.run.errors import ModelError  # noqa: E402
from headway.llm.run.runner import Runner  # noqa: E402
from tests import llm_models  # noqa: E402


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    llm_models.make("llama", tmp_path)
    return tmp_path


def logits(runner: Runner, prompt: list[int]) -> Any:
    runner.allocate(16, 4)
    return runner.step(StepPlan(1, [Row(SequenceId(1), 0, 0, len(prompt), prompt, list(range(16)), True)])).logits[0]


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"model_type": "gpt2"}, "model_type is 'gpt2'; supported are llama"),
        ({"hidden_act": "relu"}, "activation is 'relu'"),
        ({"quantization_config": {"quant_method": "awq"}}, "quantised by 'awq'"),
        ({"hidden_size": None}, "does not say hidden_size"),
        ({"rope_parameters": {"rope_type": "yarn", "rope_theta": 1.0}}, "of type 'yarn'; supported are default"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1.0}}, "does not say factor"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor is 0.5; expected 1"),
        ({"num_key_value_heads": 4}, "6 heads cannot share 4 heads of keys"),
        ({"layer_types": ["full_attention", "linear_attention", "full_attention"]}, "'linear_attention'"),
        ({"intermediate_size": 81}, r"gate_proj.weight is \[80, 72\], expected \[81, 72\]"),
        ({"num_hidden_layers": 4}, "there is no tensor 'model.layers.3.input_layernorm.weight'"),
        ({"num_hidden_layers": 2}, "9 tensors have no use here, 'model.layers.2"),
    ],
)
def test_what_is_not_supported_is_said_with_what_was_found(folder: Path, changes: dict[str, Any], message: str) -> None:
    llm_models.rewrite(folder, changes)
    with pytest.raises(ModelError, match=message) as caught:
        Runner.load(folder, "float32")
    assert str(folder) in str(caught.value)


def test_files_that_are_missing_or_broken_are_named(folder: Path) -> None:
    with pytest.raises(ModelError, match="there is no such folder or file"):
        Runner.load(folder / "other", "float32")
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    with pytest.raises(ModelError, match=r"no \*.safetensors; found pytorch_model.bin, which could run code"):
        Runner.load(folder, "float32")
    (folder / "model.safetensors").write_bytes(b"no")
    with pytest.raises(ModelError, match="not safetensors"):
        Runner.load(folder, "float32")
    (folder / "config.json").write_text("{")
    with pytest.raises(ModelError, match="not JSON"):
        Runner.load(folder, "float32")
    (folder / "config.json").unlink()
    with pytest.raises(ModelError, match=r"there is no config.json"):
        Runner.load(folder, "float32")
    with pytest.raises(ValueError, match="dtype is 'int3'; supported are float32, bfloat16"):
        Runner.load(folder, "int3")


def test_tensors_may_lie_in_several_files(folder: Path) -> None:
    prompt = llm_models.prompts(2, 20)[1]
    before = logits(Runner.load(folder, "float32"), prompt)
    tensors = load_file(folder / "model.safetensors")
    names = sorted(tensors)
    where = {name: f"model-{number % 2}.safetensors" for number, name in enumerate(names)}
    for file in dict.fromkeys(where.values()):
        save_file({name: tensors[name] for name in names if where[name] == file}, folder / file)
    (folder / "model.safetensors").unlink()
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))
    assert torch.equal(logits(Runner.load(folder, "float32"), prompt), before)


def test_the_older_way_to_write_rotary_positions_is_the_same(tmp_path: Path) -> None:
    for name, new, old in (
        ("llama-3", llm_models.ROPE_3, {"rope_theta": 10_000.0, "rope_scaling": llm_models.ROPE_3}),
        ("llama", {"rope_type": "linear", "factor": 2.0}, {"rope_scaling": {"type": "linear", "factor": 2.0}}),
    ):
        folder = tmp_path / name
        llm_models.make(name, folder)
        llm_models.rewrite(folder, {"rope_parameters": new})
        prompt = llm_models.prompts(2, 60)[1]
        before = logits(Runner.load(folder, "float32"), prompt)
        llm_models.rewrite(folder, {"rope_parameters": None, **old})
        assert (logits(Runner.load(folder, "float32"), prompt) - before).abs().max() < 1e-5


def test_gemma_as_older_files_describe_it_is_the_same(tmp_path: Path) -> None:
    llm_models.make("gemma3", tmp_path)
    prompt = llm_models.prompts(2, 40)[1]
    new = {
        "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
        "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1_000_000.0},
    }
    llm_models.rewrite(tmp_path, {"rope_parameters": new})
    before = logits(Runner.load(tmp_path, "float32"), prompt)
    text = {**json.loads((tmp_path / "config.json").read_text()), "rope_parameters": None, "layer_types": None}
    text |= {"rope_theta": 1_000_000.0, "rope_local_base_freq": 10_000.0, "sliding_window_pattern": 2}
    text |= {"rope_scaling": {"rope_type": "linear", "factor": 8.0}}
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3", "text_config": text}))
    tensors = load_file(tmp_path / "model.safetensors")
    renamed = {name.replace("model.", "language_model.model.", 1): tensor for name, tensor in tensors.items()}
    save_file({**renamed, "vision_tower.x": torch.zeros(1)}, tmp_path / "model.safetensors")
    assert (logits(Runner.load(tmp_path, "float32"), prompt) - before).abs().max() < 1e-5


# -- GGUF -----------------------------------------------------------------------------------

ARCHITECTURES = {"llama": "llama", "smollm2": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3"}
"""By kind of model."""


def write_gguf(model: Any, architecture: str, file: Path, kind: str = "F32", **more: Any) -> None:
    """As llama.cpp's converter does it: queries and keys of llamas so that neighbours turn together."""
    import gguf

    config = model.config
    names = gguf.get_tensor_name_map(getattr(gguf.MODEL_ARCH, architecture.upper()), config.num_hidden_layers)
    writer = gguf.GGUFWriter(file, architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(config.head_dim)
    if architecture == "gemma3":
        writer.add_sliding_window(config.sliding_window)
    else:
        writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    for name, value in more.items():
        writer.add_uint32(f"{architecture}.{name}", value)
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.float().clone()
        if architecture == "gemma3" and "norm" in name:
            values += 1
        heads = {"q_proj": config.num_attention_heads, "k_proj": config.num_key_value_heads}.get(name.split(".")[-2])
        if architecture == "llama" and heads:
            values = values.view(heads, 2, -1, *values.shape[1:]).transpose(1, 2).reshape(values.shape)
        stored = gguf.GGMLQuantizationType[kind] if values.dim() == 2 else gguf.GGMLQuantizationType.F32
        data = gguf.quantize(values.numpy(), stored)
        writer.add_tensor(names.get_name(name, try_suffixes=(".weight", ".bias")), data, raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


@pytest.fixture
def gguf() -> Any:
    return pytest.importorskip("gguf", reason="needs the extra: pip install headway[llm]")


@pytest.mark.parametrize("kind", ARCHITECTURES)
def test_a_gguf_file_says_what_the_folder_says(gguf: Any, kind: str, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(llm_models.SMALL, "num_hidden_layers", 7 if kind == "gemma3" else 2)
    monkeypatch.setitem(llm_models.KINDS["gemma3"][1], "sliding_window_pattern", 6)  # all that there are in GGUF
    monkeypatch.setitem(llm_models.KINDS["gemma3"][1], "query_pre_attn_scalar", 16)
    model = llm_models.make(kind, tmp_path)
    write_gguf(model, ARCHITECTURES[kind], tmp_path / "model.gguf")
    prompt = llm_models.prompts(2, 40)[1]
    found = logits(Runner.load(tmp_path / "model.gguf", "float32"), prompt)
    assert (found - llm_models.said(model, prompt)[-1]).abs().max() < 1e-4


def test_a_gguf_file_that_cannot_be_run_is_named_with_the_reason(gguf: Any, tmp_path: Path) -> None:
    model = llm_models.make("llama", tmp_path)
    for more, message in (
        ({"expert_count": 8}, "8 experts; expected none"),
        ({"rope.dimension_count": 8}, "turn 8 of 16 dimensions; expected all"),
    ):
        write_gguf(model, "llama", tmp_path / "model.gguf", **more)
        with pytest.raises(ModelError, match=message):
            Runner.load(tmp_path / "model.gguf", "float32")
    (tmp_path / "model.gguf").write_bytes(b"nothing of the kind")
    with pytest.raises(ModelError, match="not GGUF"):
        Runner.load(tmp_path / "model.gguf", "float32")
    write_gguf(llm_models.make("qwen3", tmp_path), "qwen3", tmp_path / "model.gguf")
    shown = (tmp_path / "model.gguf").read_bytes().replace(b"qwen3", b"qwen4")
    (tmp_path / "model.gguf").write_bytes(shown)
    with pytest.raises(ModelError, match=r"general\.architecture is 'qwen4'; supported are llama, qwen2"):
        Runner.load(tmp_path / "model.gguf", "float32")


@pytest.mark.parametrize("stored", ["Q4_0", "Q4_1", "Q8_0"])
def test_quantised_weights_used_as_they_lie_are_no_further_off_than_unpacked_ones(
    gguf: Any, stored: str, tmp_path: Path, monkeypatch: Any
) -> None:
    for name, size in {"hidden_size": 96, "intermediate_size": 160}.items():
        monkeypatch.setitem(llm_models.SMALL, name, size)
    model = llm_models.make("llama", tmp_path)
    write_gguf(model, "llama", tmp_path / "model.gguf", stored)
    prompt = llm_models.prompts(2, 3)[1]
    exact = logits(Runner.load(tmp_path / "model.gguf", "float32"), prompt)
    found = [
        logits(Runner.load(tmp_path / "model.gguf", "bfloat16", quantised=quantised), prompt)
        for quantised in (True, False)
    ]
    if torch.equal(*found):
        pytest.skip("needs a C++ compiler, and a processor with AVX-512 and bfloat16")
    off = [(one - exact).norm() / exact.norm() for one in found]
    assert off[0] < 1.2 * off[1] < 0.2


SMOLLM2 = [
    [1, 4093, 198, 1780, 314, 260, 3575, 282, 4649, 47, 2, 198, 1, 520, 9531, 198],
    [504, 2988, 282, 260, 3575],
    list(range(300, 340)),
]
"""Prompts as token ids: a question in the form of a chat, the beginning of a sentence, anything.
None of a single token: there float32 itself is 6e-3 away from float64, in transformers too."""


@pytest.mark.slow
def test_smollm2_from_its_gguf_file_is_what_transformers_makes_of_the_same_file(gguf: Any) -> None:
    file = llm_models.smollm2()
    import transformers
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    raw = {name: value for name, value in load_gguf_checkpoint(file)["config"].items() if name != "_model_name_or_path"}
    model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**raw)).eval()
    tensors = load_gguf_checkpoint(file, return_tensors=True, model_to_load=model)["tensors"]
    assert model.load_state_dict(tensors, strict=False).missing_keys == ["lm_head.weight"]
    runner = Runner.load(file, "float32")
    for prompt in SMOLLM2:
        runner.allocate(64, 16)
        steps = llm_models.by_hand(prompt, 6, 8, 16, list(range(64)))
        chosen = [llm_models.choose(runner, plan) for plan in steps]
        output = [token for results, _ in chosen for token in results if token is not None]
        assert llm_models.differ(model, prompt, output, [one for _, by in chosen for one in by.values()]) < 1e-4
