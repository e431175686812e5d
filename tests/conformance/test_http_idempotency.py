"""Idempotency keys: the same again joins what runs or is given what was kept; what is another request, and whose."""

from __future__ import annotations

import asyncio
import gc
import gzip
import json
import threading
from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
import pytest

from headway.config.settings import Idempotency, ModelSettings, Server, Settings
from headway.config.tenants import TenantSettings
from headway.core.outcomes import Outcome
from headway.gateway.access import Access
from headway.gateway.catalog import CatalogModel
from headway.gateway.connection import Connection
from headway.gateway.edge import Edge
from headway.gateway.errors import FACES
from headway.gateway.exchange import Request
from headway.gateway.gateway import Gateway
from headway.gateway.idempotency import INLINE, Execution, digest_of
from headway.gateway.kept_replies import BOOKKEEPING
from headway.gateway.quarantine import Quarantine
from headway.wire.messages import Cancel, InputMeta, ModelMeta, Reply, Submit, ToRuntime, VersionStatus, Written
from tests.conformance.http_world import (
    ADD,
    GOOD,
    Answer,
    FakeRuntime,
    World,
    echo,
    failed,
    message,
    model,
    run,
    world,
    x,
)
from tests.conformance.test_http_embeddings import ENCODER, embed, encoder
from tests.conformance.test_http_fallback import SERVED_BY, Refusing, there
from tests.fuzz.test_gateway_fuzz import FakeTransport

__all__ = ["encoder"]

REPLAYED = "idempotency-replayed"
BY_HEADER = Settings(tenant_header="x-tenant")
ONCE = [model("add", 1, settings=ModelSettings(idempotent=False))]


async def until(true: Callable[[], bool]) -> None:
    for _ in range(5_000):
        if true():
            return
        await asyncio.sleep(0.002)
    raise AssertionError("it does not come")


async def ask(w: World, key: str = "k", body: Any = GOOD, name: str = "add", **headers: str) -> Answer:
    return await w.infer(name, body, Idempotency_Key=key, **headers)


def count(w: World, event: str) -> int:
    return w.gateway.idempotency[event]


async def joined(w: World, count_: int = 1) -> None:
    await until(lambda: count(w, "joined") == count_)


def begun(reply: Reply) -> Reply:
    """As of a request that a worker was given."""
    return msgspec.structs.replace(reply, begun=True)


# -- the same again ---------------------------------------------------------------------------------


def test_the_same_again_while_the_first_runs_joins_it_and_gets_its_reply() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            first = asyncio.create_task(ask(w, X_Request_Id="one"))
            submit = await runtime.next(Submit)
            others = [asyncio.create_task(ask(w, X_Request_Id=f"other-{n}")) for n in range(3)]
            await joined(w, 3)
            runtime.deliver(echo(submit))
            told = await first
            assert (told.status, told.headers["x-request-id"], REPLAYED in told.headers) == (200, "one", False)
            for number, other in enumerate(others):
                answer = await other
                assert (answer.status, answer.body) == (200, told.body)
                assert (answer.headers["x-request-id"], answer.headers[REPLAYED]) == (f"other-{number}", "true")
            await runtime.next(Written)
            assert len(runtime.all(Submit)) == len(runtime.all(Written)) == 1
            assert runtime.all(Cancel) == [] and w.gateway.in_flight == 0
            assert w.gateway._http.bodies.held == 0

    run(scenario())


def test_the_same_again_afterwards_gets_the_reply_that_was_kept() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(runtime) as w:
            first = await ask(w)
            for number in range(3):
                again = await ask(w, x_request_id=f"again-{number}")
                assert (again.status, again.body, again.headers[REPLAYED]) == (200, first.body, "true")
                assert again.headers["x-request-id"] == f"again-{number}"
            assert len(runtime.all(Submit)) == 1
            assert (count(w, "stored"), count(w, "replayed"), count(w, "joined")) == (1, 3, 0)
            assert (await w.infer("add", GOOD)).headers.get(REPLAYED) is None
            assert (await ask(w, "another")).headers.get(REPLAYED) is None
            assert len(runtime.all(Submit)) == 3

    run(scenario())


