"""The gateway: HTTP on one side, messages to and from the runtime on the other. All of it in one event loop."""

from __future__ import annotations

import asyncio
import logging
import ssl
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import cast

import msgspec

from headway.config.settings import Idempotency, Limits, ModelSettings, Server
from headway.core.units import seconds
from headway.gateway.access import OPEN, Access
from headway.gateway.admin import AdminGate, local_gate
from headway.gateway.calls import Calls
from headway.gateway.catalog import Catalog, CatalogModel, Stalls
from headway.gateway.edge import Edge
from headway.gateway.embeddings import EmbeddingsApi
from headway.gateway.errors import HeadwayError, InternalError, Unauthenticated, error_response
from headway.gateway.exchange import Handler, Pending, Request, Response, Stream
from headway.gateway.fallback import Fallbacks
from headway.gateway.http import PLAIN, HttpServer
from headway.gateway.idempotency import KeyedCalls
from headway.gateway.quarantine import Quarantine
from headway.gateway.router import Router, path_of
from headway.gateway.routes import Explain, Metrics, Reload, Routes, Statistics
from headway.gateway.text.api import TextApi
from headway.gateway.text.languages import Languages
from headway.gateway.text.pages import TokenPages
from headway.gateway.tracing import trace_id
from headway.wire.messages import Reply, StreamChunk, ToGateway, ToRuntime, VersionStatus

OPENAI = (b"/v1/", b"/tokenize", b"/detokenize")
"""Beginnings of paths whose errors have OpenAI's shape."""

log = logging.getLogger("headway.gateway")


DEFAULT_LIMITS = Limits()
DEFAULT_IDEMPOTENCY = Idempotency()


