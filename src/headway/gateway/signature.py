"""What may share a batch, as a string: the `signature` of a BatchKey.

Name and datatype of every input that is present (so: which optional ones are), every dimension that is neither
the rows nor padded, and the parameters that do not apply row by row. The order of the inputs is the model's own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from headway.wire.messages import InputMeta

_encode = msgspec.json.Encoder(order="sorted").encode


def signature(inputs: Sequence[tuple[InputMeta, tuple[int, ...]]], parameters: Mapping[str, Any]) -> str:
    """inputs: declaration and the request's whole shape. parameters: those of the whole batch only."""
    text = ";".join([f"{meta.name}:{meta.datatype}:{_dims(meta, shape)}" for meta, shape in inputs])
    return f"{text}|{_encode(parameters).decode()}" if parameters else text


def _dims(meta: InputMeta, shape: tuple[int, ...]) -> str:
    return ",".join(["*" if axis == meta.pad_axis else str(shape[axis]) for axis in range(1, len(shape))])
