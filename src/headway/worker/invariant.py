"""Runs every batch at one fixed size, so that an answer has the same bits whoever else was in the batch.

Kernels choose how they add up by the shape of what they get, so the shape must not depend on company. A row is padded
to the least of `classes` that holds it (to nothing, where there are none: its own length), and only rows of one class
run together (their lengths keep them apart in the scheduler). A batch always has the same number of rows for its
class; those that are missing are copies of the last one. That neither the place in the batch nor the content of
other rows matters is what `invariant_proof` tries.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from time import perf_counter_ns

import numpy as np

from headway.core.ids import Measurement
from headway.wire.messages import InputMeta, ModelMeta
from headway.wire.safety import class_of
from headway.worker.executor import Array, BatchExecutor, Durations, LoadContext, PartArrays, PartError, PartOutput
from headway.worker.stacking import cut
from headway.worker.warm_up import NothingRan

log = logging.getLogger("headway.worker")


class InvariantExecutor:
    """A BatchExecutor around another one, which has loaded.

    max_rows: of every batch.  max_tokens: rows x class, 0 = no cap.
    singly: classes of which nothing was proven: their rows run one by one, as they come.
    """

    def __init__(
        self, inner: BatchExecutor, meta: ModelMeta, max_rows: int, max_tokens: int, classes: tuple[int, ...]
    ) -> None:
        self._inner = inner
        self._meta = meta
        self._inputs = {tensor.name: tensor for tensor in meta.inputs}
        self._max_rows = max_rows
        self._max_tokens = max_tokens
        self.classes = classes
        self.singly: frozenset[int] = frozenset()

    def rows_at(self, size: int) -> int:
        """Of every batch of that class."""
        return max(1, min(self._max_rows, self._max_tokens // size)) if self._max_tokens else self._max_rows

    def load(self, context: LoadContext) -> ModelMeta:
        return self._inner.load(context)

    def warm_up(self, rows: Sequence[int], lengths: Sequence[int], repeats: int) -> list[Measurement]:
        """Runs the fixed sizes only. One row takes what a full batch takes, and the scheduler is to know it.
        A class at which nothing runs is left out; raises NothingRan where these are all."""
        found: list[Measurement] = []
        failed: NothingRan | None = None
        for size in self.classes or lengths:
            if size not in self.singly:
                try:
                    full = self._inner.warm_up([self.rows_at(size)], [size], repeats)
                except NothingRan as nothing:
                    log.warning("warm-up: length %d left out: %s", size, nothing)
                    failed = failed or nothing
                    continue
                found += full + [one._replace(rows=1) for one in full if one.rows > 1]
        if failed is not None and not found:
            raise failed
        return found

    def execute(self, parts: Sequence[PartArrays], durations: Durations) -> list[PartOutput]:
        rows = [row for part in parts for row in _rows(part)]
        answers: dict[int, PartOutput] = {}
        spent = Durations()
        for size, members in self._by_class(rows).items():
            step = 1 if self._runs_singly(size) else self.rows_at(size)
            for first in range(0, len(members), step):
                chosen = members[first : first + step]
                answers.update(zip(chosen, self._run([rows[at] for at in chosen], size, spent), strict=True))
        durations.hand_over, durations.execute, durations.finish = spent.hand_over, spent.execute, spent.finish
        in_order = iter(answers[at] for at in range(len(rows)))
        return [_together([next(in_order) for _ in range(part.rows)]) for part in parts]

    def unload(self) -> None:
        self._inner.unload()

    def _runs_singly(self, size: int) -> bool:
        """Nothing was proven of it; or it is beyond all classes."""
        return size in self.singly or bool(self.classes and size > self.classes[-1])

    def _by_class(self, rows: Sequence[PartArrays]) -> dict[int, list[int]]:
        """One class in a batch of the scheduler's; but nobody is to be run wrongly if there are more."""
        found: dict[int, list[int]] = {}
        for at, row in enumerate(rows):
            found.setdefault(class_of(row.length, self.classes), []).append(at)
        return found

    def _run(self, rows: Sequence[PartArrays], size: int, spent: Durations) -> list[PartOutput]:
        """Rows of one class that fit one batch; their answers, cut to their own lengths. Adds to `spent`."""
        begun = perf_counter_ns()
        batch = list(rows)
        if not self._runs_singly(size):
            batch = [self._padded(row, size) for row in rows]
            batch += [batch[-1]] * (self.rows_at(size) - len(rows))
        made = perf_counter_ns()
        durations = Durations()
        answers = self._inner.execute(batch, durations)[: len(rows)]
        ran = perf_counter_ns()
        results = [self._cut(answer, row.length) for answer, row in zip(answers, rows, strict=True)]
        spent.hand_over += made - begun + durations.hand_over
        spent.execute += durations.execute
        spent.finish += durations.finish + perf_counter_ns() - ran
        return results

    def _padded(self, row: PartArrays, size: int) -> PartArrays:
        if row.length == size:
            return row
        inputs = {name: _padded(array, self._inputs[name], size) for name, array in row.inputs.items()}
        return PartArrays(1, size, inputs, row.parameters)

    def _cut(self, answer: PartOutput, length: int) -> PartOutput:
        if isinstance(answer, PartError):
            return answer
        return {meta.name: cut(answer[meta.name], meta.pad_axis, length) for meta in self._meta.outputs}


def _rows(part: PartArrays) -> list[PartArrays]:
    """Each row as a part of its own."""
    if part.rows == 1:
        return [part]
    return [
        PartArrays(1, part.length, {name: array[row : row + 1] for name, array in part.inputs.items()}, part.parameters)
        for row in range(part.rows)
    ]


def _padded(array: Array, meta: InputMeta, size: int) -> Array:
    axis = meta.pad_axis
    if axis is None:
        return array
    shape = list(array.shape)
    shape[axis] = size
    value = b"" if array.dtype == object else meta.pad_value
    whole = np.full(shape, value, dtype=array.dtype)
    cut(whole, axis, array.shape[axis])[...] = array
    return whole


def _together(answers: Sequence[PartOutput]) -> PartOutput:
    """The rows of one part; the first error of one is the part's."""
    arrays: list[dict[str, Array]] = []
    for answer in answers:
        if isinstance(answer, PartError):
            return answer
        arrays.append(answer)
    if len(arrays) == 1:
        return arrays[0]
    return {name: np.concatenate([one[name] for one in arrays]) for name in arrays[0]}
