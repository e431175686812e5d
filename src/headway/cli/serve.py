"""`headway serve`."""

from __future__ import annotations

import asyncio
import logging
import os
import resource
from pathlib import Path

import click
import uvloop

from headway.cli.common import models_option, read_all, warnings, with_server
from headway.config.load import Config
from headway.registry.spec import VersionSpec
from headway.telemetry import logs
from headway.worker.log import STYLE as WORKERS_STYLE
from headway.worker.log import rather_lose_than_fail

log = logging.getLogger("headway.cli")

SPARE_DESCRIPTORS = 256
"""For workers' channels, recordings and the like, beside one for each connection."""


@click.command()
@click.argument("config", type=click.Path(path_type=Path), required=False)
@models_option
@click.option("--host", default=None, help="Address to listen on, instead of the configuration's.")
@click.option("--port", type=click.IntRange(0, 65535), default=None, help="0 = any free one; it is printed.")
@click.option("--unix-socket", type=click.Path(dir_okay=False, path_type=Path), help="Listen there, not on a port.")
@click.option("--ssl-certfile", type=click.Path(dir_okay=False, path_type=Path), help="Certificate (PEM): HTTPS.")
@click.option("--ssl-keyfile", type=click.Path(dir_okay=False, path_type=Path), help="Its key, if not in that file.")
@click.option("--access-log/--no-access-log", default=None, help="One line in the log for each reply.")
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info", show_default=True
)
@click.option("--log-style", type=click.Choice(["text", "json"]), default=None, help="Default: the configuration's.")
def serve(
    config: Path | None,
    models: Path | None,
    host: str | None,
    port: int | None,
    unix_socket: Path | None,
    ssl_certfile: Path | None,
    ssl_keyfile: Path | None,
    access_log: bool | None,
    log_level: str,
    log_style: str | None,
) -> None:
    """Serve the models that CONFIG names (./headway.toml if not named; defaults if there is none).

    SIGTERM and Ctrl-C drain: what is in flight is finished within server.shutdown_grace_s, and the exit
    code is 0. A second one leaves at once. SIGHUP reads the configuration again.
    """
    from headway.cli.server import serve_until_signal

    files = {"unix_socket": unix_socket, "ssl_certfile": ssl_certfile, "ssl_keyfile": ssl_keyfile}
    named = {
        "host": host,
        "port": port,
        "access_log": access_log,
        "log_format": log_style,
        **{name: str(file.absolute()) for name, file in files.items() if file is not None},
    }
    given = {name: value for name, value in named.items() if value is not None}

    def read() -> tuple[Config, list[VersionSpec]]:
        """Again at each reload."""
        found, specs = read_all(config, models)
        return with_server(found, **given), specs

    found, specs = read()
    rather_lose_than_fail()  # not earlier: whoever has a wrong configuration must be told so
    logs.set_up(found.settings.server.log_format, log_level)
    os.environ[WORKERS_STYLE] = found.settings.server.log_format  # which they inherit
    for warning in warnings(found, specs):
        log.warning("%s", warning)
    allow_descriptors(found.settings.limits.max_connections)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve_until_signal(found, specs, read))


def allow_descriptors(connections: int) -> None:
    """Raises this process's own limit on open files as far as the system lets it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + SPARE_DESCRIPTORS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
        if allowed < wanted:
            log.warning("the system allows %d open files; limits.max_connections = %d needs more", allowed, connections)
