"""What a model says of its inputs and outputs, laid together with what model.toml says of padding and bounds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from headway.config.settings import Bounds, ModelSettings, Padding
from headway.wire.messages import InputMeta
from headway.worker.errors import LoadError, did_you_mean

NOT_NUMERIC = ("BOOL", "BYTES")


class Declared(NamedTuple):
    """shape: with the rows dimension first; -1 = any size."""

    name: str
    datatype: str
    shape: tuple[int, ...]
    optional: bool = False


def with_padding(
    model: str, settings: ModelSettings, inputs: Sequence[Declared], outputs: Sequence[Declared]
) -> tuple[tuple[InputMeta, ...], tuple[InputMeta, ...]]:
    """The inputs and outputs of a ModelMeta. Raises LoadError for padding or bounds that the model cannot have.

    model: name/version, for messages.
    """
    _check_bounds(model, inputs, settings.bounds)
    padded_inputs = _lay_together(model, "input", inputs, settings.inputs)
    padded_outputs = _lay_together(model, "output", outputs, settings.outputs)
    if settings.outputs and not settings.inputs:
        raise LoadError(f"model {model}: outputs.{next(iter(settings.outputs))} is padded, but no input is")
    return padded_inputs, padded_outputs


def _lay_together(
    model: str, kind: str, declared: Sequence[Declared], padding: Mapping[str, Padding]
) -> tuple[InputMeta, ...]:
    for name in padding:
        _check_name(model, kind, f"{kind}s.{name}", name, declared)
    return tuple(_one(model, kind, one, padding.get(one.name)) for one in declared)


def _check_bounds(model: str, inputs: Sequence[Declared], bounds: Mapping[str, Bounds]) -> None:
    datatypes = {one.name: one.datatype for one in inputs}
    for name in bounds:
        _check_name(model, "input", f"bounds.{name}", name, inputs)
        if datatypes[name] in NOT_NUMERIC:
            raise LoadError(
                f"model {model}: bounds.{name}: input {name!r} is {datatypes[name]}; only numbers have bounds"
            )


def _check_name(model: str, kind: str, place: str, name: str, declared: Sequence[Declared]) -> None:
    names = sorted(one.name for one in declared)
    if name not in names:
        raise LoadError(
            f"model {model}: {place}: the model has no {kind} of that name, "
            f"it has {', '.join(names)}{did_you_mean(name, names)}"
        )


def _one(model: str, kind: str, declared: Declared, padding: Padding | None) -> InputMeta:
    name, datatype, shape, optional = declared
    if not shape:
        raise LoadError(
            f"model {model}: {kind} {name!r} is a scalar; its first dimension must be the rows of the batch"
        )
    if padding is None:
        return InputMeta(name, datatype, shape, optional)
    axis = padding.pad_axis
    where = f"model {model}: {kind}s.{name}.pad_axis = {axis}"
    if axis >= len(shape):
        raise LoadError(
            f"{where}: {kind} {name!r} of shape {list(shape)} has no such axis, its last is {len(shape) - 1}"
        )
    if shape[axis] != -1:
        raise LoadError(f"{where}: {kind} {name!r} of shape {list(shape)} has a fixed size there and cannot be padded")
    return InputMeta(name, datatype, shape, optional, axis, padding.pad_value)
