"""The Open Inference Protocol's infer call in JSON: read and checked against the model's declaration, and answered.

Unknown top-level members are ignored; of duplicate JSON keys the last counts; `outputs` missing or empty means
all, otherwise those named, in that order.
"""

from __future__ import annotations

from typing import Any

import msgspec

from headway.core.ids import BatchKey, Part
from headway.gateway.bounds import check_length, check_values
from headway.gateway.catalog import Version
from headway.gateway.errors import BadRequest
from headway.gateway.exchange import Response
from headway.gateway.json_tensors import read, write
from headway.gateway.parts import InputData, cut, join, rows_within
from headway.gateway.signature import signature
from headway.wire.messages import InputMeta, ModelMeta, PartPayload
from headway.wire.tensors import DATATYPES, Tensor

MAX_RANK = 32
SCHEDULING_PARAMETERS = frozenset(("timeout", "priority"))
_RESERVED = frozenset(("sequence_id", "sequence_start", "sequence_end", "headers"))
_INPUT_RESERVED = frozenset(
    ("binary_data_size", "shared_memory_region", "shared_memory_offset", "shared_memory_byte_size")
)
_OUTPUT_RESERVED = _INPUT_RESERVED | {"classification"}
_NAMES_SHOWN = 20


class InferInput(msgspec.Struct):
    name: str
    datatype: str
    shape: list[Any]
    data: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    parameters: dict[str, Any] | None = None


class InferOutput(msgspec.Struct):
    name: str
    parameters: dict[str, Any] | None = None


class InferBody(msgspec.Struct):
    inputs: list[InferInput]
    outputs: list[InferOutput] | None = None
    id: str | None = None
    parameters: dict[str, Any] | None = None


class InferRequest(msgspec.Struct):
    """A checked request, cut. size: payload bytes. parameters: for the executor (those for scheduling are gone)."""

    id: str | None
    key: BatchKey
    rows: int
    parts: list[Part]
    payload: list[PartPayload]
    size: int
    parameters: dict[str, Any]
    outputs: tuple[str, ...]


_body_decoder = msgspec.json.Decoder(InferBody)
_encode = msgspec.json.Encoder().encode


def decode_body(raw: bytes) -> InferBody:
    """Raises BadRequest."""
    try:
        return _body_decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f"the body is not an infer request: {error or 'nested too deeply'}") from None


def check(body: InferBody, version: Version, max_parts: int) -> InferRequest:
    """Raises BadRequest for everything that the model's declaration rules out, NotReady without declaration."""
    meta = version.require_ready()
    if meta.streaming:
        raise BadRequest(f"model {version.model!r} answers as a stream: POST to .../generate_stream or .../generate")
    parameters = _check_parameters("request", body.parameters, _RESERVED)
    given = _by_name(body.inputs, version)
    present = [(declared, given[declared.name]) for declared in meta.inputs if declared.name in given]
    shapes = [(declared, _check_shape(entry, declared)) for declared, entry in present]
    rows = _common_rows(shapes)
    length = _common_length(shapes, version.settings.max_length)
    outputs = _check_outputs(body.outputs, version)
    most = version.max_part_rows(length)
    _check_parts(rows, most, max_parts)
    data = [
        InputData(declared.name, declared.datatype, shape, read(declared.name, declared.datatype, shape, _raw(entry)))
        for (declared, entry), (_, shape) in zip(present, shapes, strict=True)
    ]
    if version.settings.bounds:
        _check_bounds(data, version)
    if cap := version.settings.batching.max_batch_bytes:
        most = min(most, rows_within(cap, data, rows))
        _check_parts(rows, most, max_parts)
    parts, payload, size = cut(data, rows, length, most)
    of_batch = {name: value for name, value in parameters.items() if name not in version.per_row}
    key = version.key(signature(shapes, of_batch))
    return InferRequest(body.id, key, rows, parts, payload, size, parameters, outputs)


# -- inputs ------------------------------------------------------------------------------------


def _by_name(inputs: list[InferInput], version: Version) -> dict[str, InferInput]:
    given: dict[str, InferInput] = {}
    for entry in inputs:
        declared = version.inputs.get(entry.name)
        if declared is None:
            raise BadRequest(f"unknown input {entry.name!r}; the model has: {_names(version.inputs)}")
        if entry.name in given:
            raise BadRequest(f"input {entry.name!r} is given twice")
        if entry.datatype != declared.datatype:
            known = "" if entry.datatype in DATATYPES else f", which is not a datatype ({', '.join(DATATYPES)})"
            raise BadRequest(
                f"input {entry.name!r}: the model takes {declared.datatype}, got {entry.datatype!r}{known}"
            )
        _check_parameters(f"input {entry.name!r}", entry.parameters, _INPUT_RESERVED)
        given[entry.name] = entry
    for name, declared in version.inputs.items():
        if name not in given and not declared.optional:
            raise BadRequest(f"input {name!r} is missing; given: {_names(given)}")
    if not given:
        raise BadRequest(f"there are no inputs; the model has: {_names(version.inputs)}")
    return given


def _check_shape(entry: InferInput, declared: InputMeta) -> tuple[int, ...]:
    shape = entry.shape
    if len(shape) != len(declared.shape) or len(shape) > MAX_RANK:
        raise BadRequest(
            f"input {entry.name!r}: the model takes {_dims(declared)} ({len(declared.shape)} dimensions, "
            f"-1 = any size, the first is the rows), got {len(shape)} dimensions"
        )
    for axis, size in enumerate(shape):
        if type(size) is not int or not 0 <= size < 2**63:
            raise BadRequest(f"input {entry.name!r}: a shape has integers from 0 to 2^63 - 1, got {str(size)[:40]!r}")
        if axis and declared.shape[axis] not in (-1, size):
            raise BadRequest(
                f"input {entry.name!r}: the model takes {_dims(declared)} (-1 = any size, the first is the rows), "
                f"got {shape}"
            )
    if not shape or shape[0] < 1:
        raise BadRequest(f"input {entry.name!r}: the first dimension is the rows, at least 1, got shape {shape}")
    return tuple(shape)


