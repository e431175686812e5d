"""Streams of tokens over sockets: clients that leave or read slowly, silence, keys, fallbacks, what is left."""

from __future__ import annotations

import asyncio
import gc
from pathlib import Path
from typing import Any

import pytest

from headway.config.settings import ModelSettings
from headway.core.outcomes import Outcome
from headway.gateway.text import answer as answer_module
from headway.gateway.text.answer import Answer
from headway.gateway.text.job import Job
from headway.gateway.text.journal import Journal
from headway.wire.generation import Token
from headway.wire.messages import Cancel, Submit, Written
from tests.conformance.http_world import Client, World, done, failed, message, model, run, within, world
from tests.conformance.language_world import (
    STOP,
    LanguageRuntime,
    answers,
    chat,
    complete,
    events,
    language_world,
    meta_of,
    write_model,
)

A = 3 + ord("a")
"""The token of the letter a, as the tiny vocabulary has it."""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


async def begin(w: World, path: str = "/v1/chat/completions", count: int = 1, **body: Any) -> tuple[Client, list[int]]:
    """A client whose request the runtime has, and its numbers there."""
    client = await w.connect()
    asked = {"model": "talker", "messages": [{"role": "user", "content": "hello"}], "stream": True, **body}
    client.send(message("POST", path, asked))
    return client, [(await w.runtime.next(Submit)).request for _ in range(count)]


def say(w: World, request: int, position: int, end: str = "", token: int = A) -> None:
    w.runtime.chunk(request, position, Token(0, position, token, end=end))


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("began", [False, True])
def test_a_client_that_leaves_ends_what_was_asked_for_it(file: Path, stream: bool, began: bool) -> None:
    async def scenario() -> None:
        runtime = LanguageRuntime()
        async with language_world(file, runtime) as w:
            prompts = {"prompt": ["a", "b", "c"]}
            client, requests = await begin(w, "/v1/completions", 3, stream=stream, **prompts)
            if began:
                say(w, requests[1], 0)
                if stream:
                    await client.head()
            runtime.deliver(done(requests[2]))
            client.close()
            cancelled = sorted([(await runtime.next(Cancel)).request for _ in range(3)])
            assert cancelled == requests
            say(w, requests[0], 0)
            runtime.deliver(failed(requests[0], Outcome.CANCELLED))
            assert w.gateway.in_flight == 0 and not runtime.all(Written)

    run(scenario())


