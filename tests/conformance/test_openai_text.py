"""/v1/chat/completions and /v1/completions: what is asked of the runtime, and how its tokens are told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headway.config.settings import Settings
from headway.config.tenants import TenantRules
from headway.core.ids import Part
from headway.core.outcomes import Outcome
from headway.llm.sample.params import SamplingParams
from headway.wire.generation import Generation, Token
from headway.wire.messages import Enough, Submit, Written
from tests.conformance.http_world import done, failed, run
from tests.conformance.language_world import (
    CONTEXT,
    STOP,
    LanguageRuntime,
    answers,
    chat,
    complete,
    events,
    language_world,
    tokens,
    write_model,
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def asked(file: Path, ask: Any, script: Any = None, **more: Any) -> Any:
    """What `ask(world)` gives, and what the runtime was told."""
    runtime = LanguageRuntime(script or answers([*tokens(file, "hello world"), STOP]))

    async def scenario() -> Any:
        async with language_world(file, runtime, **more) as w:
            return await ask(w)

    return run(scenario()), runtime


def generation(runtime: LanguageRuntime) -> Generation:
    (submit,) = runtime.all(Submit)
    assert submit.generation is not None
    return submit.generation


# -- what is asked of the runtime ------------------------------------------------------------------


def test_a_prompt_is_one_part_of_as_many_tokens(file: Path) -> None:
    _, runtime = asked(file, lambda w: complete(w, "hello world", max_tokens=5, temperature=0, seed=7))
    (submit,) = runtime.all(Submit)
    assert submit.parts == [Part(1, 2)] and submit.payload[0].tensors == [] and submit.body is None
    assert submit.generation == Generation(
        prompt=tokens(file, "hello world"), max_tokens=5, sampling=SamplingParams(temperature=0, seed=7, stops=(STOP,))
    )


def test_every_parameter_arrives(file: Path) -> None:
    body = {
        "temperature": 0.5, "top_p": 0.9, "top_k": 40, "min_p": 0.05, "presence_penalty": 1, "frequency_penalty": -1,
        "repetition_penalty": 1.1, "logit_bias": {"5": 2, "6": -100}, "stop_token_ids": [9], "min_tokens": 2,
        "seed": -1, "n": 3, "max_completion_tokens": 8, "max_tokens": 4, "logprobs": True, "top_logprobs": 2,
        "cache_salt": "shared", "headers": {"X_Ttft_Ms": "250", "X_Itl_Ms": "1.5"}, "prompt_logprobs": 1,
    }  # fmt: skip
    _, runtime = asked(file, lambda w: chat(w, **body))
    told = generation(runtime)
    assert told.sampling == SamplingParams(
        0.5, 40, 0.9, 0.05, 1, -1, 1.1, ((5, 2.0), (6, -100.0)), (STOP, 9), (), 2, -1, 2
    )
    assert (told.choices, told.max_tokens, told.salt) == (3, 8, "shared")
    assert (told.first_within, told.itl, told.prompt_logprobs) == (250_000_000, 1_500_000, 1)


def test_nulls_and_unknown_fields_are_as_good_as_absent(file: Path) -> None:
    names = (
        "max_tokens", "temperature", "top_p", "n", "stop", "stream", "stream_options", "presence_penalty", "logprobs",
        "frequency_penalty", "logit_bias", "seed", "response_format", "top_k", "min_p", "repetition_penalty", "tools",
        "min_tokens", "ignore_eos", "stop_token_ids", "skip_special_tokens", "include_stop_str_in_output", "echo",
        "guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs", "priority", "functions",
        "cache_salt", "request_id", "add_special_tokens", "truncate_prompt_tokens", "prompt_logprobs", "tool_choice",
        "use_beam_search", "max_completion_tokens", "top_logprobs", "parallel_tool_calls", "function_call", "best_of",
        "modalities", "audio", "add_generation_prompt", "continue_final_message", "chat_template", "documents",
        "chat_template_kwargs", "suffix",
    )  # fmt: skip
    nulls = dict.fromkeys(names)
    for body in (nulls, {}, {"logit_bias": {}, "stop": [], "user": "me", "whatever": {"a": 1}, "metadata": {}}):
        for ask in (chat, complete):
            answer, runtime = asked(file, lambda w, ask=ask, body=body: ask(w, **body))
            told = generation(runtime)
            assert answer.status == 200
            assert told.max_tokens == CONTEXT - len(told.prompt)
            assert told.sampling == SamplingParams(stops=(STOP,), seed=told.sampling.seed)


def test_who_brings_no_seed_is_given_one(file: Path) -> None:
    async def ask(w: Any) -> None:
        for _ in range(2):
            await chat(w)

    _, runtime = asked(file, ask)
    seeds = [submit.generation.sampling.seed for submit in runtime.all(Submit) if submit.generation]
    assert len(dict.fromkeys(seeds)) == 2


def test_all_tokens_are_top_k_minus_1_and_a_model_may_be_kept_from_its_end(file: Path) -> None:
    _, runtime = asked(file, lambda w: chat(w, top_k=-1, ignore_eos=True))
    assert generation(runtime).sampling.top_k == 0
    assert generation(runtime).sampling.stops == ()


def test_messages_are_what_the_models_template_makes_of_them(file: Path) -> None:
    messages = [
        {"role": "developer", "content": "be"},
        {"role": "user", "content": [{"type": "text", "text": "hello"}, {"type": "text", "text": "x"}], "name": None},
    ]
    _, runtime = asked(file, lambda w: chat(w, messages=messages))
    text = "<|im_start|>system\nbe<|im_end|>\n<|im_start|>user\nhello\nx<|im_end|>\n<|im_start|>assistant\n"
    assert generation(runtime).prompt == tokens(file, text)


def test_the_last_message_can_be_gone_on_with_and_told_with_the_answer(file: Path) -> None:
    messages = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "well, "}]
    answer, runtime = asked(file, lambda w: chat(w, messages=messages, continue_final_message=True, echo=True))
    text = "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\nwell, "
    assert generation(runtime).prompt == tokens(file, text)
    assert answer.json["choices"][0]["message"]["content"] == "well, hello world"


@pytest.mark.parametrize(("given", "count"), [([5, 6], 1), ([[5], [6, 7]], 2), ("hello", 1), (["a", "b", "c"], 3)])
def test_prompts_in_all_four_forms(file: Path, given: Any, count: int) -> None:
    answer, runtime = asked(file, lambda w: complete(w, given, n=2))
    prompts = [submit.generation.prompt for submit in runtime.all(Submit) if submit.generation]
    expected = given if count == 2 else [given] if given == [5, 6] else [tokens(file, text) for text in given]
    assert prompts == ([tokens(file, "hello")] if given == "hello" else expected)
    assert [choice["index"] for choice in answer.json["choices"]] == list(range(2 * count))
    assert answer.json["usage"]["prompt_tokens"] == sum(map(len, prompts))
    assert len(runtime.all(Written)) == count


@pytest.mark.parametrize("stream", [False, True])
def test_answers_are_in_the_order_of_their_prompts(file: Path, stream: bool) -> None:
    """Prompt i says letters of its own, and its answer j so many of them."""
    letters = tokens(file, "xyz")

    def answer(runtime: Any, submit: Submit) -> None:
        assert submit.generation is not None
        letter = submit.generation.prompt[0]
        for choice in (1, 0):
            for position in range(choice + 1):
                runtime.chunk(submit.request, position, Token(choice, position, letter))
        runtime.deliver(done(submit.request))

    told, _ = asked(file, lambda w: complete(w, ["x", "y", "z"], n=2, stream=stream), answer)
    found: dict[int, str] = {}
    for chunk in events(told.body)[:-1] if stream else [told.json]:
        for choice in chunk["choices"]:
            found[choice["index"]] = found.get(choice["index"], "") + choice["text"]
    assert [found[index] for index in range(6)] == ["x", "xx", "y", "yy", "z", "zz"] and len(letters) == 3


def test_a_prompt_is_cut_to_its_end_where_that_is_asked_for(file: Path) -> None:
    long = [3, 4, 5] * 200
    for truncate, kept in ((4, long[-4:]), (-1, long[-(CONTEXT - 10) :]), (10_000, None)):
        answer, runtime = asked(file, lambda w, t=truncate: complete(w, long, truncate_prompt_tokens=t, max_tokens=10))
        if kept is None:
            assert (answer.status, answer.json["error"]["code"]) == (400, "context_length_exceeded")
        else:
            assert generation(runtime).prompt == kept
    text = "hello" * 600
    _, runtime = asked(file, lambda w: complete(w, text, truncate_prompt_tokens=2))
    assert generation(runtime).prompt == tokens(file, "hellohello")


def test_tenant_priority_and_time_are_as_on_other_routes(file: Path) -> None:
    headers = {"X_Request_Timeout_Ms": "100"}
    _, runtime = asked(file, lambda w: chat(w, priority=1, headers=headers), now=lambda: 0)
    (submit,) = runtime.all(Submit)
    assert (submit.tenant, submit.priority, submit.deadline) == ("default", 0, 100_000_000)


def test_a_tenants_times_are_those_of_requests_that_bring_none(file: Path) -> None:
    settings = Settings(other_tenants=TenantRules(default_ttft_ms=500, default_itl_ms=40))
    _, runtime = asked(file, lambda w: chat(w), settings=settings)
    assert (generation(runtime).first_within, generation(runtime).itl) == (500_000_000, 40_000_000)
    _, runtime = asked(file, lambda w: chat(w, headers={"X_Itl_Ms": "20"}), settings=settings)
    assert (generation(runtime).first_within, generation(runtime).itl) == (500_000_000, 20_000_000)


# -- whole replies ---------------------------------------------------------------------------------


def test_a_whole_chat_reply(file: Path) -> None:
    answer, _ = asked(file, lambda w: chat(w, request_id="mine"))
    told = answer.json
    assert told.pop("created") > 1_600_000_000
    assert told.pop("system_fingerprint").startswith("headway-")
    prompt = len(tokens(file, "<|im_start|>user\nhello<|im_end|>\n<|im_start|>assistant\n"))
    assert told == {
        "id": "chatcmpl-mine",
        "object": "chat.completion",
        "model": "talker",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "hello world", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": prompt,
            "completion_tokens": 3,
            "total_tokens": prompt + 3,
            "prompt_tokens_details": {"cached_tokens": 3},
            "completion_tokens_details": {"reasoning_tokens": 0},
        },
    }


def test_log_probabilities_of_a_chat(file: Path) -> None:
    script = answers(tokens(file, "hé"))
    answer, _ = asked(file, lambda w: chat(w, logprobs=True, top_logprobs=1, max_tokens=3), script)
    content = answer.json["choices"][0]["logprobs"]["content"]
    assert [entry["token"] for entry in content] == ["h", "\ufffd", "\ufffd"]
    assert content[1]["bytes"] == [0xC3] and content[2]["bytes"] == [0xA9]
    assert content[0]["logprob"] == -0.25
    assert content[0]["top_logprobs"] == [{"token": "<|note|>", "logprob": -1.0, "bytes": list(b"<|note|>")}]


def test_a_reply_too_long_to_be_written_while_others_wait_is_the_same(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = {"logprobs": True, "top_logprobs": 2, "n": 2, "request_id": "mine"}
    inline, _ = asked(file, lambda w: chat(w, **body))
    monkeypatch.setattr("headway.gateway.text.answer.MOST_INLINE", 0)
    in_a_thread, runtime = asked(file, lambda w: chat(w, **body))
    assert in_a_thread.json["choices"] == inline.json["choices"]
    assert len(runtime.all(Written)) == 1


def test_log_probabilities_of_a_completion_with_its_prompt(file: Path) -> None:
    answer, runtime = asked(file, lambda w: complete(w, "hello w", logprobs=1, echo=True, max_tokens=2))
    choice = answer.json["choices"][0]
    assert choice["text"] == "hello whello world"
    logprobs = choice["logprobs"]
    assert logprobs["tokens"] == ["hello", " w", "hello", " world"]
    assert logprobs["token_logprobs"] == [None, -0.5, -0.25, -0.25]
    assert logprobs["text_offset"] == [0, 5, 7, 12]
    assert logprobs["top_logprobs"][0] is None
    assert logprobs["top_logprobs"][2] == {"<|note|>": -1.0, "hello": -0.25}
    assert generation(runtime).prompt_logprobs == 1


def test_a_prompt_alone_can_be_scored(file: Path) -> None:
    answer, runtime = asked(file, lambda w: complete(w, "hello world", logprobs=0, echo=True, max_tokens=0))
    choice = answer.json["choices"][0]
    assert (choice["text"], choice["finish_reason"]) == ("hello world", "length")
    assert choice["logprobs"]["token_logprobs"] == [None, -0.5]
    assert answer.json["usage"]["completion_tokens"] == 0
    assert generation(runtime).max_tokens == 1


def test_log_probabilities_of_a_prompt(file: Path) -> None:
    answer, _ = asked(file, lambda w: complete(w, [5, 6, 7], prompt_logprobs=1))
    (nothing, first, second) = answer.json["choices"][0]["prompt_logprobs"]
    assert nothing is None
    assert first["0"] == {"logprob": -0.5, "decoded_token": "<|note|>"} and first["6"]["logprob"] == -0.5
    assert list(second) == ["0", "7"]


def test_special_tokens_are_shown_to_who_asks(file: Path) -> None:
    script = answers([*tokens(file, "a<|note|>b"), STOP])
    texts = []
    for body in (
        {},
        {"skip_special_tokens": False},
        {"skip_special_tokens": False, "include_stop_str_in_output": True},
    ):
        answer, _ = asked(file, lambda w, body=body: complete(w, **body), script)
        texts.append(answer.json["choices"][0]["text"])
    assert texts == ["ab", "a<|note|>b", "a<|note|>b<|im_end|>"]


# -- streams ---------------------------------------------------------------------------------------


def test_a_streamed_chat_chunk_by_chunk(file: Path) -> None:
    answer, _ = asked(file, lambda w: chat(w, stream=True, n=2, stream_options={"include_usage": True}))
    assert answer.status == 200
    assert answer.headers["content-type"] == "text/event-stream" and answer.headers["cache-control"] == "no-cache"
    told = events(answer.body)
    assert told.pop() == "[DONE]"
    last = told.pop()
    assert last["choices"] == [] and last["usage"]["completion_tokens"] == 6
    heads = [(chunk["id"], chunk["created"], chunk["model"], chunk["object"]) for chunk in (*told, last)]
    assert len(dict.fromkeys(heads)) == 1 and heads[0][3] == "chat.completion.chunk"
    assert all(chunk["usage"] is None and len(chunk["choices"]) == 1 for chunk in told)
    for index in range(2):
        choices = [chunk["choices"][0] for chunk in told if chunk["choices"][0]["index"] == index]
        assert all("finish_reason" in choice and "logprobs" in choice for choice in choices)
        assert [(choice["delta"], choice["finish_reason"]) for choice in choices] == [
            ({"role": "assistant", "content": ""}, None),
            ({"content": "hello"}, None),
            ({"content": " world"}, None),
            ({}, "stop"),
        ]


def test_usage_is_in_chunks_only_where_it_was_asked_for(file: Path) -> None:
    answer, _ = asked(file, lambda w: chat(w, stream=True))
    assert all("usage" not in chunk for chunk in events(answer.body)[:-1])
    options = {"include_usage": True, "continuous_usage_stats": True}
    answer, _ = asked(file, lambda w: chat(w, stream=True, stream_options=options))
    counts = [chunk["usage"] and chunk["usage"]["completion_tokens"] for chunk in events(answer.body)[:-1]]
    assert counts == [None, 1, 2, 3, 3]


def test_a_streamed_completion_chunk_by_chunk(file: Path) -> None:
    answer, _ = asked(file, lambda w: complete(w, "x", stream=True, echo=True))
    told = events(answer.body)
    assert told.pop() == "[DONE]"
    assert [(chunk["choices"][0]["text"], chunk["choices"][0]["finish_reason"]) for chunk in told] == [
        ("x", None),
        ("hello", None),
        (" world", None),
        ("", "stop"),
    ]
    assert {chunk["object"] for chunk in told} == {"text_completion"}


def test_no_line_of_a_stream_is_one_to_some_readers_and_two_to_others(file: Path) -> None:
    text = "a\u2028b\u2029c\n\rd\x85e"
    answer, _ = asked(file, lambda w: chat(w, stream=True), answers(tokens(file, text)))
    assert len(answer.body.splitlines()) == answer.body.count(b"\n")
    assert b"\xe2\x80\xa8" not in answer.body
    parts = [chunk["choices"][0]["delta"].get("content", "") for chunk in events(answer.body)[:-1]]
    assert "".join(parts) == text


CASES: list[dict[str, Any]] = [
    {},
    {"n": 3},
    {"stop": "lo wor"},
    {"stop": ["world", "ello"], "include_stop_str_in_output": True},
    {"stop": "😀", "max_tokens": 20},
    {"max_tokens": 14},
    {"max_tokens": 1},
    {"skip_special_tokens": False},
    {"stop": "hello", "min_tokens": 3},
]


@pytest.mark.parametrize("scored", [False, True])
@pytest.mark.parametrize("body", CASES, ids=str)
def test_what_is_streamed_is_what_is_told_whole(file: Path, body: dict[str, Any], scored: bool) -> None:
    said = tokens(file, "hello <|note|>world é😀 hello")
    script = answers([*said, STOP], said[3:], said[:2])

    for ask, more in ((chat, {"logprobs": True, "top_logprobs": 1}), (complete, {"logprobs": 1, "echo": True})):
        both = body | (more if scored else {})
        whole, one = asked(file, lambda w, ask=ask, both=both: ask(w, "hello", **both), script)
        streaming = both | {"stream": True, "stream_options": {"include_usage": True}}
        streamed, other = asked(file, lambda w, ask=ask, body=streaming: ask(w, "hello", **body), script)
        together, usage = joined(events(streamed.body), ask is chat)
        for choice in whole.json["choices"]:
            text = choice["message"]["content"] if ask is chat else choice["text"]
            assert together[choice["index"]] == (text, choice["logprobs"], choice["finish_reason"])
        assert usage == whole.json["usage"]
        assert len(one.all(Enough)) == len(other.all(Enough))


def joined(told: list[Any], is_chat: bool) -> tuple[dict[int, Any], Any]:
    """Of each choice text, log probabilities and reason; and the usage."""
    found: dict[int, Any] = {}
    usage = None
    assert told.pop() == "[DONE]"
    for chunk in told:
        usage = chunk["usage"]
        for choice in chunk["choices"]:
            text, logprobs, reason = found.get(choice["index"], ("", None, None))
            assert reason is None, "nothing comes after the end"
            text += choice["delta"].get("content", "") if is_chat else choice["text"]
            more = choice["logprobs"]
            if more is not None and logprobs is not None:
                logprobs = {name: more[name] if more[name] is None else logprobs[name] + more[name] for name in more}
            found[choice["index"]] = text, more if logprobs is None else logprobs, choice["finish_reason"]
    return found, usage


# -- ends, and what goes wrong ---------------------------------------------------------------------


def test_the_runtime_is_told_when_all_answers_have_come_to_a_stop_string(file: Path) -> None:
    runtime = LanguageRuntime()

    async def scenario() -> None:
        async with language_world(file, runtime) as w:
            client = await w.connect()
            asked_chat(client, n=2, stop="l", stream=True)
            request = (await runtime.next(Submit)).request
            for position, text in enumerate(("he", "l")):
                runtime.chunk(request, position, Token(0, position, tokens(file, text)[0]))
            assert not runtime.all(Enough)
            runtime.chunk(request, 2, Token(1, 0, tokens(file, "l")[0]))
            assert [enough.request for enough in runtime.all(Enough)] == [request]
            runtime.chunk(request, 3, Token(1, 1, tokens(file, "l")[0]))
            assert len(runtime.all(Enough)) == 1
            runtime.deliver(done(request))
            body = (await client.answer()).body
            reasons = [chunk["choices"][0]["finish_reason"] for chunk in events(body)[:-1]]
            assert [reason for reason in reasons if reason] == ["stop", "stop"]
            assert (await runtime.next(Written)).request == request

    run(scenario())


def asked_chat(client: Any, **body: Any) -> None:
    from tests.conformance.http_world import message

    messages = [{"role": "user", "content": "hello"}]
    client.send(message("POST", "/v1/chat/completions", {"model": "talker", "messages": messages, **body}))


def test_an_answer_without_an_end_is_as_long_as_there_was_room(file: Path) -> None:
    answer, _ = asked(file, lambda w: chat(w), answers(tokens(file, "hello")))
    assert answer.json["choices"][0]["finish_reason"] == "length"
    answer, _ = asked(file, lambda w: chat(w), answers([]))
    assert (answer.json["choices"][0]["message"]["content"], answer.json["usage"]["completion_tokens"]) == ("", 0)


@pytest.mark.parametrize(
    ("outcome", "status", "kind"),
    [
        (Outcome.QUEUE_FULL, 503, "server_error"),
        (Outcome.RATE_LIMITED, 429, "rate_limit_error"),
        (Outcome.DEADLINE_EXCEEDED, 504, "server_error"),
        (Outcome.INVALID_INPUT, 400, "invalid_request_error"),
        (Outcome.WORKER_LOST, 503, "server_error"),
    ],
)
def test_an_outcome_before_the_first_token_is_a_plain_error(file: Path, outcome: Any, status: int, kind: str) -> None:
    for stream in (False, True):
        answer, runtime = asked(file, lambda w, s=stream: chat(w, stream=s), answers([], outcome=outcome))
        assert (answer.status, answer.json["error"]["type"], answer.json["error"]["code"]) == (
            status,
            kind,
            outcome.value,
        )
        assert len(runtime.all(Written)) == 1


def test_a_worker_that_is_lost_after_the_first_token_is_an_event_and_the_end(file: Path) -> None:
    script = answers(tokens(file, "hello world"), outcome=Outcome.WORKER_LOST)
    answer, runtime = asked(file, lambda w: chat(w, stream=True), script)
    told = events(answer.body)
    assert told[-1] == "[DONE]"
    assert told[-2]["error"]["code"] == "worker_lost" and set(told[-2]) == {"error"}
    assert all(chunk["choices"][0]["finish_reason"] is None for chunk in told[:-2])
    answer, _ = asked(file, lambda w: chat(w), script)
    assert (answer.status, answer.json["error"]["code"]) == (503, "worker_lost")
    assert len(runtime.all(Written)) == 1


def test_who_has_all_that_was_wanted_is_not_told_of_a_loss(file: Path) -> None:
    script = answers([*tokens(file, "hello"), STOP], outcome=Outcome.WORKER_LOST)
    for stream in (False, True):
        answer, _ = asked(file, lambda w, s=stream: chat(w, stream=s), script)
        assert answer.status == 200 and b"error" not in answer.body


def test_of_several_prompts_the_first_failure_ends_all(file: Path) -> None:
    runtime = LanguageRuntime()

    async def scenario() -> None:
        async with language_world(file, runtime) as w:
            for stream in (False, True):
                from tests.conformance.http_world import Cancel, message

                runtime.said.clear()
                client = await w.connect()
                body = {"model": "talker", "prompt": ["hello", "world"], "stream": stream}
                client.send(message("POST", "/v1/completions", body))
                first, second = [(await runtime.next(Submit)).request for _ in range(2)]
                runtime.chunk(second, 0, Token(0, 0, 5))
                runtime.deliver(failed(first, Outcome.MODEL_ERROR, "it raised"))
                assert [cancel.request for cancel in runtime.all(Cancel)] == [second]
                answer = await client.answer()
                assert b"it raised" in answer.body and answer.status == (200 if stream else 500)
                assert (await runtime.next(Written)).request == first
            assert w.gateway.in_flight == 0

    run(scenario())


def test_tokens_that_come_twice_are_told_once_and_a_missing_one_is_an_error(file: Path) -> None:
    def twice(runtime: Any, submit: Submit) -> None:
        for index, position in enumerate((0, 1, 0, 1, 2)):
            runtime.chunk(submit.request, index, Token(0, position, tokens(file, "a")[0] + position))
        runtime.deliver(done(submit.request))

    def gap(runtime: Any, submit: Submit) -> None:
        runtime.chunk(submit.request, 0, Token(0, 0, 70))
        runtime.chunk(submit.request, 1, Token(0, 2, 71))
        runtime.deliver(done(submit.request))

    for stream in (False, True):
        answer, _ = asked(file, lambda w, s=stream: chat(w, stream=s), twice)
        assert b"error" not in answer.body
        if not stream:
            assert answer.json["choices"][0]["message"]["content"] == "abc"
        answer, runtime = asked(file, lambda w, s=stream: chat(w, stream=s), gap)
        assert b"internal error" in answer.body and answer.status == (200 if stream else 500)
        assert not runtime.all(Written)
