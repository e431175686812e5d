"""A model's tensors by name, from a folder of safetensors. Names are those of Hugging Face, whatever the files are."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from torch import Tensor

from headway.llm.run.config import ModelConfig, from_huggingface
from headway.llm.run.errors import ModelError
from headway.llm.run.quantised import Blocks

IGNORED = ("rotary_emb.inv_freq", "vision_tower.", "multi_modal_projector.")
"""In names of tensors that nothing here needs."""


class Weights:
    """Each tensor is read when it is taken, and taken once: `finish` says what nobody took."""

    def __init__(
        self,
        where: str,
        read: Mapping[str, Callable[[], Tensor]],
        blocks: Mapping[str, Callable[[], Blocks | None]] | None = None,
    ) -> None:
        """blocks: the same tensors as they lie, where they are quantised."""
        self._where = where
        self._read = dict(read)
        self._blocks = blocks or {}

    def blocks(self, name: str) -> Blocks | None:
        """None where it is not quantised, or in a way that is only ever unpacked."""
        return self._blocks[name]() if name in self._blocks else None

    def take(self, name: str, shape: tuple[int, ...]) -> Tensor:
        """ModelError where there is none, or it has another shape."""
        if name not in self._read:
            raise ModelError(f"{self._where}: there is no tensor {name!r}")
        tensor = self._read.pop(name)()
        if tuple(tensor.shape) != shape:
            raise ModelError(f"{self._where}: {name} is {list(tensor.shape)}, expected {list(shape)}")
        return tensor

    def maybe(self, name: str, shape: tuple[int, ...]) -> Tensor | None:
        return self.take(name, shape) if name in self._read else None

    def finish(self) -> None:
        """ModelError where tensors are left over: a model that has more than is computed would answer wrongly."""
        left = [name for name in self._read if not any(part in name for part in IGNORED)]
        if left:
            raise ModelError(f"{self._where}: {len(left)} tensors have no use here, {left[0]!r} among them")


def from_folder(folder: Path, stack: ExitStack) -> tuple[ModelConfig, Weights]:
    """stack: what keeps the files open while tensors are read. ModelError for what is missing or not supported."""
    from safetensors import SafetensorError, safe_open

    try:
        raw = json.loads((folder / "config.json").read_text())
    except FileNotFoundError:
        raise ModelError(f"{folder}: there is no config.json") from None
    except ValueError as error:
        raise ModelError(f"{folder}/config.json: not JSON: {error}") from None
    try:
        config = from_huggingface(raw)
    except ModelError as error:
        raise ModelError(f"{folder}/config.json: {error}") from None
    read: dict[str, Callable[[], Tensor]] = {}
    for file in _files(folder):
        try:
            opened = stack.enter_context(safe_open(file, framework="pt"))
        except (SafetensorError, OSError) as error:
            raise ModelError(f"{file}: not safetensors: {error}") from None
        for name in opened.keys():  # noqa: SIM118 - it is no mapping
            read[_plain(name)] = _reader(opened, name)
    if config.tied:
        read.pop("lm_head.weight", None)  # some files have it twice
    return config, Weights(str(folder), read)


def _files(folder: Path) -> Iterable[Path]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        names = dict.fromkeys(json.loads(index.read_text())["weight_map"].values())
        return [folder / name for name in names]
    files = sorted(folder.glob("*.safetensors"))
    if not files:
        others = [file.name for file in sorted(folder.iterdir()) if file.suffix in (".bin", ".pt", ".pth")]
        found = f"; found {', '.join(others)}, which could run code when it is read" if others else ""
        raise ModelError(f"{folder}: there are no *.safetensors{found}")
    return files


def _plain(name: str) -> str:
    """Gemma 3 with a picture tower has its text part a level deeper."""
    return name.replace("language_model.model.", "model.").replace("model.language_model.", "model.")


def _reader(opened: Any, name: str) -> Callable[[], Tensor]:
    return lambda: opened.get_tensor(name)
