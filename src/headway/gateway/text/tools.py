"""Calls of tools, found in the text of an answer as it comes.

What could still become the beginning of a call is held back, and nothing else. A model that begins a call and does
not bring it to an end, or writes no JSON there, has said text: nothing of it is lost.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple
from uuid import uuid4

OPEN, CLOSE = "<tool_call>", "</tool_call>"


class Call(NamedTuple):
    """Of a tool, or a piece of one. place: among the calls of its answer.  id, name: "" where it goes on with one that
    has begun.  arguments: JSON, or the next piece of it."""

    place: int
    id: str
    name: str
    arguments: str

    def as_delta(self) -> dict[str, object]:
        if not self.id:
            return {"index": self.place, "function": {"arguments": self.arguments}}
        function = {"name": self.name, "arguments": self.arguments}
        return {"index": self.place, "id": self.id, "type": "function", "function": function}


def new_id() -> str:
    return f"call_{uuid4().hex[:24]}"


class ToolParser(ABC):
    """Of one answer.

    most: calls that are told, None = all.
    """

    def __init__(self, most: int | None = None, ids: Callable[[], str] = new_id) -> None:
        self._most = most
        self._ids = ids
        self._count = 0

    @abstractmethod
    def feed(self, text: str) -> tuple[str, list[Call]]:
        """What of it is text, and what are calls."""

    @abstractmethod
    def finish(self) -> tuple[str, list[Call]]:
        """Nothing more comes."""

    def reason(self, end: str) -> str:
        """Why the answer ended, in the API's words."""
        return "tool_calls" if self._count and end == "stop" else end

    def _called(self, name: str, arguments: str) -> list[Call]:
        if self._most is not None and self._count >= self._most:
            return []
        self._count += 1
        return [Call(self._count - 1, self._ids(), name, arguments)]


class Tagged(ToolParser):
    """`<tool_call>{"name": ..., "arguments": {...}}</tool_call>`, as Hermes and Qwen write it. Space before a call, and
    after the last, is nobody's text."""

    def __init__(self, most: int | None = None, ids: Callable[[], str] = new_id) -> None:
        super().__init__(most, ids)
        self._held = ""
        """Outside of a call: space, and what may be the beginning of one."""
        self._space = ""
        """Before the call that is open."""
        self._call: list[str] | None = None
        """Pieces of the call that is open."""
        self._tail = ""

    def feed(self, text: str) -> tuple[str, list[Call]]:
        said, calls = "", list[Call]()
        while text:
            if self._call is None:
                more, text = self._outside(text)
                said += more
            else:
                more, found, text = self._inside(text)
                said += more
                calls += found
        return said, calls

    def finish(self) -> tuple[str, list[Call]]:
        if self._call is None:
            held, self._held = self._held, ""
            return ("" if self._count and not held.strip() else held), []
        text, self._call = "".join(self._call), None
        call = read_call(text)
        if call is not None:  # the end of the turn is the end of the call, to some
            return "", self._called(*call)
        return self._space + OPEN + text, []

    def _outside(self, text: str) -> tuple[str, str]:
        """What is said, and what is left to look at."""
        held = self._held + text
        place = held.find(OPEN)
        if place >= 0:
            said = held[:place].rstrip()
            self._space, self._held = held[len(said) : place], ""
            self._call, self._tail = [], ""
            return said, held[place + len(OPEN) :]
        said = held[: len(held) - _overlap(held, OPEN)].rstrip()
        self._held = held[len(said) :]
        return said, ""

    def _inside(self, text: str) -> tuple[str, list[Call], str]:
        assert self._call is not None
        seen = self._tail + text
        place = seen.find(CLOSE)
        self._call.append(text)
        if place < 0:
            self._tail = seen[-(len(CLOSE) - 1) :]
            return "", [], ""
        left = seen[place + len(CLOSE) :]
        whole = "".join(self._call)
        body = whole[: len(whole) - len(left) - len(CLOSE)]
        self._call = None
        call = read_call(body)
        if call is None:
            return self._space + OPEN + body + CLOSE, [], left
        return "", self._called(*call), left


