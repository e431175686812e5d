"""Who gets in and what he may: keys, tenants by header, classes, deadlines, models of others."""

from __future__ import annotations

from typing import Any

import pytest

from headway.config.settings import Scheduling, Server, Settings
from headway.config.tenants import LimitSettings, OtherTenants, TenantSettings
from headway.gateway.edge import edge_of
from headway.gateway.keys import new_key
from headway.wire.messages import Submit
from tests.conformance.http_world import GOOD, Answer, FakeRuntime, World, message, model, run, world, x

ACME, UMBRELLA, ADMIN = new_key("acme1"), new_key("umbrella1"), new_key("boss")
SETTINGS = Settings(
    tenants={
        "acme": TenantSettings(keys=(ACME.settings,), models=("add", "talk"), classes=(1, 2), default_deadline_ms=200),
        "umbrella": TenantSettings(keys=(UMBRELLA.settings,), limits=(LimitSettings(concurrent=3),)),
    }
)
NEED_A_KEY = [
    ("GET", "/v2", None),
    ("GET", "/v2/models/add", None),
    ("GET", "/v2/models/add/ready", None),
    ("GET", "/v2/models/add/config", None),
    ("POST", "/v2/models/add/infer", GOOD),
    ("POST", "/v2/models/add/versions/1/infer", GOOD),
    ("POST", "/v2/models/talk/generate", {}),
    ("POST", "/v2/models/talk/generate_stream", {}),
    ("POST", "/v2/models/nope/infer", GOOD),
    ("POST", "/v2/repository/index", b""),
    ("GET", "/v1/models", None),
    ("GET", "/v1/models/add", None),
    ("POST", "/v1/embeddings", {"model": "add", "input": "a"}),
]
OPEN = ["/health", "/ready", "/v2/health/live", "/v2/health/ready"]


def asked(method: str, path: str, body: Any = None, settings: Settings = SETTINGS, **headers: str) -> Answer:
    async def scenario() -> Answer:
        async with world(settings=settings) as w:
            return await w.ask(method, path, body, **headers)

    return run(scenario())


def submitted(body: Any = GOOD, settings: Settings = SETTINGS, **headers: str) -> Submit | Answer:
    """What the runtime got, or what the client did instead."""

    async def scenario() -> Submit | Answer:
        runtime = FakeRuntime()
        async with world(runtime, settings=settings, now=lambda: 0) as w:
            answer = await w.infer("add", body, **headers)
            return runtime.all(Submit)[0] if answer.status == 200 else answer

    return run(scenario())


