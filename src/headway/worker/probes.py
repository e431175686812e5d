"""Inputs made up to see what batching does to a model's answers: by its declaration and bounds, the same at each load.

A probe is one row. Of each length there are a few with different values, so that rows that get mixed up are noticed.
What integers mean is not declared, so that ever tamer ones are tried: up to a hundred, ones, zeros.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from headway.config.settings import Bounds, ModelSettings
from headway.wire.messages import InputMeta
from headway.wire.tensors import NUMPY_DTYPES
from headway.worker.executor import Array, PartArrays

LENGTHS = (16, 3, 7, 33, 64)
"""Of the probes, in the order of use, the long ones last; those beyond the model's longest are left out."""

LONGEST_UNKNOWN = 33
"""Where nothing says how long a request may be, no probe is longer: a model may have few positions."""

VALUES = 3
"""Probes of each length."""

VALUES_OF_ALL = 2
"""Those of them that bring optional inputs too, beside the others."""

TAMENESS = (100, 1, 0)
"""Largest integer where no bounds are set; the next is tried where the model takes none of the probes."""

WORDS = (b"a", b"batch", b"of several words", b"1, 2", b"Queues are short.")


def seed_of(model: str) -> int:
    """Of the model's name: the same inputs at each load and on each machine."""
    return int.from_bytes(hashlib.sha256(model.encode()).digest()[:8], "big")


def lengths(inputs: Sequence[InputMeta], settings: ModelSettings) -> tuple[int, ...]:
    """Along the padded axis; (1,) where nothing is padded."""
    if all(tensor.pad_axis is None for tensor in inputs):
        return (1,)
    longest = longest_of(settings) or LONGEST_UNKNOWN
    return tuple(length for length in LENGTHS if length <= longest) or (longest,)


def longest_of(settings: ModelSettings) -> int:
    """That a request may be; 0 = nothing says."""
    of_text = settings.embeddings.max_length if settings.embeddings else 0
    return min(filter(None, (settings.max_length, of_text)), default=0)


def made_up(model: str, inputs: Sequence[InputMeta], settings: ModelSettings, largest: int) -> list[PartArrays]:
    """VALUES probes of each length, more of them where all have one length; and VALUES_OF_ALL with all inputs, where
    some are optional. In rounds of all lengths: when time is up, each has had its turn, the short ones first.

    largest: of integers without bounds.
    """
    sizes = lengths(inputs, settings)
    wanted = [(value, every) for value in range(VALUES if len(sizes) > 1 else 2 * VALUES) for every in (False, True)]
    if not optional(inputs):
        wanted = [(value, every) for value, every in wanted if not every]
    random = np.random.default_rng(seed_of(model))
    made = []
    for value, every in wanted:
        if every and value >= VALUES_OF_ALL:
            continue
        chosen = [tensor for tensor in inputs if not tensor.optional or (every and not _free(tensor))]
        made += [_part(random, chosen, length, settings, largest, every and value > 0) for length in sizes]
    return made


def of_lengths(
    sizes: Sequence[int], model: str, inputs: Sequence[InputMeta], settings: ModelSettings, largest: int
) -> list[PartArrays]:
    """One probe for each of `sizes`, without optional inputs."""
    random = np.random.default_rng(seed_of(model))
    return [_part(random, _required(inputs), length, settings, largest, False) for length in sizes]


def optional(inputs: Sequence[InputMeta]) -> list[InputMeta]:
    """Those that can be made up though they may be left out: their sizes are known."""
    return [tensor for tensor in inputs if tensor.optional and not _free(tensor)]


def _free(tensor: InputMeta) -> bool:
    return any(size == -1 and axis != tensor.pad_axis for axis, size in enumerate(tensor.shape) if axis)


def _required(inputs: Sequence[InputMeta]) -> list[InputMeta]:
    return [tensor for tensor in inputs if not tensor.optional]


def _part(
    random: np.random.Generator,
    inputs: Sequence[InputMeta],
    length: int,
    settings: ModelSettings,
    largest: int,
    hides: bool,
) -> PartArrays:
    """hides: a mask that may be left out hides the last element, for else it would say nothing when it is there."""
    arrays = {t.name: _values(random, t, length, settings.bounds.get(t.name), largest) for t in inputs}
    for tensor in inputs:
        if hides and length > 1 and tensor.optional and _is_mask(tensor) and tensor.pad_axis is not None:
            np.moveaxis(arrays[tensor.name], tensor.pad_axis, 0)[-1] = 0
    return PartArrays(1, length, arrays, {})


def _values(random: np.random.Generator, tensor: InputMeta, length: int, bounds: Bounds | None, largest: int) -> Array:
    shape = [1, *(length if axis == tensor.pad_axis else size for axis, size in enumerate(tensor.shape) if axis)]
    kind = tensor.datatype
    if kind == "BYTES":
        words = np.empty(int(np.prod(shape)), dtype=object)
        words[:] = [WORDS[i] for i in random.integers(0, len(WORDS), words.size)]
        return words.reshape(shape)
    if _is_mask(tensor):
        return np.ones(shape, NUMPY_DTYPES[kind])
    if kind == "BOOL":
        return random.integers(0, 2, shape).astype(bool)
    if kind in ("FP16", "FP32", "FP64", "BF16"):
        return _floats(random, kind, shape, bounds)
    return _integers(random, kind, shape, bounds, largest)


def _is_mask(tensor: InputMeta) -> bool:
    """Says which elements count: all do, over the row's own length, and padding says that those added do not."""
    return "mask" in tensor.name.lower() and tensor.datatype in (*NUMPY_DTYPES,)


def _floats(random: np.random.Generator, kind: str, shape: Sequence[int], bounds: Bounds | None) -> Array:
    values = random.normal(size=shape)
    if bounds is not None:
        low, high = bounds.minimum, bounds.maximum
        if low is not None and high is not None:
            values = random.uniform(low, high, shape)
        else:
            values = np.abs(values) + low if low is not None else (high or 0) - np.abs(values)
    if kind == "BF16":
        return (values.astype("<f4").view("<u4") >> 16).astype("<u2")
    return values.astype(NUMPY_DTYPES[kind])


def _integers(
    random: np.random.Generator, kind: str, shape: Sequence[int], bounds: Bounds | None, largest: int
) -> Array:
    dtype = np.dtype(NUMPY_DTYPES[kind])
    limits = np.iinfo(dtype)
    low, high = 0, min(largest, int(limits.max))
    if bounds is not None:
        low = int(np.ceil(bounds.minimum)) if bounds.minimum is not None else min(0, int(bounds.maximum or 0))
        high = int(np.floor(bounds.maximum)) if bounds.maximum is not None else low + largest
    low, high = max(low, int(limits.min)), min(high, int(limits.max))
    if dtype == np.uint64:
        return random.integers(low, high, shape, dtype=np.uint64, endpoint=True)
    return random.integers(low, high, shape, endpoint=True).astype(dtype)
