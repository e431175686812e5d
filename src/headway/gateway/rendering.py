"""The reply to an infer call: JSON, with outputs behind it as raw bytes where they were asked for like that."""

from __future__ import annotations

from typing import Any

import msgspec

from headway.gateway.binary_tensors import HEADER, OCTETS
from headway.gateway.catalog import Version
from headway.gateway.exchange import Response
from headway.gateway.json_tensors import WRITTEN_AS_THEY_ARE, text, text_of
from headway.gateway.oip import InferRequest
from headway.gateway.parts import join, join_raw
from headway.wire.tensors import Tensor

_encode = msgspec.json.Encoder().encode
Buffers = list[bytes | bytearray | memoryview]


def render(request: InferRequest, version: Version, outputs: list[list[Tensor]]) -> Response:
    """outputs: of the parts, in order. Raises NotRepresentable, ModelBroke."""
    body: dict[str, Any] = {"model_name": version.model, "model_version": version.number_text}
    if request.id is not None:
        body["id"] = request.id
    behind: Buffers = []
    body["outputs"] = [
        _binary(name, request.rows, outputs, behind) if binary else _json(name, request.rows, outputs)
        for name, binary in request.outputs
    ]
    written = _encode(body)
    if not behind:
        return Response(200, written)
    return Response(200, b"".join([written, *behind]), OCTETS, ((HEADER, b"%d" % len(written)),))


def _json(name: str, rows: int, outputs: list[list[Tensor]]) -> dict[str, Any]:
    datatype, shape, buffers = join_raw(outputs, name, rows)
    if datatype in WRITTEN_AS_THEY_ARE:
        written = text_of(name, datatype, buffers)
    else:
        written = text(name, datatype, join(outputs, name, rows)[1])
    return {"name": name, "datatype": datatype, "shape": shape, "data": msgspec.Raw(written)}


def _binary(name: str, rows: int, outputs: list[list[Tensor]], behind: Buffers) -> dict[str, Any]:
    """behind: what follows the JSON; this output's bytes are added."""
    datatype, shape, buffers = join_raw(outputs, name, rows)
    behind += buffers
    size = sum([len(buffer) for buffer in buffers])
    return {"name": name, "datatype": datatype, "shape": shape, "parameters": {"binary_data_size": size}}
