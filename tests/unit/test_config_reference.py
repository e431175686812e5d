"""Every setting is documented, and the page says what the code does."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from msgspec import inspect

from headway.config.reference import below, listed, page, parse_doc
from headway.config.settings import ModelSettings, Settings

PAGE = Path(__file__).parents[2] / "docs" / "configuration.md"


def every_struct(struct: type[msgspec.Struct]) -> Iterator[type[msgspec.Struct]]:
    yield struct
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    for field in info.fields:
        found = below(field.type)
        if found is not None:
            yield from every_struct(found[0])
        elif (entries := listed(field.type)) is not None:
            yield from every_struct(entries)


STRUCTS = list(dict.fromkeys([*every_struct(Settings), *every_struct(ModelSettings)]))


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_every_setting_says_what_it_means(struct: type[msgspec.Struct]) -> None:
    info = inspect.type_info(struct)
    assert isinstance(info, inspect.StructType)
    plain = [field.name for field in info.fields if below(field.type) is None]
    assert set(plain) <= set(parse_doc(struct)[1])


@pytest.mark.parametrize("struct", STRUCTS, ids=lambda struct: struct.__name__)
def test_nothing_is_documented_that_does_not_exist(struct: type[msgspec.Struct]) -> None:
    words = [line.split(":")[0].strip() for line in (struct.__doc__ or "").splitlines() if ": " in line]
    names = [word for word in words if "_" in word and word.replace("_", "").isalnum()]
    assert set(names) <= set(struct.__struct_fields__)


def test_every_setting_has_a_default() -> None:
    for struct in STRUCTS:
        struct()


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == "\n".join(page()).rstrip() + "\n", (
        "run: python -m headway.config.reference > docs/configuration.md"
    )