def test_after_a_while_it_is_run_again() -> None:
    async def scenario() -> None:
        now = 0
        runtime = FakeRuntime()
        async with world(runtime, now=lambda: now, idempotency=Idempotency(keep_s=2)) as w:
            await ask(w)
            now = 2_000_000_000 - 1
            assert (await ask(w)).headers[REPLAYED] == "true"
            assert w.gateway.idempotency_held > 0
            now += 1
            assert w.gateway.idempotency_held == 0
            assert REPLAYED not in (await ask(w)).headers
            assert len(runtime.all(Submit)) == 2

    run(scenario())


def test_where_nothing_is_to_be_kept_the_same_still_joins() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, idempotency=Idempotency(keep_s=0)) as w:
            first, second = [asyncio.create_task(ask(w)) for _ in range(2)]
            await joined(w)
            runtime.deliver(echo(await runtime.next(Submit)))
            assert [(await first).status, (await second).status] == [200, 200]
            runtime.answer = echo
            assert REPLAYED not in (await ask(w)).headers
            assert w.gateway.idempotency_held == 0

    run(scenario())


def test_binary_tensors_and_replies_in_binary_too() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(runtime) as w:
            head = (
                b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}],'
                b'"parameters":{"binary_data_output":true}}'
            )
            data = np.array([[3, 4]], "<f4").tobytes()
            told = [await ask(w, body=head + data, Inference_Header_Content_Length=str(len(head))) for _ in range(2)]
            assert told[0].body == told[1].body and told[0].body.endswith(b"\0" * 8)
            names = ("content-type", "inference-header-content-length")
            assert [told[1].headers[name] for name in names] == [told[0].headers[name] for name in names]
            assert [REPLAYED in answer.headers for answer in told] == [False, True]

    run(scenario())


WIDE = {"add": ModelMeta("fake", (InputMeta("x", "FP32", (-1, -1)),), (InputMeta("x", "FP32", (-1, -1)),))}


def large(last: bytes = b"\0") -> tuple[bytes, dict[str, str]]:
    """A body that is hashed in a thread, and the header that belongs to it."""
    size = INLINE + 4
    head = (
        b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,%d],"parameters":{"binary_data_size":%d}}],'
        b'"parameters":{"binary_data_output":true}}' % (size // 4, size)
    )
    return head + b"\0" * (size - 1) + last, {"Inference_Header_Content_Length": str(len(head))}


def test_a_large_body_is_hashed_and_joins_all_the_same() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, metas=WIDE) as w:
            body, headers = large()
            first, second = [asyncio.create_task(ask(w, body=body, **headers)) for _ in range(2)]
            await joined(w)
            submit = await runtime.next(Submit)
            other = await ask(w, body=large(b"\1")[0], **headers)
            assert (other.status, other.json["code"]) == (422, "idempotency_key_reused")
            runtime.deliver(echo(submit))
            assert (await first).body == (await second).body
            assert len((await first).body) > INLINE
            assert len(runtime.all(Submit)) == 1 and w.gateway._http.bodies.held == 0

    run(scenario())


def test_who_leaves_while_its_body_is_hashed_has_started_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    begins, goes_on = threading.Event(), threading.Event()

    def slow(start: bytes, body: bytes) -> bytes:
        begins.set()
        goes_on.wait(20)
        return digest_of(start, body)

    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(runtime, metas=WIDE) as w:
            body, headers = large()
            client = await w.connect()
            client.send(message("POST", "/v2/models/add/infer", body, Idempotency_Key="k", **headers))
            await until(begins.is_set)
            client.close()
            await until(lambda: w.gateway.connections == 0)
            assert w.gateway._http.bodies.held == 0
            goes_on.set()
            answer = await ask(w, body=body, **headers)
            assert (answer.status, REPLAYED in answer.headers, len(runtime.all(Submit))) == (200, False, 1)

    monkeypatch.setattr("headway.gateway.idempotency.digest_of", slow)
    run(scenario())


def test_how_a_body_and_a_reply_are_compressed_is_no_matter() -> None:
    async def scenario() -> None:
        async with world(edge=Edge(compress_from=1)) as w:
            plain = await ask(w)
            zipped = await ask(
                w, body=gzip.compress(json.dumps(GOOD).encode()), Content_Encoding="gzip", Accept_Encoding="gzip"
            )
            assert msgspec.json.decode(gzip.decompress(zipped.body)) == plain.json
            assert zipped.headers[REPLAYED] == "true"
            assert (await ask(w)).json == plain.json

    run(scenario())


