"""One line in the log for each reply: who asked what, and what became of it. No header, no query."""

from __future__ import annotations

import logging

from headway.gateway.exchange import Request, Stream
from headway.gateway.router import path_of

log = logging.getLogger("headway.access")

GONE = 499
MOST = 200
"""Characters of a path or a tenant that a line has."""


class AccessLog:
    """now: monotonic nanoseconds."""

    def written(self, request: Request, now: int) -> None:
        reply = request.reply
        if reply is not None:
            sent = 0 if request.method == b"HEAD" else reply.sent if isinstance(reply, Stream) else len(reply.body)
            self._tell(request, reply.status, sent, now)

    def gone(self, request: Request, now: int) -> None:
        """The client went away before it had its reply."""
        self._tell(request, GONE, 0, now)

    def _tell(self, request: Request, status: int, sent: int, now: int) -> None:
        fields = {
            "client": request.peer or "-",
            "method": _shown(request.method),
            "path": _shown(path_of(request.target)),
            "status": status,
            "bytes": sent,
            "ms": round((now - request.received) / 1_000_000, 3) if request.received else 0.0,
            "tenant": _shown(request.tenant.encode("latin-1", "replace")),
        }
        line = '%s "%s %s" %d %d bytes %.3f ms tenant=%s'
        log.info(line, *fields.values(), extra={"request_id": request.id, "fields": fields})


def _shown(raw: bytes) -> str:
    """Nothing that could pass for another field or another line."""
    text = raw[:MOST].decode("latin-1")
    return "".join(c if c.isascii() and c.isprintable() and c not in '" ' else "?" for c in text) or "-"