class Objects(ToolParser):
    """JSON objects `{"name": ..., "parameters": {...}}`, one after another, with nothing but `around` between: all of
    an answer as Llama 3 writes calls, or the array that a form made it write. What does not begin so is text."""

    def __init__(
        self,
        most: int | None = None,
        ids: Callable[[], str] = new_id,
        around: str = " \t\r\n;",
        tag: str = "<|python_tag|>",
    ) -> None:
        """tag: may come before the first."""
        super().__init__(most, ids)
        self._around = around
        self._tag = tag
        self._held = ""
        """Between objects."""
        self._object: list[str] | None = None
        """Pieces of the one that is open."""
        self._scanner = Scanner()
        self._is_text = False

    def feed(self, text: str) -> tuple[str, list[Call]]:
        calls = list[Call]()
        while text and not self._is_text:
            if self._object is None:
                text = self._between(text)
                continue
            end = self._scanner.end(text)
            self._object.append(text[:end])
            text = text[end:]
            if self._scanner.depth == 0:
                whole, self._object = "".join(self._object), None
                call = read_call(whole)
                if call is None:
                    self._is_text, self._held = True, self._held + whole
                else:
                    calls += self._called(*call)
                    self._held = ""
        if not self._is_text:
            return "", calls
        held, self._held = self._held, ""
        return held + text, calls

    def finish(self) -> tuple[str, list[Call]]:
        held, self._held = self._held, ""
        if self._object is not None:
            held += "".join(self._object)
        return ("" if self._count and not held.strip(self._around) else held), []

    def _between(self, text: str) -> str:
        """What is left to look at: an object's beginning, or nothing."""
        held = self._held + text
        begun = held.lstrip(self._around)
        if self._tag and not self._count:
            if self._tag.startswith(begun):
                self._held = held
                return ""
            begun = begun.removeprefix(self._tag).lstrip(self._around)
        if not begun:
            self._held = held
            return ""
        if begun[0] != "{":
            self._is_text, self._held = True, held
            return ""
        self._held = held[: len(held) - len(begun)]
        self._object = []
        return begun


class Arguments(ToolParser):
    """All of the answer is the arguments of one call, which are told as they come."""

    def __init__(self, name: str, ids: Callable[[], str] = new_id) -> None:
        super().__init__(None, ids)
        self._name = name

    def feed(self, text: str) -> tuple[str, list[Call]]:
        if not text:
            return "", []
        if not self._count:
            return "", self._called(self._name, text)
        return "", [Call(0, "", "", text)]

    def finish(self) -> tuple[str, list[Call]]:
        return "", []


class Scanner:
    """Finds where a JSON object ends. depth: of what is open, 0 = nothing is."""

    def __init__(self) -> None:
        self.depth = 0
        self._string = False
        self._escaped = False

    def end(self, text: str) -> int:
        """Letters of the text up to the end of the outermost object; all, where it does not end there."""
        for place, letter in enumerate(text, 1):
            if self._string:
                if self._escaped:
                    self._escaped = False
                elif letter == "\\":
                    self._escaped = True
                elif letter == '"':
                    self._string = False
            elif letter == '"':
                self._string = True
            elif letter == "{":
                self.depth += 1
            elif letter == "}":
                self.depth -= 1
                if self.depth == 0:
                    return place
        return len(text)


def read_call(text: str) -> tuple[str, str] | None:
    """Name and arguments, as JSON; None where it is no call."""
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        return None
    if not isinstance(told, dict) or not isinstance(told.get("name"), str):
        return None
    arguments = told.get("arguments", told.get("parameters", {}))
    if isinstance(arguments, str):
        return told["name"], arguments
    if not isinstance(arguments, dict):
        return None
    return told["name"], json.dumps(arguments, ensure_ascii=False)


def _overlap(text: str, mark: str) -> int:
    """The longest end of the text that properly begins the mark."""
    return next((size for size in range(min(len(text), len(mark) - 1), 0, -1) if text.endswith(mark[:size])), 0)
