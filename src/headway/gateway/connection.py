"""One HTTP/1 connection: bytes in, requests to the handler, replies out in the order of the requests.

Callback style, no task per request. The parser is httptools (llhttp), which itself refuses conflicting or
repeated Content-Length, Content-Length beside Transfer-Encoding, folded headers and bare line feeds.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

from headway.gateway import compression
from headway.gateway.errors import HeadwayError, RequestTimeout
from headway.gateway.exchange import Pending, Request, Response, Stream
from headway.gateway.forwarded import UNIX, TrustedProxies
from headway.gateway.presence import CONTINUE, LOOK_AFTER_S, PROBE_EVERY_S, Presence, presence, probe
from headway.gateway.reading import Reader, Refused

if TYPE_CHECKING:
    from headway.gateway.http import HttpServer

MAX_PIPELINED = 16
"""Requests of one connection that are in work at once; beyond that nothing more is read."""
WRITE_HIGH_WATER = 64 * 1024
LINGER_S = 1.0
"""How long a connection that was refused mid-request is still read, so that the client sees why."""

STATUS_LINES = {s.value: f"HTTP/1.1 {s.value} {s.phrase}\r\n".encode() for s in HTTPStatus}


class Connection:
    """An asyncio.Protocol by behaviour, not by class, so that it can be compiled to a native one (decision 31).
    The timing states are derived: lingering, mid-headers or mid-body (the reader knows), busy, idle."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._edge = server.edge
        self._transport: asyncio.Transport = cast(asyncio.Transport, None)
        self._reader = Reader(server.limits, self._received, server.bodies)
        self._queue: deque[Request] = deque()
        """Handed to the handler (or refused) and not wholly written, oldest first."""
        self._backlog: deque[Request] = deque()
        """Read beyond MAX_PIPELINED; not handed over yet."""
        self._peer = ""
        self._since = server.now
        """When the present timing state began."""
        self._mark = 0
        self._flushing = False
        self._head_written = False
        self._read_paused = False
        self._write_paused = False
        self._refusing = False
        self._lingering = False
        self._closing = False
        self._half_closed = False
        """The client sends nothing more; whether it still reads is found out by a probe."""
        self._probed = -PROBE_EVERY_S
        """When it was last probed."""
        self._proxies: TrustedProxies | None = None
        """Set where the peer is a proxy that is believed whom it speaks for."""

    # -- asyncio.Protocol -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_HIGH_WATER)
        peer = transport.get_extra_info("peername")
        self._peer = str(peer[0]) if isinstance(peer, tuple) and peer else UNIX if self._server.unix else ""
        if self._edge.proxies is not None and self._edge.proxies.trusts(self._peer):
            self._proxies = self._edge.proxies
        refusal = self._server.opened(self)
        if refusal is not None:
            self._refuse(refusal)

    def connection_lost(self, exc: Exception | None) -> None:
        self._closing = True
        access = self._edge.access
        for request in self._queue:
            request.disconnected()
            if access is not None:
                access.gone(request, self._server.clock())
        self._queue.clear()
        self._forget_unread()
        self._server.closed(self)

    def eof_received(self) -> bool:
        """The client sends nothing more. It may be gone, or it may wait for its replies: see `_probe`."""
        if self._lingering or self._closing or self._transport.get_extra_info("sslcontext") is not None:
            return False  # in TLS there is no closing by half: RFC 9112, 9.8
        self._half_closed = True
        if not self._refusing:
            try:
                self._reader.end()
            except Refused as refused:
                self._reader.abandon()
                if not self._last_request_closes():
                    self._refuse(refused.error)
        if not self._queue:
            return False
        self._probe()
        return not self._closing

    def data_received(self, data: bytes) -> None:
        if self._refusing or self._closing:
            return
        self._feed(data)
        if self._reader.mark != self._mark:
            self._mark = self._reader.mark
            self._since = self._server.now
        if self._reader.wants_continue and not self._queue and not self._refusing:
            self._reader.wants_continue = False
            self._transport.write(CONTINUE)

    def pause_writing(self) -> None:
        self._write_paused = True
        self._since = self._server.now
        self._pace_reading()

    def resume_writing(self) -> None:
        self._write_paused = False
        self._since = self._server.now
        self._flush()

    # -- reading ----------------------------------------------------------------------------------

    def _feed(self, data: bytes) -> None:
        try:
            self._reader.feed(data)
        except Refused as refused:
            self._reader.abandon()
            if not self._last_request_closes():  # what follows a "Connection: close" is nobody's
                self._refuse(refused.error)

    def _last_request_closes(self) -> bool:
        last = self._backlog or self._queue
        return bool(last) and not last[-1].keep_alive

    def _received(self, request: Request) -> None:
        if self._closing or self._refusing:
            request.let_go()
            return
        if len(self._queue) >= MAX_PIPELINED or self._backlog:
            self._backlog.append(request)
            self._pace_reading()
        else:
            self._hand_over(request)

    def _hand_over(self, request: Request) -> None:
        self._queue.append(request)
        request.id = self._server.request_id(request)
        request.peer = self._peer if self._proxies is None else self._proxies.client(self._peer, request.headers)
        request.received = self._server.clock()
        reply = self._server.handler(request)
        if isinstance(reply, Pending):
            reply.attach(request)
        else:
            request.reply = reply
            request.let_go()
        request.expect_reply(self._flush)
        self._flush()

    def _refuse(self, error: HeadwayError) -> None:
        """Answer in turn, then close: what follows in the byte stream cannot be told apart any more."""
        if self._refusing:
            return
        self._refusing = True
        self._forget_unread()
        request = Request(self._reader.method, self._reader.target, {}, "1.1")
        request.id = self._server.request_id(request)
        request.peer = self._peer
        request.lingers = True
        request.reply = self._server.on_error(error, request)
        self._queue.append(request)
        self._flush()

    def _forget_unread(self) -> None:
        """What was read beyond the requests in work, or is still being read: nobody will answer it."""
        for request in self._backlog:
            request.let_go()
        self._backlog.clear()
        self._reader.abandon()

    def _pace_reading(self) -> None:
        want = bool(self._backlog) or self._write_paused or len(self._queue) >= MAX_PIPELINED
        if want != self._read_paused and not (self._closing or self._lingering or self._half_closed):
            self._read_paused = want
            if want:
                self._transport.pause_reading()
            else:
                self._since = self._server.now  # the time that we did not read is not the client's
                self._transport.resume_reading()

    # -- writing ----------------------------------------------------------------------------------

    def _flush(self) -> None:
        """Write every reply whose turn it is. Called again from within (a handler answers at once): one loop."""
        if self._flushing or self._closing:
            return
        self._flushing = True
        try:
            while self._queue and not self._write_paused and not self._closing:
                if self._queue[0].reply is None or not self._write(self._queue[0]):
                    break
                self._finished(self._queue.popleft())
                if self._backlog and not self._closing:
                    self._hand_over(self._backlog.popleft())
        finally:
            self._flushing = False
        if self._closing:
            return
        if not self._queue and self._reader.wants_continue:
            self._reader.wants_continue = False
            self._transport.write(CONTINUE)
        self._pace_reading()
        if self._server.draining:
            self.drain()

    def _write(self, request: Request) -> bool:
        """Whether the reply is wholly written."""
        reply = request.reply
        if isinstance(reply, Response):
            if len(reply.body) >= self._edge.compress_from:
                if not self._compressed(request, reply):
                    return False
                reply = cast(Response, request.reply)
            self._settle_keep_alive(request)
            head = _head(request, reply, b"content-length: %d\r\n" % len(reply.body), self._server)
            self._transport.write(head if request.method == b"HEAD" else head + reply.body)
            return True
        return self._write_stream(request, cast(Stream, reply))

    def _compressed(self, request: Request, reply: Response) -> bool:
        """Whether it is in the coding that the client likes best; if not, it will be, and `_flush` is called again."""
        if compression.VARY in reply.headers:
            return True
        coding = compression.preferred(request.headers.get(b"accept-encoding", b""))
        if coding is None or len(reply.body) <= compression.INLINE:
            request.reply = compression.compressed(reply, coding)
            return True
        if not request.compressing:
            request.compressing = True

            def then(made: Response) -> None:
                request.reply = made
                self._flush()

            self._server.off_loop(lambda: compression.compressed(reply, coding), then)
        return False

    def _write_stream(self, request: Request, stream: Stream) -> bool:
        if stream.overflowed:
            self.stream_overflowed()
            return False
        chunked = request.version == "1.1"
        out = b""
        if not self._head_written:
            self._head_written = True
            if not chunked:
                request.keep_alive = False  # HTTP/1.0: the end of the connection is the end of the body
            framing = b"transfer-encoding: chunked\r\n" if chunked else b""
            self._settle_keep_alive(request)
            out = _head(request, stream, framing, self._server)
            stream.attach(self)
        data = stream.take()
        if data:
            out += b"%x\r\n%b\r\n" % (len(data), data) if chunked else data
        if stream.ended and chunked:
            out += b"0\r\n\r\n"
        if out:
            self._transport.write(out)
        return stream.ended

    def stream_ready(self) -> None:
        self._flush()

    def stream_overflowed(self) -> None:
        """The reader of a stream is too slow: its request is given up and the connection with it."""
        self._closing = True
        self._transport.abort()

    def _finished(self, request: Request) -> None:
        self._head_written = False
        self._since = self._server.now
        request.written()
        if self._edge.access is not None:
            self._edge.access.written(request, self._server.clock())
        if request.lingers and not self._half_closed:
            self._linger()
        elif not request.keep_alive or (self._half_closed and not self._queue and not self._backlog):
            self.close()

    def _settle_keep_alive(self, request: Request) -> None:
        leaving = self._server.draining or self._half_closed
        if leaving and len(self._queue) == 1 and not self._backlog and not self._reader.mid_request:
            request.keep_alive = False

    # -- a client that may be gone ----------------------------------------------------------------

    def _probe(self) -> None:
        """Find out whether it still reads."""
        now = self._server.now
        if now - self._probed >= PROBE_EVERY_S and self._queue and not self._write_paused:
            self._probed = now
            probe(self._transport, self._queue[0], self._head_written)
            asyncio.get_running_loop().call_later(LOOK_AFTER_S, self._look)

    def _look(self) -> None:
        """Where nothing is read, that the client went away must be looked for."""
        if self._closing:
            return
        found = presence(self._transport)
        if found is Presence.GONE:
            self.abort()
        elif found is Presence.HALF:
            self._probe()

    # -- closing ----------------------------------------------------------------------------------

    def _linger(self) -> None:
        """Closing with unread bytes would reset the connection and could take the reply with it."""
        self._lingering = True
        if self._read_paused:
            self._read_paused = False
            self._transport.resume_reading()
        if self._transport.can_write_eof():
            self._transport.write_eof()

    def close(self) -> None:
        """What was written still goes out."""
        self._closing = True
        self._transport.close()

    def abort(self) -> None:
        self._closing = True
        self._transport.abort()

    def drain(self) -> None:
        """Close if idle; otherwise the last reply does."""
        if not self._queue and not self._reader.mid_request and not self._closing:
            self.close()

    def check_time(self, now: float) -> None:
        """Called every sweep: enforce the timeout of the present state."""
        limits, waited = self._server.limits, now - self._since - self._server.sweep_s
        if self._half_closed or self._read_paused:
            self._look()
        if self._lingering:
            self._expire(waited, LINGER_S, self.abort)
        elif self._write_paused or self._closing:  # the client does not take what is written
            self._expire(waited, limits.body_timeout_s, self.abort)
        elif self._read_paused:
            return
        elif self._reader.in_headers:
            self._expire(waited, limits.header_timeout_s, self._headers_late)
        elif self._reader.in_body:
            self._expire(waited, limits.body_timeout_s, self._body_late)
        elif not self._queue:
            self._expire(waited, limits.idle_timeout_s, self.close)

    def _expire(self, waited: float, limit: float, then: Callable[[], None]) -> None:
        if waited > limit:
            self._since = self._server.now
            then()

    def _headers_late(self) -> None:
        self._refuse(RequestTimeout(f"the headers did not come within {self._server.limits.header_timeout_s:g} s"))

    def _body_late(self) -> None:
        self._refuse(RequestTimeout(f"the body did not come within {self._server.limits.body_timeout_s:g} s"))


def _head(request: Request, reply: Response | Stream, framing: bytes, server: HttpServer) -> bytes:
    """Status line and headers."""
    server.replies[reply.status] = server.replies.get(reply.status, 0) + 1
    lines = [
        STATUS_LINES.get(reply.status) or b"HTTP/1.1 %d \r\n" % reply.status,
        server.date,
        b"content-type: ",
        reply.content_type,
        b"\r\n",
        framing,
        b"x-request-id: ",
        request.id.encode("latin-1"),
        b"\r\n",
    ]
    for name, value in reply.headers:
        lines += (name, b": ", value, b"\r\n")
    if not request.keep_alive:
        lines.append(b"connection: close\r\n")
    elif request.version == "1.0":
        lines.append(b"connection: keep-alive\r\n")
    if server.edge.cors is not None:
        for name, value in server.edge.cors.headers(request):
            lines += (name, b": ", value, b"\r\n")
    lines.append(b"\r\n")
    return b"".join(lines)
