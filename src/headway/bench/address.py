"""Where a server is: http://HOST[:PORT], https://HOST[:PORT] or unix:/PATH, as curl's users know them."""

from __future__ import annotations

import http.client
import socket
import ssl
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import SplitResult, urlsplit

UNIX = "unix:"
PORTS = {"http": 80, "https": 443}
EXPECTED = "expected http://HOST[:PORT][/PATH], https://HOST[:PORT][/PATH] or unix:/SOCKET[:/PATH]"


class AddressError(ValueError):
    """It is no address, or its certificates cannot be read. The message says what was expected."""


@dataclass(frozen=True)
class Address:
    """url: what a request names; of a unix socket, http://localhost.  socket: its path, "" = host and port.
    tls: None = in the clear.
    """

    url: SplitResult
    socket: str = ""
    tls: ssl.SSLContext | None = None

    @property
    def host(self) -> str:
        return self.url.hostname or ""

    @property
    def port(self) -> int:
        return self.url.port or PORTS[self.url.scheme]

    @property
    def name(self) -> str:
        """For people."""
        return f"{UNIX}{self.socket}" if self.socket else self.url.netloc

    @property
    def shown(self) -> str:
        """With the path, for people."""
        return f"{UNIX}{self.socket}:{self.url.path}" if self.socket else self.url.geturl()

    def connection(self, timeout_s: float) -> http.client.HTTPConnection:
        """For a single question; not connected yet."""
        if self.socket:
            return _UnixConnection(self.socket, timeout_s)
        if self.tls is not None:
            return http.client.HTTPSConnection(self.host, self.port, timeout=timeout_s, context=self.tls)
        return http.client.HTTPConnection(self.host, self.port, timeout=timeout_s)


def parse(text: str, cacert: Path | None = None, insecure: bool = False) -> Address:
    """cacert: whom to trust, instead of the system's.  insecure: any certificate will do. Raises AddressError."""
    if text.startswith(UNIX):
        path, _, rest = text.removeprefix(UNIX).partition(":")
        if not path.startswith("/") or not path.strip("/") or (rest and not rest.startswith("/")):
            raise AddressError(f"{text!r}: {EXPECTED}")
        return Address(urlsplit(f"http://localhost{rest}"), socket=path)
    url = urlsplit(text if "//" in text else f"http://{text}")
    try:
        known = url.scheme in PORTS and bool(url.hostname) and url.port != 0
    except ValueError:  # a port that is no number, or beyond 65535
        known = False
    if not known:
        raise AddressError(f"{text!r}: {EXPECTED}")
    return Address(url, tls=_trusting(cacert, insecure) if url.scheme == "https" else None)


def advice(error: OSError) -> str:
    """What ends a message about a server that cannot be reached."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return "; name whom to trust with --cacert FILE, or take any certificate with --insecure"
    return ""


def _trusting(cacert: Path | None, insecure: bool) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=cacert)
    except OSError as error:  # ssl.SSLError is one
        raise AddressError(f"--cacert {cacert}: expected certificates in PEM: {error.strerror or error}") from None
    if insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


class _UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: str, timeout_s: float) -> None:
        super().__init__("localhost", timeout=timeout_s)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self._path)
