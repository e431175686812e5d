"""Content codings: gzip and deflate, of bodies that come and of replies that go."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from functools import lru_cache

from headway.gateway.errors import BadRequest
from headway.gateway.exchange import Response

CODINGS = {b"gzip": 31, b"deflate": 15}
"""Name -> zlib's wbits: 31 has gzip's header, 15 zlib's. The first is preferred where a client likes both the same."""
ALIASES = {b"x-gzip": b"gzip"}
RAW = -15
"""deflate without zlib's header: wrong by RFC 9110, 8.4.1.2, and sent by enough clients to be taken."""
STEP = 1 << 16
"""Bytes that are decompressed at a time: no body grows by more before somebody looks at how large it is."""
LEVEL = 1
"""Of zlib. Higher ones take two to four times as long for a tenth less."""
INLINE = 1 << 16
"""Bytes; larger replies are compressed in a thread, for at 10 to 20 ms per MiB all others would wait."""
VARY = (b"vary", b"accept-encoding")


class Inflater:
    """Decompresses one body as it comes."""

    def __init__(self, coding: bytes) -> None:
        """coding: a name in CODINGS."""
        self._coding = coding
        self._start = b""
        self._stream: zlib._Decompress | None = None

    def feed(self, data: bytes) -> Iterator[bytes]:
        """Pieces of at most STEP bytes, made one by one. Raises BadRequest where it is not what it says."""
        if self._stream is None:
            self._start += data
            if len(self._start) < 2:
                return
            data = self._start
            self._stream = zlib.decompressobj(self._wbits(data))
        try:
            while data and not self._stream.eof:
                piece = self._stream.decompress(data, STEP)
                data = self._stream.unconsumed_tail
                if piece:
                    yield piece
        except zlib.error as error:
            raise self._malformed(str(error)) from None
        if self._stream.eof and (data or self._stream.unused_data):
            raise self._malformed("something follows its end")

    def finish(self) -> None:
        """The body is over. Raises BadRequest where the coding is not."""
        if self._start and (self._stream is None or not self._stream.eof):
            raise self._malformed("it ends too early")

    def _wbits(self, start: bytes) -> int:
        with_header = start[0] & 15 == 8 and (start[0] << 8 | start[1]) % 31 == 0
        return RAW if self._coding == b"deflate" and not with_header else CODINGS[self._coding]

    def _malformed(self, why: str) -> BadRequest:
        return BadRequest(f"Content-Encoding is {self._coding.decode()} and the body is not: {why}")


def known(coding: bytes) -> bytes | None:
    """The name by which CODINGS has what a Content-Encoding header names; None = not one that is supported."""
    name = coding.strip().lower()
    name = ALIASES.get(name, name)
    return name if name in CODINGS else None


@lru_cache(maxsize=256)
def preferred(accept: bytes) -> bytes | None:
    """The coding that an Accept-Encoding header (RFC 9110, 12.5.3) likes best; None = the reply as it is."""
    weights: dict[bytes, float] = {}
    for item in accept.lower().split(b","):
        name, *parameters = (part.strip() for part in item.split(b";"))
        weights[ALIASES.get(name, name)] = _weight(parameters)
    rest = weights.get(b"*", 0.0)
    best = max(CODINGS, key=lambda name: weights.get(name, rest))  # the first of equals
    weight = weights.get(best, rest)
    return best if weight > 0 and weight >= weights.get(b"identity", 0.0) else None


def _weight(parameters: list[bytes]) -> float:
    """q, 0 to 1; what cannot be read counts as "not this one"."""
    for parameter in parameters:
        name, _, value = parameter.partition(b"=")
        if name.strip() == b"q":
            try:
                weight = float(value)
            except ValueError:
                return 0.0
            return weight if 0 <= weight <= 1 else 0.0
    return 1.0


def compressed(reply: Response, coding: bytes | None) -> Response:
    """The reply as it goes to a client that likes this coding: marked by VARY, and compressed where that helps."""
    if coding is not None:
        try:
            body = zlib.compress(reply.body, LEVEL, wbits=CODINGS[coding])
        except MemoryError:
            body = reply.body
        if len(body) < len(reply.body):
            headers = (*reply.headers, (b"content-encoding", coding), VARY)
            return Response(reply.status, body, reply.content_type, headers)
    return Response(reply.status, reply.body, reply.content_type, (*reply.headers, VARY))
