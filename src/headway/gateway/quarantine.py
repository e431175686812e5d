"""What operators see of content that is refused because it killed workers, and how they let it in again."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from headway.core.ids import VersionId
from headway.core.units import SECOND
from headway.gateway.errors import BadRequest
from headway.wire.messages import Quarantined


class Quarantine(NamedTuple):
    """listed: all that is in it.  lift: lets a content in again (0 = all of the version); says how many it was."""

    listed: Callable[[], Iterable[Quarantined]]
    lift: Callable[[VersionId, int], int]


def told(entry: Quarantined, now: int) -> dict[str, Any]:
    """now: of the clock that the entry's instants come from."""
    return {
        "model": entry.model,
        "version": str(entry.version),
        "content": f"{entry.content:016x}",
        "for_s": round((now - entry.since) / SECOND, 3),
        "left_s": round((entry.until - now) / SECOND, 3),
        "request": entry.request,
        "tenant": entry.tenant,
        "cause": entry.cause,
    }


def content_of(text: str) -> int:
    """Raises BadRequest."""
    try:
        content = int(text, 16)
    except ValueError:
        content = 0
    if not 0 < content < 1 << 64 or len(text) > 16:
        raise BadRequest(f"content {text[:40]!r}, expected up to 16 hexadecimal digits as GET /quarantine shows them")
    return content
