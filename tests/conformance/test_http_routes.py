"""Discovery, health, readiness, and where names lead."""

from __future__ import annotations

from typing import Any

import pytest

from headway import __version__
from headway.config.settings import Settings
from headway.core.ids import VersionId
from headway.gateway.catalog import CatalogModel
from headway.wire.messages import InputMeta, ModelMeta, Submit, VersionStatus
from tests.conformance.http_world import ADD, GOOD, model, run, world


def get(path: str, method: str = "GET", body: Any = None, **settings: Any) -> Any:
    async def scenario() -> Any:
        async with world(**settings) as w:
            return await w.ask(method, path, body)

    return run(scenario())


def test_the_server_says_its_name_version_and_the_extensions_that_work() -> None:
    """C1."""
    body = get("/v2").json
    assert (body["name"], body["version"]) == ("headway", __version__)
    always = ["binary_tensor_data", "model_configuration", "parameters", "schedule_policy"]
    assert body["extensions"] == always
    assert get("/v2", statistics=lambda model, version: {}).json["extensions"] == [*always, "statistics"]


def test_metadata_is_the_same_with_and_without_the_default_version() -> None:
    """C2, C3."""
    plain = get("/v2/models/add", models=[model("add", 1, 2)])
    assert plain.json == get("/v2/models/add/versions/2", models=[model("add", 1, 2)]).json
    assert plain.json == {
        "name": "add",
        "versions": ["1", "2"],
        "platform": "fake",
        "inputs": [
            {"name": "x", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "bias", "datatype": "FP32", "shape": [-1, 2], "optional": True},
        ],
        "outputs": [
            {"name": "y", "datatype": "FP32", "shape": [-1, 2]},
            {"name": "z", "datatype": "INT64", "shape": [-1]},
        ],
    }


@pytest.mark.parametrize(("fixed", "expected"), [(0, "3"), (2, "2")])
def test_the_default_version_is_the_highest_unless_one_is_set(fixed: int, expected: str) -> None:
    async def scenario() -> None:
        entry = model("add", 1, 3, 2)
        entry = CatalogModel(entry.name, entry.versions, entry.settings, default_version=fixed)
        async with world(models=[entry]) as w:
            assert (await w.infer("add", GOOD)).json["model_version"] == expected

    run(scenario())


UNKNOWN = [
    ("GET", "/v2/models/nope", None),
    ("GET", "/v2/models/nope/ready", None),
    ("POST", "/v2/models/nope/infer", GOOD),
    ("POST", "/v2/models/nope/generate", {}),
    ("POST", "/v2/models/nope/generate_stream", {}),
    ("GET", "/v2/models/nope/config", None),
    ("GET", "/v2/models/nope/stats", None),
    ("POST", "/v2/repository/models/nope/load", None),
    ("POST", "/v2/repository/models/nope/unload", None),
    ("GET", "/v2/models/add/versions/7", None),
    ("GET", "/v2/models/add/versions/7/config", None),
    ("GET", "/v2/models/add/versions/7/stats", None),
    ("GET", "/v2/models/add/versions/7/ready", None),
    ("POST", "/v2/models/add/versions/7/infer", GOOD),
    ("POST", "/v2/models/add/versions/7/generate", {}),
    ("GET", "/v1/models/nope", None),
    ("POST", "/v1/embeddings", {"model": "nope", "input": "a"}),
]


@pytest.mark.parametrize(("method", "path", "body"), UNKNOWN)
def test_an_unknown_name_is_404_on_every_route(method: str, path: str, body: Any) -> None:
    """C5."""
    answer = get(path, method, body)
    assert answer.status == 404
    error = answer.json["error"] if path.startswith("/v1") else answer.json
    assert error["code"] == "model_not_found"


NOT_READY = [
    ("GET", "/v2/models/add/config", None),
    ("POST", "/v2/models/add/infer", GOOD),
    ("POST", "/v2/models/add/versions/1/infer", GOOD),
    ("POST", "/v2/models/add/generate", {}),
    ("POST", "/v2/models/add/generate_stream", {}),
    ("GET", "/v2/models/add", None),
]


@pytest.mark.parametrize(("method", "path", "body"), NOT_READY)
def test_a_model_that_is_still_loading_is_503_with_retry_after(method: str, path: str, body: Any) -> None:
    answer = get(path, method, body, ready=False)
    assert (answer.status, answer.json["code"], answer.json["retryable"]) == (503, "model_not_ready", True)
    assert answer.headers["retry-after"] == "1"
    assert "loading" in answer.json["error"]


