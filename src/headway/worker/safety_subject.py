"""A loaded model as the checks of its answers see it."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import numpy as np

from headway.wire.messages import ModelMeta
from headway.worker.errors import in_words
from headway.worker.executor import Array, BatchExecutor, Durations, LoadContext, PartArrays, PartError, PartOutput
from headway.worker.safety_compare import Allowed, tolerances

log = logging.getLogger("headway.worker")


class Subject:
    """What is checked. computes_in: the executor's precision where it says one ("BF16"), else ""."""

    def __init__(self, executor: BatchExecutor, meta: ModelMeta, context: LoadContext, takes_made_up: bool) -> None:
        self.executor = executor
        self.meta = meta
        self.context = context
        self.settings = context.settings
        self.name = f"{context.model}/{context.version}"
        self.takes_made_up = takes_made_up
        self.allowed: dict[str, Allowed] = tolerances(
            self.name,
            meta.outputs,
            getattr(executor, "computes_in", ""),
            context.device,
            self.settings.tolerances,
        )

    @property
    def max_rows(self) -> int:
        """Of one batch."""
        cap = self.settings.batching.max_batch_size
        return min(cap, self.meta.max_batch_size) if self.meta.max_batch_size else cap

    @property
    def max_tokens(self) -> int:
        """Of one batch, 0 = any."""
        return self.settings.batching.max_batch_tokens

    @property
    def padded(self) -> bool:
        return any(tensor.pad_axis is not None for tensor in self.meta.inputs)

    def run(self, parts: Sequence[PartArrays]) -> list[PartOutput]:
        """Whatever the batch raises is every part's error. Inputs are read-only, as those of requests are."""
        for part in parts:
            for array in part.inputs.values():
                array.flags.writeable = False
        try:
            outputs = self.executor.execute(parts, Durations())
        except Exception as error:
            log.debug("a batch of %d probes failed", len(parts), exc_info=True)
            return [PartError(in_words(error))] * len(parts)
        if len(outputs) != len(parts):
            return [PartError(f"{len(outputs)} results for {len(parts)} requests")] * len(parts)
        return outputs


def kept(answer: dict[str, Array]) -> dict[str, Array]:
    """A copy: a model may hand out the same memory each time."""
    return {name: np.array(array) for name, array in answer.items()}
