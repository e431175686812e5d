"""Configuration, statistics, the index of the repository, and names that are also words of a path."""

from __future__ import annotations

import re
from typing import Any

import pytest

from headway.config.settings import Batching, ModelSettings
from headway.wire.messages import InputMeta, ModelMeta, VersionStatus
from tests.conformance.http_world import ADD, GOOD, Answer, World, model, run, world

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"
PARENT = f"00-{TRACE}-00f067aa0ba902b7-01"


def get(path: str, method: str = "GET", body: Any = None, headers: dict[str, str] | None = None, **more: Any) -> Answer:
    async def scenario() -> Answer:
        async with world(**more) as w:
            return await w.ask(method, path, body, **(headers or {}))

    return run(scenario())


def test_the_configuration_says_what_batches_may_hold_and_what_each_row_is() -> None:
    settings = ModelSettings(
        instances=2, batching=Batching(max_batch_size=8, max_queue_delay_ms=2.5), options={"token": "secret"}
    )
    answer = get("/v2/models/add/config", models=[model("add", 1, 3, settings=settings)])
    assert answer.json == {
        "name": "add",
        "platform": "fake",
        "backend": "fake",
        "version_policy": {"specific": {"versions": [3]}},
        "max_batch_size": 8,
        "input": [
            {"name": "x", "data_type": "TYPE_FP32", "dims": [2]},
            {"name": "bias", "data_type": "TYPE_FP32", "dims": [2], "optional": True},
        ],
        "output": [
            {"name": "y", "data_type": "TYPE_FP32", "dims": [2]},
            {"name": "z", "data_type": "TYPE_INT64", "dims": [1], "reshape": {"shape": []}},
        ],
        "dynamic_batching": {"max_queue_delay_microseconds": 2500},
        "instance_group": [{"name": "add", "count": 2, "kind": "KIND_CPU"}],
        "model_transaction_policy": {"decoupled": False},
    }
    one = get("/v2/models/add/versions/1/config", models=[model("add", 1, 3, settings=settings)])
    assert one.json["version_policy"] == {"specific": {"versions": [1]}}
    assert get("/v2/models/talk/config").json["model_transaction_policy"] == {"decoupled": True}
    kinds = get("/v2/models/kinds/config").json["input"]
    assert {"name": "bytes", "data_type": "TYPE_STRING", "dims": [-1], "optional": True} in kinds


def counted(model: str, version: int) -> dict[str, Any]:
    return {"name": model, "version": str(version)}


def test_statistics_are_of_one_version_of_all_of_a_model_or_of_everything() -> None:
    models = [model("add", 1, 2), model("text", 1)]
    add = [{"name": "add", "version": "1"}, {"name": "add", "version": "2"}]
    for path, expected in (
        ("/v2/models/add/versions/1/stats", add[:1]),
        ("/v2/models/add/stats", add),
        ("/v2/models/stats", [*add, {"name": "text", "version": "1"}]),
    ):
        assert get(path, models=models, statistics=counted).json == {"model_stats": expected}
        off = get(path, models=models)
        assert (off.status, off.json["error"]) == (404, "statistics are switched off")


def test_a_model_may_have_the_name_of_a_page() -> None:
    """C5, C6."""

    async def scenario() -> None:
        names = ("stats", "versions", "models")
        async with world(
            models=[model(name, 1) for name in names], metas=dict.fromkeys(names, ADD), statistics=counted
        ) as w:
            assert len((await w.ask("GET", "/v2/models/stats")).json["model_stats"]) == 3
            assert (await w.ask("GET", "/v2/models/stats/versions/1")).json["name"] == "stats"
            assert (await w.ask("GET", "/v2/models/stats/stats")).json == {"model_stats": [counted("stats", 1)]}
            for name in names:
                assert (await w.infer(name, GOOD)).status == 200
            assert (await w.ask("POST", "/v2/models/stats/nothing", GOOD)).status == 404
            assert (await w.ask("POST", "/v2/models/stats", GOOD)).headers["allow"] == "GET, HEAD"

    run(scenario())


async def index(w: World, body: Any) -> Answer:
    return await w.ask("POST", "/v2/repository/index", body)


