"""The grid of sizes that are run before a version is ready: they seed the cost model."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from time import perf_counter_ns

import numpy as np

from headway.config.settings import ModelSettings
from headway.core.ids import Measurement
from headway.core.units import SECOND, ms
from headway.wire.bfloat16 import from_float32
from headway.wire.messages import InputMeta, ModelMeta
from headway.wire.tensors import NUMPY_DTYPES
from headway.worker.errors import in_words
from headway.worker.executor import Array, BatchExecutor, Durations, PartArrays, PartError
from headway.worker.memory import MemoryWatch, is_out_of_memory

log = logging.getLogger("headway.worker")

MAX_TOKENS = 8192
"""Rows x length of the largest size chosen where the operator has set no cap."""

BUDGET = 10 * SECOND
"""No run begins after this much warming up."""

LARGE_ENOUGH = ms(250)
"""A size that takes this long is the last: the cost model is fitted, and larger ones follow from it."""

SLOW = ms(25)
"""A size that takes this long is timed once only."""

LENGTHS = (8, 32, 128, 512)

Run = Callable[[int, int], None]
"""Runs so many rows of such a length; raises where the model cannot."""


class NothingRan(Exception):
    """No size could be measured, because the model fails at each. The message is for people, with the first error."""

    def __init__(self, first: Exception) -> None:
        super().__init__(f"nothing could be warmed up: every made-up input failed, first error {in_words(first)}")


def grid(settings: ModelSettings, meta: ModelMeta) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Rows and lengths to try: what the operator has set, else powers of two up to the caps."""
    cap = settings.batching.max_batch_size
    if meta.max_batch_size:
        cap = min(cap, meta.max_batch_size)
    if settings.warm_up.rows:
        rows = tuple(size for size in settings.warm_up.rows if size <= cap)
    else:
        powers = (1 << power for power in range(cap.bit_length()))
        rows = (*(size for size in powers if size < cap), cap)
    if not any(tensor.pad_axis is not None for tensor in meta.inputs):
        return rows, (1,)
    if settings.warm_up.lengths:
        return rows, settings.warm_up.lengths
    longest = settings.embeddings.max_length if settings.embeddings else settings.max_length or LENGTHS[-1]
    return rows, (*(length for length in LENGTHS if length < longest), longest)


def measure(
    rows: Sequence[int],
    lengths: Sequence[int],
    repeats: int,
    max_tokens: int,
    run: Run,
    memory: MemoryWatch | None = None,
) -> list[Measurement]:
    """Cheapest sizes first, each untimed once and then timed. A size that raises is left out, and the log says which;
    one that runs out of memory is the last. Raises NothingRan where all were left out.

    max_tokens: rows x length of the largest size, 0 = MAX_TOKENS.  memory: is told what each size took.
    """
    begun = perf_counter_ns()
    found: list[Measurement] = []
    failed: dict[tuple[int, int], Exception] = {}
    sizes = [size for size in product(rows, lengths) if size[0] * size[1] <= (max_tokens or MAX_TOKENS)]
    for size in sorted(sizes, key=lambda size: size[0] * size[1]):
        try:
            if memory is not None:
                memory.begin()
            durations = _time(size, repeats, begun + BUDGET, run)
            if memory is not None:
                memory.end(*size)
        except Exception as error:
            failed[size] = error
            if memory is not None and is_out_of_memory(error):
                memory.exceeded(*size)
                break
            continue
        found += [Measurement(*size, duration) for duration in durations]
        if min(durations) >= LARGE_ENOUGH or perf_counter_ns() - begun >= BUDGET:
            break
    if failed:
        _tell(failed, bool(found))
    return found


def _tell(failed: Mapping[tuple[int, int], Exception], some_ran: bool) -> None:
    """Raises NothingRan."""
    first = next(iter(failed.values()))
    if not some_ran:
        raise NothingRan(first) from first
    sizes = ", ".join(f"{rows} x {length}" for rows, length in failed)
    log.warning("warm-up: left out rows x length %s; the first error:", sizes, exc_info=first)


def _time(size: tuple[int, int], repeats: int, latest: int, run: Run) -> list[int]:
    """The first run of a size has work to itself that no later one has (kernels are made, memory is taken): however
    long it takes, it counts only where there is no time for another."""
    first = _once(size, run)
    durations: list[int] = []
    while len(durations) < repeats and perf_counter_ns() < latest:
        durations.append(_once(size, run))
        if durations[0] >= SLOW:
            break
    return durations or [first]


def _once(size: tuple[int, int], run: Run) -> int:
    begun = perf_counter_ns()
    run(*size)
    return perf_counter_ns() - begun


def run_made_up(executor: BatchExecutor, inputs: Sequence[InputMeta], rows: int, length: int, fill: int) -> None:
    """One batch of such rows. Raises what the model raises, and what it answers instead of an answer."""
    for answer in executor.execute(made_up(inputs, rows, length, fill), Durations()):
        if isinstance(answer, PartError):
            raise answer


def unknown_sizes(inputs: Sequence[InputMeta]) -> str:
    """The first input whose size cannot be made up, with its shape; "" where all can."""
    for tensor in inputs:
        free = [axis for axis, size in enumerate(tensor.shape) if axis and size == -1 and axis != tensor.pad_axis]
        if free and not tensor.optional:
            return f"{tensor.name} {list(tensor.shape)}"
    return ""


def made_up(inputs: Sequence[InputMeta], rows: int, length: int, fill: int) -> list[PartArrays]:
    """`rows` parts of one row each, full of `fill`; optional inputs are left out."""
    arrays = {tensor.name: _filled(tensor, length, fill) for tensor in inputs if not tensor.optional}
    return [PartArrays(1, length, arrays, {})] * rows


def _filled(tensor: InputMeta, length: int, fill: int) -> Array:
    shape = [1, *(length if axis == tensor.pad_axis else size for axis, size in enumerate(tensor.shape) if axis)]
    if tensor.datatype == "BYTES":
        return np.full(shape, b"", dtype=object)
    if tensor.datatype == "BF16":
        return from_float32(np.full(shape, fill))
    return np.full(shape, fill, dtype=NUMPY_DTYPES[tensor.datatype])
