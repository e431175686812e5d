"""Where a server listens when that is more than a host and a port: a unix socket, or TLS."""

from __future__ import annotations

import asyncio
import errno
import os
import re
import socket
import ssl
import stat
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

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
    """key: "" = in the certificate's file. TLS 1.2 and up. Raises Unusable."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    problems = tls_problems(certificate, key)
    if problems:
        raise Unusable(problems)
    context.load_cert_chain(certificate, key or None, password=_no_password)
    return context


class Unusable(Exception):
    """A certificate or key with which there is no HTTPS."""

    def __init__(self, problems: Sequence[TlsProblem]) -> None:
        self.problems = tuple(problems)
        super().__init__("; ".join(problem.text for problem in problems))


class TlsProblem(NamedTuple):
    """setting: which of the two is to be mended. text: names the file, what is wrong and what was expected."""

    setting: str
    text: str


CERTIFICATE, KEY = "ssl_certfile", "ssl_keyfile"
"""Settings that name the files."""

BEGIN_CERTIFICATE = b"-----BEGIN CERTIFICATE-----"
BEGIN_KEY = re.compile(rb"-----BEGIN ([A-Z]+ )*PRIVATE KEY-----")
ENCRYPTED = (b"-----BEGIN ENCRYPTED PRIVATE KEY-----", b"Proc-Type: 4,ENCRYPTED")


def tls_problems(certificate: str, key: str) -> list[TlsProblem]:
    """All that is wrong with the two files, in words; OpenSSL names neither the file nor the fault."""
    found = [TlsProblem(CERTIFICATE, text) for text in _wrong_certificate(certificate)]
    if key or not found:  # without a file of its own, the key is looked for in one that can be read
        found += [TlsProblem(KEY if key else CERTIFICATE, text) for text in _wrong_key(key or certificate, not key)]
    return found or _mismatch(certificate, key)


def _wrong_certificate(file: str) -> Iterator[str]:
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        yield f"certificate {file} cannot be read: {error.strerror}"
        return
    if BEGIN_CERTIFICATE not in content:
        yield f"certificate {file} is not PEM: expected {BEGIN_CERTIFICATE.decode()}{_as_der(content, 'x509')}"
        return
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_verify_locations(file)
    except ssl.SSLError as error:
        yield f"certificate {file} is damaged: no certificate between its lines of dashes ({_why(error)})"


def _wrong_key(file: str, with_certificate: bool) -> Iterator[str]:
    try:
        content = Path(file).read_bytes()
    except OSError as error:
        yield f"private key {file} cannot be read: {error.strerror}"
        return
    if any(sign in content for sign in ENCRYPTED):
        yield f"private key {file} is encrypted: expected one that is not (openssl pkey -in {file} -out PLAIN)"
    elif BEGIN_KEY.search(content) is None and with_certificate:
        yield f"certificate {file} has no private key in it: name the key's file in {KEY}"
    elif BEGIN_KEY.search(content) is None:
        yield f"private key {file} is not PEM: expected -----BEGIN PRIVATE KEY-----{_as_der(content, 'pkey')}"


def _mismatch(certificate: str, key: str) -> list[TlsProblem]:
    """Of two files that look right."""
    setting, file = (KEY, key) if key else (CERTIFICATE, certificate)
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(certificate, key or None, password=_no_password)
    except ssl.SSLError as error:
        if "MISMATCH" in (error.reason or ""):
            return [TlsProblem(setting, f"private key {file} does not belong to certificate {certificate}")]
        why = "what stands between its lines of dashes is no key, or none that this OpenSSL takes"
        return [TlsProblem(setting, f"private key {file} is damaged: {why} ({_why(error)})")]
    except OSError as error:
        return [TlsProblem(setting, f"private key {file} cannot be used: {error.strerror or error}")]
    return []


def _as_der(content: bytes, command: str) -> str:
    """Advice for the binary form of the same."""
    return f"; it looks like DER (openssl {command} -inform der -in IT -out PEM)" if content[:1] == b"\x30" else ""


def _why(error: ssl.SSLError) -> str:
    return error.reason or str(error)


def _no_password() -> str:
    """Otherwise OpenSSL would ask on the terminal, and wait."""
    raise OSError(errno.EINVAL, "it is encrypted; expected one that is not")