class Gateway:
    """models: what is configured; their states come by `deliver`.

    send: takes messages to the runtime. now: monotonic nanoseconds, the runtime's own clock.
    request_timeout_s: the longest a request may take. access: who may call what. gate: before admin routes, None =
    this host may. stalls: versions whose workers get nowhere, asked at each probe. edge: what else is done with
    connections.
    """

    def __init__(
        self,
        models: Iterable[CatalogModel],
        send: Callable[[ToRuntime], None],
        *,
        limits: Limits = DEFAULT_LIMITS,
        idempotency: Idempotency = DEFAULT_IDEMPOTENCY,
        request_timeout_s: float = 60,
        access: Access = OPEN,
        gate: AdminGate | None = None,
        now: Callable[[], int] = time.monotonic_ns,
        metrics: Metrics | None = None,
        explain: Explain | None = None,
        statistics: Statistics | None = None,
        reload: Reload | None = None,
        quarantine: Quarantine | None = None,
        stalls: Stalls = dict,
        edge: Edge = PLAIN,
    ) -> None:
        self.catalog = Catalog(models, now, stalls)
        self._calls = Calls(send, now, seconds(request_timeout_s), _error_response)
        self._fallbacks = Fallbacks(self.catalog)
        self._keyed = KeyedCalls(idempotency, self.catalog, self._calls, now)
        self._embeddings = EmbeddingsApi(self.catalog, self._calls, self._fallbacks, self._keyed, limits.max_parts)
        self._languages = Languages()
        text = TextApi(self.catalog, self._calls, self._fallbacks, self._keyed, self._languages)
        started = int(time.time())
        self._gate = gate or local_gate()
        self._routes = Routes(
            self.catalog,
            self._calls,
            self._embeddings,
            text,
            TokenPages(self.catalog, self._languages, _error_response),
            self._fallbacks,
            self._keyed,
            access,
            self._gate,
            limits.max_parts,
            metrics,
            explain,
            statistics,
            reload,
            quarantine,
            now,
            started,
        )
        self._router = self._routes.router()
        self._admin_router = self._routes.admin_router()
        self._edge = edge
        handler: Handler = self.handle if edge.cors is None else self._handle_with_cors
        self._http = HttpServer(limits, handler, _error_response, now, edge)
        self._http.bodies.admit = self._admit
        self._admin = HttpServer(without_bodies(limits), self._handle_admin, _error_response, now, edge)

    @property
    def in_flight(self) -> int:
        """Requests that the runtime has and that have no reply yet."""
        return len(self._calls)

    @property
    def replies(self) -> dict[int, int]:
        """HTTP status -> replies begun with it, since the start."""
        return self._http.replies

    @property
    def fallbacks(self) -> dict[tuple[str, str], int]:
        """(Model that was asked, model that answered in its place) -> replies, since the start."""
        return self._fallbacks.served

    @property
    def idempotency(self) -> dict[str, int]:
        """What became of idempotency keys -> how often, since the start."""
        return self._keyed.counts

    @property
    def idempotency_held(self) -> int:
        """Bytes of idempotency keys and of what is kept under them."""
        return self._keyed.held

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

    async def start_admin(self, host: str, port: int, tls: ssl.SSLContext | None = None) -> tuple[str, int]:
        """An address of their own for admin routes. Raises OSError where it can not be had."""
        return await self._admin.start(host, port, tls)

    def configure(self, access: Access, server: Server, models: Mapping[str, ModelSettings] | None = None) -> None:
        """From the next request on. models: those that are configured, None = as they were."""
        self.catalog.configure(models or {})
        self._routes.access = access
        self._gate.configure(server)

    async def drain(self) -> None:
        """Stop accepting, finish what is in flight, close every connection. Waits as long as that takes."""
        await self._http.drain()

    def close(self) -> None:
        """At once."""
        self._http.close()
        self._admin.close()
        self._embeddings.close()
        self._languages.close()
        self._keyed.close()

    def deliver(self, message: ToGateway) -> None:
        """A message of the runtime, in the event loop's thread."""
        kind = type(message)  # that of a Struct is quicker to compare than to ask
        if kind is Reply:
            self._calls.reply(cast(Reply, message))
        elif kind is StreamChunk:
            self._calls.chunk(cast(StreamChunk, message))
        else:
            self._heard(cast(VersionStatus, message))

    def _heard(self, status: VersionStatus) -> None:
        self.catalog.update(status)
        if status.meta is not None and status.meta.language is not None:
            self._languages.want(status.meta.language.source)

    def handle(self, request: Request) -> Response | Pending | Stream:
        """Never raises: whatever a handler raises becomes a reply."""
        return self._handle(request, self._router)

    def _handle_admin(self, request: Request) -> Response | Pending | Stream:
        return self._handle(request, self._admin_router)

    def _handle(self, request: Request, router: Router) -> Response | Pending | Stream:
        if b"traceparent" in request.headers and b"x-request-id" not in request.headers:
            request.id = trace_id(request.headers[b"traceparent"]) or request.id
        try:
            handler, parameters = router.find(request.method, request.target)
            return handler(request, parameters)
        except HeadwayError as error:
            return _error_response(error, request)
        except Exception:
            log.exception("request %s: the handler failed", request.id)
            return _error_response(InternalError(f"internal error, logged under {request.id}"), request)

    def _admit(self, headers: dict[bytes, bytes]) -> None:
        """Strangers' bodies would take the room of those who have a key. Raises Unauthenticated."""
        try:
            self._routes.access.check_key(headers)
        except Unauthenticated:
            if not self._gate.has_key(headers):
                raise

    def _handle_with_cors(self, request: Request) -> Response | Pending | Stream:
        preflight = self._edge.cors.preflight(request) if self._edge.cors is not None else None
        return preflight or self.handle(request)


def without_bodies(limits: Limits) -> Limits:
    """No admin route takes one to speak of."""
    return msgspec.structs.replace(limits, max_body_mb=1 / 16, max_json_mb=1 / 16, max_queued_mb=1)


def _error_response(error: HeadwayError, request: Request) -> Response:
    openai = path_of(request.target).startswith(OPENAI)
    return error_response(error, openai=openai, request_id=request.id)
