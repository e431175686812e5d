"""OpenAI's own client, sync and async, against /v1: it must work unmodified."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest

from headway.config.settings import Limits, Settings
from headway.config.tenants import TenantSettings
from headway.core.outcomes import Outcome
from headway.gateway.catalog import CatalogModel
from headway.gateway.keys import new_key
from headway.wire.messages import Reply, Submit
from tests.conformance.http_world import World, failed, run
from tests.conformance.language_world import LanguageRuntime, answers, language_world, tokens, write_model
from tests.conformance.test_http_embeddings import embed, encoder, encoder_world

__all__ = ["encoder"]


def base(w: World) -> str:
    return f"http://127.0.0.1:{w.port}/v1"


def asynchronous(w: World, **options: Any) -> openai.AsyncOpenAI:
    return openai.AsyncOpenAI(base_url=base(w), api_key="unused", **options)


def synchronous(w: World, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=base(w), api_key="unused", **options)


INPUTS: dict[str, Any] = {
    "a string": "one two",
    "a list": ["one two", "three"],
    "token ids": [1, 3, 4, 2],
    "lists of token ids": [[1, 3, 4, 2], [1, 5, 2]],
}
VECTORS: dict[str, list[list[float]]] = {
    "a string": [[4.0, 1.0]],
    "a list": [[4.0, 1.0], [3.0, 0.8]],
    "token ids": [[4.0, 1.0]],
    "lists of token ids": [[4.0, 1.0], [3.0, 0.8]],
}


@pytest.mark.parametrize("encoding", ["float", "base64", None])
@pytest.mark.parametrize("case", INPUTS)
def test_every_form_of_input_comes_back_as_numbers_in_either_encoding(
    encoder: CatalogModel, case: str, encoding: str | None
) -> None:
    """None: what the client asks for by itself, which is base64, and decodes."""
    options: dict[str, Any] = {} if encoding is None else {"encoding_format": encoding}

    async def scenario() -> None:
        async with encoder_world(encoder) as w, asynchronous(w) as client:
            waiting = client.embeddings.create(model="encoder", input=INPUTS[case], **options)
            with synchronous(w) as blocking:
                blocked = asyncio.to_thread(blocking.embeddings.create, model="encoder", input=INPUTS[case], **options)
                for answer in await asyncio.gather(waiting, blocked):
                    assert [entry.index for entry in answer.data] == list(range(len(VECTORS[case])))
                    if encoding != "base64":
                        for entry, vector in zip(answer.data, VECTORS[case], strict=True):
                            assert entry.embedding == pytest.approx(vector)
                    assert answer.model == "encoder" and answer.object == "list"
                    tokens = sum(int(vector[0]) for vector in VECTORS[case])
                    assert (answer.usage.prompt_tokens, answer.usage.total_tokens) == (tokens, tokens)

    run(scenario())


def test_models_are_listed_and_retrieved(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w, asynchronous(w) as client:
            assert [model.id async for model in client.models.list()] == ["encoder", "add"]
            model = await client.models.retrieve("encoder")
            assert (model.id, model.object, model.owned_by) == ("encoder", "model", "headway")
            with pytest.raises(openai.NotFoundError) as error:
                await client.models.retrieve("nope")
            assert (error.value.code, error.value.type) == ("model_not_found", "invalid_request_error")

    run(scenario())


def test_what_is_wrong_with_a_request_is_its_exception(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w, asynchronous(w, max_retries=0) as client:
            for wrong, param, code in (
                ({"input": ""}, "input", "invalid_request"),
                ({"input": []}, "input", "invalid_request"),
                ({"input": "one", "dimensions": 3}, "dimensions", "invalid_request"),
                ({"input": "one " * 10}, "input", "context_length_exceeded"),
            ):
                with pytest.raises(openai.BadRequestError) as error:
                    await client.embeddings.create(model="encoder", **wrong)
                assert (error.value.param, error.value.code) == (param, code)
                assert error.value.type == "invalid_request_error" and error.value.request_id
            with pytest.raises(openai.NotFoundError):
                await client.embeddings.create(model="nope", input="one")

    run(scenario())


def test_a_body_that_is_too_large_is_its_exception_too(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        limits = Limits(max_body_mb=0.01)
        async with encoder_world(encoder, limits=limits) as w, asynchronous(w, max_retries=0) as client:
            with pytest.raises(openai.APIStatusError) as error:
                await client.embeddings.create(model="encoder", input="one " * 10_000)
            assert (error.value.status_code, error.value.code) == (413, "body_too_large")

    run(scenario())


def outcomes(*given: Outcome, retry_after: int = 0) -> Any:
    """A runtime that ends requests so, one after the other, and answers those after them."""
    left: Iterator[Outcome] = iter(given)

    def answer(submit: Submit) -> Reply:
        outcome = next(left, None)
        return embed(submit) if outcome is None else failed(submit.request, outcome, "", retry_after)

    return answer


def test_a_busy_server_is_asked_again_after_the_time_that_it_names(
    encoder: CatalogModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    slept: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float, result: Any = None) -> Any:
        if seconds > 0.1:
            slept.append(seconds)
            seconds = 0
        return await real(seconds, result)

    async def scenario() -> None:
        busy = outcomes(Outcome.QUEUE_FULL, Outcome.OVERLOADED, retry_after=1_234_000_000)
        async with encoder_world(encoder, busy) as w, asynchronous(w) as client:
            monkeypatch.setattr("anyio.sleep", sleep)
            monkeypatch.setattr("asyncio.sleep", sleep)
            answer = await client.embeddings.create(model="encoder", input="one two")
            assert len(answer.data) == 1
            assert len(w.runtime.all(Submit)) == 3

    run(scenario())
    assert [seconds for seconds in slept if seconds != 20] == [1.234, 1.234]


@pytest.mark.parametrize("outcome", [Outcome.DEADLINE_UNMEETABLE, Outcome.DEADLINE_EXCEEDED, Outcome.MODEL_ERROR])
def test_what_will_not_get_better_is_not_asked_again(encoder: CatalogModel, outcome: Outcome) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder, outcomes(outcome)) as w, asynchronous(w) as client:
            with pytest.raises(openai.InternalServerError) as error:
                await client.embeddings.create(model="encoder", input="one")
            assert error.value.code == outcome.value
            assert len(w.runtime.all(Submit)) == 1, "x-should-retry: false is honoured"

    run(scenario())


def test_fields_of_other_servers_are_ignored_and_truncation_is_honoured(encoder: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(encoder) as w, asynchronous(w) as client:
            answer = await client.embeddings.create(
                model="encoder",
                input="one two three one two three",
                user="somebody",
                extra_body={"truncate_prompt_tokens": -1, "priority": 3, "add_special_tokens": None},
            )
            assert answer.usage.prompt_tokens == 6

    run(scenario())


@pytest.fixture
def matryoshka(encoder: CatalogModel, tmp_path: Path) -> CatalogModel:
    import msgspec

    embeddings = msgspec.structs.replace(encoder.settings.embeddings, dimensions=(1,))
    return msgspec.structs.replace(encoder, settings=msgspec.structs.replace(encoder.settings, embeddings=embeddings))


def test_shorter_vectors_are_made_of_models_that_are_said_to_have_them(matryoshka: CatalogModel) -> None:
    async def scenario() -> None:
        async with encoder_world(matryoshka) as w, asynchronous(w) as client:
            answer = await client.embeddings.create(model="encoder", input=["one two", "one"], dimensions=1)
            assert [entry.embedding for entry in answer.data] == [[1.0], [1.0]]
            assert (await client.embeddings.create(model="encoder", input="one", dimensions=2)).data[0].index == 0
            with pytest.raises(openai.BadRequestError, match=r"2 dimensions \(or 1\), asked for 3"):
                await client.embeddings.create(model="encoder", input="one", dimensions=3)

    run(scenario())


def test_a_stream_that_ends_with_an_error_is_one_to_the_client(tmp_path: Path) -> None:
    file = write_model(tmp_path)
    script = answers(tokens(file, "hello world"), outcome=Outcome.WORKER_LOST)

    async def scenario() -> None:
        async with language_world(file, LanguageRuntime(script)) as w, asynchronous(w) as client:
            texts = []
            with pytest.raises(openai.APIError, match="it broke"):
                async for chunk in await client.completions.create(model="talker", prompt="a", stream=True):
                    texts.append(chunk.choices[0].text)
            assert texts == ["hello", " world"]
            assert len(w.runtime.all(Submit)) == 1

    run(scenario())


def test_the_clients_api_key_is_the_tenants(encoder: CatalogModel) -> None:
    key, other = new_key("acme1"), new_key("umbrella1")
    tenants = {
        "acme": TenantSettings(keys=(key.settings,), models=("encoder",)),
        "umbrella": TenantSettings(keys=(other.settings,), models=("add",)),
    }

    async def ask(w: World, api_key: str) -> Any:
        async with openai.AsyncOpenAI(base_url=base(w), api_key=api_key) as client:
            return await client.embeddings.create(model="encoder", input="one two"), await client.models.list()

    async def scenario() -> None:
        async with encoder_world(encoder, settings=Settings(tenants=tenants)) as w:
            made, models = await ask(w, key.text)
            assert made.data[0].embedding == [4.0, 1.0]
            assert [entry.id for entry in models.data] == ["encoder"]
            assert [submit.tenant for submit in w.runtime.all(Submit)] == ["acme"]
            for wrong, error in (
                (key.text + "x", openai.AuthenticationError),
                (other.text, openai.PermissionDeniedError),
            ):
                with pytest.raises(error) as caught:
                    await ask(w, wrong)
                assert wrong not in str(caught.value)
            assert w.gateway.replies == {200: 2, 401: 1, 403: 1}  # and neither was tried again

    run(scenario())
