"""The executor protocol: what runs the model inside a worker.

Three shapes. A `BatchExecutor` answers a batch of parts by as many results; a `StreamExecutor` yields
results over time for each of the sequences it holds; an `EngineExecutor` computes tokens of many, step by step.
All load and unload.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import msgspec
import numpy.typing as npt

from headway.config.settings import ModelSettings
from headway.core.ids import Measurement, WorkerId
from headway.wire.messages import ModelMeta

if TYPE_CHECKING:  # they need an extra
    from headway.llm.engine import Engine
    from headway.llm.grammar.state import GrammarVocabulary
    from headway.llm.plan.attached import AttachedPlanner

Array: TypeAlias = npt.NDArray[Any]


class LoadContext(msgspec.Struct, frozen=True):
    """path: the version's folder (or file's folder). threads: compute threads this worker may use."""

    model: str
    version: int
    path: str
    device: str
    threads: int
    settings: ModelSettings


class PartArrays(msgspec.Struct, frozen=True):
    """inputs: name -> array whose first dimension is `rows`; `length` is its size along the padded axis."""

    rows: int
    length: int
    inputs: dict[str, Array]
    parameters: dict[str, Any]


class PartError(Exception):
    """One part's own failure. code: "model_error", or "invalid_input" where the input is at fault."""

    def __init__(self, detail: str, code: str = "model_error") -> None:
        super().__init__(detail)
        self.detail = detail
        self.code = code


PartOutput: TypeAlias = dict[str, Array] | PartError
"""name -> array whose first dimension is the part's rows, padding cut off; or why it has none."""


class Durations(msgspec.Struct):
    """Nanoseconds of the last `execute`: making the batch, the model itself, slicing it back."""

    hand_over: int = 0
    execute: int = 0
    finish: int = 0


class BatchExecutor(Protocol):
    """One may also say, for the check of batch safety (`safety`): `computes_in`, "BF16", "FP16" or "INT8" where that is
    less than its outputs have; `takes_made_up`, False where made-up inputs may do harm."""

    def load(self, context: LoadContext) -> ModelMeta:
        """Raises anything: the version has failed to load, with that message."""

    def warm_up(self, rows: Sequence[int], lengths: Sequence[int], repeats: int) -> list[Measurement]:
        """Run each size once untimed, then timed. Sizes the model cannot take are left out; raises
        `warm_up.NothingRan` where these are all."""

    def execute(self, parts: Sequence[PartArrays], durations: Durations) -> list[PartOutput]:
        """One result per part, in order. Raises: the whole batch has failed, the worker lives on."""

    def unload(self) -> None: ...


class StreamExecutor(Protocol):
    def load(self, context: LoadContext) -> ModelMeta: ...

    def start(self, body: dict[str, Any]) -> Iterator[Any]:
        """One sequence: yields JSON values. Closed (GeneratorExit) when aborted. Raises PartError or anything."""

    def unload(self) -> None: ...


class EngineExecutor(Protocol):
    """measurements: of prompts, once it has loaded."""

    measurements: Sequence[Measurement]

    def load(self, context: LoadContext) -> ModelMeta: ...

    def attach(self, worker: WorkerId) -> tuple[AttachedPlanner, Engine]:
        """What the loop of a worker drives."""

    @property
    def vocabulary(self) -> Callable[[], GrammarVocabulary]:
        """That forms are about; made once, when it is first wanted."""

    def unload(self) -> None: ...
