"""Every path there is, and what answers it.

A path without a version means the model's default version. A name that is not known is a 404 on every route;
a known version that is not ready is a 503 with Retry-After wherever the model would be needed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeAlias

import msgspec

from headway import __version__
from headway.core.ids import VersionId
from headway.gateway import stream
from headway.gateway.access import Access, Caller
from headway.gateway.admin import AdminGate
from headway.gateway.binary_tensors import HEADER as JSON_LENGTH
from headway.gateway.calls import Calls, WholeCall
from headway.gateway.catalog import Catalog, Version
from headway.gateway.embeddings import EmbeddingsApi
from headway.gateway.errors import NotFound, NotImplementedHere
from headway.gateway.exchange import Pending, Request, Response, Stream
from headway.gateway.fallback import Fallbacks
from headway.gateway.idempotency import KEY, KeyedCalls, refuse_key
from headway.gateway.model_pages import configuration, index, metadata, wants_ready_only
from headway.gateway.oip import check, read_body
from headway.gateway.options import read_options
from headway.gateway.quarantine import Quarantine, content_of, told
from headway.gateway.reloading import reload
from headway.gateway.rendering import render
from headway.gateway.router import Parameters, RouteHandler, Router
from headway.gateway.text.api import TextApi
from headway.gateway.text.pages import TokenPages, is_language_model

EXTENSIONS = ("binary_tensor_data", "model_configuration", "parameters", "schedule_policy")
"""Those that always work. schedule_policy: the request parameters `priority` and `timeout`."""

Metrics: TypeAlias = Callable[[], tuple[bytes, bytes]]
"""Content type and body of /metrics."""

Explain: TypeAlias = Callable[[str, int], dict[str, Any] | None]
"""What is in force for a model's version, as JSON values; None while the scheduler does not know it yet."""

Statistics: TypeAlias = Callable[[str, int], dict[str, Any]]
"""What a model's version has done since the server started, as the statistics extension has it."""

Reload: TypeAlias = Callable[[], Awaitable[dict[str, Any]]]
"""Reads the configuration again; what changed, as JSON values. Raises ConfigError, and then nothing has changed."""

_encode = msgspec.json.Encoder().encode


