"""Finds out which outputs grow with the padded inputs, by running the model with two lengths.

What grows has to be cut back to each request's own length. Where model.toml does not say so, padding would stay in
an answer, and its size would depend on who shared the batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeAlias

from headway.wire.messages import InputMeta
from headway.worker.errors import LoadError

LENGTHS = (3, 5)

Shapes: TypeAlias = Sequence[tuple[int, ...]]
"""One per output; empty = the model takes no such length."""


def check_growth(
    model: str, inputs: Sequence[InputMeta], outputs: Sequence[InputMeta], run: Callable[[int], Shapes]
) -> None:
    """run: shapes of the outputs for inputs of that length. Raises LoadError.

    Runs only what has padded inputs and outputs of variable size; where a run tells nothing, nothing is refused.
    """
    free = [
        (number, axis)
        for number, output in enumerate(outputs)
        for axis, size in enumerate(output.shape)
        if axis and size == -1
    ]
    if not free or all(tensor.pad_axis is None for tensor in inputs):
        return
    short, long = (run(length) for length in LENGTHS)
    if not short or not long:
        return
    for number, axis in free:
        _check(model, outputs[number], axis, (short[number][axis], long[number][axis]))


def _check(model: str, output: InputMeta, axis: int, sizes: tuple[int, int]) -> None:
    padded = axis == output.pad_axis
    if sizes == LENGTHS if padded else sizes[0] == sizes[1]:
        return
    cure = "which cannot be cut back to a request's own length: do not pad the inputs"
    if sizes == LENGTHS:
        cure = f"so padding would stay in it: say [outputs.{output.name}] pad_axis = {axis} in model.toml"
    raise LoadError(
        f"model {model}: output {output.name!r} has size {sizes[0]} along axis {axis} for inputs of length "
        f"{LENGTHS[0]}, and {sizes[1]} for {LENGTHS[1]}, {cure}"
    )