# -- another ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("runs", [True, False])
def test_another_request_with_the_key_is_refused_and_does_no_harm(runs: bool) -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None if runs else echo)
        models = [model("add", 1, 2), model("other", 1)]
        async with world(runtime, models=models, metas={"other": ADD}) as w:
            first = asyncio.create_task(ask(w))
            submit = await runtime.next(Submit)
            if not runs:
                await first
            others = [
                await ask(w, body={**GOOD, "id": "a"}),
                await ask(w, Content_Type="text/plain"),
                await ask(w, Inference_Header_Content_Length="5"),
                await ask(w, name="other"),
                await ask(w, name="add/versions/1"),
            ]
            for other in others:
                assert (other.status, other.json["code"], other.json["retryable"]) == (
                    422,
                    "idempotency_key_reused",
                    False,
                )
            assert count(w, "reused") == len(others) and len(runtime.all(Submit)) == 1
            if runs:
                runtime.deliver(echo(submit))
            assert (await first).status == 200
            assert (await ask(w)).headers[REPLAYED] == "true"
            again = await ask(w, X_Request_Timeout_Ms="5000", X_Priority="1")
            assert (again.status, again.headers[REPLAYED]) == (200, "true")

    run(scenario())


@pytest.mark.parametrize(
    ("key", "is_one"),
    [("a", True), ("k" * 255, True), ('"8e03978e 40d5"', True), ("k" * 256, False), ("", False), ("\xe9", False)],
)
def test_what_a_key_may_be(key: str, is_one: bool) -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(runtime) as w:
            answer = await ask(w, key)
            assert answer.status == (200 if is_one else 400)
            if not is_one:
                assert "Idempotency-Key" in answer.json["error"] and "255" in answer.json["error"]
                assert runtime.said == []

    run(scenario())


def test_streams_take_none_and_elsewhere_it_means_nothing() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(runtime) as w:
            for path in ("generate", "generate_stream"):
                answer = await w.ask("POST", f"/v2/models/talk/{path}", {"a": 1}, idempotency_key="k")
                assert (answer.status, answer.json["code"]) == (400, "invalid_request")
                assert "stream" in answer.json["error"]
            assert runtime.said == []
            assert (await w.ask("GET", "/v2/models/add", Idempotency_Key="k")).status == 200
            assert (await w.ask("POST", "/v2/repository/index", b"", Idempotency_Key="k")).status == 200
            assert sum(w.gateway.idempotency.values()) == 0

    run(scenario())


# -- whose ------------------------------------------------------------------------------------------


def test_keys_are_the_tenants_own() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(runtime, settings=BY_HEADER) as w:
            for tenant in ("acme", "umbrella"):
                answer = await ask(w, body=x(id=tenant), X_Tenant=tenant)
                assert (answer.status, answer.json["id"], REPLAYED in answer.headers) == (200, tenant, False)
            assert (await ask(w, body=x(id="acme"), X_Tenant="acme")).headers[REPLAYED] == "true"
            assert [submit.tenant for submit in runtime.all(Submit)] == ["acme", "umbrella"]

    run(scenario())


def test_tenants_that_are_folded_into_default_share_its_keys() -> None:
    async def scenario() -> None:
        settings = Settings(tenant_header="x-tenant", unknown_tenants="default")
        async with world(settings=settings) as w:
            assert (await ask(w, X_Tenant="one")).status == 200
            assert (await ask(w, X_Tenant="two")).headers[REPLAYED] == "true"

    run(scenario())


def test_a_right_that_was_withdrawn_is_looked_at_before_a_reply_is_given_again() -> None:
    async def scenario() -> None:
        def may(*models: str, classes: tuple[int, ...] = ()) -> Access:
            return Access(Settings(tenants={"default": TenantSettings(models=models, classes=classes)}))

        async with world() as w:
            assert (await ask(w)).status == 200
            w.gateway.configure(may("text"), Server())
            assert (await ask(w)).status == 403
            w.gateway.configure(may("add", classes=(2,)), Server())
            assert (await ask(w, X_Priority="1")).status == 403
            assert (await ask(w)).headers[REPLAYED] == "true"
            w.gateway.configure(Access(Settings(server=Server(require_keys=True))), Server())
            assert (await ask(w)).status == 401

    run(scenario())


# -- what is kept -----------------------------------------------------------------------------------

