"""The default language model behind a real server, asked by OpenAI's own client and by clients that mean no good."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from http.client import HTTPConnection
from typing import Any
from urllib.parse import urlsplit

import pytest

from headway.registry.smollm2 import find_source
from tests import models
from tests.conformance.malformed import requests
from tests.conformance.test_openai_malformed import complaints
from tests.e2e.server import Server, put, running

openai = pytest.importorskip("openai", reason="OpenAI's client is not installed: pip install -e .[dev]")
pytest.importorskip("torch", reason="language models need the extra llm")
SOURCE = find_source()
pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(SOURCE is None, reason="the default language model is not installed: tools/set-up serve"),
]

CONTEXT, VOCABULARY = 512, 49152
MODEL = "talker"
QUESTION = [{"role": "user", "content": "Say hello to the world."}]
GREEDY: dict[str, Any] = {"model": MODEL, "temperature": 0}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("root")
    put(root, f"models/{MODEL}/model.toml", f'executor = "llm"\n[language]\nmax_context = {CONTEXT}\nmemory_mb = 128\n')
    (root / "models" / MODEL / "1").mkdir()
    assert SOURCE is not None
    os.symlink(SOURCE, root / "models" / MODEL / "1" / "model.gguf")
    models.affine(root / "models" / "add" / "1" / "model.onnx")
    with running(root) as server:
        yield server


@pytest.fixture(scope="module")
def client(server: Server) -> Iterator[Any]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="none", max_retries=0, timeout=120) as client:
        yield client


def chat(client: Any, **body: Any) -> Any:
    return client.chat.completions.create(**{**GREEDY, "messages": QUESTION, "max_tokens": 16, **body})


def complete(client: Any, prompt: Any = "The capital of France is", **body: Any) -> Any:
    return client.completions.create(**{**GREEDY, "prompt": prompt, "max_tokens": 8, **body})


def told(stream: Any) -> tuple[dict[int, str], dict[int, Any], Any]:
    """Of a streamed chat: text and reason of each choice, and the usage."""
    texts: dict[int, str] = {}
    reasons: dict[int, Any] = {}
    usage = None
    for chunk in stream:
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] = texts.get(choice.index, "") + (choice.delta.content or "")
            reasons[choice.index] = choice.finish_reason or reasons.get(choice.index)
    return texts, reasons, usage


def test_it_knows_the_capital_of_france(client: Any) -> None:
    answer = complete(client)
    assert answer.choices[0].text.startswith(" Paris")
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens, answer.usage.total_tokens) == (5, 8, 13)


EXTRA: dict[str, Any] = {
    "top_k": 50, "min_p": 0.01, "repetition_penalty": 1.1, "min_tokens": 2, "ignore_eos": False, "cache_salt": "a",
    "stop_token_ids": [5], "skip_special_tokens": True, "include_stop_str_in_output": False, "priority": 2,
    "request_id": "mine", "add_special_tokens": False, "truncate_prompt_tokens": 100, "guided_json": None,
    "an_unknown_field": {"a": 1},
}  # fmt: skip


def test_every_field_is_taken_by_its_own_name(client: Any) -> None:
    both: dict[str, Any] = {
        "n": 2, "stop": ["zzz", "qqq"], "presence_penalty": 0.5, "frequency_penalty": 0.5, "logit_bias": {"5": -1},
        "seed": 7, "user": "me", "temperature": 0.8, "top_p": 0.9, "extra_body": EXTRA,
    }  # fmt: skip
    answer = chat(
        client, **both, logprobs=True, top_logprobs=2, response_format={"type": "text"}, metadata={"a": "b"},
        service_tier="auto", parallel_tool_calls=True, tool_choice="none", max_completion_tokens=6,
    )  # fmt: skip
    assert answer.id == "chatcmpl-mine" and [choice.index for choice in answer.choices] == [0, 1]
    for choice in answer.choices:
        assert len(choice.logprobs.content) <= 6 and len(choice.logprobs.content[0].top_logprobs) == 2
    again = chat(client, **both, max_completion_tokens=6)
    assert [choice.message.content for choice in again.choices] == [c.message.content for c in answer.choices]
    texts = complete(client, ["a", "b"], **both, logprobs=2, echo=True, best_of=2)
    assert [choice.index for choice in texts.choices] == [0, 1, 2, 3]
    assert [choice.text[0] for choice in texts.choices] == ["a", "a", "b", "b"]


@pytest.mark.parametrize(
    "body",
    [{}, {"n": 2}, {"stop": ["world", "o w"]}, {"max_tokens": 1}, {"logprobs": True, "top_logprobs": 1}],
    ids=str,
)
def test_what_is_streamed_is_what_is_told_whole(client: Any, body: dict[str, Any]) -> None:
    whole = chat(client, **body)
    texts, reasons, usage = told(chat(client, **body, stream=True, stream_options={"include_usage": True}))
    for choice in whole.choices:
        assert texts[choice.index] == choice.message.content
        assert reasons[choice.index] == choice.finish_reason
    assert usage.completion_tokens == whole.usage.completion_tokens
    assert usage.prompt_tokens == whole.usage.prompt_tokens


def test_tokens_of_a_prompt_that_was_asked_before_are_told_to_be_cached(client: Any) -> None:
    long = "one two three four five six seven eight nine ten " * 8
    complete(client, long, max_tokens=1)
    usage = complete(client, long, max_tokens=1).usage
    assert 0 < usage.prompt_tokens_details.cached_tokens < usage.prompt_tokens


def test_log_probabilities_add_up(client: Any) -> None:
    """Of a greedy answer each token is the most probable; scored as a prompt it has the same probabilities."""
    choice = complete(client, logprobs=1).choices[0]
    for token, logprob, top in zip(
        choice.logprobs.tokens, choice.logprobs.token_logprobs, choice.logprobs.top_logprobs, strict=True
    ):
        assert top[token] == logprob == max(top.values())
    whole = complete(client, "The capital of France is" + choice.text, logprobs=0, echo=True, max_tokens=0).choices[0]
    assert whole.text == "The capital of France is" + choice.text
    assert whole.logprobs.token_logprobs[0] is None
    assert whole.logprobs.token_logprobs[5:] == pytest.approx(choice.logprobs.token_logprobs, abs=0.2)  # in bfloat16


def test_an_answer_has_the_form_that_was_asked_for(client: Any) -> None:
    schema = {
        "type": "object",
        "properties": {"name": {"type": "string", "maxLength": 10}, "age": {"type": "integer", "maximum": 99}},
        "required": ["name", "age"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "json_schema": {"name": "person", "schema": schema}}
    answer = chat(client, response_format=form, max_tokens=60)
    person = json.loads(answer.choices[0].message.content)
    assert sorted(person) == ["age", "name"] and answer.choices[0].finish_reason == "stop"
    answer = complete(client, extra_body={"guided_regex": r"[0-9]{3}-[0-9]{2}"})
    assert re.fullmatch(r"[0-9]{3}-[0-9]{2}", answer.choices[0].text)
    answer = chat(client, extra_body={"guided_choice": ["yes", "no"]})
    assert answer.choices[0].message.content in ("yes", "no")


def test_a_model_whose_template_has_no_tools_says_so(client: Any) -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
    with pytest.raises(openai.BadRequestError, match="no place for them"):
        chat(client, tools=[tool])
    assert chat(client, tools=[tool], tool_choice="none").choices[0].message.content


def test_models_are_listed_with_their_context(client: Any) -> None:
    assert {entry.id: getattr(entry, "max_model_len", None) for entry in client.models.list()} == {
        "add": None,
        MODEL: CONTEXT,
    }


def test_text_goes_to_tokens_and_back(server: Server) -> None:
    status, told = server.request("POST", "/tokenize", {"prompt": "hello wörld"})
    assert (status, told["max_model_len"]) == (200, CONTEXT)
    assert server.request("POST", "/detokenize", {"tokens": told["tokens"]}) == (200, {"prompt": "hello wörld"})


def test_generate_answers(server: Server) -> None:
    body = {"text_input": "The capital of France is", "parameters": {"temperature": 0, "max_tokens": 2}}
    status, told = server.request("POST", f"/v2/models/{MODEL}/generate", body)
    assert (status, told["text_output"]) == (200, " Paris.")


@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_what_it_had(server: Server, stream: bool) -> None:
    connection = HTTPConnection(urlsplit(server.address).netloc, timeout=60)
    body = {**GREEDY, "prompt": "a", "max_tokens": 500, "n": 4, "stream": stream, "ignore_eos": True}
    connection.request("POST", "/v1/completions", json.dumps(body))
    until(server, lambda counts: counts["running"] >= 1)
    connection.close()
    until(server, lambda counts: not any(counts.values()))


def until(server: Server, holds: Any) -> dict[str, float]:
    """What the metrics say once this holds of it."""
    ends = time.monotonic() + 60
    while True:
        text = server.request("GET", "/metrics")[1]
        names = {"running": "num_requests_running", "waiting": "num_requests_waiting", "used": "kv_cache_usage_perc"}
        counts = {}
        for name, metric in names.items():
            found = re.search(rf"^vllm:{metric}\{{[^}}]*\}} (\S+)$", text, re.M)
            counts[name] = float(found[1]) if found else 0.0
        if holds(counts):
            return counts
        assert time.monotonic() < ends, counts
        time.sleep(0.02)


class Told:
    def __init__(self, status: int, body: bytes) -> None:
        self.status, self.body = status, body

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def __repr__(self) -> str:
        return f"{self.status} {self.body[:300]!r}"


def test_no_malformed_request_gets_to_a_worker(server: Server) -> None:
    workers = server.workers()
    connection = HTTPConnection(urlsplit(server.address).netloc, timeout=60)
    found = []
    for path, body, wrong in requests(MODEL):
        headers = {name.replace("_", "-"): value for name, value in wrong.headers.items()}
        connection.request("POST", path, body if isinstance(body, bytes) else json.dumps(body), headers)
        response = connection.getresponse()
        found += complaints(Told(response.status, response.read()), path, body, wrong, VOCABULARY, CONTEXT)
    connection.close()
    assert not found, "\n".join(found)
    assert server.workers() == workers
    status, told = server.request("POST", "/v1/completions", {**GREEDY, "prompt": "a", "max_tokens": 1})
    assert status == 200, told
