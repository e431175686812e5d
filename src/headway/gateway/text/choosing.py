"""Which tools an answer may call, must call, and how its calls are written: the model's template says the last."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from headway.gateway.errors import BadRequest
from headway.gateway.text.bodies import ChatBody, shown
from headway.gateway.text.forms import Asked
from headway.gateway.text.languages import Language
from headway.gateway.text.messages import checked_tools
from headway.gateway.text.tools import Arguments, Objects, Tagged, ToolParser

NewParser = Callable[[], ToolParser | None]
TOOL_TEMPLATE = "tool_use"


def check_choice(body: ChatBody) -> None:
    """Quick, and without the model. Raises BadRequest."""
    tools = checked_tools(body.tools)
    choice = body.tool_choice
    if choice is None or choice in ("none", "auto"):
        if choice == "auto" and not tools:
            raise BadRequest("tool_choice is 'auto', and there are no tools", param="tool_choice")
        return
    if isinstance(choice, str) and choice != "required":
        raise BadRequest(
            f"tool_choice is {shown(choice)!r}; known are 'none', 'auto', 'required', or a function by its name",
            param="tool_choice",
        )
    if not tools:
        raise BadRequest("tool_choice asks for a call, and there are no tools", param="tool_choice")
    if isinstance(choice, dict):
        _named(choice, tools)


def form_of(body: ChatBody) -> Asked | None:
    """What a call that must be made has for a form: JSON, whatever the model would write by itself."""
    tools = body.tools or []
    if isinstance(body.tool_choice, dict):
        return Asked("tool_choice", "schema", _parameters(_named(body.tool_choice, tools)))
    if body.tool_choice != "required":
        return None
    calls = [
        {
            "type": "object",
            "properties": {"name": {"const": tool["function"]["name"]}, "parameters": _parameters(tool["function"])},
            "required": ["name", "parameters"],
            "additionalProperties": False,
        }
        for tool in tools
    ]
    most = {"maxItems": 1} if body.parallel_tool_calls is False else {}
    return Asked("tool_choice", "schema", {"type": "array", "items": {"anyOf": calls}, "minItems": 1, **most})


def parser_of(body: ChatBody, language: Language) -> NewParser:
    """Of one answer. Raises BadRequest where the model cannot be told of tools, or its calls not be read."""
    if not body.tools or body.tool_choice == "none":
        return lambda: None
    kind = kind_of(language.templates)
    if kind is None:
        raise BadRequest(
            "tools: the model's chat template has no place for them; send tool_choice: 'none', or another model",
            param="tools",
        )
    most = 1 if body.parallel_tool_calls is False else None
    if isinstance(body.tool_choice, dict):
        name = _named(body.tool_choice, body.tools)["name"]
        return lambda: Arguments(name)
    if body.tool_choice == "required":
        return lambda: Objects(most, around=" \t\r\n[],", tag="")
    return lambda: kind(most)


def kind_of(templates: Mapping[str, str]) -> type[Tagged] | type[Objects] | None:
    """How calls are written by a model with these templates; None where they say nothing of tools."""
    source = templates.get(TOOL_TEMPLATE) or templates.get("default", "")
    if "tools" not in source:
        return None
    if "<tool_call>" in source:
        return Tagged
    return Objects


def _named(choice: dict[str, Any], tools: list[dict[str, Any]]) -> dict[str, Any]:
    """The function that must be called."""
    told = choice.get("function")
    name = told.get("name") if isinstance(told, dict) else choice.get("name")
    if choice.get("type", "function") != "function" or not isinstance(name, str):
        raise BadRequest(
            'tool_choice must be a text, or {"type": "function", "function": {"name": ...}}', param="tool_choice"
        )
    for tool in tools:
        if tool["function"]["name"] == name:
            function: dict[str, Any] = tool["function"]
            return function
    raise BadRequest(f"tool_choice names {shown(name)!r}, which is none of the tools", param="tool_choice")


def _parameters(function: dict[str, Any]) -> Any:
    told = function.get("parameters") or {}
    return told if json.dumps(told) != "{}" else {"type": "object", "properties": {}, "additionalProperties": False}
