"""The heavy half of making the default model ready: export, and comparison with transformers.

Only the classic exporter is used: the newer one writes a graph that onnxruntime refuses for this
model. The exported graph is left unfused: onnxruntime fuses it when it loads it, and its offline
optimiser gave nothing on top (18.7 against 19.0 ms of CPU for one text of 44 tokens, one thread).
"""

from __future__ import annotations

import json
import os
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import torch
from tokenizers import Encoding, Tokenizer

from headway.registry.minilm_parts import INPUTS, OUTPUT, ExportError, Own, model_toml

TOLERANCE = 1e-5
"""Largest difference to transformers in any component of a vector of length 1."""

SUPPORTED_MODULES = ["Transformer", "Pooling", "Normalize"]
TEXTS = ("", "a", "A man is eating food.", "Größe, naïve café, 東京", "headway " * 40, "words and more words " * 200)


def build(source: Path, target: Path) -> float:
    """Writes version 1 and model.toml to `target`; the largest difference to transformers. Raises ExportError."""
    own = own_configuration(source)
    version = target / "1"
    version.mkdir(parents=True)
    write_tokenizer(source, version, own.max_length)
    export(source, version / "model.onnx")
    worst = largest_difference(source, version)
    if not worst <= TOLERANCE:
        raise ExportError(f"the exported graph differs from transformers by {worst:.1e}, allowed is {TOLERANCE:.0e}")
    (target / "model.toml").write_text(model_toml(own))
    return worst


def own_configuration(source: Path) -> Own:
    """The model's sizes. Refuses a model that says other than mean pooling and normalisation."""
    modules = [entry["type"].rsplit(".", 1)[-1] for entry in read_json(source / "modules.json")]
    pooling = read_json(source / "1_Pooling" / "config.json")
    modes = [name for name, wanted in pooling.items() if name.startswith("pooling_mode_") and wanted]
    if modules != SUPPORTED_MODULES or modes != ["pooling_mode_mean_tokens"]:
        raise ExportError(f"expected {SUPPORTED_MODULES} with mean pooling, the model says {modules} with {modes}")
    config = read_json(source / "config.json")
    return Own(
        max_length=int(read_json(source / "sentence_bert_config.json")["max_seq_length"]),
        positions=int(config["max_position_embeddings"]),
        vocabulary=int(config["vocab_size"]),
        types=int(config["type_vocab_size"]),
    )


def write_tokenizer(source: Path, version: Path, max_length: int) -> None:
    """As it comes, it pads every text to 128 tokens; padding is the worker's business."""
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.enable_truncation(max_length)
    tokenizer.save(str(version / "tokenizer.json"))


def load_transformer(source: Path, attention: str) -> Any:
    """From the package's files only: a lookup at a model hub is an error."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")
    from transformers import AutoModel, logging

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    return AutoModel.from_pretrained(str(source), local_files_only=True, attn_implementation=attention).eval()


class Encoder(torch.nn.Module):
    """Token ids to one vector per text. Plain ("eager") attention: the fused kind loses the mask when traced."""

    def __init__(self, source: Path) -> None:
        super().__init__()
        self.transformer = load_transformer(source, "eager")

    def forward(self, input_ids: Any, attention_mask: Any, token_type_ids: Any) -> Any:
        output = self.transformer(input_ids=input_ids, attention_mask=attention_mask, token_type_ids=token_type_ids)
        return pool(output.last_hidden_state, attention_mask)


def pool(states: Any, mask: Any) -> Any:
    """Mean over the tokens that are no padding, brought to length 1. states: [rows, tokens, width]."""
    weights = mask.unsqueeze(-1).to(states.dtype)
    mean = (states * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
    return torch.nn.functional.normalize(mean, p=2, dim=1)


def export(source: Path, file: Path) -> None:
    ids = torch.ones(2, 8, dtype=torch.long)
    mask = torch.tensor([[1] * 8, [1] * 5 + [0] * 3])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # tracing warns of every branch in Python that the example decides
        torch.onnx.export(
            Encoder(source),
            (ids, mask, torch.zeros_like(ids)),
            str(file),
            dynamo=False,
            opset_version=17,
            input_names=list(INPUTS),
            output_names=[OUTPUT],
            dynamic_axes={**{name: {0: "batch", 1: "sequence"} for name in INPUTS}, OUTPUT: {0: "batch"}},
        )


def largest_difference(source: Path, version: Path) -> float:
    """Between the graph and transformers (with its usual attention), texts of all lengths, alone and together."""
    reference = load_transformer(source, "sdpa")
    session = onnxruntime.InferenceSession(str(version / "model.onnx"), providers=["CPUExecutionProvider"])
    worst = 0.0
    for batch in encoded(version / "tokenizer.json"):
        fed = {
            "input_ids": np.array([text.ids for text in batch], dtype=np.int64),
            "attention_mask": np.array([text.attention_mask for text in batch], dtype=np.int64),
            "token_type_ids": np.array([text.type_ids for text in batch], dtype=np.int64),
        }
        tensors = {name: torch.from_numpy(array) for name, array in fed.items()}
        with torch.no_grad():
            expected = pool(reference(**tensors).last_hidden_state, tensors["attention_mask"]).numpy()
        worst = max(worst, float(np.abs(session.run([OUTPUT], fed)[0] - expected).max()))
    return worst


def encoded(tokenizer_file: Path) -> list[list[Encoding]]:
    """Each text as a batch of its own, and all of them padded to the longest."""
    tokenizer = Tokenizer.from_file(str(tokenizer_file))
    alone = [[tokenizer.encode(text)] for text in TEXTS]
    tokenizer.enable_padding()
    return [*alone, tokenizer.encode_batch(list(TEXTS))]


def read_json(file: Path) -> Any:
    return json.loads(file.read_text(encoding="utf-8"))
