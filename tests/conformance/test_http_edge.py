"""Where a server listens, whom it believes, what browsers may do, and what the log has of it."""

from __future__ import annotations

import asyncio
import json
import shutil
import socket
import ssl
import stat
from pathlib import Path
from typing import Any

import pytest

from headway.config.settings import Limits, Server, Settings
from headway.gateway.edge import Edge, edge_of
from headway.gateway.forwarded import TrustedProxies
from headway.gateway.gateway import Gateway
from headway.gateway.listening import Unusable, tls, tls_problems
from headway.telemetry.logs import JsonFormatter, TextFormatter
from headway.wire.messages import Submit
from tests.conformance.http_world import (
    CERTIFICATE,
    CERTIFICATES,
    GOOD,
    KEY,
    FakeRuntime,
    message,
    run,
    within,
    world,
    x,
)

INFER = "/v2/models/add/infer"
EXPLAIN = "/v2/models/add/explain"


def explain(name: str, version: int) -> dict[str, Any]:
    return {"model": name}


# -- TLS ----------------------------------------------------------------------------------------------------------


def test_over_tls_everything_is_as_it_is_without() -> None:
    async def scenario() -> None:
        async with world(secured=True, edge=Edge(compress_from=1024)) as w:
            client = await w.connect()
            client.send(message("POST", INFER, x(20_000, id="a")) + message("GET", "/health", Connection="close"))
            first, second = await client.answer(), await client.answer()
            assert (first.status, first.json["id"], second.headers["connection"]) == (200, "a", "close")
            assert await client.closed()
            session = client.writer.get_extra_info("ssl_object")
            assert session.version() in ("TLSv1.2", "TLSv1.3")

    run(scenario())


def test_a_refusal_reaches_a_client_over_tls_while_it_sends() -> None:
    async def scenario() -> None:
        async with world(secured=True, limits=Limits(max_body_mb=0.01)) as w:
            client = await w.connect()
            client.send(
                b"POST /v2/models/add/infer HTTP/1.1\r\nHost: a\r\nContent-Length: 500000\r\n\r\n" + b" " * 9000
            )
            assert (await client.answer()).status == 413
            assert await client.closed()

    run(scenario())


def test_a_client_that_speaks_no_tls_or_is_silent_is_closed_and_the_others_are_served() -> None:
    async def scenario() -> None:
        async with world(secured=True, limits=Limits(header_timeout_s=0.2)) as w:
            reader, writer = await asyncio.open_connection("127.0.0.1", w.port)
            writer.write(message("GET", "/health"))
            silent, _ = await asyncio.open_connection("127.0.0.1", w.port)
            for each in (reader, silent):
                assert b"200" not in await within(each.read())
            assert (await w.ask("GET", "/health")).status == 200

    run(scenario())


def test_old_versions_of_tls_are_not_spoken() -> None:
    assert tls(str(CERTIFICATE), str(KEY)).minimum_version is ssl.TLSVersion.TLSv1_2


BEGIN, END = "-----BEGIN {}-----\n", "\n-----END {}-----\n"


@pytest.mark.parametrize(
    ("certificate", "key", "setting", "says"),
    [
        ("missing.pem", "key.pem", "ssl_certfile", "certificate {}/missing.pem cannot be read: No such file"),
        ("certificate.pem", "missing.pem", "ssl_keyfile", "private key {}/missing.pem cannot be read: No such file"),
        ("certificate.pem", "", "ssl_certfile", "has no private key in it: name the key's file in ssl_keyfile"),
        (
            "certificate.pem",
            "other.pem",
            "ssl_keyfile",
            "private key {0}/other.pem does not belong to certificate {0}/c",
        ),
        ("certificate.pem", "encrypted.pem", "ssl_keyfile", "private key {}/encrypted.pem is encrypted: expected one"),
        (
            "README.md",
            "key.pem",
            "ssl_certfile",
            "certificate {}/README.md is not PEM: expected -----BEGIN CERTIFICATE",
        ),
        (
            "certificate.pem",
            "README.md",
            "ssl_keyfile",
            "private key {}/README.md is not PEM: expected -----BEGIN PRIV",
        ),
        ("certificate.der", "key.pem", "ssl_certfile", "it looks like DER (openssl x509 -inform der"),
        ("damaged.pem", "key.pem", "ssl_certfile", "certificate {}/damaged.pem is damaged"),
        ("certificate.pem", "damaged_key.pem", "ssl_keyfile", "private key {}/damaged_key.pem is damaged"),
        ("certificate.pem", ".", "ssl_keyfile", "private key {} cannot be read: Is a directory"),
    ],
)
def test_what_is_wrong_with_a_certificate_or_key_is_said_in_words_with_the_file_and_the_setting(
    tmp_path: Path, certificate: str, key: str, setting: str, says: str
) -> None:
    for file in CERTIFICATES.iterdir():
        shutil.copy(file, tmp_path)
    (tmp_path / "certificate.der").write_bytes(ssl.PEM_cert_to_DER_cert(CERTIFICATE.read_text()))
    for file, kind in (("damaged.pem", "CERTIFICATE"), ("damaged_key.pem", "PRIVATE KEY")):
        (tmp_path / file).write_text(BEGIN.format(kind) + "AAAA" + END.format(kind))
    with pytest.raises(Unusable) as error:
        tls(str(tmp_path / certificate), str(tmp_path / key) if key else "")
    (problem,) = error.value.problems
    assert problem.setting == setting
    assert says.format(tmp_path) in problem.text


