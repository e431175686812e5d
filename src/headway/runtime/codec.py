"""The lines of a recording. JSON, one line each; every record is [class name, {field: value}].

    {"format": 1, "headway": "0.1.0"}                     first line
    {"snapshot": {...}}                                   second: the core before the next line
    [now, [event, ...], [effect, ...]]                    one call of the core
    [now, [event, ...], null, "what it raised"]           the last call of a core that broke

Classes are restored exactly, NamedTuples and Enums included. A field that a newer version has added
takes its default, so that old recordings stay readable.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar, get_args

import msgspec

from headway.core.effects import Effect
from headway.core.events import Event
from headway.core.units import Instant

FORMAT = 1

EVENTS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Event)}
EFFECTS: dict[str, type[Any]] = {kind.__name__: kind for kind in get_args(Effect)}

T = TypeVar("T")

_encoder = msgspec.json.Encoder()


class NotARecording(ValueError):
    """The file is none, or not one that this version can read; the message says why."""


class Header(msgspec.Struct, frozen=True):
    """headway: the version that wrote it."""

    format: int
    headway: str


class Snapshot(msgspec.Struct, frozen=True):
    snapshot: dict[str, Any]


class Call(msgspec.Struct, frozen=True):
    """One call of the core. raised: what it raised instead of returning effects, else ""."""

    now: Instant
    events: list[Event]
    effects: list[Effect]
    raised: str = ""


def encode_call(now: Instant, events: Sequence[Event], effects: Sequence[Effect]) -> bytes:
    return _encoder.encode((now, _named(events), _named(effects)))


def encode_raised(now: Instant, events: Sequence[Event], error: BaseException) -> bytes:
    return _encoder.encode((now, _named(events), None, repr(error)))


def encode(line: Header | Snapshot) -> bytes:
    return _encoder.encode(line)


def decode_header(line: bytes) -> Header:
    header = _decode(line, Header)
    if header.format != FORMAT:
        raise NotARecording(
            f"recording format {header.format}, expected {FORMAT} (written by headway {header.headway})"
        )
    return header


def decode_snapshot(line: bytes) -> Snapshot:
    return _decode(line, Snapshot)


def decode_call(line: bytes) -> Call:
    raw = _decode(line, list[Any])
    if len(raw) not in (3, 4):
        raise NotARecording(f"a line of {len(raw)} elements, expected 3 or 4")
    now, events, effects = raw[0], raw[1], raw[2] or []
    return Call(
        now=int(now),
        events=[_restore(item, EVENTS) for item in events],
        effects=[_restore(item, EFFECTS) for item in effects],
        raised=str(raw[3]) if len(raw) == 4 else "",
    )


def _named(records: Sequence[Any]) -> list[tuple[str, Any]]:
    return [(type(record).__name__, record) for record in records]


def _restore(item: Any, kinds: dict[str, type[Any]]) -> Any:
    try:
        name, fields = item
        return msgspec.convert(fields, kinds[name])
    except (KeyError, TypeError, ValueError) as error:
        raise NotARecording(f"cannot restore {item!r}: {error!r}") from None


def _decode(line: bytes, kind: type[T]) -> T:
    try:
        return msgspec.json.decode(line, type=kind)
    except msgspec.MsgspecError as error:
        raise NotARecording(f"{error} in {line[:80]!r}") from None