def bearer(text: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {text}"}


@pytest.mark.parametrize(("method", "path", "body"), NEED_A_KEY)
def test_without_a_key_nothing_but_health_answers(method: str, path: str, body: Any) -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(runtime, settings=SETTINGS) as w:
            for headers, challenge in (({}, ""), (bearer("hw_acme1_wrong"), ', error="invalid_token"')):
                answer = await w.ask(method, path, body, **headers)
                assert answer.status == 401
                assert answer.headers["www-authenticate"] == f'Bearer realm="headway"{challenge}'
                told = answer.json["error"]
                if path.startswith("/v1"):
                    assert (told["type"], told["code"]) == ("authentication_error", "unauthenticated")
                else:
                    assert (answer.json["code"], answer.json["retryable"]) == ("unauthenticated", False)
            assert runtime.said == []

    run(scenario())


@pytest.mark.parametrize("path", OPEN)
def test_health_needs_no_key_and_names_no_model_to_whoever_has_none(path: str) -> None:
    for headers in ({}, bearer("hw_acme1_wrong")):
        answer = asked("GET", path, **headers)
        assert answer.status == 200 and b"add" not in answer.body
    assert [m["model"] for m in asked("GET", "/ready", **bearer(ACME.text)).json["models"]] == ["add", "talk"]
    assert len(asked("GET", "/ready", settings=Settings()).json["models"]) == 4


def test_the_key_says_who_it_is_and_no_header_can_say_otherwise() -> None:
    for headers in (bearer(ACME.text), {"X_Api_Key": ACME.text}):
        got = submitted(**headers, X_Tenant="umbrella")
        assert isinstance(got, Submit) and got.tenant == "acme"
    spoofed = submitted(X_Tenant="umbrella", **bearer("hw_acme1_wrong"))
    assert isinstance(spoofed, Answer) and spoofed.status == 401


def test_a_key_in_the_query_or_the_body_is_none() -> None:
    assert asked("POST", f"/v2/models/add/infer?api_key={ACME.text}", {**GOOD, "key": ACME.text}).status == 401


def test_keys_of_every_wrong_kind_are_a_401_and_the_connection_lives() -> None:
    wrong = [
        b"X-Api-Key: hw_acme1_\xff\xfe\r\n",
        b"X-Api-Key:\r\n",
        b"Authorization: Bearer\r\n",
        b"Authorization: Bearer " + b"A" * 60_000 + b"\r\n",
        b"Authorization: Digest a=b\r\n",
        b"".join(b"X-Api-Key: hw_acme1_%d\r\n" % n for n in range(120)),
        f"Authorization: Bearer {ACME.text}\r\nAuthorization: Bearer {ACME.text}\r\n".encode(),
        f"Authorization: Bearer {ACME.text}\r\nX-Api-Key: {UMBRELLA.text}\r\n".encode(),
        f"X-Api-Key: {ADMIN.text}\r\n".encode(),
    ]

    async def scenario() -> None:
        async with world(settings=SETTINGS) as w:
            client = await w.connect()
            for lines in wrong:
                client.send(b"GET /v2 HTTP/1.1\r\nHost: a\r\n" + lines + b"\r\n")
                assert (await client.answer()).status == 401, lines[:80]
            client.send(message("GET", "/v2", X_Api_Key=ACME.text))
            assert (await client.answer()).status == 200

    run(scenario())


def test_more_headers_than_a_request_may_have_are_refused_before_any_key_is_looked_at() -> None:
    async def scenario() -> None:
        async with world(settings=SETTINGS) as w:
            client = await w.connect()
            client.send(b"GET /v2 HTTP/1.1\r\nHost: a\r\n" + b"X-Api-Key: hw_acme1_x\r\n" * 200 + b"\r\n")
            assert (await client.answer()).status == 431

    run(scenario())


def test_a_model_of_somebody_else_is_refused_like_one_that_does_not_exist() -> None:
    async def scenario() -> None:
        async with world(settings=SETTINGS) as w:
            for name in ("kinds", "nope"):
                for method, path, body in [
                    ("POST", f"/v2/models/{name}/infer", b"not even JSON"),
                    ("POST", f"/v2/models/{name}/versions/9/infer", GOOD),
                    ("POST", f"/v2/models/{name}/generate", {}),
                    ("GET", f"/v2/models/{name}", None),
                    ("GET", f"/v2/models/{name}/ready", None),
                    ("GET", f"/v2/models/{name}/config", None),
                    ("GET", f"/v1/models/{name}", None),
                    ("POST", "/v1/embeddings", {"model": name, "input": "a"}),
                ]:
                    answer = await w.ask(method, path, body, **bearer(ACME.text))
                    error = answer.json["error"]
                    text, code = (
                        (error["message"], error["code"]) if path.startswith("/v1") else (error, answer.json["code"])
                    )
                    assert (answer.status, code) == (403, "forbidden"), path
                    assert text == f"this tenant may call add, talk, not {name!r}"
            refused = await w.ask("GET", "/v1/models/kinds", **bearer(ACME.text))
            assert refused.json["error"]["type"] == "permission_error"
            assert (await w.ask("GET", "/v2/models/kinds", **bearer(UMBRELLA.text))).status == 200

    run(scenario())


def test_lists_have_only_the_models_that_one_may_call() -> None:
    async def names(w: World, key: str) -> tuple[list[str], list[str]]:
        index = await w.ask("POST", "/v2/repository/index", b"", **bearer(key))
        models = await w.ask("GET", "/v1/models", **bearer(key))
        return [entry["name"] for entry in index.json], [entry["id"] for entry in models.json["data"]]

    async def scenario() -> None:
        async with world(settings=SETTINGS) as w:
            assert await names(w, ACME.text) == (["add", "talk"], ["add", "talk"])
            everything = ["add", "text", "kinds", "talk"]
            assert await names(w, UMBRELLA.text) == (everything, everything)

    run(scenario())


def test_a_class_that_one_may_not_use_is_refused_and_none_named_is_the_nearest_allowed() -> None:
    refused = submitted(x(parameters={"priority": 1}), **bearer(ACME.text))
    assert isinstance(refused, Answer) and refused.status == 403
    assert refused.json["error"] == "this tenant may use class 1, 2 of priority, not class 0"
    by_header = submitted(X_Priority="1", **bearer(ACME.text))
    assert isinstance(by_header, Answer) and by_header.status == 403
    for classes, usual in (((0,), 0), ((0, 2), 2), ((2,), 2), ((0, 1), 1), ((), 1)):
        settings = Settings(tenants={"default": TenantSettings(classes=classes)})
        for body in (GOOD, x(parameters={"priority": 0})):
            got = submitted(body, settings)
            assert isinstance(got, Submit) and got.priority == usual


def test_classes_beyond_the_last_count_as_the_last() -> None:
    settings = Settings(scheduling=Scheduling(patience_ms=(10, 100)), tenants={"default": TenantSettings(classes=(1,))})
    assert isinstance(submitted(x(parameters={"priority": 9}), settings), Submit)
    assert isinstance(submitted(x(parameters={"priority": 1}), settings), Answer)


@pytest.mark.parametrize(
    ("headers", "body", "milliseconds"),
    [
        ({}, GOOD, 200),
        ({"X_Request_Timeout_Ms": "900"}, GOOD, 900),
        ({}, x(parameters={"timeout": 50_000}), 50),
        ({}, x(parameters={"timeout": 0}), 200),
    ],
)
def test_a_tenants_own_deadline_holds_for_requests_that_name_none(
    headers: dict[str, str], body: Any, milliseconds: int
) -> None:
    got = submitted(body, **headers, **bearer(ACME.text))
    assert isinstance(got, Submit) and got.deadline == milliseconds * 1_000_000


@pytest.mark.parametrize(
    ("unknown", "named", "tenant"),
    [
        ("each", "acme", "acme"),
        ("each", "stranger", "stranger"),
        ("each", "", "default"),
        ("default", "stranger", "default"),
        ("default", "acme", "acme"),
        ("refuse", "acme", "acme"),
        ("refuse", "stranger", None),
        ("refuse", "", None),
    ],
)
def test_what_a_trusted_header_may_name_is_set(unknown: Any, named: str, tenant: str | None) -> None:
    settings = Settings(
        tenant_header="x-tenant", unknown_tenants=unknown, tenants={"acme": TenantSettings(default_deadline_ms=5)}
    )
    got = submitted(settings=settings, **({"X_Tenant": named} if named else {}))
    if tenant is None:
        assert isinstance(got, Answer) and (got.status, got.json["code"]) == (403, "forbidden")
        assert ("no tenant 'stranger' here" if named else "the header x-tenant is missing") in got.json["error"]
    else:
        assert isinstance(got, Submit)
        assert (got.tenant, got.deadline == 5_000_000) == (tenant, tenant == "acme")


def test_what_holds_for_others_holds_for_each_that_has_no_table() -> None:
    others = OtherTenants(models=("text",), default_deadline_ms=7)
    settings = Settings(tenant_header="x-tenant", tenants={"acme": TenantSettings()}, other_tenants=others)
    assert isinstance(submitted(settings=settings, X_Tenant="acme"), Submit)
    for headers in ({"X_Tenant": "stranger"}, {}):
        refused = submitted(settings=settings, **headers)
        assert isinstance(refused, Answer) and refused.status == 403


def test_require_keys_lets_nobody_in_where_nobody_has_one() -> None:
    assert asked("GET", "/v2", settings=Settings(server=Server(require_keys=True))).status == 401


def test_statistics_count_all_tenants_together_and_are_the_operators_where_there_are_keys() -> None:
    def statistics(name: str, version: int) -> dict[str, Any]:
        return {"name": name}

    admin = Server(admin_keys=(ADMIN.settings,))

    async def scenario() -> None:
        for path in ("/v2/models/stats", "/v2/models/add/stats"):
            async with world(settings=Settings(server=admin), statistics=statistics) as w:
                assert (await w.ask("GET", path)).status == 200
            keyed = Settings(server=admin, tenants=SETTINGS.tenants)
            async with world(settings=keyed, statistics=statistics) as w:
                assert (await w.ask("GET", path, **bearer(ACME.text))).status == 401
                assert (await w.ask("GET", path, **bearer(ADMIN.text))).status == 200

    run(scenario())


def test_the_log_has_the_tenant_and_never_the_key(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("DEBUG")

    async def scenario() -> None:
        async with world(settings=SETTINGS, edge=edge_of(Server(access_log=True))) as w:
            await w.infer("add", GOOD, **bearer(ACME.text))
            await w.infer("add", GOOD, X_Api_Key=ACME.text + "x")
            await w.infer("nope", GOOD, X_Api_Key=ACME.text)
            await w.ask("GET", "/health", X_Tenant="umbrella")

    run(scenario())
    fields: list[Any] = [record.fields for record in caplog.records]  # type: ignore[attr-defined]
    assert [(line["status"], line["tenant"]) for line in fields] == [
        (200, "acme"),
        (401, "-"),
        (403, "acme"),
        (200, "-"),
    ]
    assert ACME.text.rpartition("_")[2] not in caplog.text and ACME.settings.sha256 not in caplog.text


def test_rules_that_change_hold_from_the_next_request_on() -> None:
    from headway.gateway.access import Access

    async def scenario() -> None:
        async with world(models=[model("add", 1)], settings=SETTINGS) as w:
            client = await w.connect()
            client.send(message("GET", "/v2", X_Api_Key=ACME.text))
            assert (await client.answer()).status == 200
            w.gateway.configure(Access(Settings(tenants={"umbrella": SETTINGS.tenants["umbrella"]})), Server())
            client.send(message("GET", "/v2", X_Api_Key=ACME.text) + message("GET", "/v2", X_Api_Key=UMBRELLA.text))
            assert [(await client.answer()).status for _ in range(2)] == [401, 200]

    run(scenario())


def test_a_large_body_of_a_stranger_is_refused_before_it_is_read() -> None:
    """Else whoever has no key could take the room that there is for everybody's bodies."""
    large = 1 << 20
    lines = {
        "length": f"Content-Length: {large}",
        "chunked": "Transfer-Encoding: chunked",
        "packed": "Content-Encoding: gzip\r\nContent-Length: 10",
        "asked": f"Expect: 100-continue\r\nContent-Length: {large}",
    }

    async def scenario() -> None:
        async with world(settings=Settings(server=Server(admin_keys=(ADMIN.settings,)), tenants=SETTINGS.tenants)) as w:
            for line in lines.values():
                client = await w.connect()
                client.send(f"POST /v1/embeddings HTTP/1.1\r\nHost: a\r\n{line}\r\n\r\n".encode())
                answer = await client.answer()  # though not one byte of the body was sent
                assert (answer.status, answer.json["error"]["code"]) == (401, "unauthenticated")
                assert answer.headers["www-authenticate"] == 'Bearer realm="headway"'
                assert await client.closed() and w.gateway._http.bodies.held == 0
            padded = GOOD | {"note": "x" * large}
            for key in (ACME.text, UMBRELLA.text):
                assert (await w.infer("add", padded, **bearer(key))).status == 200
            assert (
                await w.ask("POST", "/reload", padded, **bearer(ADMIN.text))
            ).status == 404  # there is none to do it

    run(scenario())


def test_where_there_are_no_keys_nobody_is_asked_before_his_body_is_read() -> None:
    assert asked("POST", "/v2/models/add/infer", GOOD | {"note": "x" * (1 << 20)}, Settings()).status == 200