def test_all_that_is_wrong_with_certificate_and_key_is_told_at_once(tmp_path: Path) -> None:
    assert [problem.setting for problem in tls_problems(str(tmp_path / "c"), str(tmp_path / "k"))] == [
        "ssl_certfile",
        "ssl_keyfile",
    ]


# -- unix socket --------------------------------------------------------------------------------------------------


def test_a_unix_socket_serves_with_its_permissions_and_is_gone_after(tmp_path: Path) -> None:
    path = tmp_path / "headway.sock"

    async def scenario() -> None:
        async with world(unix=path, unix_mode=0o640) as w:
            assert stat.S_IMODE(path.stat().st_mode) == 0o640
            assert (await w.infer("add", GOOD)).status == 200

    run(scenario())
    assert not path.exists()


def test_draining_takes_the_socket_away_at_once(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, unix=path) as w:
            client = await w.connect()
            client.send(message("POST", INFER, GOOD))
            await runtime.next(Submit)
            draining = asyncio.ensure_future(w.gateway.drain())
            await asyncio.sleep(0)
            assert not path.exists()
            client.close()
            await within(draining)

    run(scenario())


def left_behind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))


def test_the_socket_of_a_server_that_was_killed_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "s"
    left_behind(path)

    async def scenario() -> None:
        async with world(unix=path) as w:
            assert (await w.ask("GET", "/health")).status == 200

    run(scenario())


def start_at(path: Path) -> None:
    async def scenario() -> None:
        gateway = Gateway([], lambda message: None)
        try:
            await gateway.start_unix(path, 0o600)
        finally:
            gateway.close()

    run(scenario())


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("precious")
    with pytest.raises(FileExistsError):
        start_at(path)
    assert path.read_text() == "precious"


def test_the_socket_of_a_server_that_lives_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as alive:
        alive.bind(str(path))
        alive.listen()
        with pytest.raises(OSError, match="another server"):
            start_at(path)
    assert path.exists()


def test_a_server_does_not_take_away_the_socket_of_its_successor(tmp_path: Path) -> None:
    path = tmp_path / "s"

    async def scenario() -> None:
        async with world(unix=path):
            path.unlink()
            left_behind(path)

    run(scenario())
    assert path.exists()


def test_a_path_that_is_too_long_is_told_with_both_numbers(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="the most is 107"):
        start_at(tmp_path / ("s" * 120))


# -- proxies ------------------------------------------------------------------------------------------------------

XFF, FORWARDED = b"x-forwarded-for", b"forwarded"

TOLD: dict[str, tuple[dict[bytes, bytes], str]] = {
    "nothing": ({}, "10.0.0.1"),
    "a client": ({XFF: b"192.0.2.7"}, "192.0.2.7"),
    "what the client wrote is before it": ({XFF: b"127.0.0.1, 192.0.2.7"}, "192.0.2.7"),
    "two proxies": ({XFF: b"192.0.2.7, 10.0.0.9"}, "192.0.2.7"),
    "proxies only": ({XFF: b"10.0.0.8, 10.0.0.9"}, "10.0.0.8"),
    "a port": ({XFF: b"192.0.2.7:4711"}, "192.0.2.7"),
    "IPv6": ({XFF: b"2001:db8::1"}, "2001:db8::1"),
    "IPv6 in brackets with a port": ({XFF: b"[2001:db8::1]:80"}, "2001:db8::1"),
    "IPv4 as IPv6": ({XFF: b"::ffff:192.0.2.7"}, "192.0.2.7"),
    "nonsense": ({XFF: b"<script>"}, "10.0.0.1"),
    "nonsense before a proxy": ({XFF: b"unknown, 10.0.0.9"}, "10.0.0.9"),
    "empty": ({XFF: b""}, "10.0.0.1"),
    "commas": ({XFF: b",,,"}, "10.0.0.1"),
    "RFC 7239": ({FORWARDED: b"for=192.0.2.7;proto=https;by=10.0.0.1"}, "192.0.2.7"),
    "RFC 7239, quoted": ({FORWARDED: b'For="[2001:db8::1]:4711"'}, "2001:db8::1"),
    "RFC 7239, two": ({FORWARDED: b"for=192.0.2.7, for=10.0.0.9"}, "192.0.2.7"),
    "RFC 7239, hidden": ({FORWARDED: b"for=_hidden"}, "10.0.0.1"),
    "RFC 7239, without for": ({FORWARDED: b"proto=https"}, "10.0.0.1"),
    "both, agreeing": ({XFF: b"192.0.2.7", FORWARDED: b"for=192.0.2.7"}, "192.0.2.7"),
    "both, one of them as the client wrote it": ({XFF: b"192.0.2.7", FORWARDED: b"for=127.0.0.1"}, "10.0.0.1"),
}


