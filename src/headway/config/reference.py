"""Writes docs/configuration.md from the structs: `python -m headway.config.reference > docs/configuration.md`."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec
from msgspec import inspect

from headway.config.check import describe, join
from headway.config.explain import toml
from headway.config.settings import ModelSettings, Settings

UNITS = {
    "ms": "milliseconds",
    "s": "seconds",
    "mb": "megabytes (2^20 bytes)",
    "kb": "kilobytes (2^10 bytes)",
}
"""Ending of a setting's name -> its unit. Settings without such an ending count things."""

INTRODUCTION = """\
# Configuration

Written by `python -m headway.config.reference`; change the docstrings in `src/headway/config/settings.py` instead.

There are two kinds of files, both TOML, and every setting in them has a default. `headway serve FILE` reads the
server's; each model may have one of its own. `headway check FILE` tells every problem with its place,
`headway check FILE --show` every setting in force and where it comes from. An unknown setting is an error. The ending
of a name is its unit: {units}.
"""

SERVER = """\
# The server's file (headway.toml)
"""

MODEL = """\
# A model's file (models/NAME/model.toml)

The same tables below `[models.NAME]` in the server's file replace those of the model's own, each as a whole.
"""


def page() -> Iterator[str]:
    yield INTRODUCTION.format(units=", ".join(f"`_{ending}` {unit}" for ending, unit in UNITS.items()))
    yield SERVER
    yield from sections(Settings, "", skipped=("models",))
    yield MODEL
    yield from sections(ModelSettings, "")


def sections(struct: type[msgspec.Struct], table: str, skipped: tuple[str, ...] = ()) -> Iterator[str]:
    """One section per table, the table's own settings first."""
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    introduction, meanings = parse_doc(struct)
    fields = [field for field in info.fields if field.name not in skipped]
    plain = [field for field in fields if below(field.type) is None]
    yield f"## {f'[{table}]' if table else 'Outside of any table'}\n"
    if introduction:
        yield f"{introduction}\n"
    yield "| setting | takes | default | meaning |\n|---|---|---|---|"
    for field in plain:
        default = field.default if field.default is not msgspec.NODEFAULT else {}
        cells = [
            f"`{field.name}`",
            describe(field.type),
            f"`{toml(default)}`" if default is not None else "not set",
            meanings[field.name],
        ]
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
    yield ""
    for field in fields:
        found = below(field.type)
        if found is not None:
            inner, named = found
            yield from sections(inner, ".".join(filter(None, [table, field.name, "NAME" if named else ""])))
        elif (entries := listed(field.type)) is not None:
            yield from sections(entries, f"[{join(table, field.name)}]")


def below(kind: inspect.Type) -> tuple[type[msgspec.Struct], bool] | None:
    """The struct of a table, and whether there is one per name; None for a plain setting."""
    if isinstance(kind, inspect.UnionType):
        kind = next(member for member in kind.types if not isinstance(member, inspect.NoneType))
    if isinstance(kind, inspect.StructType):
        return kind.cls, False
    if isinstance(kind, inspect.DictType) and isinstance(kind.value_type, inspect.StructType):
        return kind.value_type.cls, True
    return None


def listed(kind: inspect.Type) -> type[msgspec.Struct] | None:
    """The struct of the tables of a list; None for any other setting."""
    if isinstance(kind, inspect.VarTupleType) and isinstance(kind.item_type, inspect.StructType):
        return kind.item_type.cls
    return None


def parse_doc(struct: type[msgspec.Struct]) -> tuple[str, dict[str, str]]:
    """A docstring's introduction, and the meaning of each setting: `name: meaning`, one or more lines each."""
    names = struct.__struct_fields__
    introduction: list[str] = []
    meanings: dict[str, list[str]] = {}
    into = introduction
    docs = [kind.__doc__ or "" for kind in struct.__mro__ if msgspec.Struct in kind.__mro__[1:]]
    for line in "\n".join(docs).splitlines():
        match = re.match(r"\s*(\w+): (.*)", line)
        if match and match[1] in names:
            into = meanings.setdefault(match[1], [])
            line = match[2]
        into.append(line.strip())
    joined = {name: " ".join(filter(None, words)) for name, words in meanings.items()}
    return " ".join(filter(None, introduction)), joined


if __name__ == "__main__":
    print("\n".join(page()).rstrip())
