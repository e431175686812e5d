"""From bytes to whole requests, within limits. The parser is httptools; the `on_...` methods are its callbacks."""

from __future__ import annotations

from collections.abc import Callable

import httptools

from headway.config.settings import Limits
from headway.gateway import compression
from headway.gateway.budget import BodyBudget, Reservation
from headway.gateway.compression import Inflater
from headway.gateway.errors import (
    BadRequest,
    BodyTooLarge,
    ExpectationFailed,
    HeadersTooLarge,
    HeadwayError,
    HttpVersionUnsupported,
    MalformedHttp,
    NotImplementedHere,
    TooManyBodies,
    UnsupportedEncoding,
    UriTooLong,
)
from headway.gateway.exchange import Request
from headway.gateway.router import path_of

MAX_TARGET = 8 * 1024
"""Bytes of path and query."""
MAX_HEADERS = 128
"""Header lines of one request."""
BUSY_RETRY = 1_000_000_000
"""Nanoseconds after which one may try again where too many bodies are being read."""
SMALL_PIECE = 4096
"""Bytes; smaller pieces of a body are put together at once: as objects they would take many times their size."""
SMALL_BODY = 64 << 10
"""Bytes that are read from anybody before it is looked at whose they are."""
CHUNK_OVERHEAD = 16
"""Bytes around each chunk of a chunked body that nobody minds."""
TAKEN = ((b"accept-encoding", b"gzip, deflate"),)
BINARY = b"inference-header-content-length"
"""The header that tells tensors in binary from JSON."""
IDLE, HEADERS, BODY = 0, 1, 2


class Refused(Exception):
    """What came can not be answered in the ordinary way: reply with this error, then close."""

    def __init__(self, error: HeadwayError) -> None:
        super().__init__(error.message)
        self.error = error


