"""Runs a recording through the core again and compares what it decides."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import msgspec

from headway.core.effects import Effect
from headway.core.events import Event
from headway.core.units import Instant
from headway.runtime.codec import Call, NotARecording, decode_call, decode_header, decode_snapshot


class Replayable(Protocol):
    def handle(self, events: Sequence[Event], now: Instant) -> list[Effect]: ...

    def check(self) -> None: ...


Restore: TypeAlias = Callable[[dict[str, Any]], Replayable]


class Difference(msgspec.Struct, frozen=True):
    """line: of the file, from 1. problem: one sentence. recorded, replayed: the effects, or what was raised."""

    line: int
    call: Call
    problem: str
    recorded: list[str]
    replayed: list[str]


class Report(msgspec.Struct):
    """span: nanoseconds from the first call to the last.  cut_off: the last line is incomplete (the server was killed).
    raised: the recording ends with this error, and so did the replay."""

    path: str
    headway: str
    calls: int = 0
    span: int = 0
    events: Counter[str] = msgspec.field(default_factory=Counter)
    effects: Counter[str] = msgspec.field(default_factory=Counter)
    cut_off: bool = False
    raised: str = ""
    difference: Difference | None = None


def replay(path: Path, restore: Restore, check_every: int = 1) -> Report:
    """Stops at the first difference. check_every: calls between two checks of the core's invariants.

    Raises NotARecording, OSError.
    """
    with path.open("rb") as file:
        lines = iter(file)
        header = decode_header(next(lines, b""))
        core = restore(decode_snapshot(next(lines, b"")).snapshot)
        report = Report(str(path), header.headway)
        first: Instant | None = None
        for number, call in _calls(lines, report):
            first = call.now if first is None else first
            report.span = call.now - first
            report.calls += 1
            report.events.update(type(event).__name__ for event in call.events)
            report.effects.update(type(effect).__name__ for effect in call.effects)
            report.difference = _compare(core, number, call, report.calls % check_every == 0)
            if report.difference is not None:
                break
            report.raised = call.raised
    return report


def _calls(lines: Iterable[bytes], report: Report) -> Iterator[tuple[int, Call]]:
    for number, line in enumerate(lines, start=3):
        if not line.endswith(b"\n"):
            report.cut_off = True
            return
        try:
            call = decode_call(line)
        except NotARecording as error:
            raise NotARecording(f"line {number}: {error}") from None
        yield number, call


def _compare(core: Replayable, line: int, call: Call, check: bool) -> Difference | None:
    recorded = [call.raised] if call.raised else [repr(effect) for effect in call.effects]
    try:
        effects = core.handle(call.events, call.now)
        if check:
            core.check()
    except Exception as error:  # whatever it raises is the result that is compared
        if repr(error) == call.raised:
            return None
        return Difference(line, call, "the core raised, other than recorded", recorded, [repr(error)])
    if call.raised:
        problem = "the core had raised, and does not now"
        return Difference(line, call, problem, recorded, [repr(effect) for effect in effects])
    if effects != call.effects:
        problem = "the core decided otherwise"
        return Difference(line, call, problem, recorded, [repr(effect) for effect in effects])
    return None