KEPT = {
    (Outcome.COMPLETED, True),
    (Outcome.INVALID_INPUT, True),
    (Outcome.INVALID_INPUT, False),
    (Outcome.MODEL_ERROR, True),
    (Outcome.POISON_REQUEST, True),
    (Outcome.OUT_OF_MEMORY, True),
    (Outcome.MAY_HAVE_RUN, True),
}
"""With whether a worker was given the request. All else is run again."""


@pytest.mark.parametrize("given", [True, False])
@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.CANCELLED])
def test_final_replies_are_kept_and_what_may_be_otherwise_next_time_is_run_again(outcome: Outcome, given: bool) -> None:
    if outcome is Outcome.COMPLETED and not given:
        return

    def answer(submit: Submit) -> Reply:
        told = echo(submit) if outcome is Outcome.COMPLETED else failed(submit.request, outcome, "so it was")
        return msgspec.structs.replace(told, begun=given)

    async def scenario() -> None:
        runtime = FakeRuntime(answer)
        async with world(runtime) as w:
            first, again = await ask(w), await ask(w, X_Request_Id="again")
            kept = (outcome, given) in KEPT
            assert first.status == again.status == FACES[outcome].status
            assert (REPLAYED in again.headers) is kept and len(runtime.all(Submit)) == (1 if kept else 2)
            if outcome is not Outcome.COMPLETED:
                assert first.json["request_id"] == first.headers["x-request-id"] != "again"
                assert again.json == {**first.json, "request_id": "again"}
                for name in ("x-should-retry", "retry-after"):
                    assert again.headers.get(name) == first.headers.get(name)

    run(scenario())


def test_a_request_that_does_not_fit_the_model_is_told_so_again_and_one_it_is_not_ready_for_runs_later() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(runtime) as w:
            wrong = [await ask(w, "w", {"inputs": []}) for _ in range(2)]
            assert [(a.status, REPLAYED in a.headers) for a in wrong] == [(400, False), (400, True)]
            w.gateway.deliver(VersionStatus("add", 1, "unavailable", None, "it died"))
            assert (await ask(w)).status == 503
            w.gateway.deliver(VersionStatus("add", 1, "ready", ADD))
            assert ((await ask(w)).status, len(runtime.all(Submit))) == (200, 1)
            w.gateway.deliver(VersionStatus("add", 1, "unavailable", None, "it died"))
            assert (await ask(w)).headers[REPLAYED] == "true"
            assert (await ask(w, name="nobody")).status == 404

    run(scenario())


def test_our_own_bug_before_anything_ran_is_run_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(runtime) as w:
            with monkeypatch.context() as patched:
                patched.setattr("headway.gateway.routes.check", lambda *arguments: 1 / 0)
                assert ((await ask(w)).status, w.gateway.idempotency_held) == (500, 0)
            assert (await ask(w)).status == 200

    run(scenario())


def test_a_reply_that_is_too_large_is_not_kept() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with world(runtime, idempotency=Idempotency(max_reply_kb=1)) as w:
            for _ in range(2):
                assert REPLAYED not in (await ask(w, body=x(200))).headers
            assert (count(w, "too_large"), w.gateway.idempotency_held) == (2, 0)

    run(scenario())


def test_who_has_most_kept_makes_room() -> None:
    async def scenario() -> None:
        room = Idempotency(max_mb=10 * BOOKKEEPING / 2**20, max_reply_kb=1)
        async with world(settings=BY_HEADER, idempotency=room) as w:
            await ask(w, "small", X_Tenant="small")
            for number in range(40):
                await ask(w, f"{number}", X_Tenant="large")
                assert w.gateway.idempotency_held <= 10 * BOOKKEEPING
            assert count(w, "evicted") > 30
            assert (await ask(w, "small", X_Tenant="small")).headers[REPLAYED] == "true"
            assert (await ask(w, "39", X_Tenant="large")).headers[REPLAYED] == "true"
            assert REPLAYED not in (await ask(w, "0", X_Tenant="large")).headers

    run(scenario())


