"""The form that a text is to have: looked at once, before anything is queued for it.

Compiling is by llguidance, with limits of its own that count work and not time, so that the same form is taken or
refused on every machine; what they do not cover is limited here, by the form's size and its divisors. So a form is
looked at in a tenth of a second or less, and made ready in some tenths. An event loop hands it to a thread.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from typing import Any

from llguidance import LLMatcher, LLParserLimits

LONGEST, DEEPEST = 65_536, 64
"""Bytes of a schema or expression; how deep a schema is nested."""
GREATEST_DIVISOR = 10_000
"""Of all `multipleOf` together, their least common multiple: an automaton has that many states. Made ready in 60 ms; a
divisor of 999,983 took 13 s and 370 MiB."""
LONGEST_ERROR = 500
SPACE = r"[\x20\x0A\x0D\x09]{0,20}"
"""Between the parts of JSON. Bounded: a model may otherwise go on with spaces for ever."""


class Kind(Enum):
    JSON_OBJECT = "json_object"
    JSON_SCHEMA = "json_schema"
    REGEX = "regex"


class FormError(ValueError):
    """A form that cannot be had; the message says what is wrong with it, or with which part. Whoever asked is at
    fault."""

    def __init__(self, message: str) -> None:
        line = " ".join(message.split())
        super().__init__(line if len(line) <= LONGEST_ERROR else line[:LONGEST_ERROR] + " ...")


@dataclass(frozen=True, slots=True)
class Form:
    """grammar: as llguidance reads it. The same text in every process, so it may travel."""

    kind: Kind
    grammar: str


def limits() -> LLParserLimits:
    return LLParserLimits(
        initial_lexer_fuel=1_000_000,
        step_lexer_fuel=200_000,
        max_lexer_states=50_000,
        max_grammar_size=200_000,
        verbose_errors=False,
    )


def any_object() -> Form:
    """Any JSON object."""
    return _checked(Kind.JSON_OBJECT, _of_schema({"type": "object"}))


def schema(told: str | dict[str, Any] | bool) -> Form:
    """JSON of a JSON schema. Raises FormError."""
    if isinstance(told, str):
        _short(told, "the JSON schema")
        try:
            told = json.loads(told)
        except RecursionError:
            raise FormError(f"the JSON schema is nested more than {DEEPEST} deep") from None
        except ValueError as error:
            raise FormError(f"the JSON schema is not JSON: {error}") from None
    if not isinstance(told, dict | bool):
        raise FormError(f"the JSON schema is {json.dumps(told)[:80]}; it must be an object or a boolean")
    _simple(told)
    _short(json.dumps(told), "the JSON schema")
    return _checked(Kind.JSON_SCHEMA, _of_schema(told))


def regex(pattern: str) -> Form:
    """A regular expression for all of the text, without look-around and back-references. Raises FormError."""
    _short(pattern, "the regular expression")
    if pattern.count("(") + pattern.count("[") > 1000:
        raise FormError("the regular expression has more than 1000 groups and classes")
    return _checked(Kind.REGEX, LLMatcher.grammar_from_regex(pattern))


def _of_schema(told: dict[str, Any] | bool) -> str:
    # Its own options within a schema are not a client's to set.
    if isinstance(told, dict) and "x-guidance" in told:
        raise FormError("the JSON schema has the key x-guidance, which is not taken")
    try:
        grammar: str = LLMatcher.grammar_from_json_schema(json.dumps(told), overrides={"whitespace_pattern": SPACE})
        return grammar
    except ValueError as error:
        raise FormError(f"the JSON schema cannot be used: {error}") from None


def _checked(kind: Kind, grammar: str) -> Form:
    problem = LLMatcher.validate_grammar(grammar, limits=limits())
    if problem and not problem.startswith("WARNING"):
        what = "the regular expression" if kind is Kind.REGEX else "the JSON schema"
        raise FormError(f"{what} cannot be used: {problem}")
    return Form(kind, grammar)


def _short(text: str, what: str) -> None:
    size = len(text.encode("utf-8", "replace"))
    if size > LONGEST:
        raise FormError(f"{what} has {size} bytes; at most {LONGEST} are taken")


def _simple(told: Any) -> None:
    """Not too deep, nor with divisors too great. Without recursion: it may be as deep as a client likes."""
    level, divisor = [told], 1
    for _ in range(DEEPEST):
        below: list[Any] = []
        for value in level:
            if isinstance(value, dict):
                divisor = math.lcm(divisor, _divisor(value.get("multipleOf")))
                below += value.values()
            elif isinstance(value, list):
                below += value
        if divisor > GREATEST_DIVISOR:
            raise FormError(
                f"what multipleOf says in the JSON schema comes to {divisor}, as a least common multiple;"
                f" at most {GREATEST_DIVISOR} is taken"
            )
        if not below:
            return
        level = below
    raise FormError(f"the JSON schema is nested more than {DEEPEST} deep")


def _divisor(told: Any) -> int:
    """Its digits without the zeros at the end: 0.25 is as much work as 25, and 1000 as little as 1."""
    if isinstance(told, bool) or not isinstance(told, int | float) or not math.isfinite(told) or not told:
        return 1
    return abs(int("".join(map(str, Decimal(str(told)).as_tuple().digits)).rstrip("0") or "1"))
