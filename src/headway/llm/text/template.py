"""Chat templates: messages to a prompt, as the model wants it, in jinja2's sandbox.

A template is the model's, and what it works on is the client's, so neither may stop the process: `limits` bounds the
loops, the size of what is made and the time. What remains is what a single call into C can take within those bounds.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser

from headway.llm.text.limits import Budget, BudgetSpent, Limited, Limits, limited

Message = Mapping[str, Any]
DEFAULT, WITH_TOOLS = "default", "tool_use"
TAKEN = ("messages", "tools", "documents", "add_generation_prompt")
"""Names that a client's own values for the template may not have."""


LONGEST_ERROR = 500


class TemplateError(ValueError):
    """No prompt comes of it; the message has the template's own words, or what was wrong in which line of it.
    of_model: True where the template itself is at fault, or takes too much; else the messages are not what it works on.
    """

    def __init__(self, message: str, of_model: bool = False) -> None:
        super().__init__(message if len(message) <= LONGEST_ERROR else message[:LONGEST_ERROR] + " ...")
        self.of_model = of_model


class ChatTemplate:
    """A model's templates, compiled once. From any thread."""

    def __init__(
        self,
        templates: Mapping[str, str],
        names: Mapping[str, str],
        limits: Limits | None = None,
        today: Callable[[], datetime] = datetime.now,
    ) -> None:
        """templates: by name, "default" and perhaps "tool_use".  names: what they call special tokens.  today: what
        templates that tell the model the date are told. Raises TemplateError for one that is not well formed."""
        self._limits = limits or Limits()
        self._names = dict(names)
        self._today = today
        self._sources = dict(templates)
        self._compiled = {name: self._compile(name, source) for name, source in templates.items()}

    def __bool__(self) -> bool:
        return bool(self._compiled)

    def render(
        self,
        messages: Sequence[Message],
        tools: Sequence[Mapping[str, Any]] | None = None,
        add_generation_prompt: bool = True,
        **values: Any,
    ) -> str:
        """values: what else the template is to see (`chat_template_kwargs`). Raises TemplateError."""
        name = WITH_TOOLS if tools and WITH_TOOLS in self._compiled else DEFAULT
        template = self._compiled.get(name)
        if template is None:
            raise TemplateError("the model has no chat template", of_model=True)
        if taken := [name for name in values if name in TAKEN]:
            raise TemplateError(f"{taken[0]} is not for chat_template_kwargs")
        shown = _shown(messages, self._sources[name])
        context = {**self._names, **values, "messages": shown, "tools": list(tools) if tools else None}
        context |= {"documents": values.get("documents"), "add_generation_prompt": add_generation_prompt}
        budget = Budget(self._limits)
        try:
            with budget:
                return budget.joined(template.generate(context))
        except _Raised as error:
            raise TemplateError(f"the chat template refuses it: {error}") from None
        except BudgetSpent as error:
            raise TemplateError(f"the chat template was stopped: {error}", of_model=True) from None
        except RecursionError:
            raise TemplateError("the chat template was stopped: it calls itself too deeply", of_model=True) from None
        except (jinja2.TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
            raise TemplateError(f"the chat template fails{_line(error)}: {type(error).__name__}: {error}") from None
        except MemoryError:
            raise TemplateError("the chat template was stopped: it takes too much memory", of_model=True) from None

    def _compile(self, name: str, source: str) -> jinja2.Template:
        environment = Limited(
            trim_blocks=True, lstrip_blocks=True, extensions=[_Generation, loopcontrols], cache_size=0, autoescape=False
        )
        environment.filters["tojson"] = limited("tojson", _to_json)
        environment.globals["raise_exception"] = _raise
        environment.globals["strftime_now"] = lambda form: self._today().strftime(form)
        try:
            return environment.from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise TemplateError(
                f"chat template {name!r}, line {error.lineno}: {error.message}", of_model=True
            ) from None
        except (RecursionError, MemoryError):
            raise TemplateError(f"chat template {name!r} is nested too deeply", of_model=True) from None


class _Generation(Extension):
    """`{% generation %}`, by which templates mark, for training, what the model is to say: here just its contents."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> nodes.Node:
        line = next(parser.stream).lineno
        body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
        return nodes.Scope(body, lineno=line)


class _Raised(jinja2.TemplateError):
    """By the template's own raise_exception."""


def _raise(message: object = "") -> None:
    raise _Raised(str(message))


def _to_json(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Without the escapes for HTML that jinja2's own has."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _line(error: BaseException) -> str:
    """Where in the template: the traceback's last line in it."""
    line, trace = None, error.__traceback__
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == "<template>":
            line = trace.tb_lineno
        trace = trace.tb_next
    return f" in line {line}" if line is not None else ""


def _shown(messages: Sequence[Message], source: str) -> list[dict[str, Any]]:
    """Messages as most templates want them: text that comes in parts as one string, and the role `developer`, which few
    know, as the `system` that it replaces."""
    return [dict(_role(message, source), **_content(message, number)) for number, message in enumerate(messages)]


def _role(message: Message, source: str) -> Message:
    if message.get("role") == "developer" and "developer" not in source:
        return {**message, "role": "system"}
    return message


def _content(message: Message, number: int) -> dict[str, Any]:
    content = message.get("content")
    if not isinstance(content, list):
        return {}
    return {"content": "\n".join(_texts(content, number))}


def _texts(parts: Sequence[Any], number: int) -> Iterator[str]:
    for part in parts:
        if isinstance(part, str):
            yield part
            continue
        kind = part.get("type") if isinstance(part, Mapping) else None
        if kind not in ("text", "input_text", "refusal") or not isinstance(part.get(kind, part.get("text")), str):
            raise TemplateError(f"messages[{number}].content has a part of type {kind!r}; this model takes text")
        yield part.get(kind, part.get("text"))
