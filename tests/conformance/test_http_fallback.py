"""Declared fallbacks: a request that its model has no room, time or worker for is answered by another, and says so."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from headway.config.settings import ModelSettings, Settings
from headway.config.tenants import TenantSettings
from headway.core.outcomes import Outcome
from headway.gateway.access import Access
from headway.gateway.calls import OVERLOAD
from headway.gateway.catalog import CatalogModel, CatalogVersion
from headway.gateway.errors import FACES
from headway.wire.messages import Cancel, InputMeta, ModelMeta, Reply, Submit, VersionStatus, Written
from tests.conformance.http_world import (
    ADD,
    GOOD,
    TALK,
    FakeRuntime,
    World,
    done,
    echo,
    failed,
    message,
    model,
    run,
    world,
)
from tests.conformance.test_http_embeddings import ENCODER, embed, encoder

__all__ = ["encoder"]

SERVED_BY = "x-headway-served-by"
MODELS = [
    model("big", 1, settings=ModelSettings(fallback="small")),
    model("small", 1, 3, settings=ModelSettings(fallback="tiny")),
    model("tiny", 1),
    model("speaker", 1, settings=ModelSettings(fallback="whisperer")),
    model("whisperer", 2),
]
METAS = {"big": ADD, "small": ADD, "tiny": ADD, "speaker": TALK, "whisperer": TALK}


class Refusing(FakeRuntime):
    """Refuses what is for these models with this outcome; all else is answered."""

    def __init__(self, outcome: Outcome, *models: str, answer: Any = echo) -> None:
        super().__init__(self._answer)
        self.outcome, self.models, self._then = outcome, models, answer

    def _answer(self, submit: Submit) -> Reply:
        if submit.key.model in self.models:
            return failed(submit.request, self.outcome, f"no, says {submit.key.model}", 700_000_000)
        reply: Reply = self._then(submit)
        return reply


def asked_for(runtime: FakeRuntime) -> list[str]:
    return [f"{submit.key.model}/{submit.key.version}" for submit in runtime.all(Submit)]


def there(runtime: FakeRuntime, **more: Any) -> Any:
    return world(runtime, models=MODELS, metas=METAS, **more)


@pytest.mark.parametrize("outcome", OVERLOAD)
def test_the_fallback_answers_and_says_so(outcome: Outcome) -> None:
    async def scenario() -> None:
        runtime = Refusing(outcome, "big")
        async with there(runtime) as w:
            answer = await w.infer("big", {**GOOD, "id": "mine"})
            assert answer.status == 200
            assert (answer.json["model_name"], answer.json["model_version"], answer.json["id"]) == (
                "small",
                "3",
                "mine",
            )
            assert answer.headers[SERVED_BY] == "small/3"
            assert asked_for(runtime) == ["big/1", "small/3"]
            assert w.gateway.fallbacks == {("big", "small"): 1}
            assert w.gateway.in_flight == 0
            await runtime.next(Written)
            first, second = [submit.request for submit in runtime.all(Submit)]
            assert [cancel.request for cancel in runtime.all(Cancel)] == [first]
            assert [written.request for written in runtime.all(Written)] == [second]

    run(scenario())


@pytest.mark.parametrize("outcome", [o for o in Outcome if o not in OVERLOAD and FACES[o].status >= 400])
def test_what_is_no_overload_and_a_tenants_own_limit_is_no_reason_to_ask_another(outcome: Outcome) -> None:
    async def scenario() -> None:
        runtime = Refusing(outcome, "big")
        async with there(runtime) as w:
            answer = await w.infer("big", GOOD)
            assert answer.json["code"] == outcome.value
            assert SERVED_BY not in answer.headers and asked_for(runtime) == ["big/1"]

    run(scenario())


def test_a_model_that_answers_is_not_replaced() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with there(runtime) as w:
            answer = await w.infer("big", GOOD)
            assert (answer.json["model_name"], SERVED_BY in answer.headers) == ("big", False)
            assert w.gateway.fallbacks == {}

    run(scenario())


def test_where_the_fallback_refuses_too_what_the_model_itself_said_stands_and_no_third_is_asked() -> None:
    async def scenario() -> None:
        runtime = Refusing(Outcome.QUEUE_FULL, "big", "small")
        async with there(runtime) as w:
            answer = await w.infer("big", GOOD)
            assert (answer.status, answer.json["code"], answer.json["error"]) == (503, "queue_full", "no, says big")
            assert answer.headers["retry-after-ms"] == "700"
            assert SERVED_BY not in answer.headers and asked_for(runtime) == ["big/1", "small/3"]
            await runtime.next(Written)
            assert len(runtime.all(Written)) == len(runtime.all(Cancel)) == 1

    run(scenario())


def test_where_the_fallback_fails_that_is_told_as_its_failure() -> None:
    async def scenario() -> None:
        runtime = Refusing(Outcome.RECLAIMED, "big", answer=lambda s: failed(s.request, Outcome.MODEL_ERROR, "broke"))
        async with there(runtime) as w:
            answer = await w.infer("big", GOOD)
            assert (answer.status, answer.json["code"], answer.headers[SERVED_BY]) == (500, "model_error", "small/3")

    run(scenario())


OTHER_INPUTS = ModelMeta("fake", (InputMeta("words", "BYTES", (-1,)),), ())
WIDER = ModelMeta("fake", (InputMeta("x", "FP32", (-1, 3)),), (InputMeta("y", "FP32", (-1, 3)),))
LESS = msgspec.structs.replace(ADD, outputs=ADD.outputs[:1])


@pytest.mark.parametrize("meta", [OTHER_INPUTS, WIDER, TALK, None, LESS])
def test_a_request_that_does_not_fit_the_fallback_keeps_its_refusal(meta: ModelMeta | None) -> None:
    """None: it is not ready."""

    async def scenario() -> None:
        runtime = Refusing(Outcome.OVERLOADED, "big")
        async with there(runtime) as w:
            state = "unavailable" if meta is None else "ready"
            w.gateway.deliver(VersionStatus("small", 3, state, meta))
            answer = await w.infer("big", {**GOOD, "outputs": [{"name": "z"}]})
            assert (answer.status, answer.json["code"], answer.json["error"]) == (503, "overloaded", "no, says big")
            assert SERVED_BY not in answer.headers and asked_for(runtime) == ["big/1"]
            await runtime.next(Written)
            assert runtime.all(Cancel) == []

    run(scenario())


def test_a_model_that_is_not_ready_is_stood_in_for_at_once() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime()
        async with there(runtime) as w:
            w.gateway.deliver(VersionStatus("big", 1, "unavailable", None, "signal SIGKILL"))
            answer = await w.infer("big", GOOD)
            assert (answer.status, answer.headers[SERVED_BY], asked_for(runtime)) == (200, "small/3", ["small/3"])
            w.gateway.deliver(VersionStatus("small", 3, "unavailable", None, "signal SIGKILL"))
            answer = await w.infer("big", GOOD)
            assert (answer.status, answer.json["code"]) == (503, "model_not_ready")
            assert "'big'" in answer.json["error"]
            assert (await w.infer("big", b"{")).status == 503

    run(scenario())


def test_access_is_of_the_model_that_was_asked_for() -> None:
    async def scenario() -> None:
        runtime = Refusing(Outcome.QUEUE_FULL, "big")
        settings = Settings(tenants={"default": TenantSettings(models=("big",))})
        async with there(runtime, settings=settings) as w:
            assert (await w.infer("big", GOOD)).headers[SERVED_BY] == "small/3"
            assert (await w.infer("small", GOOD)).status == 403
            assert [submit.tenant for submit in runtime.all(Submit)] == ["default"] * 2

    run(scenario())


def test_deadline_and_class_go_with_it() -> None:
    async def scenario() -> None:
        runtime = Refusing(Outcome.QUEUE_FULL, "big")
        async with there(runtime, now=lambda: 0) as w:
            await w.infer("big", GOOD, X_Request_Timeout_Ms="250", X_Priority="1")
            assert [(s.deadline, s.priority) for s in runtime.all(Submit)] == [(250_000_000, 0)] * 2

    run(scenario())


def test_binary_tensors_are_read_again() -> None:
    import numpy as np

    async def scenario() -> None:
        runtime = Refusing(Outcome.QUEUE_FULL, "big")
        async with there(runtime) as w:
            head = b'{"inputs":[{"name":"x","datatype":"FP32","shape":[1,2],"parameters":{"binary_data_size":8}}]}'
            data = np.array([[3, 4]], "<f4").tobytes()
            answer = await w.infer("big", head + data, Inference_Header_Content_Length=str(len(head)))
            assert answer.json["outputs"][0]["data"] == [3.0, 4.0]

    run(scenario())


def test_streams_fall_back_before_their_first_result() -> None:
    async def scenario() -> None:
        for path, ends in (("generate_stream", b'data: "one"\n\n'), ("generate", b'"outputs":["one"]}')):
            runtime = FakeRuntime(answer=None)
            async with there(runtime) as w:
                client = await w.connect()
                client.send(message("POST", f"/v2/models/speaker/{path}", {"a": 1}))
                runtime.deliver(failed((await runtime.next(Submit)).request, Outcome.NO_WORKER))
                second = await runtime.next(Submit)
                assert (second.key.model, second.body) == ("whisperer", {"a": 1})
                runtime.chunk(second.request, 0, "one")
                runtime.deliver(done(second.request))
                answer = await client.answer()
                assert (answer.status, answer.headers[SERVED_BY]) == (200, "whisperer/2")
                assert answer.body.endswith(ends)

    run(scenario())


def test_a_client_that_leaves_while_its_request_waits_for_the_fallback_cancels_that() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with there(runtime) as w:
            client = await w.connect()
            client.send(message("POST", "/v2/models/big/infer", GOOD))
            first = await runtime.next(Submit)
            runtime.deliver(failed(first.request, Outcome.RECLAIMED))
            second = await runtime.next(Submit)
            assert (await runtime.next(Cancel)).request == first.request
            client.writer.transport.abort()
            assert (await runtime.next(Cancel)).request == second.request
            assert w.gateway.in_flight == 0

    run(scenario())


def test_the_body_is_counted_until_the_model_has_answered() -> None:
    async def scenario() -> None:
        runtime = FakeRuntime(answer=None)
        async with there(runtime) as w:
            bodies = w.gateway._http.bodies
            for name, held in (("tiny", False), ("big", True)):
                client = await w.connect()
                client.send(message("POST", f"/v2/models/{name}/infer", GOOD))
                submit = await runtime.next(Submit)
                assert bool(bodies.held) is held
                runtime.deliver(echo(submit))
                assert (await client.answer()).status == 200
                assert bodies.held == 0

    run(scenario())


def small_encoder(encoder: CatalogModel, longest: int) -> CatalogModel:
    assert encoder.settings.embeddings is not None
    embeddings = msgspec.structs.replace(encoder.settings.embeddings, max_length=longest)
    return CatalogModel("small", (CatalogVersion(1, encoder.versions[0].path),), ModelSettings(embeddings=embeddings))


def encoders(encoder: CatalogModel, runtime: FakeRuntime, longest: int = 6) -> Any:
    settings = msgspec.structs.replace(encoder.settings, fallback="small")
    both = [msgspec.structs.replace(encoder, settings=settings), small_encoder(encoder, longest)]
    return world(runtime, models=both, metas={"encoder": ENCODER, "small": ENCODER})


async def ask_embedding(w: World) -> Any:
    return await w.ask("POST", "/v1/embeddings", {"model": "encoder", "input": ["one two", "one two three"]})


def test_embeddings_fall_back_through_the_other_models_tokenizer(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        runtime = Refusing(Outcome.QUEUE_FULL, "encoder", answer=embed)
        async with encoders(encoder, runtime) as w:
            answer = await ask_embedding(w)
            assert (answer.status, answer.headers[SERVED_BY], answer.json["model"]) == (200, "small/1", "small")
            assert answer.json["usage"]["prompt_tokens"] == 9
            assert asked_for(runtime) == ["encoder/1", "small/1"]

    run(scenario())


def test_a_text_too_long_for_the_fallback_keeps_its_refusal_and_is_written_once(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        runtime = Refusing(Outcome.QUEUE_FULL, "encoder", answer=embed)
        async with encoders(encoder, runtime, longest=4) as w:
            answer = await ask_embedding(w)
            assert (answer.status, answer.json["error"]["code"]) == (503, "queue_full")
            assert answer.json["error"]["message"] == "no, says encoder"
            assert SERVED_BY not in answer.headers
            assert asked_for(runtime) == ["encoder/1"]
            assert (await ask_embedding(w)).status == 503  # a second round trip: whatever was to be said is said
            assert runtime.all(Written) == [] and len(runtime.all(Cancel)) >= 1

    run(scenario())


def test_a_fallback_that_is_set_at_run_time_holds_from_the_next_request_on() -> None:
    async def scenario() -> None:
        runtime = Refusing(Outcome.QUEUE_FULL, "tiny")
        async with there(runtime) as w:
            assert (await w.infer("tiny", GOOD)).status == 503
            from headway.config.settings import Server

            w.gateway.configure(Access(Settings()), Server(), {"tiny": ModelSettings(fallback="small")})
            assert (await w.infer("tiny", GOOD)).headers[SERVED_BY] == "small/3"

    run(scenario())
