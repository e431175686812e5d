"""Routes for whoever operates the server: what they tell, and whom."""

from __future__ import annotations

import json
from typing import Any

import pytest

from headway.config.settings import Server
from headway.gateway.admin import AdminGate, is_loopback
from headway.gateway.exchange import Request, Response
from headway.gateway.gateway import Gateway
from tests.conformance.http_world import model, run, world

PATH = "/v2/models/add/explain"


def told(name: str, version: int) -> dict[str, Any] | None:
    return {"model": name, "version": version} if name == "add" else None


def asked(path: str, **settings: Any) -> Any:
    async def scenario() -> Any:
        async with world(**settings) as w:
            return await w.ask("GET", path)

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
