"""The composition root: settings and versions in, a running server out."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from headway.cli import announce, listen
from headway.cli.common import model_sources, server_sources
from headway.cli.reload import Read, Reloader
from headway.config.cross_tenants import keyed
from headway.config.errors import ConfigError, Problem
from headway.config.load import Config
from headway.config.settings import Settings
from headway.core import failure_views, tenant_views
from headway.core.scheduler import Scheduler
from headway.core.views import detail, devices
from headway.gateway.access import Access
from headway.gateway.admin import AdminGate
from headway.gateway.catalog import CatalogModel, CatalogVersion
from headway.gateway.edge import edge_of
from headway.gateway.gateway import Gateway
from headway.gateway.quarantine import Quarantine
from headway.gateway.tokenizing import TokenizerUnavailable
from headway.registry.spec import VersionSpec, default_versions
from headway.runtime.clock import monotonic
from headway.runtime.policies import slo_of
from headway.runtime.runtime import Runtime
from headway.telemetry.counters import Counters, SloOf
from headway.telemetry.explain import Explainer
from headway.telemetry.in_force import Deciders
from headway.telemetry.lag import LagProbe
from headway.telemetry.metrics import Metrics
from headway.telemetry.statistics import Statistics
from headway.wire.messages import ToGateway, VersionStatus

log = logging.getLogger("headway.cli")

FLUSH_AFTER_S = 0.5
"""At a drain, what the gateway has read gets this long to reach the core before the core turns new
requests away; from then on nothing waits for company any more."""


COLLECT = (10_000, 50, 100)
"""Thresholds of the garbage collector. A request leaves no reference cycle behind, so there is little to
find, and a full collection beside 100,000 waiting requests would hold the loop for tens of milliseconds."""


class Server:
    """Runtime, gateway and telemetry, joined. Lives in one event loop."""

    def __init__(self, config: Config, specs: Sequence[VersionSpec], read: Read) -> None:
        """read: the configuration again, when that is asked for."""
        self._config = config
        self._settings = with_absolute_paths(config)
        self._specs = specs
        self._heard: dict[tuple[str, int], VersionStatus] = {}
        self._settled = asyncio.Event()
        counters = self._counters = Counters(self._settings.tenants, slos(self._settings, specs))
        core = self._core = Scheduler()
        self._runtime = Runtime(self._settings, specs, self._deliver, counters, core=core)
        self._lag = LagProbe()
        self._explain = self._explainer(config, self._settings, specs)
        self.reload = Reloader(config, specs, read, self._configure)
        """Reads the configuration again. Raises ConfigError, and then nothing has changed."""
        self._gateway = Gateway(
            catalog(specs),
            self._runtime.send,
            limits=self._settings.limits,
            idempotency=self._settings.idempotency,
            request_timeout_s=self._settings.server.request_timeout_s,
            access=Access(self._settings),
            gate=AdminGate(self._settings.server),
            metrics=self._render_metrics,
            explain=lambda model, version: self._explain(model, version),
            statistics=Statistics(counters, monotonic),
            reload=self.reload,
            stalls=lambda: failure_views.stalls(core, monotonic()),
            quarantine=Quarantine(self._runtime.quarantined, self._runtime.lift),
            edge=edge_of(self._settings.server),
        )
        self._metrics = Metrics(
            counters,
            core.views,
            self._lag.lags,
            replies=lambda: self._gateway.replies,
            gauges=[self._gauges],
            devices=lambda: devices(core),
            safety=lambda: self._runtime.safety,
            fallbacks=lambda: self._gateway.fallbacks,
            idempotency=lambda: self._gateway.idempotency,
            shares=lambda: tenant_views.shares(core),
            rooms=lambda: tenant_views.rooms(core),
            stalls=lambda: failure_views.stalls(core, monotonic()),
        )

    def _explainer(self, config: Config, settings: Settings, specs: Sequence[VersionSpec]) -> Explainer:
        return Explainer(
            settings,
            specs,
            {spec.model: Deciders(model_sources(config, spec.model), server_sources(config)) for spec in specs},
            self._counters,
            lambda version, now: detail(self._core, version, now),
            monotonic,
            lambda: self._runtime.safety,
        )

    def _configure(self, config: Config, settings: Settings, specs: Sequence[VersionSpec]) -> None:
        """All of it before the loop sees to anything else. Only the first line, which reads files, can raise."""
        self._explain = self._explainer(config, settings, specs)
        self._counters.configure(settings.tenants, slos(settings, specs))
        self._runtime.configure(settings, specs)
        models = {entry.name: entry.settings for entry in catalog(specs)}
        self._gateway.configure(Access(settings), settings.server, models)

    async def start(self) -> announce.Entrance:
        """Listens, then starts the workers; where, as URLs. Raises ConfigError where it cannot be had.

        Requests are answered from here on: with 503 and Retry-After for a version that is still loading.
        """
        try:
            address = await listen.listen(self._gateway, self._config)
            admin = await listen.listen_admin(self._gateway, self._config)
        except TokenizerUnavailable as error:
            raise ConfigError([Problem("", "", str(error))]) from error
        self._lag.start()
        await self._runtime.start()
        settings = self._settings
        keys = bool(settings.server.admin_keys)
        return announce.Entrance(address, admin, keyed(settings), keys, announce.callable_with_a_key(settings))

    async def settled(self) -> list[announce.Answer]:
        """Waits until every version is ready, or has failed at least once (it is tried again)."""
        await self._settled.wait()
        return [announce.Answer(spec, self._heard[spec.model, spec.version]) for spec in self._specs]

    async def drain(self, grace_s: float) -> bool:
        """Accepts nothing new and finishes what is in flight. False: something was left when the grace was over."""
        ends = time.monotonic() + grace_s
        finishing = asyncio.ensure_future(self._gateway.drain())
        await asyncio.wait({finishing}, timeout=min(FLUSH_AFTER_S, grace_s))
        finished = await self._runtime.drain(max(0.0, ends - time.monotonic()))
        await asyncio.wait({finishing}, timeout=max(0.0, ends - time.monotonic()))
        if finishing.done():
            await finishing
            return finished
        finishing.cancel()
        return False

    async def close(self) -> None:
        """Stops everything. Whatever is still open is answered, then disconnected."""
        self._lag.stop()
        await self._runtime.close()
        await asyncio.sleep(0)  # the last replies reach their sockets
        self._gateway.close()

    def abandon(self) -> None:
        """Before this process ends at once."""
        self._runtime.abandon()

    def _deliver(self, message: ToGateway) -> None:
        self._gateway.deliver(message)
        if isinstance(message, VersionStatus):
            self._heard[message.model, message.version] = message
            settled = [status for status in self._heard.values() if status.state == "ready" or status.reason]
            if len(settled) == len(self._specs):
                self._settled.set()

    def _gauges(self) -> dict[str, float]:
        recorder = self._runtime.recorder
        return {
            "http_connections": self._gateway.connections,
            "idempotency_held_bytes": self._gateway.idempotency_held,
            "recorder_dropped_calls_total": recorder.dropped,
            "recorder_failures_total": recorder.failures,
        }

    def _render_metrics(self) -> tuple[bytes, bytes]:
        page, content_type = self._metrics.render()
        return content_type.encode(), page


def slos(settings: Settings, specs: Sequence[VersionSpec]) -> SloOf:
    return slo_of(settings, {spec.model: spec.settings.slo_ms for spec in specs})


def catalog(specs: Sequence[VersionSpec]) -> list[CatalogModel]:
    defaults = default_versions(specs)
    models = []
    for name, default in defaults.items():
        mine = [spec for spec in specs if spec.model == name]
        versions = tuple(CatalogVersion(spec.version, spec.path) for spec in mine)
        models.append(CatalogModel(name, versions, mine[0].settings, default))
    return models


def with_absolute_paths(config: Config) -> Settings:
    """Paths in the file count from the file's folder; from here on it does not matter where one stands.

    Raises ConfigError where recordings are wanted and cannot be written.
    """
    recorder = config.settings.recorder
    if not recorder.directory:
        return config.settings
    directory = config.resolve(recorder.directory)
    try:
        directory.mkdir(parents=True, exist_ok=True)
        writable = os.access(directory, os.W_OK)
    except OSError as error:
        raise ConfigError([recorder_problem(config, directory, error.strerror or str(error))]) from error
    if not writable:
        raise ConfigError([recorder_problem(config, directory, "no permission to write there")])
    return msgspec.structs.replace(
        config.settings, recorder=msgspec.structs.replace(recorder, directory=str(directory))
    )


def recorder_problem(config: Config, directory: Path, why: str) -> Problem:
    text = f"expected a folder that recordings can be written to, got {directory}: {why}"
    return Problem(str(config.path or ""), "recorder.directory", text)


async def serve_until_signal(config: Config, specs: Sequence[VersionSpec], read: Read) -> None:
    """Serves until SIGTERM or SIGINT, then drains. A second signal leaves at once. SIGHUP reads the configuration
    again."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    server = Server(config, specs, read)
    reloads: set[asyncio.Task[None]] = set()
    loop.add_signal_handler(signal.SIGHUP, on_hangup, server, reloads)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, stop, number, server)
    try:
        entrance = await server.start()
        say(f"listening on {entrance.address}, loading {len(specs)} model version(s) ...")
        announcing = asyncio.create_task(announce_when_settled(server, entrance))
        await stop.wait()
        announcing.cancel()
        grace = config.settings.server.shutdown_grace_s
        log.info("stopping: nothing new is accepted, what is in flight has %g s to finish", grace)
        finished = await server.drain(grace)
        log.info("stopped" if finished else "stopped; not all requests could finish")
    finally:
        await server.close()


async def announce_when_settled(server: Server, entrance: announce.Entrance) -> None:
    answers = await server.settled()
    gc.collect()
    gc.freeze()  # what starting has made stays to the end: no collection need look at it again
    gc.set_threshold(*COLLECT)
    say("\n".join(announce.lines(entrance, answers)))


def say(text: str) -> None:
    """In one write, the end of the line included: the log may go to the same place, and would get in between."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def on_hangup(server: Server, reloads: set[asyncio.Task[None]]) -> None:
    """reloads: under way; the loop alone would forget them."""
    task = asyncio.get_running_loop().create_task(reload(server))
    reloads.add(task)
    task.add_done_callback(reloads.discard)


async def reload(server: Server) -> None:
    try:
        await server.reload()
    except ConfigError:
        log.error("the configuration stays as it was")  # each problem has its line already
    except Exception:
        log.exception("reloading failed")


def on_signal(stop: asyncio.Event, number: signal.Signals, server: Server) -> None:
    if stop.is_set():
        server.abandon()
        os._exit(128 + number)  # the workers die with this process
    stop.set()
