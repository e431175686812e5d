"""The effective settings as TOML, each with where it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import msgspec

from headway.config.check import join

Source = tuple[str, Mapping[str, Any]]
"""A name to print, and what that source says (its tables, before defaults)."""


def explain(settings: msgspec.Struct, sources: Sequence[Source], table: str = "") -> Iterator[str]:
    """Lines of TOML. sources: the strongest first; a table it has hides that table in later ones."""
    tables: list[tuple[str, Any]] = []
    if table:
        yield f"[{table}]"
    for name in settings.__struct_fields__:
        value = getattr(settings, name)
        if isinstance(value, msgspec.Struct | dict):
            tables.append((name, value))
        elif value is not None:
            yield f"{name} = {toml(value)}  # {origin(name, sources)}"
    for name, value in tables:
        below = narrow(name, sources)
        if isinstance(value, msgspec.Struct):
            yield ""
            yield from explain(value, below, join(table, name))
            continue
        for key, item in value.items():
            if isinstance(item, msgspec.Struct):
                yield ""
                yield from explain(item, narrow(key, below), join(join(table, name), key))
        plain = {key: item for key, item in value.items() if not isinstance(item, msgspec.Struct)}
        if plain:
            yield f"{name} = {toml(plain)}  # {origin(name, sources)}"


def origin(name: str, sources: Sequence[Source]) -> str:
    return next((label for label, written in sources if name in written), "default")


def narrow(name: str, sources: Sequence[Source]) -> list[Source]:
    """The sources of a table: the strongest that has it, alone."""
    for label, written in sources:
        if isinstance(written.get(name), dict):
            return [(label, written[name])]
    return []


def toml(value: object) -> str:
    """A value in TOML's spelling; tables inline."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}" if value == int(value) and abs(value) < 1e15 else repr(value)
    if isinstance(value, dict):
        return "{" + ", ".join(f"{join('', key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
