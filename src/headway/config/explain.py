"""The effective settings as TOML, each with where it comes from."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from headway.config.check import join


class Source(NamedTuple):
    """label: to print.  written: what the source says (its tables, before defaults).
    whole: a table that it has hides that table in weaker sources; otherwise only the settings named in it do."""

    label: str
    written: Mapping[str, Any]
    whole: bool = True


def explain(settings: msgspec.Struct, sources: Sequence[Source], table: str = "") -> Iterator[str]:
    """Lines of TOML. sources: the strongest first."""
    if table:
        yield f"[{table}]"
    values = {name: getattr(settings, name) for name in settings.__struct_fields__}
    for name, value in values.items():
        if value not in (None, {}) and not is_table(value):
            yield f"{name} = {toml(value)}  # {origin(name, sources)}"
    for name, value in values.items():  # last, since what follows a table's heading belongs to it
        if isinstance(value, msgspec.Struct):
            yield from section(value, narrow(name, sources), join(table, name))
        elif is_table(value):
            for key, item in value.items():
                yield from section(item, narrow(key, narrow(name, sources)), join(join(table, name), key))


def section(settings: msgspec.Struct, sources: Sequence[Source], table: str) -> Iterator[str]:
    yield ""
    yield from explain(settings, sources, table)


def is_table(value: object) -> bool:
    """A table of its own, or one per name; what a model is handed as it is (`options`) is a value."""
    if isinstance(value, dict):
        return any(isinstance(item, msgspec.Struct) for item in value.values())
    return isinstance(value, msgspec.Struct)


def origin(name: str, sources: Sequence[Source]) -> str:
    return next((source.label for source in sources if name in source.written), "default")


def narrow(name: str, sources: Sequence[Source]) -> list[Source]:
    """The sources of a table: those that have it, down to the first that hides what is weaker."""
    found: list[Source] = []
    for source in sources:
        if isinstance(source.written.get(name), dict):
            found.append(source._replace(written=source.written[name]))
            if source.whole:
                break
    return found


def toml(value: object) -> str:
    """A value in TOML's spelling; tables inline."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return f"{value:g}" if value == int(value) and abs(value) < 1e15 else repr(value)
    if isinstance(value, msgspec.Struct):
        value = {name: item for name, item in msgspec.structs.asdict(value).items() if item or name == "id"}
    if isinstance(value, dict):
        return "{" + ", ".join(f"{join('', key)} = {toml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml(item) for item in value) + "]"
    return json.dumps(value, ensure_ascii=False) if isinstance(value, str) else str(value)
