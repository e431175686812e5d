"""The form that an answer is to have, from the several fields in which clients ask for one.

Looking at one is work for a thread: a large schema takes a tenth of a second.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, NamedTuple

from headway.gateway.errors import BadRequest, NotImplementedHere
from headway.gateway.text.bodies import Body, shown

if TYPE_CHECKING:
    from headway.llm.grammar.form import Form

LONGEST_LOOK_S = 5.0
"""Its own limits count work, and should end it within a tenth of a second."""
MOST_CHOICES = 1000
"""Of `guided_choice`."""


class Asked(NamedTuple):
    """param: the field in which it was asked for.  what: "object", "schema" or "regex".  told: schema or pattern."""

    param: str
    what: str
    told: Any = None


def asked(body: Body) -> Asked | None:
    """Quick. Raises BadRequest for what cannot be had, and for more than one."""
    found = [one for one in (_format(body.response_format), *_guided(body), *_structured(body)) if one is not None]
    if len(found) > 1:
        raise BadRequest(
            f"{found[0].param} and {found[1].param} both ask for a form; an answer has one", param=found[1].param
        )
    return found[0] if found else None


def made(wanted: Asked, pool: Executor) -> tuple[str, str]:
    """As `Generation` has it; looked at in a thread of the pool, while this one waits. Raises BadRequest."""
    try:
        return pool.submit(_made, wanted).result(LONGEST_LOOK_S)
    except TimeoutError:
        raise BadRequest(
            f"{wanted.param}: looking at it takes longer than {LONGEST_LOOK_S:g} s", param=wanted.param
        ) from None


def _made(wanted: Asked) -> tuple[str, str]:
    try:
        from headway.llm.grammar.form import FormError, any_object, regex, schema
    except ImportError as error:
        raise NotImplementedHere(
            f"forms cannot be had here: {error}: install headway[llm]", param=wanted.param
        ) from None
    makers: dict[str, Callable[[], Form]] = {
        "object": any_object,
        "schema": lambda: schema(wanted.told),
        "regex": lambda: regex(wanted.told),
    }
    try:
        form = makers[wanted.what]()
    except FormError as error:
        raise BadRequest(f"{wanted.param}: {error}", param=wanted.param) from None
    return form.kind.value, form.grammar


def _format(told: dict[str, Any] | None) -> Asked | None:
    if told is None:
        return None
    param, kind = "response_format", told.get("type")
    if kind == "text":
        return None
    if kind == "json_object":
        return Asked(param, "object")
    if kind == "json_schema":
        wrapped = told.get("json_schema")
        schema = wrapped.get("schema") if isinstance(wrapped, dict) else told.get("schema")
        if schema is None:
            raise BadRequest("response_format.json_schema.schema is missing", param="response_format.json_schema")
        return Asked(param, "schema", _schema(schema, f"{param}.json_schema"))
    if kind == "regex":
        pattern = told.get("pattern", told.get("regex", told.get("value")))
        if not isinstance(pattern, str):
            raise BadRequest("response_format.pattern is missing or no text", param="response_format.pattern")
        return Asked(param, "regex", pattern)
    raise BadRequest(
        f"response_format.type is {shown(repr(kind))}; known are 'text', 'json_object', 'json_schema', 'regex'",
        param="response_format.type",
    )


def _guided(body: Body) -> list[Asked | None]:
    if body.guided_grammar is not None:
        raise BadRequest("guided_grammar is not taken: send a JSON schema or a regex", param="guided_grammar")
    return [
        None if body.guided_json is None else Asked("guided_json", "schema", _schema(body.guided_json, "guided_json")),
        None if body.guided_regex is None else Asked("guided_regex", "regex", body.guided_regex),
        None if body.guided_choice is None else _choice("guided_choice", body.guided_choice),
    ]


def _structured(body: Body) -> list[Asked | None]:
    told, name = body.structured_outputs, "structured_outputs"
    if told is None:
        return []
    if told.grammar is not None:
        raise BadRequest(f"{name}.grammar is not taken: send a JSON schema or a regex", param=f"{name}.grammar")
    return [
        None if told.json is None else Asked(f"{name}.json", "schema", _schema(told.json, f"{name}.json")),
        None if told.regex is None else Asked(f"{name}.regex", "regex", told.regex),
        None if told.choice is None else _choice(f"{name}.choice", told.choice),
        Asked(f"{name}.json_object", "object") if told.json_object else None,
    ]


def _schema(told: Any, param: str) -> Any:
    if not isinstance(told, dict | str | bool):
        raise BadRequest(f"{param} must be a JSON schema, an object", param=param)
    return told


def _choice(param: str, texts: list[str]) -> Asked:
    if not 0 < len(texts) <= MOST_CHOICES or "" in texts:
        raise BadRequest(f"{param} must have 1 to {MOST_CHOICES} texts, none of them empty", param=param)
    return Asked(param, "regex", "|".join(map(_escaped, texts)))


def _escaped(text: str) -> str:
    """re.escape, without escapes of spaces and the like, which other dialects do not know."""
    return re.sub(r"([\\^$.|?*+()\[\]{}/-])", r"\\\1", text)
