"""Tiny PyTorch models for tests: each function fills one folder (NAME/VERSION) and returns it.

Needs the extra `torch`; tests that use it begin with `pytest.importorskip("torch")`.
"""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from torch.export import Dim

VOCABULARY = 50
POSITIONS = 64
WIDTH = 32


class MaskedMean(torch.nn.Module):
    """values FP32 [-1, -1], mask INT64 [-1, -1] -> mean FP32 [-1], centred FP32 [-1, -1]: as the ONNX one."""

    def forward(self, values: torch.Tensor, mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        kept = mask.to(values.dtype)
        mean = (values * kept).sum(1) / kept.sum(1)
        return mean, values - mean.unsqueeze(1)


class Affine(torch.nn.Module):
    """x FP32 [-1, 4] -> {"y": 2 * x + 1}."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 4)
        with torch.no_grad():
            self.linear.weight.copy_(2 * torch.eye(4))
            self.linear.bias.fill_(1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"y": self.linear(x)}


def exported_masked_mean(folder: Path) -> Path:
    rows, length = Dim("rows", min=1), Dim("length", min=1)
    example = (torch.ones(2, 3), torch.ones(2, 3, dtype=torch.long))
    return _export(folder, MaskedMean(), example, [{0: rows, 1: length}] * 2)


def exported_affine(folder: Path, rows: int = 0) -> Path:
    """rows: that the file is fixed to; 0 = any."""
    return _export(folder, Affine(), (torch.ones(rows or 2, 4),), [None if rows else {0: Dim("rows", min=1)}])


def _export(folder: Path, module: Any, example: tuple[Any, ...], dynamic: list[Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    program = torch.export.export(module.eval(), example, dynamic_shapes=tuple(dynamic))
    torch.export.save(program, str(folder / "model.pt2"))
    return folder


def scripted_masked_mean(folder: Path, name: str = "model.ts") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(MaskedMean()).save(str(folder / name))
    return folder


def encoder(folder: Path, model_type: str = "bert", pooling: str = "mean", normalize: bool = True) -> Path:
    """A random encoder of two layers, as transformers and sentence-transformers lay it on disk.

    pooling: "mean", "cls", or "" for a folder that says nothing of it.
    """
    import transformers

    torch.manual_seed(3)
    sizes = {"vocab_size": VOCABULARY, "max_position_embeddings": POSITIONS, "pad_token_id": 0}
    if model_type == "distilbert":
        config: Any = transformers.DistilBertConfig(**sizes, dim=WIDTH, n_layers=2, n_heads=4, hidden_dim=48)
        module: Any = transformers.DistilBertModel(config)
    else:
        kind = {"bert": "Bert", "roberta": "Roberta"}[model_type]
        config = getattr(transformers, f"{kind}Config")(
            **sizes, hidden_size=WIDTH, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
        )
        module = getattr(transformers, f"{kind}Model")(config)
    with torch.no_grad():
        for weight in module.parameters():
            weight.mul_(4)  # as they come they are so small that hardly anything depends on the input
    module.save_pretrained(str(folder), safe_serialization=True)
    _tokenizer(folder)
    if pooling:
        _sentence_modules(folder, pooling, normalize)
    return folder


def _sentence_modules(folder: Path, pooling: str, normalize: bool) -> None:
    kinds = ["Transformer", "Pooling", *(["Normalize"] if normalize else [])]
    modules = [
        {"idx": number, "name": str(number), "path": f"{number}_{kind}" if number else "", "type": f"st.models.{kind}"}
        for number, kind in enumerate(kinds)
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    (folder / "1_Pooling").mkdir(exist_ok=True)
    modes = {"pooling_mode_cls_token": pooling == "cls", "pooling_mode_mean_tokens": pooling == "mean"}
    (folder / "1_Pooling" / "config.json").write_text(json.dumps(modes))
    (folder / "sentence_bert_config.json").write_text(json.dumps({"max_seq_length": 40}))


def _tokenizer(folder: Path) -> None:
    words = {"[PAD]": 0, "[UNK]": 1, **{f"w{number}": number for number in range(2, VOCABULARY)}}
    tokenizer = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()  # type: ignore[assignment]
    tokenizer.save(str(folder / "tokenizer.json"))
