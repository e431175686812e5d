"""Two answers to one input: by how much they differ, and how much is rounding.

Sums are added up in another order in another batch, so floating-point answers may differ by rounding, which grows
with what was added: `absolute + relative x max(|value|, root mean square of its row)` is allowed. Values beyond
`FILL` do not count for that mean: models write them where a mask hides something. Anything else must be equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from headway.config.settings import Tolerance
from headway.wire.messages import InputMeta
from headway.wire.safety import Difference
from headway.worker.errors import LoadError, did_you_mean
from headway.worker.executor import Array, PartError, PartOutput

FILL = 1e4


class Allowed(NamedTuple):
    absolute: float
    relative: float


EXACT = Allowed(0, 0)

ALLOWED: dict[str, Allowed] = {
    "FP64": Allowed(1e-12, 1e-9),
    "FP32": Allowed(1e-6, 1e-4),
    "TF32": Allowed(1e-4, 2e-2),
    "FP16": Allowed(1e-4, 2e-2),
    "BF16": Allowed(1e-3, 1e-1),
    "INT8": Allowed(1e-3, 2e-1),
}
"""By what is computed in. Relative: about a thousand units in the last place in FP32 and more, and a dozen below,
where models are made to bear it. INT8 is a quantised model, whose scale may come from all of a batch."""


def tolerances(
    model: str, outputs: Sequence[InputMeta], computes_in: str, device: str, own: Mapping[str, Tolerance]
) -> dict[str, Allowed]:
    """Output -> what is allowed. computes_in: what the executor says that it computes in, "" = as its outputs are.

    Raises LoadError for a tolerance of an output that the model does not have.
    """
    names = [output.name for output in outputs]
    for name in own:
        if name not in names:
            raise LoadError(
                f"model {model}: tolerances.{name}: the model has no output of that name, "
                f"it has {', '.join(sorted(names))}{did_you_mean(name, names)}"
            )
    return {output.name: _allowed(output.datatype, computes_in, device, own.get(output.name)) for output in outputs}


def _allowed(datatype: str, computes_in: str, device: str, own: Tolerance | None) -> Allowed:
    default = EXACT
    if datatype in ALLOWED:
        kinds = [datatype, computes_in or datatype]
        if device.startswith("cuda") and "FP32" in kinds:
            kinds.append("TF32")  # what NVIDIA's libraries may use for FP32
        default = max((ALLOWED[kind] for kind in kinds if kind in ALLOWED), key=lambda allowed: allowed.relative)
    if own is None:
        return default
    return Allowed(
        default.absolute if own.absolute is None else own.absolute,
        default.relative if own.relative is None else own.relative,
    )


def worst_difference(
    one: dict[str, Array], other: PartOutput, outputs: Sequence[InputMeta], allowed: Mapping[str, Allowed], batch: str
) -> Difference:
    """The largest in tolerances, over all outputs. batch: the company, in words."""
    if isinstance(other, PartError):
        return Difference("", (), "", "", 0, 0, batch, f"fails: {other.detail}")
    found = [_compare(meta, one[meta.name], other[meta.name], allowed[meta.name], batch) for meta in outputs]
    return max(found, key=lambda difference: difference.size)


def same_bits(one: dict[str, Array], other: PartOutput, outputs: Sequence[InputMeta], batch: str) -> Difference | None:
    """None where every element has the same bits; else the largest difference."""
    if isinstance(other, PartError):
        return Difference("", (), "", "", 0, 0, batch, f"fails: {other.detail}")
    changed = [meta for meta in outputs if not _equal_bits(one[meta.name], other[meta.name])]
    if not changed:
        return None
    worst = worst_difference(one, other, changed, {meta.name: EXACT for meta in changed}, batch)
    return worst if worst.size else _of_bits(changed[0].name, batch)


def _equal_bits(one: Array, other: Array) -> bool:
    if one.shape != other.shape or one.dtype != other.dtype:
        return False
    if one.dtype == object:
        return bool(one.tolist() == other.tolist())
    return np.ascontiguousarray(one).tobytes() == np.ascontiguousarray(other).tobytes()


def _of_bits(output: str, batch: str) -> Difference:
    return Difference(output, (), "", "", 0, 0, batch, "the numbers are equal, their bits are not")


def _compare(meta: InputMeta, one: Array, other: Array, allowed: Allowed, batch: str) -> Difference:
    name = meta.name
    if one.shape != other.shape:
        detail = f"its shape is {list(one.shape)} alone and {list(other.shape)} in the batch"
        return Difference(name, (), "", "", 0, 0, batch, detail)
    if one.size == 0:
        return Difference(name, (), "", "", 0, 0, batch)
    if meta.datatype in ("BYTES", "BOOL"):
        return _compare_exact(name, one, other, batch)
    return _compare_numbers(name, one == other, numbers(meta, one), numbers(meta, other), allowed, batch)


def _compare_exact(name: str, one: Array, other: Array, batch: str) -> Difference:
    unequal = np.array([a != b for a, b in zip(one.ravel().tolist(), other.ravel().tolist(), strict=True)])
    at = int(np.argmax(unequal))
    where = _index(at, one.shape)
    return Difference(name, where, str(one.ravel()[at])[:60], str(other.ravel()[at])[:60], float(unequal[at]), 0, batch)


def _compare_numbers(name: str, equal: Array, one: Array, other: Array, allowed: Allowed, batch: str) -> Difference:
    """equal: as they came: integers beyond 2^53 have no float64 of their own."""
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        equal = equal | (np.isnan(one) & np.isnan(other))
        apart = np.where(equal, 0.0, np.maximum(np.abs(one - other), np.finfo(np.float64).tiny))
        size = np.maximum(np.abs(one), _root_mean_square(one))
        bound = allowed.absolute + allowed.relative * np.where(np.isfinite(size), size, 0.0)
        ratio = np.where(apart == 0, 0.0, apart / bound)
    ratio = np.where(np.isnan(ratio), np.inf, ratio)
    apart = np.minimum(apart, np.finfo(np.float64).max)  # JSON has no infinity
    at = int(np.argmax(ratio))
    where, a, b = _index(at, one.shape), one.ravel()[at], other.ravel()[at]
    if not (np.isfinite(a) and np.isfinite(b)) and ratio.ravel()[at]:
        return Difference(name, where, f"{a:.9g}", f"{b:.9g}", 0, 0, batch, f"{a:.9g} alone, {b:.9g} in the batch")
    return Difference(name, where, f"{a:.9g}", f"{b:.9g}", float(apart.ravel()[at]), float(bound.ravel()[at]), batch)


def _root_mean_square(values: Array) -> float:
    plain = values[np.abs(values) < FILL]
    return float(np.sqrt(np.mean(plain**2))) if plain.size else 0.0


def numbers(meta: InputMeta, array: Array) -> Array:
    """As float64."""
    if meta.datatype == "BF16" and array.dtype == np.uint16:
        array = (array.astype(np.uint32) << 16).view(np.float32)
    return array.astype(np.float64)


def _index(at: int, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Within the row: without the dimension of the rows, which is 1."""
    return tuple(int(i) for i in np.unravel_index(at, shape))[1:]