def test_where_what_runs_fills_all_the_room_a_new_key_is_refused_and_the_same_still_joins() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, idempotency=Idempotency(max_mb=1.5 * BOOKKEEPING / 2**20)) as w:
            first = asyncio.create_task(ask(w))
            submit = await runtime.next(Submit)
            refused = await ask(w, "another")
            assert (refused.status, refused.json["code"], refused.headers["retry-after"]) == (503, "overloaded", "1")
            second = asyncio.create_task(ask(w))
            await joined(w)
            runtime.deliver(echo(submit))
            assert [(await first).status, (await second).status, count(w, "refused")] == [200, 200, 1]

    run(scenario())


def test_what_was_found_to_kill_may_run_again_once_it_is_let_out() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(lambda submit: begun(failed(submit.request, Outcome.POISON_REQUEST)))
        lift = Quarantine(list, lambda version, content: 1)
        async with world(runtime, quarantine=lift) as w:
            await ask(w)
            assert (await ask(w)).headers[REPLAYED] == "true"
            assert (await w.ask("DELETE", "/quarantine/text/1")).status == 200
            assert (await ask(w)).headers[REPLAYED] == "true"
            assert (await w.ask("DELETE", "/quarantine/add/1")).status == 200
            runtime.answer = echo
            assert (await ask(w)).status == 200

    run(scenario())


def test_a_fallbacks_reply_is_kept_with_its_name() -> None:
    async def scenario() -> None:
        runtime = Refusing(Outcome.QUEUE_FULL, "big")
        async with there(runtime) as w:
            for replayed in (False, True):
                answer = await ask(w, name="big")
                assert (answer.status, answer.headers[SERVED_BY]) == (200, "small/3")
                assert (REPLAYED in answer.headers) is replayed
            assert len(runtime.all(Submit)) == 2 and w.gateway.fallbacks == {("big", "small"): 1}

    run(scenario())


# -- who leaves, and deadlines ------------------------------------------------------------------------


def test_the_first_leaves_and_who_joined_gets_the_reply() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            first = await w.connect()
            first.send(message("POST", "/v2/models/add/infer", GOOD, Idempotency_Key="k"))
            submit = await runtime.next(Submit)
            second = asyncio.create_task(ask(w))
            await joined(w)
            first.close()
            await until(lambda: w.gateway.connections == 1)
            assert runtime.all(Cancel) == []
            runtime.deliver(echo(submit))
            assert ((await second).status, (await second).headers[REPLAYED]) == (200, "true")
            assert (await runtime.next(Written)).request == submit.request
            assert runtime.all(Cancel) == []

    run(scenario())


def test_the_only_one_leaves_and_its_retry_is_given_what_was_run_for_nobody() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            first = await w.connect()
            first.send(message("POST", "/v2/models/add/infer", GOOD, Idempotency_Key="k"))
            submit = await runtime.next(Submit)
            first.close()
            await until(lambda: w.gateway.connections == 0)
            assert runtime.all(Cancel) == [] and w.gateway.in_flight == 1
            runtime.deliver(echo(submit))
            assert (await runtime.next(Cancel)).request == submit.request  # there is nobody to write it to
            assert ((await ask(w)).headers[REPLAYED], len(runtime.all(Submit))) == ("true", 1)
            assert runtime.all(Written) == []

    run(scenario())


def test_who_joined_leaves_and_nobody_minds() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            first = asyncio.create_task(ask(w))
            submit = await runtime.next(Submit)
            second = await w.connect()
            second.send(message("POST", "/v2/models/add/infer", GOOD, Idempotency_Key="k"))
            await joined(w)
            second.close()
            await until(lambda: w.gateway.connections == 1)
            assert w.gateway._http.bodies.held == 0
            runtime.deliver(echo(submit))
            assert (await first).status == 200
            await runtime.next(Written)
            assert runtime.all(Cancel) == []

    run(scenario())


def test_who_joins_waits_until_its_own_deadline_and_what_it_joined_goes_on() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            first = asyncio.create_task(ask(w))
            submit = await runtime.next(Submit)
            late = await ask(w, X_Request_Timeout_Ms="20")
            assert (late.status, late.json["code"], REPLAYED in late.headers) == (504, "deadline_exceeded", False)
            assert runtime.all(Cancel) == []
            runtime.deliver(echo(submit))
            assert (await first).status == 200
            assert (await ask(w, X_Request_Timeout_Ms="20")).headers[REPLAYED] == "true"

    run(scenario())


