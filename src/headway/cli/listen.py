"""Where the server listens, as the settings say, and what is wrong where it cannot."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Sequence
from pathlib import Path

from headway.cli import announce
from headway.config.errors import ConfigError, Problem
from headway.config.load import Config
from headway.gateway.gateway import Gateway
from headway.gateway.listening import TlsProblem, Unusable, tls, tls_problems


async def listen(gateway: Gateway, config: Config) -> str:
    """The address as a URL that a client on this machine would use. Raises ConfigError, and TokenizerUnavailable."""
    server = config.settings.server
    if server.unix_socket and server.ssl_certfile:
        raise ConfigError([Problem("", "server", "a unix socket has no HTTPS: name ssl_certfile or unix_socket")])
    if server.unix_socket:
        return await listen_unix(gateway, config.resolve(server.unix_socket), int(server.unix_socket_mode, 8))
    context = secured(config)
    try:
        host, port = await gateway.start(server.host, server.port, context)
    except OSError as error:
        raise ConfigError([unreachable(server.host, server.port, error)]) from error
    return announce.client_address(host, port, "https" if context else "http")


async def listen_admin(gateway: Gateway, config: Config) -> str:
    """The same for admin routes; "" = they have no address of their own."""
    server = config.settings.server
    if server.admin_port is None:
        return ""
    context = None if server.unix_socket else secured(config)
    try:
        host, port = await gateway.start_admin(server.admin_host, server.admin_port, context)
    except OSError as error:
        at = f"{server.admin_host} port {server.admin_port}"
        text = f"cannot listen on {at}: {error.strerror or error}"
        raise ConfigError([Problem("", "server.admin_port", text)]) from error
    return announce.client_address(host, port, "https" if context else "http")


async def listen_unix(gateway: Gateway, path: Path, mode: int) -> str:
    try:
        await gateway.start_unix(path, mode)
    except OSError as error:
        text = f"cannot listen on {path}: {error.strerror or error}"
        raise ConfigError([Problem("", "server.unix_socket", text)]) from error
    return announce.unix_address(path)


def secured(config: Config) -> ssl.SSLContext | None:
    """None = plain HTTP."""
    server = config.settings.server
    if not server.ssl_certfile:
        if server.ssl_keyfile:
            raise ConfigError([Problem("", "server.ssl_keyfile", "expected server.ssl_certfile beside it")])
        return None
    try:
        return tls(*files(config))
    except Unusable as error:
        raise ConfigError(_problems(config, error.problems)) from error


def files(config: Config) -> tuple[str, str]:
    """Certificate and key as absolute paths, "" where none is named."""
    server = config.settings.server
    certificate, key = (str(config.resolve(file)) if file else "" for file in (server.ssl_certfile, server.ssl_keyfile))
    return certificate, key


def tls_wrong(config: Config) -> list[Problem]:
    """What keeps HTTPS from starting, known before anything is started."""
    certificate, key = files(config)
    return _problems(config, tls_problems(certificate, key)) if certificate else []


def _problems(config: Config, found: Sequence[TlsProblem]) -> list[Problem]:
    return [Problem(str(config.path or ""), f"server.{problem.setting}", problem.text) for problem in found]


def unreachable(host: str, port: int, error: OSError) -> Problem:
    if error.errno == errno.EADDRINUSE:
        what = f"port {port} on {host} is in use; name another with --port, or --port 0 for any free one"
    else:
        what = f"cannot listen on {host} port {port}: {error.strerror or error}"
    return Problem("", "server", what)
