"""What passes between the HTTP connection and a handler: Request -> Response | Pending | Stream."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from headway.core.outcomes import Outcome
from headway.gateway.budget import Reservation

JSON = b"application/json"
EVENT_STREAM = b"text/event-stream"
STREAM_BUFFER = 1 << 20
"""Bytes that a stream holds for a slow reader before it is given up."""


class Response:
    """A whole reply. body: as it goes on the wire. headers: beyond date, type, length, connection and request id."""

    __slots__ = ("body", "content_type", "headers", "status")

    def __init__(
        self,
        status: int,
        body: bytes = b"",
        content_type: bytes = JSON,
        headers: tuple[tuple[bytes, bytes], ...] = (),
    ) -> None:
        self.status = status
        self.body = body
        self.content_type = content_type
        self.headers = headers


class Request:
    """One request, whole. received: monotonic nanoseconds at its last byte.

    headers: lower-case name -> value; a repeated header's values are joined by ", ".
    peer: address of the other end of the connection, no port; "" = not known.
    tenant: whose it was found to be; "" = it was not asked.
    on_disconnect: called once if the client goes away (or is given up) before the reply is written.
    on_written: called once when the last byte of the reply was handed to the socket.
    compressing: its reply is being compressed, by a thread.
    reservation: of room for the body, until somebody else counts it (`let_go`); None where there is no body.
    """

    __slots__ = (
        "_answered",
        "body",
        "compressing",
        "headers",
        "id",
        "keep_alive",
        "lingers",
        "method",
        "on_disconnect",
        "on_written",
        "peer",
        "received",
        "reply",
        "reservation",
        "target",
        "tenant",
        "version",
    )

    def __init__(self, method: bytes, target: bytes, headers: dict[bytes, bytes], version: str) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.version = version
        self.id = ""
        self.peer = ""
        self.tenant = ""
        self.body = b""
        self.received = 0
        self.keep_alive = False
        self.lingers = False
        self.compressing = False
        self.reply: Response | Stream | None = None
        self.reservation: Reservation | None = None
        self.on_disconnect: Callable[[], None] | None = None
        self.on_written: Callable[[], None] | None = None
        self._answered: Callable[[], None] | None = None

    def expect_reply(self, answered: Callable[[], None]) -> None:
        """answered: called when the reply comes that is not there yet."""
        self._answered = answered

    def let_go(self) -> None:
        """The body is not needed any more, or is the runtime's from here on."""
        if self.reservation is not None:
            self.body = b""
            self.reservation.release()
            self.reservation = None

    def heard(self, outcome: Outcome, begun: bool, model: str) -> None:
        """What became of it at this model, which may not be the last that is asked. begun: it may have been run."""

    def written(self) -> None:
        self._end(self.on_written)

    def disconnected(self) -> None:
        self._end(self.on_disconnect)

    def _end(self, tell: Callable[[], None] | None) -> None:
        """Lets go of who was to be told, so that no cycle is left for the garbage collector to find."""
        self.on_written = self.on_disconnect = self._answered = None
        self.let_go()
        if tell is not None:
            tell()

    def answer(self, reply: Response | Stream) -> None:
        """Give the reply. A second one is ignored: every request has one."""
        if self.reply is not None:
            return
        self.reply = reply
        self.let_go()
        if self._answered is not None:
            self._answered()


class Pending:
    """A reply that comes later: `complete` is called once, before or after the handler has returned."""

    __slots__ = ("_reply", "_request")

    def __init__(self) -> None:
        self._reply: Response | Stream | None = None
        self._request: Request | None = None

    def complete(self, reply: Response | Stream) -> None:
        if self._request is not None:
            self._request.answer(reply)
        elif self._reply is None:
            self._reply = reply

    def attach(self, request: Request) -> None:
        self._request = request
        if self._reply is not None:
            request.answer(self._reply)


class Sink(Protocol):
    """Where a stream's bytes go once it is its turn on the connection."""

    def stream_ready(self) -> None:
        """There is something to take, or the stream has ended."""

    def stream_overflowed(self) -> None:
        """The reader is too slow; nothing more will come."""


class Stream:
    """A reply in pieces. What cannot be written yet is held, up to `limit` bytes; then the client is given up.

    sent: bytes that were taken.
    source: makes bytes when they can be written, None = all that there is is sent. It is asked at each `ready`, and
        when the connection can take more; it ends the stream.
    """

    __slots__ = (
        "_held",
        "_held_bytes",
        "_sink",
        "content_type",
        "ended",
        "headers",
        "limit",
        "overflowed",
        "sent",
        "source",
        "status",
    )

    def __init__(
        self,
        content_type: bytes = EVENT_STREAM,
        headers: tuple[tuple[bytes, bytes], ...] = ((b"cache-control", b"no-cache"),),
        limit: int = STREAM_BUFFER,
    ) -> None:
        self.status = 200
        self.content_type = content_type
        self.headers = headers
        self.limit = limit
        self.ended = False
        self.overflowed = False
        self.sent = 0
        self.source: Callable[[], bytes] | None = None
        self._held: list[bytes] = []
        self._held_bytes = 0
        self._sink: Sink | None = None

    def attach(self, sink: Sink) -> None:
        self._sink = sink

    def send(self, data: bytes) -> None:
        """After the end, or for a client that was given up, this does nothing."""
        if self.ended or self.overflowed or not data:
            return
        self._held.append(data)
        self._held_bytes += len(data)
        if self._sink is not None:
            self._sink.stream_ready()
        if self._held_bytes > self.limit:
            self.give_up()

    def ready(self) -> None:
        """Its source has something."""
        if self._sink is not None and not self.ended and not self.overflowed:
            self._sink.stream_ready()

    def end(self) -> None:
        if not self.ended and not self.overflowed:
            self.ended = True
            if self._sink is not None:
                self._sink.stream_ready()

    def take(self) -> bytes:
        """Everything held, at once."""
        if self.source is not None and not self.ended:
            self._held.append(self.source())
        data = self._held[0] if len(self._held) == 1 else b"".join(self._held)
        self._held.clear()
        self._held_bytes = 0
        self.sent += len(data)
        return data

    def give_up(self) -> None:
        """The client reads too slowly, or not at all."""
        self.overflowed = True
        self._held.clear()
        if self._sink is not None:
            self._sink.stream_overflowed()


Reply: TypeAlias = Response | Stream
Handler: TypeAlias = Callable[[Request], Response | Pending | Stream]
