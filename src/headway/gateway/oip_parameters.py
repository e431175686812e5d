"""Parameters of a request, its inputs and its outputs: their types, and the names that mean something.

Names that this server has no meaning for go to the model; those that the protocol reserves for what is not
supported here are refused.
"""

from __future__ import annotations

from typing import Any

from headway.gateway.errors import BadRequest

SCHEDULING = frozenset(("timeout", "priority"))
"""Read by `options`."""
BINARY_OUTPUT = "binary_data_output"
BINARY = "binary_data"
BINARY_SIZE = "binary_data_size"
_RESERVED = frozenset(("sequence_id", "sequence_start", "sequence_end", "headers"))
_SHARED_MEMORY = frozenset(("shared_memory_region", "shared_memory_offset", "shared_memory_byte_size"))
_OUTPUT_RESERVED = _SHARED_MEMORY | {"classification", BINARY_SIZE}


def of_request(given: dict[str, Any] | None) -> tuple[dict[str, Any], bool]:
    """Those for the model, and whether outputs are binary unless they say otherwise. Raises BadRequest."""
    if not given:
        return {}, False
    kept: dict[str, Any] = {}
    binary = False
    for name, value in given.items():
        _check_value("request", name, value)
        if name in (BINARY_OUTPUT, BINARY):
            binary = _flag("request", name, value) if name == BINARY_OUTPUT else binary
        elif name in _RESERVED or name.startswith("triton_"):
            raise _reserved("request", name)
        elif name not in SCHEDULING:
            kept[name] = value
    return kept, binary


def of_input(input_name: str, given: dict[str, Any] | None) -> int | None:
    """Its size in the binary data after the JSON; None = its data is JSON. Raises BadRequest."""
    if not given:
        return None
    where = f"input {input_name!r}"
    _check_all(where, given, _SHARED_MEMORY)
    size = given.get(BINARY_SIZE)
    if size is not None and (type(size) is not int or size < 0):
        raise BadRequest(f"{where}: parameter 'binary_data_size' must be a number of bytes >= 0, got {size!r}")
    return size


def of_output(output_name: str, given: dict[str, Any] | None, default: bool) -> bool:
    """Whether it is wanted as binary data. default: what the request says of all. Raises BadRequest."""
    if not given:
        return default
    where = f"output {output_name!r}"
    _check_all(where, given, _OUTPUT_RESERVED)
    return _flag(where, BINARY, given[BINARY]) if BINARY in given else default


def _check_all(where: str, given: dict[str, Any], reserved: frozenset[str]) -> None:
    for name, value in given.items():
        _check_value(where, name, value)
        if name in reserved or name.startswith("triton_"):
            raise _reserved(where, name)


def _check_value(where: str, name: str, value: Any) -> None:
    if not isinstance(value, str | bool | int | float):
        raise BadRequest(f"{where}: parameter {name!r} must be a string, a number or a boolean, got {_kind(value)}")
    if isinstance(value, int) and not -(2**63) <= value < 2**64:
        raise BadRequest(f"{where}: parameter {name!r} must fit 64 bits, got {str(value)[:40]}")


def _flag(where: str, name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise BadRequest(f"{where}: parameter {name!r} must be true or false, got {str(value)[:40]!r}")
    return value


def _reserved(where: str, name: str) -> BadRequest:
    return BadRequest(f"{where}: parameter {name!r} is reserved and not supported")


def _kind(value: Any) -> str:
    if value is None:
        return "null"
    return "an object" if isinstance(value, dict) else "an array"
