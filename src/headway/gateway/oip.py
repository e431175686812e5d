"""The Open Inference Protocol's infer call: checked against the model's declaration, and cut into parts.

`outputs` missing or empty means all, otherwise those named, in that order. Shapes are checked before any data is read.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headway.core.ids import BatchKey, Part
from headway.gateway import oip_parameters
from headway.gateway.binary_tensors import NOTHING, Tail, check_bytes, split, whole_body
from headway.gateway.bounds import check_values
from headway.gateway.catalog import Version
from headway.gateway.errors import BadRequest
from headway.gateway.infer_body import InferBody, InferInput, InferOutput, decode
from headway.gateway.json_tensors import read
from headway.gateway.parts import cut, rows_within
from headway.gateway.shapes import Shapes, check_shape, common_length, common_rows, names
from headway.gateway.signature import signature
from headway.wire.messages import PartPayload
from headway.wire.tensors import DATATYPES, Tensor


class InferRequest:
    """A checked request, cut. size: payload bytes. parameters: for the executor (those for scheduling are gone).

    outputs: those wanted, in that order, and whether as binary data.
    """

    __slots__ = ("id", "key", "outputs", "parameters", "parts", "payload", "rows", "size")

    def __init__(
        self,
        id: str | None,
        key: BatchKey,
        rows: int,
        parts: list[Part],
        payload: list[PartPayload],
        size: int,
        parameters: dict[str, Any],
        outputs: list[tuple[str, bool]],
    ) -> None:
        self.id = id
        self.key = key
        self.rows = rows
        self.parts = parts
        self.payload = payload
        self.size = size
        self.parameters = parameters
        self.outputs = outputs


def read_body(raw: bytes, json_length: bytes | None, version: Version) -> tuple[InferBody, memoryview]:
    """The JSON, and the binary data behind it. json_length: Inference-Header-Content-Length; None = it is all JSON.

    Raises BadRequest, NotReady.
    """
    if json_length is None:
        return decode(raw), NOTHING
    if json_length == b"0":
        return whole_body(raw, version.require_ready())
    return split(raw, json_length)


def check(body: InferBody, version: Version, max_parts: int, tail: memoryview = NOTHING) -> InferRequest:
    """tail: the binary data. Raises BadRequest for everything that the model's declaration rules out, NotReady
    without declaration."""
    meta = version.require_ready()
    if meta.streaming:
        raise BadRequest(f"model {version.model!r} answers as a stream: POST to .../generate_stream or .../generate")
    parameters, binary = oip_parameters.of_request(body.parameters)
    given = _by_name(body.inputs, version)
    shapes = [
        (declared, check_shape(given[declared.name].shape, declared))
        for declared in meta.inputs
        if declared.name in given
    ]
    rows = common_rows(shapes)
    length = common_length(shapes, version.settings.max_length)
    outputs = _check_outputs(body.outputs, version, binary)
    most = version.max_part_rows(length)
    _check_parts(rows, most, max_parts)
    tensors = _tensors(body.inputs, given, shapes, Tail(tail))
    if version.settings.bounds:
        _check_bounds(tensors, version)
    if cap := version.settings.batching.max_batch_bytes:
        most = min(most, rows_within(cap, tensors, rows))
        _check_parts(rows, most, max_parts)
    parts, payload, size = cut(tensors, rows, length, most)
    of_batch = parameters
    if parameters and version.per_row:
        of_batch = {name: value for name, value in parameters.items() if name not in version.per_row}
    key = version.key(signature(shapes, of_batch))
    return InferRequest(body.id, key, rows, parts, payload, size, parameters, outputs)


def _by_name(inputs: list[InferInput], version: Version) -> dict[str, InferInput]:
    given: dict[str, InferInput] = {}
    for entry in inputs:
        declared = version.inputs.get(entry.name)
        if declared is None:
            raise BadRequest(f"unknown input {entry.name!r}; the model has: {names(version.inputs)}")
        if entry.name in given:
            raise BadRequest(f"input {entry.name!r} is given twice")
        if entry.datatype != declared.datatype:
            known = "" if entry.datatype in DATATYPES else f", which is not a datatype ({', '.join(DATATYPES)})"
            raise BadRequest(
                f"input {entry.name!r}: the model takes {declared.datatype}, got {entry.datatype!r}{known}"
            )
        given[entry.name] = entry
    for name, declared in version.inputs.items():
        if name not in given and not declared.optional:
            raise BadRequest(f"input {name!r} is missing; given: {names(given)}")
    if not given:
        raise BadRequest(f"there are no inputs; the model has: {names(version.inputs)}")
    return given


def _tensors(inputs: list[InferInput], given: dict[str, InferInput], shapes: Shapes, tail: Tail) -> list[Tensor]:
    """In the order of the declaration, which is that of `shapes`. Binary data is in the order of the request."""
    binary: dict[str, bytes | memoryview] = {}
    for entry in inputs:
        size = oip_parameters.of_input(entry.name, entry.parameters)
        if size is not None:
            if entry.data is not msgspec.UNSET:
                raise BadRequest(f"input {entry.name!r} has both data and binary_data_size; it must have one of them")
            binary[entry.name] = tail.take(entry.name, size)
    tail.end()
    return [_tensor(given[declared.name], shape, binary) for declared, shape in shapes]


def _tensor(entry: InferInput, shape: tuple[int, ...], binary: dict[str, bytes | memoryview]) -> Tensor:
    name, datatype = entry.name, entry.datatype
    if name in binary:
        data = binary[name]
        check_bytes(name, datatype, shape, data)
    elif entry.data is msgspec.UNSET:
        raise BadRequest(f"input {name!r} has no data")
    else:
        data = read(name, datatype, shape, memoryview(entry.data))
    return Tensor(name, datatype, shape, data)


def _check_parts(rows: int, most: int, max_parts: int) -> None:
    if rows <= most:
        return
    parts = -(-rows // most)
    if parts > max_parts:
        raise BadRequest(f"{rows} rows make {parts} parts of at most {most} rows, a request may have {max_parts} parts")


def _check_bounds(tensors: list[Tensor], version: Version) -> None:
    for tensor in tensors:
        bounds = version.settings.bounds.get(tensor.name)
        if bounds is not None:
            check_values(tensor, bounds)


def _check_outputs(wanted: list[InferOutput] | None, version: Version, binary: bool) -> list[tuple[str, bool]]:
    """binary: for those that do not say themselves."""
    known = version.output_names
    if not wanted:
        return [(name, binary) for name in known]
    asked: dict[str, bool] = {}
    for output in wanted:
        if output.name not in known:
            raise BadRequest(f"unknown output {output.name!r}; the model has: {names(known)}")
        if output.name in asked:
            raise BadRequest(f"output {output.name!r} is asked for twice")
        asked[output.name] = oip_parameters.of_output(output.name, output.parameters, binary)
    return list(asked.items())
