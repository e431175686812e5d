"""What the model repository holds, as values."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from headway.config.settings import ModelSettings


class VersionSpec(msgspec.Struct, frozen=True):
    """One version of one model, ready to be given to workers.

    path: the version's folder, absolute; it holds the model's file and what lies beside it.
    executor: "onnx", "python" or "torch", never empty.
    settings: model.toml with the server's overrides already laid over it, and what an encoder's own files say below it.
    """

    model: str
    version: int
    path: str
    executor: str
    settings: ModelSettings

    @property
    def name(self) -> str:
        """model/version, for messages to people."""
        return f"{self.model}/{self.version}"


def default_versions(specs: Iterable[VersionSpec]) -> dict[str, int]:
    """Model -> the version that answers when a request names none: the one set, or the highest."""
    chosen: dict[str, int] = {}
    for spec in specs:
        fixed = spec.settings.default_version
        chosen[spec.model] = fixed or max(spec.version, chosen.get(spec.model, 0))
    return chosen
