"""A sandbox whose templates come to an end: bounded loops, bounded sizes, bounded time.

jinja2's sandbox keeps a template from what is not its own, and not from looping or making strings without end. So each
pass of a loop and each call of a macro is counted, and what makes something large out of something small (`*`, `+`,
`~`, `**`, widths, `join`, `replace`) is looked at before it is done, or its result is.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sized
from contextvars import ContextVar
from dataclasses import dataclass
from time import monotonic
from typing import Any

from jinja2 import nodes
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

TICK, JOINED = "_headway_tick", "_headway_joined"
LONG_NUMBER = re.compile(r"\d{7,}")


@dataclass(frozen=True, slots=True)
class Limits:
    """passes: of all loops, and calls, of one rendering.  size: characters of a string, items of a list, and characters
    of the prompt.  seconds: looked at every so many passes."""

    passes: int = 1_000_000
    size: int = 4_000_000
    seconds: float = 5.0


class BudgetSpent(Exception):
    """Not one of jinja2's, nor a ValueError: no template can catch it, and nobody takes it for something else."""


class Budget:
    """Of one rendering; in force within `with`, for that thread or task."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._end = clock() + limits.seconds
        self._passes = 0
        self._made = 0

    def __enter__(self) -> None:
        self._token = _current.set(self)

    def __exit__(self, *_: object) -> None:
        _current.reset(self._token)

    def tick(self) -> None:
        self._passes += 1
        if self._passes > self.limits.passes:
            raise BudgetSpent(f"its loops make more than {self.limits.passes} passes")
        if self._passes % 256 == 0:
            self._look_at_the_clock()

    def _look_at_the_clock(self) -> None:
        if self._clock() > self._end:
            raise BudgetSpent(f"it takes longer than {self.limits.seconds:g} s")

    def size(self, size: int) -> None:
        """Something so large is made. All of them together may be 16 times as large as one: that takes time too."""
        if size > self.limits.size:
            raise BudgetSpent(f"it makes something of {size} characters or items, more than {self.limits.size}")
        self._made += size
        if self._made > 16 * self.limits.size:
            raise BudgetSpent(f"what it makes comes to more than {16 * self.limits.size} characters or items")
        if size > 4096:
            self._look_at_the_clock()

    def joined(self, parts: Iterable[str]) -> str:
        kept, size = [], 0
        for part in parts:
            kept.append(part)
            size += len(part)
            if size > self.limits.size:
                raise BudgetSpent(f"the prompt is longer than {self.limits.size} characters")
            self.tick()
        return "".join(kept)


_current: ContextVar[Budget] = ContextVar("budget")


def _tick() -> str:
    _current.get().tick()
    return ""


def _joined(*parts: object) -> str:
    texts = [str(part) for part in parts]
    _current.get().size(sum(map(len, texts)))
    return "".join(texts)


class Limited(ImmutableSandboxedEnvironment):
    """Templates of it render within a `Budget` only."""

    intercepted_binops = frozenset(["*", "**", "+", "%"])

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.globals[TICK], self.globals[JOINED] = _tick, _joined
        del self.globals["lipsum"]
        self.filters = {name: limited(name, call) for name, call in self.filters.items()}

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree = super()._parse(source, name, filename)
        for loop in list(tree.find_all((nodes.For, nodes.Macro, nodes.CallBlock))):
            tick = nodes.Call(nodes.Name(TICK, "load"), [], [], None, None)
            loop.body.insert(0, nodes.Output([tick], lineno=loop.lineno))  # type: ignore[attr-defined]
        _replace_joins(tree)
        tree.set_environment(self)
        return tree

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        budget = _current.get()
        if operator == "*":
            for many, times in ((left, right), (right, left)):
                if isinstance(many, Sized) and isinstance(times, int):
                    budget.size(len(many) * max(0, times))
        elif operator == "+" and isinstance(left, Sized) and isinstance(right, Sized):
            budget.size(len(left) + len(right))
        elif operator == "**":
            _small(right)
        elif operator == "%" and isinstance(left, str):
            _no_widths(left)
        if isinstance(left, int) and isinstance(right, int) and max(left.bit_length(), right.bit_length()) > 4096:
            raise BudgetSpent("it calculates with numbers of more than 4,096 bits")
        return super().call_binop(context, operator, left, right)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped is None:
            return None

        def checked(*args: Any, **kwargs: Any) -> str:
            _no_widths(value.__self__)
            return wrapped(*args, **kwargs)

        return checked

    def call(__self, __context: Context, __obj: Any, *args: Any, **kwargs: Any) -> Any:
        """What templates call is counted, and methods of strings are looked at."""
        budget = _current.get()
        budget.tick()
        owner = getattr(__obj, "__self__", None)
        if isinstance(owner, str | bytes):
            _check_text_call(budget, owner, getattr(__obj, "__name__", ""), args)
        result = super().call(__context, __obj, *args, **kwargs)
        if isinstance(result, str | list | tuple):
            budget.size(len(result))
        return result


def _replace_joins(tree: nodes.Template) -> None:
    """`a ~ b` is a call that looks at sizes first."""
    for node in [tree, *tree.find_all(nodes.Node)]:
        for name, value in node.iter_fields():
            if isinstance(value, nodes.Concat):
                setattr(node, name, _join_of(value))
            elif isinstance(value, list):
                value[:] = [_join_of(item) if isinstance(item, nodes.Concat) else item for item in value]


def _join_of(node: nodes.Concat) -> nodes.Call:
    return nodes.Call(nodes.Name(JOINED, "load"), node.nodes, [], None, None, lineno=node.lineno)


def limited(name: str, filter_: Callable[..., Any]) -> Callable[..., Any]:
    """The same filter, its arguments and its result looked at. Attributes tell jinja2 how to call it."""
    first = 1 if hasattr(filter_, "jinja_pass_arg") else 0

    def call(*args: Any, **kwargs: Any) -> Any:
        budget = _current.get()
        budget.tick()
        given = (*args[first:], *kwargs.values())
        for value in given[1:]:
            if isinstance(value, int):
                budget.size(abs(value))
        texts = [value for value in given if isinstance(value, str)]
        if name == "format":
            _no_widths(texts[0] if texts else "")
        elif name == "replace" and len(texts) == 3:
            _check_text_call(budget, texts[0], "replace", (texts[1], texts[2]))
        elif name == "indent" and len(texts) == 2:
            budget.size(len(texts[0]) + (texts[0].count("\n") + 1) * len(texts[1]))
        elif name == "join" and isinstance(given[0], list | tuple) and isinstance(given[-1], str):
            _check_text_call(budget, given[-1], "join", (given[0],))
        result = filter_(*args, **kwargs)
        if isinstance(result, str | list | tuple):
            budget.size(len(result))
        return result

    call.__dict__.update(getattr(filter_, "__dict__", {}))
    return call


def _check_text_call(budget: Budget, owner: Any, name: str, args: tuple[Any, ...]) -> None:
    for value in args:
        if isinstance(value, int) and name in ("ljust", "rjust", "center", "zfill", "expandtabs"):
            budget.size(len(owner) * max(1, abs(value)) if name == "expandtabs" else abs(value))
    if name == "replace" and len(args) >= 2 and isinstance(args[0], str) and isinstance(args[1], str):
        times = owner.count(args[0]) if args[0] else len(owner) + 1
        budget.size(len(owner) + times * max(0, len(args[1]) - len(args[0])))
    if name == "join" and args and isinstance(args[0], list | tuple):
        budget.size(len(owner) * len(args[0]) + sum(len(item) for item in args[0] if isinstance(item, str)))


def _no_widths(form: Any) -> None:
    """No number in a format is so long that it could be a width that hurts."""
    if LONG_NUMBER.search(str(form)) or "{}" in str(form).partition(":")[2] or "*" in str(form):
        raise BudgetSpent("it formats with a width that is too great, or computed")


def _small(exponent: Any) -> None:
    if isinstance(exponent, int) and abs(exponent) > 1024:
        raise BudgetSpent(f"it calculates ** {exponent}; at most 1024")
