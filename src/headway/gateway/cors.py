"""Cross-origin requests (the Fetch standard): which pages a browser lets read our replies."""

from __future__ import annotations

from collections.abc import Sequence

from headway.gateway.exchange import Request, Response

ANY = "*"
METHODS = b"GET, HEAD, POST"
EXPOSED = (
    b"x-request-id, retry-after, x-should-retry, x-headway-served-by, idempotency-replayed, "
    b"inference-header-content-length"
)
MAX_AGE_S = b"600"
DEFAULT_HEADERS = b"authorization, content-type"

Headers = tuple[tuple[bytes, bytes], ...]


class Cors:
    """origins: as browsers send them; "*" = all. Credentials are never allowed."""

    def __init__(self, origins: Sequence[str]) -> None:
        self._any = ANY in origins
        self._origins = dict.fromkeys(origin.encode() for origin in origins)

    def preflight(self, request: Request) -> Response | None:
        """The answer to a browser that asks before it sends the request itself; None = it is none such."""
        headers = request.headers
        if request.method != b"OPTIONS" or b"origin" not in headers:
            return None
        if b"access-control-request-method" not in headers or not self._allows(headers[b"origin"]):
            return None
        wanted = headers.get(b"access-control-request-headers", DEFAULT_HEADERS)
        allowed = (
            (b"access-control-allow-methods", METHODS),
            (b"access-control-allow-headers", wanted),
            (b"access-control-max-age", MAX_AGE_S),
        )
        return Response(200, headers=allowed)

    def headers(self, request: Request) -> Headers:
        """What every reply has beyond its own headers."""
        origin = request.headers.get(b"origin")
        varies: Headers = () if self._any else ((b"vary", b"origin"),)
        if origin is None or not self._allows(origin):
            return varies
        allowed = b"*" if self._any else origin
        return (
            (b"access-control-allow-origin", allowed),
            (b"access-control-expose-headers", EXPOSED),
            *varies,
        )

    def _allows(self, origin: bytes) -> bool:
        return self._any or origin in self._origins
