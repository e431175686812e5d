"""What another reading of the configuration changes at once, and what only a restart brings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, TypeVar

import msgspec

from headway.config.check import join
from headway.config.settings import ModelSettings, Settings

S = TypeVar("S", bound=msgspec.Struct)

OF_FILE = ("tenant_header", "unknown_tenants", "tenants", "other_tenants", "scheduling")
OF_SERVER = ("require_keys", "admin_keys", "allow_remote_admin")
OF_MODEL = ("slo_ms", "fallback", "idempotent", "max_attempts", "hang_s", "quarantine_s", "batching")
FIXED_SIZES = ("max_batch_size", "max_batch_tokens")
"""Of [batching], where every batch has a fixed size: that was made and tried when the model was loaded."""


class Change(NamedTuple):
    """changed: places of what holds from now on.  needs_restart: of what would need one."""

    changed: list[str]
    needs_restart: list[str]


def of_settings(old: Settings, new: Settings) -> tuple[Settings, Change]:
    """The settings in force from now on. Models are compared version by version: `of_model`."""
    merged = taken(old, new, OF_FILE)
    merged = msgspec.structs.replace(merged, server=taken(old.server, new.server, OF_SERVER), models=new.models)
    return merged, Change(list(differences(old, merged, ("models",))), list(differences(merged, new, ("models",))))


def of_model(name: str, old: ModelSettings, new: ModelSettings) -> tuple[ModelSettings, Change]:
    merged = taken(old, new, OF_MODEL)
    if old.batch_invariant:
        merged = msgspec.structs.replace(merged, batching=taken(new.batching, old.batching, FIXED_SIZES))
    place = join("models", name)
    return merged, Change(
        [f"{place}.{at}" for at in differences(old, merged)], [f"{place}.{at}" for at in differences(merged, new)]
    )


def taken(old: S, new: S, names: tuple[str, ...]) -> S:
    """The old with some settings of the new."""
    return msgspec.structs.replace(old, **{name: getattr(new, name) for name in names})


def differences(old: object, new: object, skipped: tuple[str, ...] = ()) -> Iterator[str]:
    """Places, in their order; of a table that is only in one of them the table's own."""
    for name, (one, other) in pairs(as_table(old), as_table(new)).items():
        if name in skipped or one == other:
            continue
        if is_table(one) and is_table(other):
            yield from (f"{join('', name)}.{place}" for place in differences(one, other))
        else:
            yield join("", name)


def as_table(value: object) -> Mapping[str, object]:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.asdict(value)
    return value if isinstance(value, Mapping) else {}


def is_table(value: object) -> bool:
    return isinstance(value, msgspec.Struct | Mapping)


def pairs(one: Mapping[str, object], other: Mapping[str, object]) -> dict[str, tuple[object, object]]:
    names = dict.fromkeys([*one, *other])
    return {name: (one.get(name), other.get(name)) for name in names}
