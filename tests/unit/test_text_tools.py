"""Calls of tools in the text of an answer: found however it comes in pieces, and nothing lost of what is none."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise

import pytest

from headway.gateway.text.chat import joined
from headway.gateway.text.tools import Arguments, Objects, Tagged, ToolParser


def numbered() -> Callable[[], str]:
    numbers = count()
    return lambda: f"call_{next(numbers)}"


def tagged(most: int | None = None) -> Tagged:
    return Tagged(most, numbered())


def objects(most: int | None = None) -> Objects:
    return Objects(most, numbered())


def array() -> Objects:
    return Objects(None, numbered(), around=" \t\r\n[],", tag="")


Found = tuple[str, list[tuple[str, str]], str]


def found(parser: ToolParser, pieces: list[str]) -> Found:
    """Text, calls as name and arguments, and why it ended."""
    said, calls = "", []
    for piece in pieces:
        text, more = parser.feed(piece)
        said += text
        calls += more
    text, more = parser.finish()
    whole = joined(calls + more)
    functions = [call["function"] for call in whole]
    return said + text, [(call["name"], call["arguments"]) for call in functions], parser.reason("stop")


A = '{"name": "a", "arguments": {"x": 1}}'
CASES: dict[str, tuple[Callable[[], ToolParser], str, Found]] = {
    "text": (tagged, "No < call <tool here.\n", ("No < call <tool here.\n", [], "stop")),
    "one": (tagged, f"<tool_call>\n{A}\n</tool_call>", ("", [("a", '{"x": 1}')], "tool_calls")),
    "text before": (tagged, f"Look: \n<tool_call>{A}</tool_call>\n", ("Look:", [("a", '{"x": 1}')], "tool_calls")),
    "two": (
        tagged,
        f"<tool_call>{A}</tool_call>\n<tool_call>{A}</tool_call>",
        ("", [("a", '{"x": 1}')] * 2, "tool_calls"),
    ),
    "text after": (tagged, f"<tool_call>{A}</tool_call> so.", (" so.", [("a", '{"x": 1}')], "tool_calls")),
    "no end": (tagged, f"<tool_call>{A}", ("", [("a", '{"x": 1}')], "tool_calls")),
    "no JSON": (tagged, "a <tool_call>look!</tool_call> b", ("a <tool_call>look!</tool_call> b", [], "stop")),
    "begun": (tagged, 'a\n<tool_call>{"name"', ('a\n<tool_call>{"name"', [], "stop")),
    "no name": (tagged, '<tool_call>{"x": 1}</tool_call>', ('<tool_call>{"x": 1}</tool_call>', [], "stop")),
    "parameters": (tagged, '<tool_call>{"name": "b", "parameters": {}}</tool_call>', ("", [("b", "{}")], "tool_calls")),
    "arguments as text": (
        tagged,
        '<tool_call>{"name": "b", "arguments": "{\\"y\\": 2}"}</tool_call>',
        ("", [("b", '{"y": 2}')], "tool_calls"),
    ),
    "other letters": (
        tagged,
        '<tool_call>{"name": "é", "arguments": {"k": "<\\u00e9 }"}}</tool_call>',
        ("", [("é", '{"k": "<é }"}')], "tool_calls"),
    ),
    "only the first": (
        lambda: tagged(1),
        f"<tool_call>{A}</tool_call><tool_call>{A}</tool_call>",
        ("", [("a", '{"x": 1}')], "tool_calls"),
    ),
    "an object": (
        objects,
        '{"name": "f", "parameters": {"q": "}{\\""}}',
        ("", [("f", '{"q": "}{\\""}')], "tool_calls"),
    ),
    "objects": (
        objects,
        '<|python_tag|>{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}\n',
        ("", [("f", "{}"), ("g", "{}")], "tool_calls"),
    ),
    "plain text": (objects, " It is {so}.", (" It is {so}.", [], "stop")),
    "another object": (objects, '{"answer": 5} yes', ('{"answer": 5} yes', [], "stop")),
    "half an object": (objects, ' {"name": "f"', (' {"name": "f"', [], "stop")),
    "a tag alone": (objects, "<|python", ("<|python", [], "stop")),
    "text behind": (objects, '{"name": "f"} and', (" and", [("f", "{}")], "tool_calls")),
    "an array": (
        array,
        '[{"name": "f", "parameters": {"a": [1, 2]}}, {"name": "g", "parameters": {}}]',
        ("", [("f", '{"a": [1, 2]}'), ("g", "{}")], "tool_calls"),
    ),
    "arguments": (lambda: Arguments("f", numbered()), '{"a": 1}', ("", [("f", '{"a": 1}')], "tool_calls")),
    "nothing": (tagged, "", ("", [], "stop")),
}


@pytest.mark.parametrize("case", CASES)
def test_calls_are_found_however_the_text_comes_in_pieces(case: str) -> None:
    new, text, expected = CASES[case]
    assert found(new(), [text]) == expected
    assert found(new(), list(text)) == expected
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1, 3):
            cuts = [0, first, second, len(text)]
            assert found(new(), [text[a:b] for a, b in pairwise(cuts)]) == expected, cuts


def test_an_answer_that_was_cut_is_said_to_be_cut() -> None:
    parser = tagged()
    parser.feed(f"<tool_call>{A}</tool_call>")
    parser.finish()
    assert parser.reason("length") == "length"


def test_text_is_held_back_only_while_it_may_be_the_beginning_of_a_call() -> None:
    parser = tagged()
    assert parser.feed("Hello <")[0] == "Hello"
    assert parser.feed("b>")[0] == " <b>"
    assert parser.feed("<tool_cal")[0] == ""
    assert parser.feed("m")[0] == "<tool_calm"


def test_arguments_of_a_call_that_must_be_made_are_told_as_they_come() -> None:
    parser = Arguments("f", numbered())
    told = [call.as_delta() for piece in ('{"a"', ": 1}") for call in parser.feed(piece)[1]]
    assert told == [
        {"index": 0, "id": "call_0", "type": "function", "function": {"name": "f", "arguments": '{"a"'}},
        {"index": 0, "function": {"arguments": ": 1}"}},
    ]