class Reader:
    """received: gets each whole request (without id and time), and with it the reservation for its body.

    mark: changes with every change of state. budget: of all connections together.
    """

    def __init__(self, limits: Limits, received: Callable[[Request], None], budget: BodyBudget) -> None:
        self.method = b""
        self.mark = 0
        self.wants_continue = False
        self._received = received
        self._max_body = int(limits.max_body_mb * (1 << 20))
        self._max_json = min(self._max_body, int(limits.max_json_mb * (1 << 20)))
        self._max_header = limits.max_header_kb << 10
        self._state = IDLE
        self._parser = httptools.HttpRequestParser(self)
        self._unparsed = 0
        self._offered_upgrade = False
        self._body: list[bytes | bytearray] = []
        self._inflater: Inflater | None = None
        self._budget = budget
        self._reservation: Reservation | None = None
        self._begin()

    def abandon(self) -> None:
        """What was being read is of no use any more."""
        self.wants_continue = False
        self._body = []
        self._inflater = None
        if self._reservation is not None:
            self._reservation.release()
            self._reservation = None

    def _begin(self) -> None:
        self.abandon()
        self.method = b""
        self.target = b""
        self._version = ""
        self._headers: dict[bytes, bytes] = {}
        self._header_bytes = 0
        self._header_count = 0
        self._body_bytes = 0
        self._pieces = 0
        self._size = 0

    @property
    def in_headers(self) -> bool:
        return self._state == HEADERS

    @property
    def in_body(self) -> bool:
        return self._state == BODY

    @property
    def mid_request(self) -> bool:
        return self._state != IDLE

    def feed(self, data: bytes) -> None:
        """Raises Refused."""
        while data:
            data = self._parse(data)
        if self._state == HEADERS:
            if self._unparsed > self._max_header:
                raise Refused(self._headers_too_large())
        elif self._state == BODY:
            self._check_overhead()

    def end(self) -> None:
        """Nothing more will come. Raises Refused in the middle of a request."""
        if self._state == HEADERS:
            raise Refused(MalformedHttp("the connection was closed by the client before the headers ended"))
        if self._state == BODY:
            declared = self._headers.get(b"content-length")
            of = f" of {int(declared)}" if declared else ""
            raise Refused(
                MalformedHttp(f"the connection was closed by the client after {self._body_bytes}{of} bytes of the body")
            )

    def _check_overhead(self) -> None:
        """Chunk extensions are read and not used: they could go on for ever."""
        allowed = self._max_header + CHUNK_OVERHEAD * self._pieces
        if self._unparsed - self._body_bytes > allowed:
            raise Refused(MalformedHttp(f"more than {allowed} bytes beside the data of {self._pieces} chunk(s)"))

    def _parse(self, data: bytes) -> bytes:
        """What is left to be parsed by another parser."""
        self._unparsed += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            return self._decline_upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserCallbackError as error:
            if error.__context__ is None:
                raise
            raise error.__context__ from None
        except httptools.HttpParserError as error:
            raise Refused(MalformedHttp(f"not a valid HTTP/1.1 request: {error}")) from None
        return b""

    def _decline_upgrade(self, rest: bytes) -> bytes:
        """An offer to change the protocol may be ignored (RFC 9110, 7.8): its request is answered as any other.

        The parser has stopped after the headers. It takes a body only for a request without such an offer, so
        one with a body is put to a new parser again, without the offer.
        """
        self._parser = httptools.HttpRequestParser(self)
        if not self._offered_upgrade:
            return b"" if self.method == b"CONNECT" else rest
        self._offered_upgrade = False
        headers = dict(self._headers)
        del headers[b"upgrade"]
        if headers.pop(b"connection", b"").lower().endswith(b"close"):
            headers[b"connection"] = b"close"
        lines = b"".join(b"%b: %b\r\n" % header for header in headers.items())
        return b"%b %b HTTP/1.1\r\n%b\r\n%b" % (self.method, self.target, lines, rest)

    def _headers_too_large(self) -> HeadersTooLarge:
        return HeadersTooLarge(f"the request line and headers take more than {self._max_header} bytes")

    # -- callbacks, in the order in which they come -----------------------------------------------

    def on_message_begin(self) -> None:
        self._begin()
        self._state = HEADERS
        self.mark += 1
        self._unparsed = 0  # at most one read is not counted here, and all of it is once it is parsed

    def on_url(self, data: bytes) -> None:
        self.target += data
        if len(self.target) > MAX_TARGET:
            raise Refused(UriTooLong(f"the request target takes more than {MAX_TARGET} bytes"))

    def on_header(self, name: bytes, value: bytes) -> None:
        self._header_bytes += len(name) + len(value) + 4
        self._header_count += 1
        if self._header_bytes + len(self.target) > self._max_header:
            raise Refused(self._headers_too_large())
        if self._header_count > MAX_HEADERS:
            raise Refused(HeadersTooLarge(f"more than {MAX_HEADERS} headers"))
        if self._state == BODY:
            return  # trailers are read and not used
        name = name.lower()
        if name in self._headers:
            if name == b"host":
                raise Refused(MalformedHttp("two Host headers"))
            value = self._headers[name] + b", " + value
        self._headers[name] = value

    def on_headers_complete(self) -> None:
        self._state = BODY
        self.mark += 1
        self._unparsed = 0
        self.method = self._parser.get_method()
        version = self._version = self._parser.get_http_version()
        headers = self._headers
        if version != "1.1" and version != "1.0":
            raise Refused(HttpVersionUnsupported(f"HTTP/{version} is not spoken here, HTTP/1.1 is"))
        if version == "1.1" and b"host" not in headers:
            raise Refused(MalformedHttp("an HTTP/1.1 request needs a Host header"))
        length = headers.get(b"content-length")
        if length is not None and int(length) > self._max_json:
            self._check_size(int(length))
        self._check_codings(version)
        expectation = headers.get(b"expect")
        if expectation is not None:
            if expectation.lower() != b"100-continue":
                raise Refused(
                    ExpectationFailed(f"expected 'Expect: 100-continue', got {expectation.decode('latin-1')!r}")
                )
            self.wants_continue = version == "1.1"
        if self._has_body():
            self._ask_admission(int(length or 0))
            self._reservation = Reservation(self._budget)
            self._reserve(0 if self._inflater is not None else int(length or 0))

    def _ask_admission(self, length: int) -> None:
        """length: 0 = not known. What is unpacked may be any size."""
        if self._budget.admit is not None and (self._inflater is not None or not 0 < length <= SMALL_BODY):
            try:
                self._budget.admit(self._headers)
            except HeadwayError as error:
                raise Refused(error) from None

    def _reserve(self, count: int) -> None:
        """Before the bytes are kept, and before they are asked for where the client says how many there will be."""
        if self._reservation is not None and not self._reservation.grow(count):
            bound = self._budget.bound
            raise Refused(
                TooManyBodies(f"bodies of {bound} bytes may be read at a time, all together", retry_after=BUSY_RETRY)
            )

    def _check_codings(self, version: str) -> None:
        transfer = self._headers.get(b"transfer-encoding")
        if transfer is not None:
            if version == "1.0":
                raise Refused(MalformedHttp("Transfer-Encoding in an HTTP/1.0 request"))
            if transfer.lower() != b"chunked":
                raise Refused(
                    NotImplementedHere(f"transfer coding {transfer.decode('latin-1')!r} is not supported, 'chunked' is")
                )
        coding = self._headers.get(b"content-encoding")
        if coding is not None and coding.lower() != b"identity":
            name = compression.known(coding)
            if name is None:
                raise Refused(
                    UnsupportedEncoding(
                        f"expected 'Content-Encoding: gzip' or 'deflate', got {coding.decode('latin-1')!r}",
                        headers=TAKEN,
                    )
                )
            self._inflater = Inflater(name)

    def _has_body(self) -> bool:
        return b"transfer-encoding" in self._headers or self._headers.get(b"content-length", b"0") != b"0"

    def on_body(self, data: bytes) -> None:
        self._body_bytes += len(data)
        self._pieces += 1
        if self._inflater is not None:
            self._inflate(self._inflater, data)
            return
        if self._body_bytes > self._max_json:
            self._check_size(self._body_bytes)
        if b"content-length" not in self._headers:
            self._reserve(len(data))
        if self._body:
            self._keep(data)
        else:
            self._body.append(data)

    def _inflate(self, inflater: Inflater, data: bytes) -> None:
        """Piece by piece: each is counted before it is kept, and too much of it is noticed before it is made."""
        try:
            for piece in inflater.feed(data):
                self._size += len(piece)
                if self._size > self._max_json:
                    self._check_size(self._size)
                self._reserve(len(piece))
                self._keep(piece)
        except BadRequest as error:
            raise Refused(error) from None

    def _keep(self, data: bytes) -> None:
        body = self._body
        if not body or len(data) >= SMALL_PIECE:
            body.append(data)
        elif isinstance(body[-1], bytearray):
            body[-1] += data
        else:
            body.append(bytearray(data))

    def _check_size(self, size: int) -> None:
        """size: of the body so far as the model gets it, decompressed; more than JSON may have."""
        if size > self._max_body:
            raise Refused(BodyTooLarge(f"the body has {size} bytes or more, the most is {self._max_body}"))
        header = self._headers.get(BINARY) if path_of(self.target).rstrip(b"/").endswith(b"/infer") else None
        if header is None:
            raise Refused(
                BodyTooLarge(
                    f"the body has {size} bytes or more, as JSON the most is {self._max_json}: send the tensors of an "
                    f"infer request this large in binary (Inference-Header-Content-Length), up to {self._max_body}"
                )
            )
        if not header.isdigit() or int(header[:20]) > self._max_json:
            raise Refused(
                BodyTooLarge(
                    f"expected 'Inference-Header-Content-Length' of at most {self._max_json} for a body of {size} "
                    f"bytes or more, got {header[:40].decode('latin-1')!r}"
                )
            )

    def on_message_complete(self) -> None:
        if b"upgrade" in self._headers and self._parser.should_upgrade() and self._has_body():
            self._offered_upgrade = True
            return
        if self._inflater is not None:
            try:
                self._inflater.finish()
            except BadRequest as error:
                raise Refused(error) from None
        self._state = IDLE
        self.mark += 1
        self._unparsed = 0
        self.wants_continue = False
        request = Request(self.method, self.target, self._headers, self._version)
        request.body = bytes(self._body[0]) if len(self._body) == 1 else b"".join(self._body)
        request.reservation, self._reservation = self._reservation, None
        request.keep_alive = self._parser.should_keep_alive() and self.method != b"CONNECT"
        self._body = []
        self._received(request)
