"""What the protocol says of a model beside its answers: metadata, configuration, its place in the repository."""

from __future__ import annotations

from typing import Any

import msgspec

from headway.gateway.catalog import Catalog, Version
from headway.gateway.errors import BadRequest
from headway.wire.messages import InputMeta, ModelMeta


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


def configuration(version: Version, meta: ModelMeta) -> dict[str, Any]:
    """The model's configuration in the words of the model_configuration extension. Rows are `max_batch_size`, and no
    dimension of `dims`. A model's own options are not told: they may hold secrets."""
    settings = version.settings
    delay = settings.batching.max_queue_delay_ms
    return {
        "name": version.model,
        "platform": meta.platform,
        "backend": meta.platform.removesuffix("_onnx"),
        "version_policy": {"specific": {"versions": [version.number]}},
        "max_batch_size": version.max_part_rows(1),
        "input": [_tensor_configuration(entry) for entry in meta.inputs],
        "output": [_tensor_configuration(entry) for entry in meta.outputs],
        "dynamic_batching": {} if delay is None else {"max_queue_delay_microseconds": round(delay * 1000)},
        "instance_group": [
            {"name": version.model, "count": settings.instances, "kind": f"KIND_{_kind(settings.device)}"}
        ],
        "model_transaction_policy": {"decoupled": meta.streaming},
    }


def _kind(device: str) -> str:
    return "CPU" if device == "cpu" else "GPU"


def _tensor_configuration(meta: InputMeta) -> dict[str, Any]:
    kind = "STRING" if meta.datatype == "BYTES" else meta.datatype
    entry: dict[str, Any] = {"name": meta.name, "data_type": f"TYPE_{kind}", "dims": meta.shape[1:] or (1,)}
    if len(meta.shape) == 1:  # one value per row: the protocol says so with a dimension that is not there
        entry["reshape"] = {"shape": []}
    if meta.optional:
        entry["optional"] = True
    return entry


class _IndexBody(msgspec.Struct):
    ready: bool = False


def wants_ready_only(raw: bytes) -> bool:
    """raw: the body of the call for the index; empty = everything. Raises BadRequest."""
    if not raw.strip():
        return False
    try:
        return msgspec.json.decode(raw, type=_IndexBody).ready
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadRequest(f'the body must be empty or like {{"ready": true}}: {error or "nested too deeply"}') from None


_STATES = {"loading": "LOADING", "ready": "READY", "draining": "UNLOADING"}


def index(catalog: Catalog, ready_only: bool) -> list[dict[str, str]]:
    """Every version that is configured. ready_only: those that are ready."""
    return [
        {
            "name": version.model,
            "version": str(version.number),
            "state": _STATES.get(state, "UNAVAILABLE"),
            "reason": reason,
        }
        for version, ready, state, reason in catalog.standings()
        if ready or not ready_only
    ]
