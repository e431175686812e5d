"""What the torch executor runs: an encoder's folder or a program, seen alike."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from headway.config.settings import Padding
from headway.worker.declaration import Declared
from headway.worker.executor import Array, PartArrays


class TorchModel(Protocol):
    """inputs, outputs: without what model.toml says of padding.
    padding, output_padding: what the model knows of it by itself; model.toml comes before it.
    fixed_rows, least_rows: rows that it takes at once, and at least; 0 and 1 = any.
    """

    platform: str
    inputs: Sequence[Declared]
    outputs: Sequence[Declared]
    padding: Mapping[str, Padding]
    output_padding: Mapping[str, Padding]
    fixed_rows: int
    least_rows: int

    def problem(self, part: PartArrays) -> str:
        """Why this part must not reach the model: "" where it may. On a GPU a bad index ends the whole process."""

    def present(self, part: PartArrays) -> dict[str, Array]:
        """All inputs of a part, those that it left out made up."""

    def run(self, tensors: Sequence[Any]) -> Sequence[Any]:
        """tensors: as `inputs`, stacked, on the device. Returns one per output, each with as many rows."""

    def packs(self, parts: Sequence[PartArrays]) -> bool:
        """Whether these can be run end to end, without padding."""

    def run_packed(self, parts: Sequence[PartArrays]) -> list[dict[str, Array]]:
        """Only where `packs`: one dict of outputs per part, in order."""
