"""Routes for whoever operates the server: what they tell, and whom."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headway.config.errors import ConfigError, Problem
from headway.config.settings import Server, Settings
from headway.core.ids import VersionId
from headway.gateway.admin import AdminGate, is_loopback
from headway.gateway.exchange import Request, Response
from headway.gateway.gateway import Gateway
from headway.gateway.keys import new_key
from headway.gateway.quarantine import Quarantine
from headway.wire.messages import Quarantined
from tests.conformance.http_world import GOOD, World, model, run, world

PATH = "/v2/models/add/explain"


def told(name: str, version: int) -> dict[str, Any] | None:
    return {"model": name, "version": version} if name == "add" else None


def asked(path: str, method: str = "GET", **settings: Any) -> Any:
    async def scenario() -> Any:
        async with world(**settings) as w:
            return await w.ask(method, path)

    return run(scenario())


def from_peer(peer: str, allow_remote_admin: bool = False) -> Response:
    server = Server(allow_remote_admin=allow_remote_admin)

    async def scenario() -> Response:
        gateway = Gateway([model("add", 1)], lambda message: None, explain=told, gate=AdminGate(server))
        request = Request(b"GET", PATH.encode(), {}, "1.1")
        request.peer = peer
        try:
            reply = gateway.handle(request)
        finally:
            gateway.close()
        assert isinstance(reply, Response)
        return reply

    reply: Response = run(scenario())
    return reply


def test_a_version_is_explained_with_its_state_to_this_host() -> None:
    models = [model("add", 1, 2)]
    reply = asked(PATH, models=models, explain=told)
    assert (reply.status, reply.json["model"], reply.json["version"]) == (200, "add", 2)
    assert reply.json["state"] == "ready"
    assert asked("/v2/models/add/versions/1/explain", models=models, explain=told).json["version"] == 1


def test_unknown_names_and_versions_are_not_found() -> None:
    assert asked("/v2/models/nope/explain", explain=told).status == 404
    assert asked("/v2/models/add/versions/9/explain", explain=told).status == 404


def test_where_nothing_is_known_yet_one_is_told_to_come_again() -> None:
    reply = asked(PATH, explain=lambda name, version: None)
    assert (reply.status, reply.json["code"]) == (503, "model_not_ready")


def test_without_somebody_to_explain_there_is_no_such_page() -> None:
    assert asked(PATH).status == 404


@pytest.mark.parametrize("peer", ["10.0.0.7", "192.168.1.2", "2001:db8::1", "::ffff:10.0.0.7", "", "somewhere"])
def test_others_than_this_host_are_refused_unless_that_is_allowed(peer: str) -> None:
    refused = from_peer(peer)
    assert (refused.status, json.loads(refused.body)["code"]) == (403, "forbidden")
    assert "server.allow_remote_admin" in json.loads(refused.body)["error"]
    assert from_peer(peer, allow_remote_admin=True).status == 200


@pytest.mark.parametrize("peer", ["127.0.0.1", "127.8.9.10", "::1", "::ffff:127.0.0.1"])
def test_every_loopback_address_is_this_host(peer: str) -> None:
    assert is_loopback(peer)
    assert from_peer(peer).status == 200


KEY = new_key("boss")


class Kept:
    """One content in quarantine."""

    def __init__(self) -> None:
        self.kept = {
            0xABC: Quarantined("add", 1, 0xABC, since=0, until=1 << 62, request=7, tenant="t", cause="SIGSEGV")
        }
        self.lifted: list[tuple[VersionId, int]] = []

    def lift(self, version: VersionId, content: int) -> int:
        self.lifted.append((version, content))
        return len(self.kept) if content in (0, 0xABC) else 0

    @property
    def book(self) -> Quarantine:
        return Quarantine(self.kept.values, self.lift)


ADMIN = [
    ("GET", PATH),
    ("GET", "/v2/models/add/versions/1/explain"),
    ("GET", "/metrics"),
    ("POST", "/reload"),
    ("GET", "/quarantine"),
    ("DELETE", "/quarantine/add/1"),
    ("POST", "/v2/repository/models/add/load"),
    ("POST", "/v2/repository/models/add/unload"),
]


async def nothing_changed() -> dict[str, Any]:
    return {"reloaded": True, "changed": [], "needs_restart": []}


def operated(server: Server, **more: Any) -> Any:
    """A world that has all pages for operators."""
    pages = {
        "metrics": lambda: (b"text/plain", b"up 1\n"),
        "explain": told,
        "reload": nothing_changed,
        "quarantine": Kept().book,
    }
    return world(settings=Settings(server=server), **pages, **more)


@pytest.mark.parametrize(("method", "path"), ADMIN)
def test_admin_routes_and_metrics_are_closed_to_other_hosts_by_default(method: str, path: str) -> None:
    async def scenario() -> None:
        async with operated(Server()) as w:
            assert (await w.ask(method, path)).status in (200, 501)
            refused = await w.ask(method, path, X_Forwarded_For="127.0.0.1")
            assert (refused.status, refused.json["code"]) == (403, "forbidden")

    run(scenario())


@pytest.mark.parametrize(("method", "path"), ADMIN)
def test_where_there_are_admin_keys_one_is_wanted_from_this_host_too_and_is_enough_from_any(
    method: str, path: str
) -> None:
    async def scenario() -> None:
        tenant = new_key("acme1")
        async with operated(Server(admin_keys=(KEY.settings,))) as w:
            for headers in ({}, {"X_Api_Key": KEY.text + "x"}, {"X_Api_Key": tenant.text}):
                refused = await w.ask(method, path, **headers)
                assert (refused.status, refused.json["code"]) == (401, "unauthenticated")
                assert "www-authenticate" in refused.headers
            assert (await w.ask(method, path, X_Api_Key=KEY.text)).status in (200, 501)
            answer = await w.ask(method, path, Authorization=f"Bearer {KEY.text}", X_Forwarded_For="192.0.2.7")
            assert answer.status in (200, 501)

    run(scenario())


def test_an_address_of_their_own_answers_admin_routes_and_nothing_else_and_no_other_does() -> None:
    async def scenario() -> None:
        async with operated(Server(admin_port=0)) as w:
            _, port = await w.gateway.start_admin("127.0.0.1", 0)
            own = World(w.gateway, w.runtime, port)
            for method, path in ADMIN:
                assert (await w.ask(method, path)).status == 403
                assert (await own.ask(method, path, X_Forwarded_For="192.0.2.7")).status in (200, 501)
            for path in ("/health", "/ready", "/v2/health/live", "/v2/health/ready"):
                assert (await own.ask("GET", path)).status == (await w.ask("GET", path)).status == 200
            for method, path, body in (
                ("POST", "/v2/models/add/infer", GOOD),
                ("POST", "/v1/embeddings", {"model": "add", "input": "a"}),
                ("GET", "/v1/models", None),
                ("GET", "/v2/models/add", None),
                ("POST", "/v2/repository/index", b""),
            ):
                assert (await own.ask(method, path, body)).status == 404
            assert w.runtime.said == []

    run(scenario())


def test_at_their_own_address_admin_keys_are_wanted_if_there_are_any() -> None:
    async def scenario() -> None:
        async with operated(Server(admin_port=0, admin_keys=(KEY.settings,))) as w:
            _, port = await w.gateway.start_admin("127.0.0.1", 0)
            own = World(w.gateway, w.runtime, port)
            for method, path in ADMIN:
                assert (await own.ask(method, path)).status == 401
                assert (await own.ask(method, path, X_Api_Key=KEY.text)).status in (200, 501)
                assert (await w.ask(method, path, X_Api_Key=KEY.text)).status == 403
            assert (await own.ask("GET", "/health")).status == 200
            assert (await own.ask("GET", "/ready")).status == 401

    run(scenario())


def test_the_operators_own_address_answers_while_everything_else_drains() -> None:
    async def scenario() -> None:
        async with operated(Server(admin_port=0)) as w:
            _, port = await w.gateway.start_admin("127.0.0.1", 0)
            await w.gateway.drain()
            with pytest.raises(ConnectionError):
                await w.ask("GET", "/health")
            assert (await World(w.gateway, w.runtime, port).ask("GET", "/metrics")).status == 200

    run(scenario())


def test_a_configuration_that_is_refused_is_told_with_every_problem() -> None:
    async def bad() -> dict[str, Any]:
        raise ConfigError([Problem("f.toml", "server.port", "wrong"), Problem("m.toml", "", "not TOML")])

    reply = asked("/reload", method="POST", reload=bad)
    assert (reply.status, reply.json["code"], reply.json["retryable"]) == (500, "config_error", False)
    assert reply.headers["x-should-retry"] == "false"
    assert reply.json["problems"] == [
        {"file": "f.toml", "place": "server.port", "text": "wrong"},
        {"file": "m.toml", "place": "", "text": "not TOML"},
    ]
    assert reply.json["error"] == "nothing has changed; 2 problem(s):\nf.toml: server.port: wrong\nm.toml: not TOML"


def test_a_reload_that_breaks_is_an_opaque_error_and_nobody_to_reload_is_no_such_page() -> None:
    async def broken() -> dict[str, Any]:
        raise RuntimeError("secret")

    reply = asked("/reload", method="POST", reload=broken)
    assert (reply.status, reply.json["code"]) == (500, "internal") and "secret" not in reply.json["error"]
    assert asked("/reload", method="POST").status == 404
    assert asked("/reload", reload=nothing_changed).status == 405


def test_what_is_in_quarantine_is_listed_with_its_cause() -> None:
    (entry,) = asked("/quarantine", quarantine=Kept().book).json["quarantine"]
    assert (entry["model"], entry["version"], entry["content"]) == ("add", "1", "0000000000000abc")
    assert (entry["request"], entry["tenant"], entry["cause"]) == (7, "t", "SIGSEGV")
    assert entry["left_s"] > 0


def test_a_content_is_lifted_by_its_name_and_all_of_a_version_without() -> None:
    kept = Kept()
    assert asked("/quarantine/add/1/abc", "DELETE", quarantine=kept.book).json == {"lifted": 1}
    assert asked("/quarantine/add/1", "DELETE", quarantine=kept.book).json == {"lifted": 1}
    assert kept.lifted == [(VersionId("add", 1), 0xABC), (VersionId("add", 1), 0)]


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/quarantine/add/1/abd", 404),
        ("/quarantine/add/1/xyz", 400),
        ("/quarantine/add/1/0", 400),
        ("/quarantine/add/1/11112222333344445", 400),
        ("/quarantine/add/9", 404),
        ("/quarantine/nope/1", 404),
    ],
)
def test_what_is_not_in_quarantine_is_said_to_be_so(path: str, status: int) -> None:
    assert asked(path, "DELETE", quarantine=Kept().book).status == status


def test_without_a_quarantine_there_is_no_such_page() -> None:
    assert asked("/quarantine").status == 404