@pytest.mark.parametrize("case", TOLD)
def test_the_client_is_the_last_address_that_is_no_trusted_proxy(case: str) -> None:
    headers, client = TOLD[case]
    assert TrustedProxies(["10.0.0.0/8"]).client("10.0.0.1", headers) == client


@pytest.mark.parametrize(
    ("entries", "peer", "trusted"),
    [
        (["10.0.0.0/8"], "10.1.2.3", True),
        (["10.0.0.0/8"], "::ffff:10.1.2.3", True),
        (["10.0.0.0/8"], "11.1.2.3", False),
        (["::1"], "::1", True),
        (["127.0.0.1"], "::1", False),
        (["127.0.0.1"], "unix", False),
        (["unix"], "unix", True),
        (["unix"], "", False),
    ],
)
def test_a_proxy_is_trusted_by_its_own_address_only(entries: list[str], peer: str, trusted: bool) -> None:
    assert TrustedProxies(entries).trusts(peer) is trusted


def test_nobody_is_believed_who_is_not_trusted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headway.access")

    async def scenario() -> None:
        for proxies, client in (((), "127.0.0.1"), (("127.0.0.1",), "192.0.2.7"), (("10.0.0.0/8",), "127.0.0.1")):
            async with world(edge=edge_of(Server(access_log=True, trusted_proxies=proxies))) as w:
                await w.ask("GET", "/health", X_Forwarded_For="192.0.2.7")
                assert caplog.records[-1].fields["client"] == client  # type: ignore[attr-defined]

    run(scenario())


def test_admin_routes_answer_at_the_unix_socket_and_not_through_any_proxy(tmp_path: Path) -> None:
    async def scenario() -> None:
        trusting = edge_of(Server(trusted_proxies=("unix", "127.0.0.1")))
        for settings in ({}, {"edge": trusting}):
            async with world(unix=tmp_path / "s", explain=explain, **settings) as w:
                assert (await w.ask("GET", EXPLAIN)).status == 200
            async with world(explain=explain, **settings) as w:
                assert (await w.ask("GET", EXPLAIN)).status == 200
                for header in ("X_Forwarded_For", "Forwarded", "X_Real_IP", "Via"):
                    refused = await w.ask("GET", EXPLAIN, **{header: "127.0.0.1"})
                    assert refused.status == 403
                    assert header.lower().replace("_", "-") in refused.json["error"]
            async with world(
                explain=explain, settings=Settings(server=Server(allow_remote_admin=True)), **settings
            ) as w:
                assert (await w.ask("GET", EXPLAIN, Via="1.1 a")).status == 200

    run(scenario())


# -- browsers -----------------------------------------------------------------------------------------------------

ASKS = {"Access_Control_Request_Method": "POST", "Access_Control_Request_Headers": "content-type, x-tenant"}


def cors(*origins: str) -> Any:
    return world(edge=edge_of(Server(cors_origins=origins)))


def test_a_page_of_an_allowed_origin_may_ask_and_read() -> None:
    async def scenario() -> None:
        async with cors("https://a.example") as w:
            asked = await w.ask("OPTIONS", INFER, Origin="https://a.example", **ASKS)
            assert asked.status == 200 and asked.body == b""
            assert asked.headers["access-control-allow-origin"] == "https://a.example"
            assert "POST" in asked.headers["access-control-allow-methods"]
            assert asked.headers["access-control-allow-headers"] == "content-type, x-tenant"
            answer = await w.infer("add", GOOD, Origin="https://a.example")
            assert answer.headers["access-control-allow-origin"] == "https://a.example"
            assert "x-request-id" in answer.headers["access-control-expose-headers"]
            assert answer.headers["vary"] == "origin"
            failed = await w.infer("nope", GOOD, Origin="https://a.example")
            assert failed.headers["access-control-allow-origin"] == "https://a.example"

    run(scenario())