@pytest.mark.parametrize("outcome", [Outcome.DEADLINE_EXCEEDED, Outcome.DEADLINE_UNMEETABLE])
def test_where_the_firsts_deadline_ends_it_the_others_run_it_again_once(outcome: Outcome) -> None:
    async def scenario() -> None:
        now = 0
        runtime = FakeRuntime(answer=None)
        async with world(runtime, now=lambda: now) as w:
            first = asyncio.create_task(ask(w, X_Request_Timeout_Ms="100"))
            submit = await runtime.next(Submit)
            others = [asyncio.create_task(ask(w, X_Request_Timeout_Ms=str(ms))) for ms in (100, 5_000, 9_000)]
            await joined(w, 3)
            now = 100_000_000
            runtime.deliver(begun(failed(submit.request, outcome)))
            assert (await first).json["code"] == outcome.value
            again = await runtime.next(Submit)
            assert again.deadline in (5_000_000_000, 9_000_000_000), "as if it had come then"
            assert again.payload[0].tensors[0].data == submit.payload[0].tensors[0].data
            runtime.deliver(echo(again))
            assert [(await other).status for other in others] == [504, 200, 200]
            assert [REPLAYED in (await other).headers for other in others].count(True) == 1
            assert len(runtime.all(Submit)) == 2 and w.gateway._http.bodies.held == 0

    run(scenario())


def test_who_joined_is_told_of_overload_like_the_first() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime) as w:
            both = [asyncio.create_task(ask(w)) for _ in range(2)]
            await joined(w)
            submit = await runtime.next(Submit)
            runtime.deliver(failed(submit.request, Outcome.QUEUE_FULL, retry_after=700_000_000))
            for one in both:
                answer = await one
                assert (answer.status, answer.headers["retry-after-ms"]) == (503, "700")
                assert answer.json["request_id"] == answer.headers["x-request-id"]
            assert w.gateway.idempotency_held == 0

    run(scenario())


# -- what must not be run again -----------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Outcome.DEADLINE_EXCEEDED, Outcome.RECLAIMED, Outcome.CIRCUIT_OPEN])
@pytest.mark.parametrize("given", [True, False])
def test_what_may_have_been_run_by_a_model_that_must_not_twice_is_not_run_for_that_key_again(
    outcome: Outcome, given: bool
) -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(lambda s: msgspec.structs.replace(failed(s.request, outcome), begun=given))
        async with world(runtime, models=ONCE) as w:
            assert (await ask(w)).json["code"] == outcome.value
            again = await ask(w)
            if given:
                assert (again.status, again.json["code"], again.json["retryable"]) == (500, "may_have_run", False)
                assert outcome.value in again.json["error"] and again.headers[REPLAYED] == "true"
            else:
                assert again.json["code"] == outcome.value
            assert len(runtime.all(Submit)) == (1 if given else 2)

    run(scenario())


def test_of_such_a_model_who_joined_is_told_too_and_its_own_deadline_starts_nothing() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with world(runtime, models=ONCE) as w:
            first = asyncio.create_task(ask(w, X_Request_Timeout_Ms="100"))
            submit = await runtime.next(Submit)
            second = asyncio.create_task(ask(w))
            await joined(w)
            runtime.deliver(begun(failed(submit.request, Outcome.DEADLINE_EXCEEDED)))
            assert [(await one).json["code"] for one in (first, second)] == ["deadline_exceeded", "may_have_run"]
            assert len(runtime.all(Submit)) == 1

    run(scenario())


def test_of_such_a_model_a_reply_too_large_to_be_kept_is_not_run_again_either() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(lambda submit: begun(echo(submit)))
        async with world(runtime, models=ONCE, idempotency=Idempotency(max_reply_kb=1)) as w:
            assert (await ask(w, body=x(200))).status == 200
            again = await ask(w, body=x(200))
            assert (again.status, again.json["code"], len(runtime.all(Submit))) == (500, "may_have_run", 1)

    run(scenario())


