"""Messages and tools of a chat, looked at before a template sees them: its own complaints name no field."""

from __future__ import annotations

import json
from typing import Any

from headway.gateway.errors import BadRequest
from headway.gateway.text.bodies import shown

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
MOST_TOOLS = 128
LONGEST_TOOL_NAME = 64


def checked_messages(messages: list[dict[str, Any]] | None) -> list[dict[str, Any]]:
    """As templates want them: what is null is left out, and arguments of calls are objects. Raises BadRequest."""
    if not messages:
        raise BadRequest("messages is missing or empty", param="messages")
    return [_checked(message, f"messages[{number}]") for number, message in enumerate(messages)]


def _checked(message: dict[str, Any], where: str) -> dict[str, Any]:
    role = message.get("role")
    if not isinstance(role, str):
        raise BadRequest(f"{where}.role is missing or no text", param=f"{where}.role")
    if role not in ROLES:
        raise BadRequest(f"{where}.role is {shown(role)!r}; known are {', '.join(ROLES)}", param=f"{where}.role")
    seen = {name: value for name, value in message.items() if value is not None or name == "content"}
    content = message.get("content")
    calls = message.get("tool_calls")
    if content is None:
        if role != "assistant" or not (calls or message.get("function_call")):
            raise BadRequest(f"{where}.content is missing", param=f"{where}.content")
        seen["content"] = ""
    elif not isinstance(content, str | list):
        raise BadRequest(
            f"{where}.content must be a text or a list of parts, it is {_kind(content)}", param=f"{where}.content"
        )
    elif isinstance(content, list):
        _check_parts(content, where)
    if calls is not None:
        seen["tool_calls"] = _calls(calls, where)
    return seen


def _check_parts(parts: list[Any], where: str) -> None:
    for number, part in enumerate(parts):
        place = f"{where}.content[{number}]"
        if isinstance(part, str):
            continue
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in ("text", "input_text", "refusal"):
            raise BadRequest(f"{place} is of the type {shown(repr(kind))}; this server takes text", param=place)
        if not isinstance(part.get(kind, part.get("text")), str):
            raise BadRequest(f"{place}.text is missing or no text", param=f"{place}.text")


def _calls(calls: Any, where: str) -> list[dict[str, Any]]:
    if not isinstance(calls, list):
        raise BadRequest(f"{where}.tool_calls must be a list, it is {_kind(calls)}", param=f"{where}.tool_calls")
    return [_call(call, f"{where}.tool_calls[{number}]") for number, call in enumerate(calls)]


def _call(call: Any, where: str) -> dict[str, Any]:
    function = call.get("function") if isinstance(call, dict) else None
    if not isinstance(function, dict) or not isinstance(function.get("name"), str):
        raise BadRequest(f"{where}.function.name is missing or no text", param=f"{where}.function")
    arguments = function.get("arguments")
    if arguments is None or arguments == "":
        arguments = {}
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            arguments = None
    if not isinstance(arguments, dict):
        raise BadRequest(
            f"{where}.function.arguments must be a JSON object as text", param=f"{where}.function.arguments"
        )
    return {**call, "function": {**function, "arguments": arguments}}


def checked_tools(tools: list[dict[str, Any]] | None) -> list[dict[str, Any]] | None:
    """None where there are none. Raises BadRequest."""
    if not tools:
        return None
    if len(tools) > MOST_TOOLS:
        raise BadRequest(f"tools has {len(tools)} tools; at most {MOST_TOOLS} are taken", param="tools")
    for number, tool in enumerate(tools):
        where = f"tools[{number}]"
        if tool.get("type", "function") != "function":
            raise BadRequest(f"{where}.type is {shown(repr(tool['type']))}; known is 'function'", param=where)
        function = tool.get("function")
        if not isinstance(function, dict):
            raise BadRequest(f"{where}.function is missing or no object", param=f"{where}.function")
        name = function.get("name")
        if not isinstance(name, str) or not 0 < len(name) <= LONGEST_TOOL_NAME:
            raise BadRequest(
                f"{where}.function.name must be a text of 1 to {LONGEST_TOOL_NAME} characters",
                param=f"{where}.function.name",
            )
        parameters = function.get("parameters")
        if parameters is not None and not isinstance(parameters, dict):
            raise BadRequest(
                f"{where}.function.parameters must be a JSON schema, it is {_kind(parameters)}",
                param=f"{where}.function.parameters",
            )
    return tools


def _kind(value: Any) -> str:
    names = {bool: "a boolean", int: "a number", float: "a number", str: "a text", list: "a list", dict: "an object"}
    return names.get(type(value), "null")
