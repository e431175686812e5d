"""Tools, forms, /tokenize and /detokenize, and the protocol's generate."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from headway.core.outcomes import Outcome
from headway.llm.grammar.form import regex, schema
from headway.wire.messages import Submit
from tests.conformance.language_world import (
    STOP,
    answers,
    chat,
    complete,
    events,
    tokens,
    write_model,
)
from tests.conformance.test_openai_text import asked, generation

TOOL = {
    "type": "function",
    "function": {
        "name": "look",
        "description": "Look it up.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}, "required": ["what"]},
    },
}
CALL = '<tool_call>\n{"name": "look", "arguments": {"what": "buses"}}\n</tool_call>'
LLAMA = (
    "{% if tools %}{{ tools | tojson }} Respond with parameters.{% endif %}"
    "{% for message in messages %}{{ message.content }}{% endfor %}"
)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


def says(file: Path, text: str) -> Any:
    return answers([*tokens(file, text), STOP])


def streamed(answer: Any) -> tuple[str, list[Any], str]:
    """Text, calls put together, and the reason."""
    text, calls, reason = "", {}, ""
    for chunk in events(answer.body)[:-1]:
        choice = chunk["choices"][0]
        text += choice["delta"].get("content") or ""
        for call in choice["delta"].get("tool_calls", []):
            kept = calls.setdefault(call["index"], {**call, "function": {"name": "", "arguments": ""}})
            for name, piece in call["function"].items():
                kept["function"][name] += piece
        reason = choice["finish_reason"] or reason
    return text, list(calls.values()), reason


def test_tools_are_shown_to_the_model_and_its_calls_are_read(file: Path) -> None:
    script = says(file, f"Well. {CALL}")
    answer, runtime = asked(file, lambda w: chat(w, tools=[TOOL]), script)
    assert '"description": "Look it up."' in text_of(file, generation(runtime).prompt)
    (choice,) = answer.json["choices"]
    assert choice["finish_reason"] == "tool_calls"
    (call,) = choice["message"]["tool_calls"]
    assert choice["message"]["content"] == "Well."
    assert call["type"] == "function" and call["id"].startswith("call_")
    assert (call["function"]["name"], json.loads(call["function"]["arguments"])) == ("look", {"what": "buses"})

    answer, _ = asked(file, lambda w: chat(w, tools=[TOOL], stream=True), script)
    text, (call,), reason = streamed(answer)
    assert (text, reason, call["type"]) == ("Well.", "tool_calls", "function")
    assert json.loads(call["function"]["arguments"]) == {"what": "buses"}


def text_of(file: Path, ids: list[int]) -> str:
    from headway.llm.text.tokenizer import load

    return load(file).decode(ids, skip_special=False)


def test_a_message_of_calls_alone_has_no_content(file: Path) -> None:
    answer, _ = asked(file, lambda w: chat(w, tools=[TOOL]), says(file, CALL))
    assert answer.json["choices"][0]["message"]["content"] is None


def test_where_no_tool_is_called_it_is_an_answer(file: Path) -> None:
    answer, _ = asked(file, lambda w: chat(w, tools=[TOOL]), says(file, "hello < world"))
    (choice,) = answer.json["choices"]
    assert (choice["message"]["content"], choice["finish_reason"]) == ("hello < world", "stop")
    assert "tool_calls" not in choice["message"]


def test_tools_that_are_not_to_be_called_are_not_shown(file: Path) -> None:
    answer, runtime = asked(file, lambda w: chat(w, tools=[TOOL], tool_choice="none"), says(file, CALL))
    assert "look" not in text_of(file, generation(runtime).prompt)
    assert answer.json["choices"][0]["message"]["content"] == CALL


def test_calls_and_their_results_are_told_to_the_model(file: Path) -> None:
    call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"what": "é"}'}}
    messages = [
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "found"},
    ]
    _, runtime = asked(file, lambda w: chat(w, messages=messages))
    told = text_of(file, generation(runtime).prompt)
    assert '<tool_call>{"what": "é"}</tool_call><|im_end|>\n<|im_start|>tool\nfound' in told


def test_calls_as_llama_3_writes_them(tmp_path: Path) -> None:
    file = write_model(tmp_path, LLAMA)
    script = says(file, '{"name": "look", "parameters": {"what": "a"}}')
    answer, _ = asked(file, lambda w: chat(w, tools=[TOOL]), script)
    (call,) = answer.json["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "look", "arguments": '{"what": "a"}'}


def test_a_model_that_knows_no_tools_says_so(tmp_path: Path) -> None:
    file = write_model(tmp_path, "{{ messages[0].content }}")
    answer, runtime = asked(file, lambda w: chat(w, tools=[TOOL]))
    assert (answer.status, answer.json["error"]["param"]) == (400, "tools") and not runtime.all(Submit)
    answer, _ = asked(file, lambda w: chat(w, tools=[TOOL], tool_choice="none"))
    assert answer.status == 200


def test_a_call_that_must_be_made_has_its_arguments_form(file: Path) -> None:
    choice = {"type": "function", "function": {"name": "look"}}
    script = says(file, '{"what": "buses"}')
    for stream in (False, True):
        answer, runtime = asked(file, lambda w, s=stream: chat(w, tools=[TOOL], tool_choice=choice, stream=s), script)
        form = schema(TOOL["function"]["parameters"])  # type: ignore[index]
        assert generation(runtime).form == (form.kind.value, form.grammar)
        calls = streamed(answer)[1] if stream else answer.json["choices"][0]["message"]["tool_calls"]
        assert [call["function"] for call in calls] == [{"name": "look", "arguments": '{"what": "buses"}'}]


def test_a_call_of_any_tool_that_must_be_made_is_of_an_array(file: Path) -> None:
    script = says(
        file, '[{"name": "look", "parameters": {"what": "a"}}, {"name": "look", "parameters": {"what": "b"}}]'
    )
    for stream in (False, True):
        answer, runtime = asked(
            file, lambda w, s=stream: chat(w, tools=[TOOL], tool_choice="required", stream=s), script
        )
        form = generation(runtime).form
        assert form is not None and "minItems" in form[1]
        calls = streamed(answer)[1] if stream else answer.json["choices"][0]["message"]["tool_calls"]
        assert [call["function"]["arguments"] for call in calls] == ['{"what": "a"}', '{"what": "b"}']


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ({"response_format": {"type": "text"}}, None),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "string"}}}},
            schema({"type": "string"}),
        ),
        ({"guided_json": '{"type": "string"}'}, schema({"type": "string"})),
        ({"structured_outputs": {"json": {"type": "string"}}}, schema({"type": "string"})),
        ({"response_format": {"type": "regex", "pattern": "a+"}}, regex("a+")),
        ({"guided_regex": "a+"}, regex("a+")),
        ({"guided_choice": ["a.b", "c"]}, regex(r"a\.b|c")),
        ({"structured_outputs": {"choice": ["a", "b"]}}, regex("a|b")),
    ],
    ids=lambda value: str(value)[:60],
)
def test_forms_are_asked_for_in_many_ways(file: Path, body: dict[str, Any], expected: Any) -> None:
    for ask in (chat, complete):
        answer, runtime = asked(file, lambda w, ask=ask: ask(w, **body, ignore_eos=True))
        assert answer.status == 200
        told = generation(runtime)
        assert told.form == (None if expected is None else (expected.kind.value, expected.grammar))
        assert told.sampling.stops == (() if expected is None else (STOP,)), "a form ends by the model's own end"


def test_any_object_is_a_form(file: Path) -> None:
    _, runtime = asked(file, lambda w: chat(w, response_format={"type": "json_object"}))
    form = generation(runtime).form
    assert form is not None and form[0] == "json_object"


# -- pages -----------------------------------------------------------------------------------------


def test_text_is_told_as_tokens_and_back(file: Path) -> None:
    async def ask(w: Any) -> list[Any]:
        return [
            await w.ask("POST", "/tokenize", {"model": "talker", "prompt": "hello world", "return_token_strs": True}),
            await w.ask("POST", "/tokenize", {"messages": [{"role": "user", "content": "x"}]}),
            await w.ask("POST", "/detokenize", {"model": "talker", "tokens": [*tokens(file, "hello é"), STOP]}),
            await w.ask("POST", "/detokenize", {"tokens": [STOP, 70], "skip_special_tokens": True}),
            await w.ask("POST", "/tokenize", {"model": "talker", "prompt": ""}),
        ]

    (first, second, third, fourth, fifth), _ = asked(file, ask)
    ids = tokens(file, "hello world")
    assert first.json == {"count": 2, "max_model_len": 512, "tokens": ids, "token_strs": ["hello", " world"]}
    assert second.json["tokens"] == tokens(file, "<|im_start|>user\nx<|im_end|>\n<|im_start|>assistant\n")
    assert third.json == {"prompt": "hello é<|im_end|>"}
    assert fourth.json == {"prompt": "C"}
    assert fifth.json["tokens"] == []


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {"model": "talker"}, "prompt"),
        ("/tokenize", {"model": "talker", "prompt": "a", "messages": []}, "prompt"),
        ("/tokenize", {"model": "talker", "messages": [{}]}, "messages[0].role"),
        ("/tokenize", {"model": "add", "prompt": "a"}, "model"),
        ("/tokenize", {"model": "talker", "prompt": "a" * 5000}, "prompt"),
        ("/tokenize", {"model": "talker", "prompt": 5}, "prompt"),
        ("/detokenize", {"model": "talker"}, "tokens"),
        ("/detokenize", {"model": "talker", "tokens": ["a"]}, "tokens[0]"),
        ("/detokenize", {"model": "talker", "tokens": [10**6]}, "tokens"),
        ("/detokenize", {"model": "talker", "tokens": [-1]}, "tokens"),
    ],
)
def test_what_cannot_be_told_is_a_400(file: Path, path: str, body: Any, param: str) -> None:
    answer, _ = asked(file, lambda w: w.ask("POST", path, body))
    assert (answer.status, answer.json["error"]["param"]) == (400, param)


# -- the Open Inference Protocol's generate --------------------------------------------------------

WHOLE, STREAM = "/v2/models/talker/generate", "/v2/models/talker/versions/1/generate_stream"


def test_generate_answers_with_text(file: Path) -> None:
    body = {"text_input": "hello", "id": "7", "parameters": {"temperature": 0, "max_tokens": 5, "details": True}}
    answer, runtime = asked(file, lambda w: w.ask("POST", WHOLE, body))
    assert answer.json == {
        "model_name": "talker",
        "model_version": "1",
        "id": "7",
        "text_output": "hello world",
        "details": {"finish_reason": "eos_token", "prompt_tokens": 1, "generated_tokens": 3},
    }
    assert generation(runtime).prompt == tokens(file, "hello")
    assert (generation(runtime).max_tokens, generation(runtime).sampling.temperature) == (5, 0)


def test_generate_stream_answers_in_pieces(file: Path) -> None:
    body = {"text_input": "hello", "max_tokens": 2, "stream": True, "parameters": {"details": True, "stop": "or"}}
    answer, _ = asked(file, lambda w: w.ask("POST", STREAM, body))
    told = events(answer.body)
    assert [piece["text_output"] for piece in told] == ["hell", "o w", ""]
    assert told[-1]["details"] == {"finish_reason": "stop_sequence"}
    assert {(piece["model_name"], piece["model_version"]) for piece in told} == {("talker", "1")}


def test_generate_takes_the_names_of_tritons_backends(file: Path) -> None:
    body = {"text_input": "x", "max_tokens": 4, "bad_words": "", "stop_words": "", "random_seed": 3, "top_k": 1}
    answer, runtime = asked(file, lambda w: w.ask("POST", WHOLE, body))
    assert (answer.status, generation(runtime).sampling.seed, generation(runtime).sampling.top_k) == (200, 3, 1)
    body = {"text_input": "x", "parameters": {"exclude_input_in_output": False, "logprobs": True}}
    answer, runtime = asked(file, lambda w: w.ask("POST", WHOLE, body))
    assert answer.json["text_output"] == "xhello world" and generation(runtime).max_tokens == 20
    assert answer.json["details"]["logprobs"][0] == {"id": tokens(file, "hello")[0], "text": "hello", "logprob": -0.25}


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"{", "ends in the middle"),
        ({}, "text_input is missing"),
        ({"text_input": 5}, "text_input is missing"),
        ({"text_input": ""}, "no tokens"),
        ({"text_input": "a", "parameters": 5}, "must be an object"),
        ({"text_input": "a", "parameters": {"temperature": -1}}, "-1"),
        ({"text_input": "a", "parameters": {"max_tokens": "x"}}, "`int`"),
        ({"text_input": "a", "n": 2}, "/v1/completions"),
        ({"text_input": "a" * 3000}, "512 tokens"),
    ],
)
def test_generate_says_what_is_wrong_in_the_protocols_shape(file: Path, body: Any, says: str) -> None:
    for path in (WHOLE, STREAM):
        answer, runtime = asked(file, lambda w, path=path: w.ask("POST", path, body))
        assert answer.status == 400 and says in answer.json["error"], answer
        assert not runtime.all(Submit)


def test_a_worker_that_is_lost_is_told_in_the_protocols_shape(file: Path) -> None:
    script = answers(tokens(file, "hello"), outcome=Outcome.WORKER_LOST)
    answer, _ = asked(file, lambda w: w.ask("POST", STREAM, {"text_input": "a"}), script)
    told = events(answer.body)
    assert told[0]["text_output"] == "hello" and told[1]["code"] == "worker_lost"