def test_a_model_that_may_run_twice_with_a_fallback_that_may_not() -> None:
    """What counts is who was given the request."""

    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        models = [
            model("big", 1, settings=ModelSettings(fallback="small")),
            model("small", 1, settings=ModelSettings(idempotent=False)),
        ]
        async with world(runtime, models=models, metas={"big": ADD, "small": ADD}) as w:
            for ends_at, code in (("big", "deadline_exceeded"), ("small", "may_have_run")):
                asked = asyncio.create_task(ask(w, ends_at, name="big"))
                submit = await runtime.next(Submit)
                if ends_at == "small":
                    runtime.deliver(failed(submit.request, Outcome.QUEUE_FULL))
                    submit = await runtime.next(Submit)
                assert submit.key.model == ends_at
                runtime.deliver(begun(failed(submit.request, Outcome.DEADLINE_EXCEEDED)))
                assert (await asked).status == 504
                runtime.answer = lambda s: failed(s.request, Outcome.DEADLINE_EXCEEDED)
                assert (await ask(w, ends_at, name="big")).json["code"] == code
                runtime.answer = None
                while not runtime._unseen.empty():
                    runtime._unseen.get_nowait()

    run(scenario())


# -- embeddings ---------------------------------------------------------------------------------------


def encoders(encoder: CatalogModel, runtime: FakeRuntime) -> Any:
    return world(runtime, models=[encoder, model("add", 1)], metas={"encoder": ENCODER})


async def embeddings(w: World, *texts: str, **headers: str) -> Answer:
    body = {"model": "encoder", "input": list(texts)}
    return await w.ask("POST", "/v1/embeddings", body, Idempotency_Key="k", **headers)


def test_embeddings_are_joined_kept_and_refused_alike(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with encoders(encoder, runtime) as w:
            first, second = [asyncio.create_task(embeddings(w, "one two", "three")) for _ in range(2)]
            await joined(w)
            runtime.deliver(embed(await runtime.next(Submit)))
            assert (await first).json == (await second).json
            assert [REPLAYED in (await one).headers for one in (first, second)].count(True) == 1
            assert (await embeddings(w, "one two", "three")).headers[REPLAYED] == "true"
            other = await embeddings(w, "one")
            assert (other.status, other.json["error"]["code"]) == (422, "idempotency_key_reused")
            assert (await ask(w)).status == 422, "another route is another request"
            assert len(runtime.all(Submit)) == 1

    run(scenario())


def test_a_client_that_leaves_while_its_text_is_tokenised_finds_the_reply_later(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(embed)
        async with encoders(encoder, runtime) as w:
            client = await w.connect()
            body = {"model": "encoder", "input": ["one"]}
            client.send(message("POST", "/v1/embeddings", body, Idempotency_Key="k"))
            client.writer.transport.abort()
            await until(lambda: w.gateway.connections == 0)
            if not runtime.all(Submit) and not w.gateway.idempotency_held:
                pytest.skip("it left before it was read")
            await until(lambda: count(w, "stored") == 1)
            assert (await embeddings(w, "one")).headers[REPLAYED] == "true"
            assert len(runtime.all(Submit)) == 1

    run(scenario())


def test_a_text_that_is_too_long_is_told_so_again_in_the_surfaces_own_shape(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoders(encoder, FakeRuntime(embed)) as w:
            told = [await embeddings(w, "one two three one two three") for _ in range(2)]
            assert [(a.status, REPLAYED in a.headers) for a in told] == [(400, False), (400, True)]
            assert told[0].json == told[1].json
            assert told[0].json["error"]["code"] == "context_length_exceeded"

    run(scenario())


# -- nothing is left ----------------------------------------------------------------------------------


def test_keyed_requests_leave_nothing_for_the_garbage_collector() -> None:
    held: list[Submit] = []

    def send(to_runtime: ToRuntime) -> None:
        if isinstance(to_runtime, Submit):
            held.append(to_runtime)

    gateway = Gateway([model("add", 1)], send)
    gateway.deliver(VersionStatus("add", 1, "ready", ADD))

    async def scenario() -> None:
        connections = [Connection(gateway._http) for _ in range(3)]
        for connection in connections:
            connection.connection_made(FakeTransport())  # type: ignore[arg-type]
        for number in range(5):
            for connection in connections:
                connection.data_received(message("POST", "/v2/models/add/infer", GOOD, Idempotency_Key=f"{number}"))
            if number == 3:
                connections.pop(0).connection_lost(None)
            gateway.deliver(echo(held.pop()))
        assert held == []
        await asyncio.sleep(0)  # what was cancelled is let go

    gc.collect()
    gc.disable()
    try:
        run(scenario())
        assert [kept for kept in gc.get_objects() if isinstance(kept, Request | Execution)] == []
    finally:
        gc.enable()
    assert gateway.in_flight == 0