def test_the_index_lists_every_version_with_its_state_or_those_that_are_ready() -> None:
    """C51."""

    async def scenario() -> None:
        async with world(models=[model("add", 1, 2, 3, 4, 5)], ready=False) as w:
            told = {1: "ready", 2: "loading", 3: "draining", 4: "failed", 5: "unavailable"}
            for version, state in told.items():
                w.gateway.deliver(VersionStatus("add", version, state, ADD, f"is {state}"))
            everything = (await index(w, None)).json
            assert everything == (await index(w, {})).json == (await index(w, {"ready": False})).json
            assert [(entry["name"], entry["version"], entry["state"], entry["reason"]) for entry in everything] == [
                ("add", "1", "READY", "is ready"),
                ("add", "2", "LOADING", "is loading"),
                ("add", "3", "UNLOADING", "is draining"),
                ("add", "4", "UNAVAILABLE", "is failed"),
                ("add", "5", "UNAVAILABLE", "is unavailable"),
            ]
            assert (await index(w, {"ready": True})).json == everything[:1]
            for bad in (b"[", [], {"ready": "yes"}, {"ready": None}):
                answer = await index(w, bad)
                assert (answer.status, answer.json["code"]) == (400, "invalid_request")
            assert (await w.ask("GET", "/v2/repository/index")).status == 405

    run(scenario())


@pytest.mark.parametrize("what", ["load", "unload"])
def test_loading_and_unloading_is_said_not_to_work_and_is_no_extension(what: str) -> None:
    """C1."""
    answer = get(f"/v2/repository/models/add/{what}", "POST", {})
    assert (answer.status, answer.json["code"], answer.json["retryable"]) == (501, "unsupported", False)
    assert not any(name.startswith("model_repository") for name in get("/v2").json["extensions"])


@pytest.mark.parametrize("path", ["/v2/models/a%2Fb", "/v2/models/a%00", "/v2/models/%ff", "/v2/models/%zz/infer"])
def test_names_with_slashes_control_characters_or_broken_escapes_are_refused(path: str) -> None:
    """C6."""
    assert get(path).status in (400, 405)
    assert get(path).json["code"] in ("invalid_request", "method_not_allowed")


def test_a_version_is_always_named_in_replies_for_every_model_has_one() -> None:
    """C4: there are no unversioned models here."""
    assert get("/v2/models/add").json["versions"] == ["1"]
    assert get("/v2/models/add/infer", "POST", GOOD).json["model_version"] == "1"


def test_a_variable_dimension_is_minus_one() -> None:
    """C3."""
    shapes = [entry["shape"] for entry in get("/v2/models/text").json["inputs"]]
    assert shapes == [[-1, -1], [-1, -1]]
    metas = {"add": ModelMeta("fake", (InputMeta("x", "FP32", (-1, 3, -1)),), ())}
    assert get("/v2/models/add", metas=metas).json["inputs"][0]["shape"] == [-1, 3, -1]


@pytest.mark.parametrize("path", ["/v2/health/live", "/nothing", "/v2/models/nope", "/v2/models/stats", "/v1/models"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE"])
def test_every_reply_names_its_request_whatever_its_status(path: str, method: str) -> None:
    """C61."""
    assert get(path, method).headers["x-request-id"]


def test_a_request_within_a_trace_is_named_after_the_trace_unless_it_has_a_name() -> None:
    """C61."""
    assert get("/v2", headers={"traceparent": PARENT}).headers["x-request-id"] == TRACE
    failed = get("/nothing", headers={"traceparent": PARENT})
    assert failed.headers["x-request-id"] == failed.json["request_id"] == TRACE
    later = get("/v2", headers={"traceparent": "cc" + PARENT[2:] + "-what-may-come"})
    assert later.headers["x-request-id"] == TRACE
    both = get("/v2", headers={"traceparent": PARENT, "X_Request_Id": "own"})
    assert both.headers["x-request-id"] == "own"


@pytest.mark.parametrize(
    "parent",
    [
        "",
        TRACE,
        PARENT.upper(),
        PARENT[:-1],
        PARENT + "-more",
        PARENT + "\x80",
        "ff" + PARENT[2:],
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"{PARENT}, {PARENT}",
    ],
)
def test_a_malformed_traceparent_is_as_if_it_were_not_there(parent: str) -> None:
    """C61."""
    answer = get("/v2", headers={"traceparent": parent})
    assert answer.status == 200
    assert answer.headers["x-request-id"] and not re.fullmatch("[0-9a-fA-F]{32}", answer.headers["x-request-id"])