def test_a_version_that_was_given_up_is_not_worth_another_try_and_says_why() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.gateway.deliver(VersionStatus("add", 1, "failed", None, "load failed: no such weights", 0))
            for method, path, body in [entry for entry in NOT_READY if entry[0] == "POST"]:
                answer = await w.ask(method, path, body)
                assert (answer.status, answer.json["code"], answer.json["retryable"]) == (503, "model_failed", False)
                assert "retry-after" not in answer.headers and "retry_after_ms" not in answer.json
                assert answer.headers["x-should-retry"] == "false"
                assert "no such weights" in answer.json["error"]

    run(scenario())


@pytest.mark.parametrize("state", ["loading", "unavailable", "draining"])
def test_a_version_in_any_state_but_ready_takes_no_requests_and_says_why(state: str) -> None:
    async def scenario() -> None:
        async with world() as w:
            w.gateway.deliver(VersionStatus("add", 1, state, ADD, "so it is", 7_000_000_000))
            answer = await w.infer("add", GOOD)
            assert (answer.status, answer.headers["retry-after"]) == (503, "7")
            told = "being restarted, ready in about 7 s" if state == "unavailable" else state
            assert told in answer.json["error"] and "so it is" in answer.json["error"]
            ready = await w.ask("GET", "/v2/models/add/ready")
            assert ready.status == 503
            assert ready.json == {"name": "add", "ready": False, "state": state, "reason": "so it is"}
            assert (await w.ask("GET", "/v2/models/add")).status == 200, "the declaration is kept"
            w.gateway.deliver(VersionStatus("add", 1, "ready", ADD))
            assert (await w.infer("add", GOOD)).status == 200

    run(scenario())


def test_liveness_never_goes_through_a_model() -> None:
    """C7."""
    for path in ("/health", "/v2/health/live"):
        answer = get(path, ready=False)
        assert (answer.status, answer.json) == (200, {"live": True})


def test_ready_is_false_until_every_configured_version_is_ready() -> None:
    """C8, C9, C10."""

    async def scenario() -> None:
        async with world(models=[model("add", 1, 2)], ready=False) as w:
            for number, expected in ((0, 503), (1, 503), (2, 200)):
                if number:
                    w.gateway.deliver(VersionStatus("add", number, "ready", ADD))
                oip, plain = await w.ask("GET", "/v2/health/ready"), await w.ask("GET", "/ready")
                assert (oip.status, plain.status) == (expected, expected)
                assert oip.json["ready"] is plain.json["ready"] is (expected == 200)
                head = await w.ask("HEAD", "/v2/health/ready")
                assert (head.status, head.body) == (expected, b"")
            w.gateway.deliver(VersionStatus("add", 1, "unavailable", ADD, "all workers are dead"))
            answer = await w.ask("GET", "/ready")
            assert answer.status == 503
            assert answer.json["models"] == [
                {
                    "model": "add",
                    "version": "1",
                    "ready": False,
                    "state": "unavailable",
                    "reason": "all workers are dead",
                },
                {"model": "add", "version": "2", "ready": True, "state": "ready", "reason": ""},
            ]

    run(scenario())


WHY = "8 workers died in a row, it is tried again in 7 s"


def test_a_version_whose_workers_get_nowhere_is_not_ready_and_yet_takes_requests() -> None:
    """The scheduler refuses them, with the reason, but for the one that may try. C9."""
    stalled: dict[VersionId, str] = {}

    async def scenario() -> None:
        async with world(models=[model("add", 1, 2)], stalls=lambda: stalled) as w:
            assert (await w.ask("GET", "/ready")).status == 200
            stalled[VersionId("add", 2)] = WHY
            for path in ("/ready", "/v2/health/ready", "/v2/models/add/ready", "/v2/models/add/versions/2/ready"):
                assert (await w.ask("GET", path)).status == 503, path
            assert (await w.ask("GET", "/v2/models/add/versions/1/ready")).status == 200
            told = (await w.ask("GET", "/v2/models/add/versions/2/ready")).json
            assert told == {"name": "add", "ready": False, "state": "stalled", "reason": WHY}
            first, second = (await w.ask("GET", "/ready")).json["models"]
            assert (first["ready"], second["ready"], second["state"], second["reason"]) == (True, False, "stalled", WHY)
            (entry,) = (await w.ask("POST", "/v2/repository/index", {"ready": True})).json
            assert entry["version"] == "1"
            assert (await w.infer("add", GOOD)).status == 200
            del stalled[VersionId("add", 2)]
            assert (await w.ask("GET", "/ready")).status == 200, "nothing of it is kept"

    run(scenario())


def test_a_version_that_is_not_ready_at_all_says_so_rather_than_that_it_is_stalled() -> None:
    async def scenario() -> None:
        async with world(models=[model("add", 1)], stalls=lambda: {VersionId("add", 1): WHY}) as w:
            w.gateway.deliver(VersionStatus("add", 1, "unavailable", ADD, "signal SIGKILL"))
            assert (await w.ask("GET", "/v2/models/add/ready")).json["state"] == "unavailable"

    run(scenario())


