"""The gateway: HTTP on one side, messages to and from the runtime on the other. All of it in one event loop."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import cast

from headway.config.settings import Limits
from headway.core.units import seconds
from headway.gateway.calls import Calls
from headway.gateway.catalog import Catalog, CatalogModel
from headway.gateway.edge import Edge
from headway.gateway.embeddings import EmbeddingsApi
from headway.gateway.errors import HeadwayError, InternalError, error_response
from headway.gateway.exchange import Handler, Pending, Request, Response, Stream
from headway.gateway.http import PLAIN, HttpServer
from headway.gateway.router import path_of
from headway.gateway.routes import Explain, Metrics, Routes, Statistics
from headway.gateway.tracing import trace_id
from headway.wire.messages import Reply, StreamChunk, ToGateway, ToRuntime, VersionStatus

log = logging.getLogger("headway.gateway")


DEFAULT_LIMITS = Limits()


class Gateway:
    """models: what is configured; their states come by `deliver`.

    send: takes messages to the runtime. now: monotonic nanoseconds, the runtime's own clock.
    request_timeout_s: the longest a request may take. tenant_header: "" = everybody is "default".
    allow_remote_admin: admin routes answer to others than this host. edge: what else is done with connections.
    """

    def __init__(
        self,
        models: Iterable[CatalogModel],
        send: Callable[[ToRuntime], None],
        *,
        limits: Limits = DEFAULT_LIMITS,
        request_timeout_s: float = 60,
        tenant_header: str = "",
        now: Callable[[], int] = time.monotonic_ns,
        metrics: Metrics | None = None,
        explain: Explain | None = None,
        statistics: Statistics | None = None,
        allow_remote_admin: bool = False,
        edge: Edge = PLAIN,
    ) -> None:
        self.catalog = Catalog(models)
        self._calls = Calls(send, now, seconds(request_timeout_s), _error_response)
        self._embeddings = EmbeddingsApi(self.catalog, self._calls, limits.max_parts)
        tenant = tenant_header.lower().encode("latin-1")
        started = int(time.time())
        routes = Routes(
            self.catalog,
            self._calls,
            self._embeddings,
            tenant,
            limits.max_parts,
            metrics,
            explain,
            statistics,
            allow_remote_admin,
            started,
        )
        self._router = routes.router()
        self._edge = edge
        handler: Handler = self.handle if edge.cors is None else self._handle_with_cors
        self._http = HttpServer(limits, handler, _error_response, now, edge)

    @property
    def in_flight(self) -> int:
        """Requests that the runtime has and that have no reply yet."""
        return len(self._calls)

    @property
    def replies(self) -> dict[int, int]:
        """HTTP status -> replies begun with it, since the start."""
        return self._http.replies

    @property
    def connections(self) -> int:
        """Open HTTP connections."""
        return self._http.connections

    async def start(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """Read the tokenizers, then listen; the address it is bound to (port 0 = any free one).

        Raises TokenizerUnavailable, and OSError where the address can not be had.
        """
        await asyncio.to_thread(self._embeddings.load)
        return await self._http.start(host, port, tls)

    async def start_unix(self, path: Path, mode: int) -> None:
        """The same at a unix socket with these permissions."""
        await asyncio.to_thread(self._embeddings.load)
        await self._http.start_unix(path, mode)

    async def drain(self) -> None:
        """Stop accepting, finish what is in flight, close every connection. Waits as long as that takes."""
        await self._http.drain()

    def close(self) -> None:
        """At once."""
        self._http.close()
        self._embeddings.close()

    def deliver(self, message: ToGateway) -> None:
        """A message of the runtime, in the event loop's thread."""
        kind = type(message)  # that of a Struct is quicker to compare than to ask
        if kind is Reply:
            self._calls.reply(cast(Reply, message))
        elif kind is StreamChunk:
            self._calls.chunk(cast(StreamChunk, message))
        else:
            self.catalog.update(cast(VersionStatus, message))

    def handle(self, request: Request) -> Response | Pending | Stream:
        """Never raises: whatever a handler raises becomes a reply."""
        if b"traceparent" in request.headers and b"x-request-id" not in request.headers:
            request.id = trace_id(request.headers[b"traceparent"]) or request.id
        try:
            handler, parameters = self._router.find(request.method, request.target)
            return handler(request, parameters)
        except HeadwayError as error:
            return _error_response(error, request)
        except Exception:
            log.exception("request %s: the handler failed", request.id)
            return _error_response(InternalError(f"internal error, logged under {request.id}"), request)

    def _handle_with_cors(self, request: Request) -> Response | Pending | Stream:
        preflight = self._edge.cors.preflight(request) if self._edge.cors is not None else None
        return preflight or self.handle(request)


def _error_response(error: HeadwayError, request: Request) -> Response:
    openai = path_of(request.target).startswith(b"/v1/")
    return error_response(error, openai=openai, request_id=request.id)
