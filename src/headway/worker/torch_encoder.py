"""A Hugging Face encoder, as its folder lies on disk: config.json, model.safetensors.

Weights come from safetensors alone and code from the installed transformers alone (never trust_remote_code). What
comes out is one vector per text (`embedding`) where the states are pooled, else all of them (`last_hidden_state`),
always as FP32. Attention mask and token types may be left out: all tokens count, and all types are 0.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from headway.config.huggingface import Encoder, FolderError, read_encoder
from headway.config.settings import Padding, Torch
from headway.worker.declaration import Declared
from headway.worker.errors import LoadError
from headway.worker.executor import Array, PartArrays
from headway.worker.torch_int8 import quantise
from headway.worker.torch_packed import PackedEncoder
from headway.worker.torch_tensors import to_array

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "int8": torch.float32}
SENTENCE, STATES = "embedding", "last_hidden_state"
NEVER_USED = "pooler."
"""Weights that a folder may lack: the classic pooler of BERT comes after the states that are served."""

log = logging.getLogger("headway.worker")


class HuggingFaceEncoder:
    platform: str = "pytorch_transformers"
    fixed_rows: int = 0
    least_rows: int = 1
    inputs: Sequence[Declared]
    outputs: Sequence[Declared]
    padding: Mapping[str, Padding]
    output_padding: Mapping[str, Padding]

    def __init__(self, name: str, folder: Path, settings: Torch, device: str) -> None:
        """name: model/version, for messages. Raises LoadError."""
        self._told = _read(name, folder)
        self._device = device
        self._pooling = settings.pooling or self._told.pooling or "none"
        self._normalize = self._told.normalize if settings.normalize is None else settings.normalize
        if settings.dtype == "int8" and device != "cpu":
            raise LoadError(f'model {name}: torch.dtype = "int8" is for device = "cpu", this is {device!r}')
        self._module = _module(name, folder, DTYPES[settings.dtype]).to(device)
        if settings.dtype == "int8":
            log.info("%d linear layers in int8", quantise(self._module))
        if device == "cpu":
            _warn_of_slow(name, settings.dtype)
        ids = ["input_ids", "attention_mask", *(["token_type_ids"] if self._told.types else [])]
        self.inputs = [Declared(one, "INT64", (-1, -1), one != "input_ids") for one in ids]
        self.padding = {one: Padding(1, self._told.padding if one == "input_ids" else 0) for one in ids}
        width = int(self._module.config.hidden_size)
        if self._pooling == "none":
            self.outputs = [Declared(STATES, "FP32", (-1, -1, width))]
            self.output_padding = {STATES: Padding(1)}
        else:
            self.outputs = [Declared(SENTENCE, "FP32", (-1, width))]
            self.output_padding = {}
        self._packed = PackedEncoder.of(self._module)

    @property
    def vocabulary(self) -> int:
        return self._told.vocabulary

    @property
    def padding_id(self) -> int:
        return self._told.padding

    @property
    def longest(self) -> int:
        """Tokens of the longest text; 0 = no limit is known."""
        return self._told.positions

    @property
    def can_pack(self) -> bool:
        """Whether its architecture is one that can run end to end at all."""
        return self._packed is not None

    def problem(self, part: PartArrays) -> str:
        told = self._told
        if told.positions and part.length > told.positions:
            return f"input_ids has {part.length} tokens, the model takes {told.positions}"
        if not part.length:
            return "input_ids has no tokens, the model takes one at least"
        for name, count in (("input_ids", told.vocabulary), ("token_type_ids", told.types), ("attention_mask", 2)):
            array = part.inputs.get(name)
            if array is not None and array.size and (int(array.min()) < 0 or int(array.max()) >= count):
                return f"{name} holds {int(array.min())} to {int(array.max())}, the model takes 0 to {count - 1}"
        return ""

    def present(self, part: PartArrays) -> dict[str, Array]:
        inputs = part.inputs
        ids = inputs["input_ids"]
        made_up = {"attention_mask": np.ones, "token_type_ids": np.zeros}
        return {
            one.name: inputs[one.name] if one.name in inputs else made_up[one.name](ids.shape, np.int64)
            for one in self.inputs
        }

    def run(self, tensors: Sequence[Any]) -> Sequence[Any]:
        named = dict(zip((one.name for one in self.inputs), tensors, strict=True))
        states = self._module(**named).last_hidden_state.float()
        if self._pooling == "none":
            return [states]
        if self._pooling == "cls":
            return [self._finished(states[:, 0])]
        weights = named["attention_mask"].unsqueeze(-1).to(states.dtype)
        return [self._finished((states * weights).sum(1) / weights.sum(1).clamp(min=1e-9))]

    def packs(self, parts: Sequence[PartArrays]) -> bool:
        """Where a mask hides tokens of a text, or where positions depend on them, the padded way is taken."""
        if self._packed is None:
            return False
        masks = (part.inputs.get("attention_mask") for part in parts)
        if not all(mask is None or bool(mask.all()) for mask in masks):
            return False
        padding = self._packed.without_position
        return padding is None or not any((part.inputs["input_ids"] == padding).any() for part in parts)

    def run_packed(self, parts: Sequence[PartArrays]) -> list[dict[str, Array]]:
        assert self._packed is not None
        order = sorted(range(len(parts)), key=lambda number: parts[number].length)
        inputs = [self.present(parts[number]) for number in order]
        ids, types = (
            torch.from_numpy(np.concatenate([one[name].ravel() for one in inputs])).to(self._device)
            if name in inputs[0]
            else None
            for name in ("input_ids", "token_type_ids")
        )
        blocks = _blocks([parts[number] for number in order])
        states = self._packed.states(ids, types, blocks).float()
        found: list[dict[str, Array]] = [{}] * len(parts)
        for number, answer in zip(order, self._answers(states, blocks, [parts[at] for at in order]), strict=True):
            found[number] = answer
        return found

    def _answers(
        self, states: Any, blocks: Sequence[tuple[int, int]], parts: Sequence[PartArrays]
    ) -> list[dict[str, Array]]:
        if self._pooling == "none":
            sizes = [part.rows * part.length for part in parts]
            whole = [to_array(one) for one in states.cpu().split(sizes)]
            return [{STATES: one.reshape(part.rows, part.length, -1)} for one, part in zip(whole, parts, strict=True)]
        vectors, at = [], 0
        for rows, length in blocks:
            block = states[at : at + rows * length].view(rows, length, -1)
            vectors.append(block[:, 0] if self._pooling == "cls" else block.mean(1))
            at += rows * length
        vectors_of = self._finished(torch.cat(vectors)).cpu()
        return [{SENTENCE: to_array(one)} for one in vectors_of.split([part.rows for part in parts])]

    def _finished(self, vectors: Any) -> Any:
        return torch.nn.functional.normalize(vectors, dim=1) if self._normalize else vectors


def _blocks(parts: Sequence[PartArrays]) -> list[tuple[int, int]]:
    """(rows, length) of each run of equal lengths. parts: in order of length."""
    blocks: list[tuple[int, int]] = []
    for part in parts:
        if blocks and blocks[-1][1] == part.length:
            blocks[-1] = (blocks[-1][0] + part.rows, part.length)
        else:
            blocks.append((part.rows, part.length))
    return blocks


def _read(name: str, folder: Path) -> Encoder:
    try:
        return read_encoder(folder)
    except FolderError as error:
        raise LoadError(f"model {name}: {error}") from error


def _module(name: str, folder: Path, dtype: Any) -> Any:
    """In evaluation mode. Raises LoadError: unknown architecture, broken or missing weights."""
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1")  # a look-up at a model hub is an error
    try:
        from transformers import AutoConfig, AutoModel
        from transformers import logging as chatter
    except ImportError as error:
        advice = "install headway with its extra `torch`: pip install 'headway[torch]'"
        raise LoadError(f"model {name}: transformers cannot be imported ({error}); {advice}") from error
    chatter.set_verbosity_error()
    chatter.disable_progress_bar()
    try:
        config = AutoConfig.from_pretrained(str(folder), local_files_only=True, trust_remote_code=False)
        if config.is_encoder_decoder:
            raise LoadError(
                f"model {name}: {config.model_type} is an encoder with a decoder; expected an encoder alone"
            )
        module, loading = AutoModel.from_pretrained(
            str(folder),
            config=config,
            dtype=dtype,
            output_loading_info=True,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
        )
    except LoadError:
        raise
    except Exception as error:  # the library raises whatever its parts do
        raise LoadError(
            f"model {name}: transformers cannot load this folder: {type(error).__name__}: {error}"
        ) from error
    missing = sorted(key for key in loading["missing_keys"] if not key.startswith(NEVER_USED))
    if missing:  # transformers would go on with random numbers there
        raise LoadError(f"model {name}: the weights lack {len(missing)} tensors, among them {', '.join(missing[:3])}")
    return module.eval()


def _warn_of_slow(name: str, dtype: str) -> None:
    slow = {
        "bfloat16": torch.ops.mkldnn._is_mkldnn_bf16_supported,
        "float16": torch.ops.mkldnn._is_mkldnn_fp16_supported,
    }
    if dtype in slow and not slow[dtype]():
        log.warning("model %s: this processor has no fast %s, float32 would be several times as fast", name, dtype)
