"""Compares what a TOML file says with what a settings struct takes; finds every problem, not the first.

msgspec would stop at the first mismatch, so the structs are walked through `msgspec.inspect`, and
only what passed is converted.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, TypeVar, cast

import msgspec
from msgspec import inspect

from headway.config.errors import Problem, nearest
from headway.config.settings import Settings

S = TypeVar("S", bound=msgspec.Struct)

KEYS = re.compile(r"(^|\.)(admin_)?keys(\[|\.|$)")
"""Places where somebody might put a key itself."""
SHOWN = 60
"""Characters of an offending value that a message repeats."""


def decode(raw: dict[str, Any], struct: type[S], file: str, place: str = "") -> tuple[S | None, list[Problem]]:
    """The struct, or None and everything that is wrong with `raw`."""
    problems = [
        Problem(file, where, text)
        for where, text in check(raw, cast(inspect.StructType, inspect.type_info(struct)), place)
    ]
    return (None, problems) if problems else (msgspec.convert(raw, struct), [])


def check(value: object, kind: inspect.Type, place: str) -> Iterator[tuple[str, str]]:
    """Yields (place, what is wrong) for everything in `value` that `kind` does not take."""
    if isinstance(kind, inspect.UnionType):
        kind = next(member for member in kind.types if not isinstance(member, inspect.NoneType))
    if isinstance(kind, inspect.StructType):
        yield from check_table(value, kind, place)
    elif isinstance(kind, inspect.DictType):
        yield from check_named(value, kind, place)
    elif isinstance(kind, inspect.VarTupleType):
        yield from check_list(value, kind, place)
    elif isinstance(kind, inspect.TupleType):
        yield from check_tuple(value, kind, place)
    elif not accepts(value, kind):
        yield place, f"expected {describe(kind)}, got {show(value, place)}"


def check_table(value: object, kind: inspect.StructType, place: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield place, f"expected a table [{place}], got {show(value, place)}"
        return
    fields = {field.encode_name: field for field in kind.fields}
    for name, item in value.items():
        if name in fields:
            yield from check(item, fields[name].type, join(place, name))
        else:
            yield join(place, name), unknown(name, list(fields), place)
    for name, field in fields.items():
        if field.required and name not in value:
            yield join(place, name), f"expected {describe(field.type)}, it is missing"


def check_named(value: object, kind: inspect.DictType, place: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, dict):
        yield place, f"expected a table [{place}], got {show(value, place)}"
        return
    if isinstance(kind.value_type, inspect.CustomType):
        return  # options: handed to the model as they are
    for name, item in value.items():
        yield from check(item, kind.value_type, join(place, name))


def check_list(value: object, kind: inspect.VarTupleType, place: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, list):
        hint = f", as [[{place}]] makes it" if isinstance(value, dict) and is_table(kind.item_type) else ""
        yield place, f"expected a list, each entry {describe(kind.item_type)}{hint}; got {show(value, place)}"
        return
    for number, item in enumerate(value):
        yield from check(item, kind.item_type, f"{place}[{number}]")


def is_table(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.StructType)


def check_tuple(value: object, kind: inspect.TupleType, place: str) -> Iterator[tuple[str, str]]:
    if not isinstance(value, list) or len(value) != len(kind.item_types):
        yield place, f"expected {describe(kind)}, got {show(value, place)}"
        return
    for number, (item, of) in enumerate(zip(value, kind.item_types, strict=True)):
        yield from check(item, of, f"{place}[{number}]")


def accepts(value: object, kind: inspect.Type) -> bool:
    """Whether a plain value (no table, no list) is one that `kind` takes."""
    if isinstance(kind, inspect.BoolType):
        return isinstance(value, bool)
    if isinstance(kind, inspect.StrType):
        return isinstance(value, str)
    if isinstance(kind, inspect.LiteralType):
        return value in kind.values
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    if isinstance(kind, inspect.IntType):
        return isinstance(value, int) and within(value, kind)
    if isinstance(kind, inspect.FloatType):
        return math.isfinite(value) and within(value, kind)
    raise TypeError(f"settings hold a kind of value this loader does not know: {kind!r}")


def within(value: float, kind: inspect.IntType | inspect.FloatType) -> bool:
    above = (kind.ge is None or value >= kind.ge) and (kind.gt is None or value > kind.gt)
    return above and (kind.le is None or value <= kind.le) and (kind.lt is None or value < kind.lt)


def describe(kind: inspect.Type) -> str:
    """What the setting takes, in words: "an integer >= 1"."""
    if isinstance(kind, inspect.UnionType):
        kind = next(member for member in kind.types if not isinstance(member, inspect.NoneType))
    if isinstance(kind, inspect.LiteralType):
        return "one of " + ", ".join(f'"{value}"' for value in kind.values)
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        noun = "an integer" if isinstance(kind, inspect.IntType) else "a number"
        limits = [(">=", kind.ge), (">", kind.gt), ("<=", kind.le), ("<", kind.lt)]
        return " ".join(
            [noun, " and ".join(f"{sign} {limit:g}" for sign, limit in limits if limit is not None)]
        ).strip()
    if isinstance(kind, inspect.VarTupleType):
        return f"a list, each entry {describe(kind.item_type)}"
    if isinstance(kind, inspect.TupleType):
        return "a list of " + ", ".join(map(describe, kind.item_types))
    words: list[tuple[type[inspect.Type], str]] = [
        (inspect.BoolType, "true or false"),
        (inspect.StrType, "a string"),
        (inspect.StructType, "a table"),
        (inspect.DictType, "a table"),
        (inspect.CustomType, "any value"),
    ]
    return next(word for shape, word in words if isinstance(kind, shape))


def unknown(name: str, known: list[str], place: str) -> str:
    """The message for a name that does not exist here, with the name most likely meant."""
    elsewhere = sorted(place_ for place_ in every_place(inspect.type_info(Settings)) if place_.split(".")[-1] == name)
    close = nearest(name, known)
    if close is None and elsewhere and elsewhere != [join(place, name)]:
        close = elsewhere[0]
    hint = f"did you mean '{close}'?" if close else "known here: " + ", ".join(known)
    return f"unknown setting; {hint}"


def every_place(kind: inspect.Type, place: str = "") -> Iterator[str]:
    """Dotted places of all settings with fixed names."""
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield join(place, field.encode_name)
            yield from every_place(field.type, join(place, field.encode_name))


def join(place: str, name: str) -> str:
    """`name` below `place`; quoted where TOML would quote it."""
    bare = name.replace("-", "").replace("_", "").isalnum() and name.isascii()
    shown = name if bare else json.dumps(name, ensure_ascii=False)
    return f"{place}.{shown}" if place else shown


def show(value: object, place: str) -> str:
    """The offending value, short; tables, and whatever stands where keys belong, by their kind only."""
    if KEYS.search(place) and isinstance(value, str | list):
        return "a string" if isinstance(value, str) else "a list"
    if isinstance(value, dict):
        return "a table"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return text if len(text) <= SHOWN else text[: SHOWN - 3] + "..."