def test_who_leaves_while_the_prompt_is_made_asks_for_nothing(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[Any] = []

    async def scenario() -> None:
        runtime = LanguageRuntime()
        async with language_world(file, runtime) as w:
            left, submitted = asyncio.Event(), asyncio.Event()
            pool = w.gateway._languages.pool

            def submit(*work: Any) -> None:
                made.append(work)
                submitted.set()

            monkeypatch.setattr(pool, "submit", submit)
            monkeypatch.setattr(Job, "_abandon", lambda job, own=Job._abandon: (own(job), left.set()))
            client = await w.connect()
            client.send(message("POST", "/v1/completions", {"model": "talker", "prompt": "a"}))
            await within(submitted.wait())
            client.close()
            await within(left.wait())
            ((work, *given),) = made
            work(*given)
            await asyncio.sleep(0)
            assert not runtime.said

    run(scenario())


def test_a_stream_in_which_nothing_comes_says_that_it_lives(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_module, "KEEP_ALIVE_S", 0.01)

    async def scenario() -> None:
        runtime = LanguageRuntime()
        async with language_world(file, runtime) as w:
            client, (request,) = await begin(w)
            status, _ = await client.head()
            assert status == 200
            assert [await client.chunk() for _ in range(2)] == [b": keep-alive\n\n"] * 2
            say(w, request, 0, "stop")
            runtime.deliver(done(request))
            rest = b""
            while chunk := await client.chunk():
                rest += chunk
            assert [chunk == "[DONE]" for chunk in events(rest)] == [False, False, False, True]
            client, (request,) = await begin(w)
            await client.head()
            runtime.deliver(failed(request, Outcome.QUEUE_FULL, "full"))
            told = b""
            while chunk := await client.chunk():
                told += chunk
            assert events(told)[0]["error"]["code"] == "queue_full"

    run(scenario())


def test_a_whole_reply_says_nothing_before_it_is_there(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_module, "KEEP_ALIVE_S", 0.0)

    async def scenario() -> None:
        runtime = LanguageRuntime()
        async with language_world(file, runtime) as w:
            client, (request,) = await begin(w, stream=False)
            await w.ask("GET", "/health")
            runtime.deliver(failed(request, Outcome.QUEUE_FULL, "full"))
            assert (await client.answer()).status == 503

    run(scenario())


async def pause(client: Client, w: World, request: int) -> int:
    """A client that reads nothing, and so many tokens that the socket takes no more; how many."""
    client.writer.transport.pause_reading()  # type: ignore[attr-defined]
    position = 0
    while True:
        for _ in range(500):
            say(w, request, position)
            position += 1
        await w.ask("GET", "/health")
        connection = next(c for c in w.gateway._http._connections if c._queue)
        if connection._write_paused:
            return position


def test_for_a_reader_that_is_slow_no_text_is_made_and_then_all_at_once(file: Path) -> None:
    async def scenario() -> None:
        runtime = LanguageRuntime()
        async with language_world(file, runtime, context=1_000_000) as w:
            client, (request,) = await begin(w)
            position = await pause(client, w, request)
            (journal,) = journals()
            before = journal._at
            for _ in range(2000):
                say(w, request, position)
                position += 1
            assert (journal._at, len(journal.tokens)) == (before, position)
            runtime.deliver(done(request))
            client.writer.transport.resume_reading()  # type: ignore[attr-defined]
            told = events((await client.answer()).body)
            text = [chunk["choices"][0]["delta"].get("content", "") for chunk in told[:-1]]
            assert "".join(text) == "a" * position
            assert max(map(len, text)) == answer_module.AT_ONCE
            assert told[-2]["choices"][0]["finish_reason"] == "length"

    run(scenario())


def journals() -> list[Journal]:
    return [kept for kept in gc.get_objects() if isinstance(kept, Journal) and not kept.done and kept.tokens]


def test_a_reader_too_slow_is_given_up(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answer_module, "MOST_HELD", 50_000)

    async def scenario() -> None:
        runtime = LanguageRuntime()
        async with language_world(file, runtime, context=1_000_000) as w:
            client, (request,) = await begin(w)
            position = await pause(client, w, request)
            for _ in range(50_000 // 36 + 65):
                say(w, request, position)
                position += 1
            assert (await runtime.next(Cancel)).request == request
            assert w.gateway.in_flight == 0
            assert await ended(client)

    run(scenario())


async def ended(client: Client) -> bool:
    client.writer.transport.resume_reading()  # type: ignore[attr-defined]
    try:
        while await within(client.reader.read(1 << 16)):
            pass
    except ConnectionError:
        pass
    return True


def test_the_same_again_with_a_key_is_the_same_answer(file: Path) -> None:
    runtime = LanguageRuntime(answers([A, STOP]))

    async def scenario() -> None:
        async with language_world(file, runtime) as w:
            key = {"headers": {"Idempotency_Key": "one"}}
            first, second = await chat(w, **key), await chat(w, **key)
            assert first.body == second.body and second.headers["idempotency-replayed"] == "true"
            assert len(runtime.all(Submit)) == 1
            refused = await chat(w, stream=True, **key)
            assert (refused.status, "stream" in refused.json["error"]["message"]) == (400, True)

    run(scenario())


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_without_room_has_another_answer_for_it(file: Path, stream: bool) -> None:
    def answer(runtime: Any, submit: Submit) -> None:
        if submit.key.model == "big":
            runtime.deliver(failed(submit.request, Outcome.QUEUE_FULL, "full"))
        else:
            answers([A, STOP])(runtime, submit)

    runtime = LanguageRuntime(answer)
    models = [model("big", 1, settings=ModelSettings(fallback="small")), model("small", 1)]

    async def scenario() -> None:
        metas = {"big": meta_of(file), "small": meta_of(file)}
        async with world(runtime, models, metas) as w:
            for ask in (chat, complete):
                told = await ask(w, model="big", stream=stream)
                assert (told.status, told.headers["x-headway-served-by"]) == (200, "small/1")
                assert b"error" not in told.body
            refused = await complete(w, ["a", "b"], model="big", stream=stream)
            assert refused.json["error"]["code"] == "queue_full"
            assert w.gateway.in_flight == 0

    run(scenario())


@pytest.mark.parametrize(("template", "says"), [("{% if %}", "line 1"), (None, "no chat template")])
def test_a_model_without_a_usable_template_takes_completions_only(
    tmp_path: Path, template: str | None, says: str
) -> None:
    bad = write_model(tmp_path, template)

    async def scenario() -> None:
        async with language_world(bad, LanguageRuntime(answers([A, STOP]))) as w:
            answer = await chat(w)
            assert answer.status == 400
            assert says in answer.json["error"]["message"] and "/v1/completions" in answer.json["error"]["message"]
            assert (await complete(w)).status == 200

    run(scenario())


def test_a_tokenizer_that_cannot_be_read_is_the_servers_fault(tmp_path: Path) -> None:
    broken = tmp_path / "model.gguf"
    broken.write_bytes(b"GGUF")

    async def scenario() -> None:
        async with language_world(broken, LanguageRuntime(answers([A]))) as w:
            for _ in range(2):
                answer = await chat(w)
                assert (answer.status, answer.json["error"]["code"]) == (500, "tokenizer_unavailable")

    run(scenario())


def test_each_model_is_told_what_it_is_good_for(file: Path) -> None:
    async def scenario() -> None:
        async with language_world(file, LanguageRuntime(answers([A]))) as w:
            answer = await w.ask("POST", "/v1/embeddings", {"model": "talker", "input": "a"})
            assert (answer.status, answer.json["error"]["param"]) == (400, "model")
            assert "is a language model: POST /v1/chat/completions" in answer.json["error"]["message"]
            assert list((await w.ask("GET", "/version")).json) == ["version"]
            entries = (await w.ask("GET", "/v1/models")).json["data"]
            assert [(entry["id"], entry.get("max_model_len")) for entry in entries] == [("talker", 512), ("add", None)]

    run(scenario())


def test_nothing_is_left_of_what_is_answered(file: Path) -> None:
    """Without the collector: no two things keep each other."""

    async def scenario() -> None:
        runtime = LanguageRuntime()
        async with language_world(file, runtime) as w:
            gc.collect()
            gc.disable()
            try:
                client, (request,) = await begin(w)
                say(w, request, 0)
                await client.head()
                client.close()
                assert (await runtime.next(Cancel)).request == request
                runtime.script = answers([A, A, STOP])
                for stream in (False, True):
                    for body in ({}, {"stop": "a", "n": 2}, {"logprobs": True}):
                        assert (await chat(w, stream=stream, **body)).status == 200
                    assert (await complete(w, ["a", "b"], stream=stream, echo=True)).status == 200
                    assert (await chat(w, stream=stream, temperature=5)).status == 400
                runtime.script = answers([A], outcome=Outcome.WORKER_LOST)
                for stream in (False, True):
                    await chat(w, stream=stream)
                await w.ask("GET", "/health")
                assert [kept for kept in gc.get_objects() if isinstance(kept, Answer | Job | Journal)] == []
            finally:
                gc.enable()

    run(scenario())