def test_liveness_asks_nobody_whatever_is_wrong_with_models() -> None:
    """C7."""

    def stalls() -> dict[VersionId, str]:
        raise AssertionError("liveness asked for the state of models")

    async def scenario() -> None:
        async with world(stalls=stalls) as w:
            w.gateway.deliver(VersionStatus("add", 1, "failed", None, "load failed"))
            for path in ("/health", "/v2/health/live"):
                assert (await w.ask("GET", path)).status == 200
            assert w.runtime.said == []

    run(scenario())


def test_a_server_without_models_is_alive_and_not_ready() -> None:
    """C8."""
    assert get("/health", models=[]).status == 200
    answer = get("/ready", models=[])
    assert (answer.status, answer.json["ready"]) == (503, False)
    assert answer.json["reason"] == "no models are configured"


def test_news_of_a_version_that_is_not_configured_changes_nothing() -> None:
    async def scenario() -> None:
        async with world() as w:
            w.gateway.deliver(VersionStatus("stranger", 1, "ready", ADD))
            w.gateway.deliver(VersionStatus("add", 9, "failed", None))
            assert (await w.ask("GET", "/ready")).status == 200
            assert (await w.ask("GET", "/v2/models/stranger")).status == 404

    run(scenario())


def test_a_version_that_comes_back_with_another_declaration_is_checked_against_that() -> None:
    async def scenario() -> None:
        async with world() as w:
            other = ModelMeta("fake", (InputMeta("w", "FP32", (-1, 1)),), ())
            w.gateway.deliver(VersionStatus("add", 1, "ready", other))
            answer = await w.infer("add", GOOD)
            assert answer.status == 400 and "'x'" in answer.json["error"]

    run(scenario())


@pytest.mark.parametrize(
    "path", ["/v2/", "/v2/models/add/", "/health/", "/health?probe=1", "http://any/health", "/v2?"]
)
def test_one_trailing_slash_a_query_and_the_absolute_form_are_tolerated(path: str) -> None:
    """C6."""
    assert get(path).status == 200


def test_names_may_be_percent_encoded() -> None:
    """C6."""

    async def scenario() -> None:
        async with world(models=[model("caf\u00e9 1", 1)], metas={"caf\u00e9 1": ADD}) as w:
            answer = await w.ask("GET", "/v2/models/caf%C3%A9%201")
            assert answer.json["name"] == "caf\u00e9 1"

    run(scenario())


def test_openai_clients_find_the_models() -> None:
    body = get("/v1/models").json
    assert body["object"] == "list"
    assert [entry["id"] for entry in body["data"]] == ["add", "text", "kinds", "talk"]
    one = get("/v1/models/add").json
    assert (one["id"], one["object"], one["owned_by"], type(one["created"])) == ("add", "model", "headway", int)


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "code"),
    [
        ("GET", "/v1/nothing", None, 404, "not_found"),
        ("GET", "/v1/embeddings", None, 405, "method_not_allowed"),
        ("POST", "/v1/embeddings", b"{", 400, "invalid_request"),
    ],
)
def test_errors_under_v1_have_the_openai_shape(method: str, path: str, body: Any, status: int, code: str) -> None:
    answer = get(path, method, body)
    assert answer.status == status
    error = answer.json["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["type"], error["code"]) == ("invalid_request_error", code)


def test_a_wrong_method_names_those_that_are_allowed() -> None:
    assert get("/v2/models/add/infer").headers["allow"] == "POST"
    assert get("/health", "POST", b"").headers["allow"] == "GET, HEAD"


def test_metrics_come_from_whoever_keeps_them() -> None:
    answer = get("/metrics", metrics=lambda: (b"text/plain; version=0.0.4", b"up 1\n"))
    assert (answer.status, answer.body) == (200, b"up 1\n")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4"
    assert get("/metrics").status == 404


def test_a_tenant_is_default_unless_the_configured_header_names_one() -> None:
    async def scenario() -> None:
        async with world(settings=Settings(tenant_header="x-tenant")) as w:
            for headers, expected in (({}, "default"), ({"X_Tenant": "acme"}, "acme"), ({"X_Tenant": ""}, "default")):
                await w.infer("add", GOOD, **headers)
                assert (await w.runtime.next(Submit)).tenant == expected
            assert (await w.infer("add", GOOD, X_Tenant="a" * 65)).status == 400
        async with world() as w:
            await w.infer("add", GOOD, X_Tenant="acme")
            assert (await w.runtime.next(Submit)).tenant == "default"

    run(scenario())
