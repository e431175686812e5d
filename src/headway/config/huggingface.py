"""What the JSON files of a Hugging Face encoder's folder say. Nothing is loaded; torch is not needed.

Read twice: by the registry, which fills in what model.toml leaves open, and by the worker. The files:
config.json (of transformers); modules.json, 1_Pooling/config.json and sentence_bert_config.json (of
sentence-transformers, may be missing).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeAlias

Pooling: TypeAlias = Literal["mean", "cls", "none"]

CONFIG = "config.json"
WEIGHTS = ("model.safetensors", "model.safetensors.index.json")
MODES: dict[str, Pooling] = {"pooling_mode_mean_tokens": "mean", "pooling_mode_cls_token": "cls"}
OFFSET_POSITIONS = ("roberta", "xlm-roberta", "camembert", "mpnet", "longformer")
"""Model types whose first position is the padding token's number plus one."""


class FolderError(ValueError):
    """A file says something that cannot be served; the message names it and what was expected."""


class Encoder(NamedTuple):
    """model_type: as transformers names it.
    vocabulary, types: how many token ids and token type ids there are; types 0 = it has no such input.
    positions: tokens of the longest text, 0 = no limit is told.  padding: the token that pads.
    pooling, normalize: of sentence-transformers, pooling None where the folder does not say.
    max_length: tokens of its longest text in sentence-transformers' words, 0 = not told.
    """

    model_type: str
    vocabulary: int
    types: int
    positions: int
    padding: int
    pooling: Pooling | None
    normalize: bool
    max_length: int


def is_encoder(folder: Path) -> bool:
    return (folder / CONFIG).is_file() and any((folder / name).is_file() for name in WEIGHTS)


def is_language_model(folder: Path) -> bool:
    """It generates text, as config.json says: the name of its class ends so."""
    try:
        architectures = _read(folder / CONFIG).get("architectures") or []
    except (FolderError, AttributeError):
        return False
    return any(str(name).endswith("ForCausalLM") for name in architectures)


def read_encoder(folder: Path) -> Encoder:
    """Raises FolderError."""
    config = _read(folder / CONFIG)
    model_type = config.get("model_type")
    vocabulary = config.get("vocab_size")
    if not isinstance(model_type, str) or not isinstance(vocabulary, int):
        raise FolderError(
            f"{CONFIG}: expected model_type (a name) and vocab_size (a number), as transformers writes them"
        )
    padding = config.get("pad_token_id") or 0
    positions = config.get("max_position_embeddings") or 0
    if model_type in OFFSET_POSITIONS and positions:
        positions -= padding + 1
    pooling, normalize = _sentence_modules(folder)
    limits = folder / "sentence_bert_config.json"
    max_length = _read(limits).get("max_seq_length") or 0 if limits.is_file() else 0
    types = config.get("type_vocab_size") or 0
    return Encoder(model_type, vocabulary, types, positions, padding, pooling, normalize, max_length)


def _sentence_modules(folder: Path) -> tuple[Pooling | None, bool]:
    """Pooling (None: the folder says nothing) and whether the vector is brought to length 1."""
    file = folder / "modules.json"
    if not file.is_file():
        return None, False
    modules = _read(file)
    if not isinstance(modules, list) or not all(isinstance(one, dict) for one in modules):
        raise FolderError("modules.json: expected a list of modules")
    kinds = [str(one.get("type", "")).rsplit(".", 1)[-1] for one in modules]
    if kinds[:2] != ["Transformer", "Pooling"] or kinds[2:] not in ([], ["Normalize"]):
        raise FolderError(f"modules.json: expected Transformer, Pooling and perhaps Normalize, got {', '.join(kinds)}")
    place = Path(str(modules[1].get("path", "1_Pooling"))) / CONFIG
    return _pooling(place, _read(folder / place)), kinds[2:] == ["Normalize"]


def _pooling(place: Path, config: dict[str, Any]) -> Pooling:
    mode = config.get("pooling_mode")
    modes = [name for name, wanted in config.items() if name.startswith("pooling_mode_") and wanted is True]
    if mode in ("mean", "cls"):
        return "mean" if mode == "mean" else "cls"
    if len(modes) != 1 or modes[0] not in MODES:
        raise FolderError(f"{place}: expected one of {', '.join(MODES)}, got {', '.join(modes) or mode or 'none'}")
    return MODES[modes[0]]


def _read(file: Path) -> Any:
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise FolderError(f"{file.name}: not readable as JSON: {error}") from error
