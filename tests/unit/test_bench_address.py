"""Where `headway bench` and `headway explain` find a server."""

from __future__ import annotations

import ssl
from pathlib import Path

import pytest

from headway.bench.address import AddressError, parse

CERTIFICATE = Path(__file__).parents[1] / "certificates" / "certificate.pem"


@pytest.mark.parametrize(
    ("text", "host", "port", "socket", "path", "secured"),
    [
        ("127.0.0.1:8000", "127.0.0.1", 8000, "", "", False),
        ("http://host", "host", 80, "", "", False),
        ("https://host/v1", "host", 443, "", "/v1", True),
        ("https://[::1]:8443", "::1", 8443, "", "", True),
        ("unix:/run/a.sock", "localhost", 80, "/run/a.sock", "", False),
        ("unix:/run/a.sock:/v2/models/m/infer", "localhost", 80, "/run/a.sock", "/v2/models/m/infer", False),
    ],
)
def test_an_address_is_a_host_and_port_or_a_socket(
    text: str, host: str, port: int, socket: str, path: str, secured: bool
) -> None:
    found = parse(text)
    assert (found.host, found.port, found.socket, found.url.path) == (host, port, socket, path)
    assert (found.tls is not None) == secured


@pytest.mark.parametrize(
    "text", ["ftp://host", "http://", "http://host:http", "http://host:99999", "unix:", "unix:run", "unix:/a:b"]
)
def test_what_is_no_address_is_told_with_what_was_expected(text: str) -> None:
    with pytest.raises(AddressError, match=r"expected http://HOST\[:PORT\]"):
        parse(text)


def test_certificates_are_checked_unless_one_says_not_to() -> None:
    assert parse("https://h", CERTIFICATE).tls.verify_mode is ssl.CERT_REQUIRED
    insecure = parse("https://h", insecure=True).tls
    assert (insecure.verify_mode, insecure.check_hostname) == (ssl.CERT_NONE, False)
    with pytest.raises(AddressError, match=r"README\.md: expected certificates in PEM"):
        parse("https://h", CERTIFICATE.parent / "README.md")
