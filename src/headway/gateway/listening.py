"""Where a server listens when that is more than a host and a port: a unix socket, or TLS."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import ssl
import stat
from pathlib import Path

LONGEST_PATH = 107
"""Bytes of a unix socket's path: what the system has room for."""


def address_of(server: asyncio.Server) -> tuple[str, int]:
    """Where it listens, the first of several."""
    host, port, *_ = server.sockets[0].getsockname()
    return host, port


def bind_unix(path: Path, mode: int) -> socket.socket:
    """A bound socket, with these permissions from its first moment. Raises OSError.

    A socket file that nobody listens on is what a server that was killed left behind, and is replaced; one that
    somebody listens on, and any other file, is not.
    """
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise OSError(errno.ENAMETOOLONG, f"the path has {len(os.fsencode(path))} bytes, the most is {LONGEST_PATH}")
    _remove_stale(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o777 & ~mode)
    try:
        bound.bind(str(path))
    except BaseException:
        bound.close()
        raise
    finally:
        os.umask(before)
    return bound


def _remove_stale(path: Path) -> None:
    try:
        is_socket = stat.S_ISSOCK(path.lstat().st_mode)
    except FileNotFoundError:
        return
    if not is_socket:
        raise OSError(errno.EEXIST, "a file that is no socket is there")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.settimeout(1)
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
            return
        except TimeoutError:
            pass  # its backlog is full: somebody listens
    raise OSError(errno.EADDRINUSE, "another server listens there")


def identity(path: Path) -> tuple[int, int] | None:
    """Which file it is, whatever its name; None = there is none."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def tls(certificate: str, key: str) -> ssl.SSLContext:
    """key: "" = in the certificate's file. TLS 1.2 and up. Raises OSError (ssl.SSLError is one) with the file named."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    for file in filter(None, (certificate, key)):
        with open(file, "rb"):
            pass  # OpenSSL does not say which of them it cannot read
    context.load_cert_chain(certificate, key or None, password=_no_password)
    return context


def _no_password() -> str:
    """Otherwise OpenSSL would ask on the terminal, and wait."""
    raise OSError(errno.EINVAL, "the private key is encrypted; expected one that is not")