class Routes:
    def __init__(
        self,
        catalog: Catalog,
        calls: Calls,
        embeddings: EmbeddingsApi,
        text: TextApi,
        pages: TokenPages,
        fallbacks: Fallbacks,
        keyed: KeyedCalls,
        access: Access,
        gate: AdminGate,
        max_parts: int,
        metrics: Metrics | None,
        explain: Explain | None,
        statistics: Statistics | None,
        reload: Reload | None,
        quarantine: Quarantine | None,
        now: Callable[[], int],
        started: int,
    ) -> None:
        """started: Unix seconds, said to be when the models were made.

        metrics, explain, statistics, reload, quarantine: None = no such page.  now: monotonic nanoseconds.
        """
        self._catalog = catalog
        self._calls = calls
        self._embeddings = embeddings
        self._text = text
        self._pages = pages
        self._fallbacks = fallbacks
        self._keyed = keyed
        self.access = access
        """Exchanged when the settings change."""
        self._gate = gate
        self._max_parts = max_parts
        self._metrics = metrics
        self._explain = explain
        self._statistics = statistics
        self._reload = reload
        self._quarantine = quarantine
        self._now = now
        self._started = started

    def router(self) -> Router:
        router = Router()
        add = router.add
        add("GET", "/v2", self.server_metadata)
        add("GET", "/v2/health/live", self.live)
        add("GET", "/v2/health/ready", self.server_ready)
        for path in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
            add("GET", path, self.model_metadata)
            add("GET", f"{path}/ready", self.model_ready)
            add("GET", f"{path}/config", self.model_configuration)
            add("GET", f"{path}/stats", self._counts(self.model_statistics))
            add("POST", f"{path}/infer", self.infer)
            add("POST", f"{path}/generate", self.generate)
            add("POST", f"{path}/generate_stream", self.generate_stream)
        add("GET", "/v2/models/stats", self._counts(self.statistics))
        add("POST", "/v2/repository/index", self.repository_index)
        add("GET", "/v1/models", self.models)
        add("GET", "/v1/models/{model}", self.model)
        add("POST", "/v1/embeddings", self.embeddings)
        add("POST", "/v1/chat/completions", self.chat)
        add("POST", "/v1/completions", self.completion)
        add("POST", "/tokenize", self.tokenize)
        add("POST", "/detokenize", self.detokenize)
        add("GET", "/health", self.health)
        add("GET", "/version", self.version)
        add("GET", "/ready", self.ready)
        self._add_admin(router, self._gate.before)
        return router

    def admin_router(self) -> Router:
        """Of an address of its own: what is for whoever operates the server, and nothing else."""
        router = Router()
        for path in ("/health", "/v2/health/live"):
            router.add("GET", path, self.live)
        router.add("GET", "/ready", self._gate.before_own(self.all_ready))
        router.add("GET", "/v2/health/ready", self.server_ready)
        for path in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
            router.add("GET", f"{path}/stats", self._gate.before_own(self.model_statistics))
        router.add("GET", "/v2/models/stats", self._gate.before_own(self.statistics))
        self._add_admin(router, self._gate.before_own)
        return router

    def _add_admin(self, router: Router, gate: Callable[[RouteHandler], RouteHandler]) -> None:
        for path in ("/v2/models/{model}", "/v2/models/{model}/versions/{version}"):
            router.add("GET", f"{path}/explain", gate(self.explain))
        router.add("POST", "/v2/repository/models/{model}/load", gate(self.load_or_unload))
        router.add("POST", "/v2/repository/models/{model}/unload", gate(self.load_or_unload))
        router.add("GET", "/metrics", gate(self.metrics))
        router.add("POST", "/reload", gate(self.reload))
        router.add("GET", "/quarantine", gate(self.quarantine))
        for path in ("/quarantine/{model}/{version}", "/quarantine/{model}/{version}/{content}"):
            router.add("DELETE", path, gate(self.lift))

    def _counts(self, handler: RouteHandler) -> RouteHandler:
        """Statistics count all tenants together: where those are kept apart by keys, they are for the operator."""

        def gated(request: Request, at: Parameters) -> Response | Pending | Stream:
            if self.access.keyed:
                self._gate.check(request)
            return handler(request, at)

        return gated

    # -- Open Inference Protocol ------------------------------------------------------------------

    def server_metadata(self, request: Request, at: Parameters) -> Response:
        self.access(request)
        extensions = [*EXTENSIONS, "statistics"] if self._statistics is not None else EXTENSIONS
        return _json({"name": "headway", "version": __version__, "extensions": extensions})

    def live(self, request: Request, at: Parameters) -> Response:
        return _json({"live": True})

    def server_ready(self, request: Request, at: Parameters) -> Response:
        ready = self._catalog.ready
        return _json({"ready": ready}, 200 if ready else 503)

    def model_metadata(self, request: Request, at: Parameters) -> Response:
        version = self._asked(request, at)[1]
        versions = list(self._catalog.model(version.model).versions)
        return _json(metadata(version, versions, version.declared()))

    def model_ready(self, request: Request, at: Parameters) -> Response:
        version, ready, state, reason = self._catalog.standing(self._asked(request, at)[1])
        body: dict[str, Any] = {"name": version.model, "ready": ready}
        if ready:
            return _json(body)
        return _json(body | {"state": state, "reason": reason}, 503)

    def model_configuration(self, request: Request, at: Parameters) -> Response:
        version = self._asked(request, at)[1]
        return _json(configuration(version, version.declared()))

    def model_statistics(self, request: Request, at: Parameters) -> Response:
        """Of one version, or of all that the model has."""
        chosen = self._version(at)
        versions = [chosen] if "version" in at else self._catalog.model(chosen.model).versions.values()
        return self._stats(versions)

    def statistics(self, request: Request, at: Parameters) -> Response:
        return self._stats(self._catalog.all_versions())

    def _stats(self, versions: Iterable[Version]) -> Response:
        if self._statistics is None:
            raise NotFound("statistics are switched off")
        return _json({"model_stats": [self._statistics(v.model, v.number) for v in versions]})

    def repository_index(self, request: Request, at: Parameters) -> Response:
        caller = self.access(request)
        entries = index(self._catalog, wants_ready_only(request.body))
        return _json([entry for entry in entries if caller.may_call(entry["name"])])

    def load_or_unload(self, request: Request, at: Parameters) -> Response:
        self._catalog.model(at["model"])
        raise NotImplementedHere("models are loaded when the server starts; loading and unloading is not supported")

    def infer(self, request: Request, at: Parameters) -> Pending:
        caller, version = self._asked(request, at)
        if KEY in request.headers:
            asked = ("infer", version.model, at.get("version", ""))
            return self._keyed.submit(request, caller, asked, lambda own: self._infer(own, caller, version))
        return self._infer(request, caller, version)

    def _infer(self, request: Request, caller: Caller, version: Version) -> Pending:
        call = WholeCall(self._calls, request)
        return self._fallbacks.submit(call, version, lambda to: self._send(call, caller, to))

    def _send(self, call: WholeCall, caller: Caller, version: Version) -> None:
        version.require_ready()
        request = call.request
        body, tail = read_body(request.body, request.headers.get(JSON_LENGTH), version)
        options = read_options(request, caller, body.parameters or {})
        checked = check(body, version, self._max_parts, tail)
        call.render = lambda outputs: render(checked, version, outputs)
        payload, checked.payload = checked.payload, []  # from here on the runtime's alone
        self._calls.submit(call, checked.key, checked.parts, payload, checked.size, options, checked.parameters)

    def generate(self, request: Request, at: Parameters) -> Pending:
        caller, version = self._asked(request, at)
        refuse_key(request)
        if is_language_model(version):
            return self._text.generate(request, caller, version, stream=False)
        options = read_options(request, caller, {})
        return stream.generate(self._calls, self._fallbacks, version, request, options)

    def generate_stream(self, request: Request, at: Parameters) -> Pending:
        caller, version = self._asked(request, at)
        refuse_key(request)
        if is_language_model(version):
            return self._text.generate(request, caller, version, stream=True)
        options = read_options(request, caller, {})
        return stream.generate_stream(self._calls, self._fallbacks, version, request, options)

    # -- OpenAI -----------------------------------------------------------------------------------

    def models(self, request: Request, at: Parameters) -> Response:
        caller = self.access(request)
        names = [name for name in self._catalog.models if caller.may_call(name)]
        return _json({"object": "list", "data": [self._model_entry(name) for name in names]})

    def model(self, request: Request, at: Parameters) -> Response:
        self.access(request).check_model(at["model"])
        return _json(self._model_entry(self._catalog.model(at["model"]).name))

    def embeddings(self, request: Request, at: Parameters) -> Pending:
        caller = self.access(request)
        return self._embeddings.handle(request, caller, read_options(request, caller, {}))

    def chat(self, request: Request, at: Parameters) -> Pending:
        return self._text.chat(request, self.access(request))

    def completion(self, request: Request, at: Parameters) -> Pending:
        return self._text.completion(request, self.access(request))

    def tokenize(self, request: Request, at: Parameters) -> Pending:
        return self._pages.tokenize(request, self.access(request))

    def detokenize(self, request: Request, at: Parameters) -> Pending:
        return self._pages.detokenize(request, self.access(request))

    # -- operation --------------------------------------------------------------------------------

    def health(self, request: Request, at: Parameters) -> Response:
        """The server lives; says nothing of any model."""
        return _json({"live": True})

    def version(self, request: Request, at: Parameters) -> Response:
        self.access(request)
        return _json({"version": __version__})

    def ready(self, request: Request, at: Parameters) -> Response:
        """Whether all is ready may everybody know; of which models, whoever may call them."""
        caller = self.access.if_known(request)
        return self._readiness(lambda model: caller is not None and caller.may_call(model))

    def all_ready(self, request: Request, at: Parameters) -> Response:
        return self._readiness(lambda model: True)

    def _readiness(self, is_shown: Callable[[str], bool]) -> Response:
        ready = self._catalog.ready
        models = [
            {"model": v.model, "version": str(v.number), "ready": v_ready, "state": state, "reason": reason}
            for v, v_ready, state, reason in self._catalog.standings()
            if is_shown(v.model)
        ]
        body: dict[str, Any] = {"ready": ready, "models": models}
        if not self._catalog.models:
            body["reason"] = "no models are configured"
        return _json(body, 200 if ready else 503)

    def metrics(self, request: Request, at: Parameters) -> Response:
        if self._metrics is None:
            raise NotFound("metrics are switched off")
        content_type, body = self._metrics()
        return Response(200, body, content_type)

    def reload(self, request: Request, at: Parameters) -> Pending:
        if self._reload is None:
            raise NotFound("the configuration cannot be read again")
        return reload(self._reload, request)

    def quarantine(self, request: Request, at: Parameters) -> Response:
        """Content that is refused because it killed workers, by version, the oldest first."""
        if self._quarantine is None:
            raise NotFound("nothing is kept in quarantine here")
        now = self._now()
        return _json({"quarantine": [told(entry, now) for entry in self._quarantine.listed()]})

    def lift(self, request: Request, at: Parameters) -> Response:
        """Lets a content in again, or all of a version."""
        if self._quarantine is None:
            raise NotFound("nothing is kept in quarantine here")
        version = self._version(at)
        content = content_of(at["content"]) if "content" in at else 0
        lifted = self._quarantine.lift(VersionId(version.model, version.number), content)
        self._keyed.release(version.model)
        if content and not lifted:
            raise NotFound(f"content {at['content']} of {version.model}/{version.number} is not in quarantine")
        return _json({"lifted": lifted})

    def explain(self, request: Request, at: Parameters) -> Response:
        if self._explain is None:
            raise NotFound("explanations are switched off")
        version = self._version(at)
        told = self._explain(version.model, version.number)
        if told is None:
            raise version.not_ready()
        memory = None if version.meta is None else version.meta.memory
        _, _, state, reason = self._catalog.standing(version)
        return _json(told | {"state": state, "reason": reason, "memory": memory})

    # -- common -----------------------------------------------------------------------------------

    def _version(self, at: Parameters) -> Version:
        return self._catalog.version(at["model"], at.get("version"))

    def _asked(self, request: Request, at: Parameters) -> tuple[Caller, Version]:
        """Who asks, and for what. Whether he may is looked at first: he learns of no model that he may not call."""
        caller = self.access(request)
        caller.check_model(at["model"])
        return caller, self._version(at)

    def _model_entry(self, name: str) -> dict[str, Any]:
        entry = {"id": name, "object": "model", "created": self._started, "owned_by": "headway"}
        meta = self._catalog.version(name, None).meta
        if meta is not None and meta.language is not None:
            entry["max_model_len"] = meta.language.context
        return entry


def _json(body: dict[str, Any] | list[Any], status: int = 200) -> Response:
    return Response(status, _encode(body))