def _common_rows(shapes: list[tuple[InputMeta, tuple[int, ...]]]) -> int:
    first, rows = shapes[0][0].name, shapes[0][1][0]
    for declared, shape in shapes:
        if shape[0] != rows:
            raise BadRequest(f"input {first!r} has {rows} rows, input {declared.name!r} has {shape[0]}")
    return rows


def _common_length(shapes: list[tuple[InputMeta, tuple[int, ...]]], most: int) -> int:
    """The size along the padded axis, which all padded inputs share; 1 where nothing is padded. most: 0 = any."""
    padded = [(meta.name, shape[meta.pad_axis]) for meta, shape in shapes if meta.pad_axis is not None]
    if not padded:
        return 1
    first, length = padded[0]
    for name, other in padded:
        if other != length:
            raise BadRequest(f"input {first!r} has length {length} along its padded axis, input {name!r} has {other}")
    if length < 1:
        raise BadRequest(f"input {first!r}: the size along the padded axis must be at least 1, got 0")
    check_length(first, length, most)
    return length


def _check_parts(rows: int, most: int, max_parts: int) -> None:
    parts = -(-rows // most)
    if parts > max_parts:
        raise BadRequest(f"{rows} rows make {parts} parts of at most {most} rows, a request may have {max_parts} parts")


def _check_bounds(data: list[InputData], version: Version) -> None:
    for given in data:
        bounds = version.settings.bounds.get(given.name)
        if bounds is not None and not isinstance(given.data, list):
            check_values(given.name, given.datatype, given.data, bounds)


def _raw(entry: InferInput) -> bytes | memoryview:
    if entry.data is msgspec.UNSET:
        raise BadRequest(f"input {entry.name!r} has no data")
    return memoryview(entry.data)


# -- outputs and parameters --------------------------------------------------------------------


def _check_outputs(wanted: list[InferOutput] | None, version: Version) -> tuple[str, ...]:
    known = version.output_names
    if not wanted:
        return known
    names: list[str] = []
    for output in wanted:
        if output.name not in known:
            raise BadRequest(f"unknown output {output.name!r}; the model has: {_names(known)}")
        if output.name in names:
            raise BadRequest(f"output {output.name!r} is asked for twice")
        _check_parameters(f"output {output.name!r}", output.parameters, _OUTPUT_RESERVED)
        names.append(output.name)
    return tuple(names)


def _check_parameters(where: str, given: dict[str, Any] | None, reserved: frozenset[str]) -> dict[str, Any]:
    """Without those for scheduling. Binary tensors that are declined (`false`) are what this server does anyway."""
    kept: dict[str, Any] = {}
    for name, value in (given or {}).items():
        if not isinstance(value, str | bool | int | float):
            raise BadRequest(f"{where}: parameter {name!r} must be a string, a number or a boolean, got {_kind(value)}")
        if isinstance(value, int) and not -(2**63) <= value < 2**64:
            raise BadRequest(f"{where}: parameter {name!r} must fit 64 bits, got {str(value)[:40]}")
        if name in ("binary_data", "binary_data_output"):
            if value is not False:
                raise BadRequest(f"{where}: parameter {name!r} is not supported: tensors travel as JSON here")
        elif name in reserved or name.startswith("triton_"):
            raise BadRequest(f"{where}: parameter {name!r} is reserved and not supported")
        elif name not in SCHEDULING_PARAMETERS:
            kept[name] = value
    return kept


# -- the reply ---------------------------------------------------------------------------------


def render(request: InferRequest, version: Version, outputs: list[list[Tensor]]) -> Response:
    """Raises NotRepresentable, ModelBroke."""
    body: dict[str, Any] = {"model_name": version.model, "model_version": str(version.number)}
    if request.id is not None:
        body["id"] = request.id
    body["outputs"] = [_render_output(name, request.rows, outputs) for name in request.outputs]
    return Response(200, _encode(body))


def _render_output(name: str, rows: int, outputs: list[list[Tensor]]) -> dict[str, Any]:
    datatype, array = join(outputs, name, rows)
    data = write(name, datatype, array)
    return {"name": name, "datatype": datatype, "shape": array.shape, "data": data}


def metadata(version: Version, versions: list[int], meta: ModelMeta) -> dict[str, Any]:
    return {
        "name": version.model,
        "versions": [str(number) for number in versions],
        "platform": meta.platform,
        "inputs": [_tensor_metadata(entry) for entry in meta.inputs],
        "outputs": [_tensor_metadata(entry) for entry in meta.outputs],
    }


def _tensor_metadata(meta: InputMeta) -> dict[str, Any]:
    entry: dict[str, Any] = {"name": meta.name, "datatype": meta.datatype, "shape": meta.shape}
    if meta.optional:
        entry["optional"] = True
    return entry


def _names(names: Any) -> str:
    known = list(names)
    return ", ".join(known[:_NAMES_SHOWN]) + (", ..." if len(known) > _NAMES_SHOWN else "") or "none"


def _dims(declared: InputMeta) -> str:
    return str(list(declared.shape))


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return "an object" if isinstance(value, dict) else "an array"
