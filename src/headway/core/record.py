"""`record`: the class decorator of everything that enters or leaves the core.

A record is immutable as the type checker sees it and a plain slotted dataclass at run time:
`frozen=True` would make each construction three to five times slower, and the hot path builds
several records per request.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar, dataclass_transform

T = TypeVar("T")

if TYPE_CHECKING:

    @dataclass_transform(frozen_default=True)
    def record(cls: type[T]) -> type[T]: ...

else:
    record = dataclass(slots=True)