def test_a_page_of_another_origin_may_not() -> None:
    async def scenario() -> None:
        async with cors("https://a.example") as w:
            asked = await w.ask("OPTIONS", INFER, Origin="https://b.example", **ASKS)
            assert asked.status == 405 and "access-control-allow-origin" not in asked.headers
            answer = await w.infer("add", GOOD, Origin="https://b.example")
            assert answer.status == 200 and "access-control-allow-origin" not in answer.headers
            assert answer.headers["vary"] == "origin", "a cache must not give it to a.example"
            assert "access-control-allow-origin" not in (await w.infer("add", GOOD)).headers

    run(scenario())


def test_a_star_allows_all_and_without_the_setting_nobody_is() -> None:
    async def scenario() -> None:
        async with cors("*") as w:
            answer = await w.infer("add", GOOD, Origin="https://b.example")
            assert answer.headers["access-control-allow-origin"] == "*" and "vary" not in answer.headers
        async with world() as w:
            answer = await w.infer("add", GOOD, Origin="https://b.example")
            assert "access-control-allow-origin" not in answer.headers
            asked = await w.ask("OPTIONS", INFER, Origin="https://b.example", **ASKS)
            assert (asked.status, asked.headers["allow"]) == (405, "POST")

    run(scenario())


# -- log ----------------------------------------------------------------------------------------------------------


def logged(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [record.fields for record in caplog.records if record.name == "headway.access"]  # type: ignore[attr-defined]


def test_each_reply_is_a_line_with_who_what_and_how_long(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headway.access")

    async def scenario() -> None:
        async with world(edge=edge_of(Server(access_log=True)), settings=Settings(tenant_header="x-tenant")) as w:
            answer = await w.ask("POST", f"{INFER}?key=secret", GOOD, X_Tenant="acme", Authorization="Bearer secret")
            await w.ask("GET", "/nothing")
            head = await w.ask("HEAD", "/v2")
            client = await w.connect()
            client.send(b"nonsense\r\n\r\n")
            assert (await client.answer()).status == 400
            assert head.status == 200
            first, second, third, fourth = logged(caplog)
            assert first.pop("ms") >= 0
            assert first == {
                "client": "127.0.0.1",
                "method": "POST",
                "path": INFER,
                "status": 200,
                "bytes": len(answer.body),
                "tenant": "acme",
            }
            assert (second["status"], third["bytes"], fourth["status"]) == (404, 0, 400)
            assert caplog.records[0].request_id == answer.headers["x-request-id"]  # type: ignore[attr-defined]
            assert "secret" not in caplog.text

    run(scenario())


def test_a_client_that_left_is_a_499_and_a_stream_is_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headway.access")

    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, edge=edge_of(Server(access_log=True))) as w:
            client = await w.connect()
            client.send(message("POST", INFER, GOOD))
            await runtime.next(Submit)
            client.writer.transport.abort()
            streaming = await w.connect()
            streaming.send(message("POST", "/v2/models/talk/generate_stream", {"a": 1}))
            request = (await runtime.next(Submit)).request
            runtime.chunk(request, 0, "one")
            from tests.conformance.http_world import done

            runtime.deliver(done(request))
            assert (await streaming.answer()).body == b'data: "one"\n\n'

    run(scenario())
    assert sorted((line["status"], line["bytes"]) for line in logged(caplog)) == [(200, 13), (499, 0)]


def test_no_header_can_forge_a_line(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headway.access")

    async def scenario() -> None:
        async with world(edge=edge_of(Server(access_log=True)), settings=Settings(tenant_header="x-tenant")) as w:
            await w.ask("GET", "/v2", X_Tenant='a" 200\t\x85 b\xe9')

    run(scenario())
    assert logged(caplog)[0]["tenant"] == "a??200???b?"
    text = TextFormatter().format(caplog.records[0])
    assert len(text.splitlines()) == 1 and '"GET /v2" 200' in text


def test_as_json_each_field_of_a_line_is_one(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "headway.access")

    async def scenario() -> None:
        async with world(edge=edge_of(Server(access_log=True))) as w:
            await w.ask("GET", "/health", X_Request_Id="abc")

    run(scenario())
    line = json.loads(JsonFormatter().format(caplog.records[0]))
    assert (line["path"], line["status"], line["request_id"], line["logger"]) == (
        "/health",
        200,
        "abc",
        "headway.access",
    )


def test_by_default_nothing_is_logged_compressed_from_32_kib_and_nobody_trusted() -> None:
    assert edge_of(Server()) == Edge(compress_from=32 << 10)
    assert edge_of(Server(compress_replies_kb=0)).compress_from > 1 << 60
