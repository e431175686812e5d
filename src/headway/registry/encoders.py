"""A Hugging Face encoder's folder serves as it lies on disk: its own files fill in what model.toml leaves open."""

from __future__ import annotations

from pathlib import Path

import msgspec

from headway.config.huggingface import Encoder, FolderError, read_encoder
from headway.config.settings import Bounds, Embeddings, ModelSettings

OUTPUT, STATES = "embedding", "last_hidden_state"
"""What the pooled vector is called, and the states of the tokens where nothing is pooled."""


def filled_in(folder: Path, settings: ModelSettings) -> ModelSettings:
    """Bounds, longest request and, where a text becomes one vector, /v1/embeddings. What is set stays.

    Raises FolderError, also for lengths that the model has no positions for.
    """
    told = read_encoder(folder)
    _check_length("max_length", settings.max_length, told)
    if settings.embeddings is not None:
        _check_length("embeddings.max_length", settings.embeddings.max_length, told)
    return msgspec.structs.replace(
        settings,
        bounds={**_bounds(told), **settings.bounds},
        max_length=settings.max_length or told.positions,
        embeddings=settings.embeddings or _embeddings(folder, settings, told),
    )


def output_of(settings: ModelSettings, told: Encoder) -> str:
    """The one output that it has."""
    return STATES if _pooling(settings, told) == "none" else OUTPUT


def _pooling(settings: ModelSettings, told: Encoder) -> str:
    return settings.torch.pooling or told.pooling or "none"


def _check_length(place: str, wanted: int, told: Encoder) -> None:
    if told.positions and wanted > told.positions:
        raise FolderError(f"{place} = {wanted}: expected at most {told.positions}, the model has no more positions")


def _bounds(told: Encoder) -> dict[str, Bounds]:
    bounds = {"input_ids": Bounds(0, told.vocabulary - 1), "attention_mask": Bounds(0, 1)}
    return {**bounds, "token_type_ids": Bounds(0, told.types - 1)} if told.types else bounds


def _embeddings(folder: Path, settings: ModelSettings, told: Encoder) -> Embeddings | None:
    name = Embeddings().tokenizer
    if _pooling(settings, told) == "none" or not any((place / name).is_file() for place in (folder, folder.parent)):
        return None
    longest = settings.max_length or told.positions
    lengths = [length for length in (told.max_length or Embeddings().max_length, longest) if length]
    return Embeddings(tokenizer=name, max_length=min(lengths), output=OUTPUT)


__all__ = ["OUTPUT", "FolderError", "filled_in", "output_of"]
