"""Requests that are wrong, what is wrong with each, and how its sender is told: status, field, and what to look for.

For a model whose context is `CONTEXT`; {c} stands for it, {v} for its last token id.
"""

from __future__ import annotations

from typing import Any, NamedTuple

CHAT, COMPLETION = "/v1/chat/completions", "/v1/completions"
LONG = "x" * 5000
HELLO = [{"role": "user", "content": "hello"}]
TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}


class Wrong(NamedTuple):
    """says: what the message has, all of it.  path: "" = both chat and completions."""

    body: Any
    param: str | None
    says: tuple[str, ...]
    path: str = ""
    status: int = 400
    headers: dict[str, str] = {}


def deep(levels: int) -> Any:
    value: Any = {"type": "object"}
    for _ in range(levels):
        value = {"type": "object", "properties": {"a": value}}
    return value


def field(name: str, value: Any, *says: str, param: str | None = None, path: str = "", **beside: Any) -> Wrong:
    """One field that is wrong, of a request that is right otherwise."""
    return Wrong({name: value, **beside}, name if param is None else param, says, path)


def message(value: Any, param: str, *says: str) -> Wrong:
    return Wrong({"messages": [value]}, param, says, CHAT)


BOTH = [
    field("model", None, "model"),
    field("model", 7, "`str`", "`int`"),
    Wrong({"model": "nobody"}, "model", ("nobody", "talker"), status=404),
    field("model", LONG, "5000", "256"),
    field("model", "add", "'add'", "no language model", "/v2/models/add/infer"),
    field("temperature", -0.5, "-0.5", "0 to 2"),
    field("temperature", 2.5, "2.5", "0 to 2"),
    field("temperature", "hot", "`float`", "`str`"),
    field("temperature", True, "`float`", "`bool`"),
    field("top_p", 0, "0"),
    field("top_p", 1.01, "1.01"),
    field("top_p", -1, "-1"),
    field("top_p", [], "`float`", "`array`"),
    field("top_k", -2, "-2"),
    field("top_k", 1.5, "`int`", "`float`"),
    field("min_p", -0.1, "-0.1"),
    field("min_p", 1.5, "1.5"),
    field("n", 0, "0", "1 to 128"),
    field("n", -1, "-1", "1 to 128"),
    field("n", 129, "129", "1 to 128"),
    field("n", 10**30, "1 to 128"),
    field("n", "2", "`int`", "`str`"),
    field("stop", 5, "`int`"),
    field("stop", "", "empty"),
    field("stop", ["a", ""], "string 1", "empty"),
    field("stop", ["a"] * 17, "17", "16"),
    field("stop", "y" * 1025, "1025", "1024"),
    field("stop", ["a", 3], "`str`", "`int`", param="stop[1]"),
    field("stop_token_ids", [-1], "-1"),
    field("stop_token_ids", [10**6], "1000000"),
    field("stop_token_ids", "2", "`array`"),
    field("stop_token_ids", list(range(257)), "257", "256"),
    field("stream", "yes", "`bool`", "`str`"),
    field("stream_options", {"include_usage": True}, "stream: true"),
    field("stream_options", [], "`object`", stream=True),
    field("stream_options", {"include_usage": 1}, "`bool`", param="stream_options.include_usage", stream=True),
    field("presence_penalty", 2.1, "2.1"),
    field("presence_penalty", -2.1, "-2.1"),
    field("presence_penalty", "a", "`float`"),
    field("frequency_penalty", 3, "3"),
    field("frequency_penalty", -3, "-3"),
    field("repetition_penalty", 0, "0"),
    field("repetition_penalty", -1.5, "-1.5"),
    field("logit_bias", {"5": 101}, "101"),
    field("logit_bias", {"5": -100.5}, "-100.5"),
    field("logit_bias", {"five": 1}, "five"),
    field("logit_bias", {"-1": 1}, "-1"),
    field("logit_bias", {LONG: 1}, "token id"),
    field("logit_bias", {"100000": 1}, "100000"),
    field("logit_bias", {"5": "1"}, "`float`"),
    field("logit_bias", [1], "`object`"),
    field("logit_bias", {str(token): 1 for token in range(301)}, "301", "300"),
    field("min_tokens", -1, "-1"),
    field("min_tokens", 5, "5", "4", max_tokens=4),
    field("min_tokens", 10**6, "1000000", "{c}"),
    field("max_tokens", -5, "-5"),
    field("max_tokens", "a", "`int`"),
    field("max_tokens", 10**6, "1000000", "{c}"),
    field("max_tokens", 1.5, "`int`"),
    field("seed", 2**64, "64 bits"),
    field("seed", -(2**63) - 1, "64 bits"),
    field("seed", "x", "`int`"),
    field("seed", 1.5, "`int`"),
    field("priority", -1, "-1", param=""),
    field("priority", "a", "`int`"),
    field("cache_salt", "", "0 characters", "256"),
    field("cache_salt", LONG, "5000", "256"),
    field("request_id", LONG, "5000", "256"),
    field("truncate_prompt_tokens", 0, "0"),
    field("truncate_prompt_tokens", -2, "-2"),
    field("prompt_logprobs", 21, "21", "20"),
    field("prompt_logprobs", -1, "-1"),
    field("prompt_logprobs", 1, "streams", stream=True),
    field("use_beam_search", True, "use_beam_search"),
    field("response_format", {"type": "xml"}, "'xml'", param="response_format.type"),
    field("response_format", {}, "type", param="response_format.type"),
    field("response_format", "json", "`object`"),
    field("response_format", {"type": "json_schema"}, "schema", param="response_format.json_schema"),
    field("response_format", {"type": "json_schema", "json_schema": {"schema": {"type": 5}}}, "response_format"),
    field("response_format", {"type": "json_schema", "json_schema": {"schema": deep(70)}}, "64"),
    field(
        "response_format",
        {"type": "json_schema", "json_schema": {"schema": 5}},
        "object",
        param="response_format.json_schema",
    ),
    field("response_format", {"type": "regex"}, "pattern", param="response_format.pattern"),
    field("response_format", {"type": "regex", "pattern": "("}, "response_format"),
    field("guided_json", "{", "guided_json", "not JSON"),
    field("guided_json", 5, "object"),
    field("guided_regex", "(?=a)", "guided_regex"),
    field("guided_regex", "a" * 70_000, "70000", "65536"),
    field("guided_choice", [], "1 to 1000"),
    field("guided_choice", ["a", ""], "empty"),
    field("guided_grammar", "root ::= a", "guided_grammar"),
    field("guided_regex", "a", "guided_regex", param="guided_choice", guided_choice=["a"]),
    field("structured_outputs", {"grammar": "x"}, "grammar", param="structured_outputs.grammar"),
    field("structured_outputs", {"regex": 5}, "`str`", param="structured_outputs.regex"),
    Wrong({}, None, ("x-ttft-ms", "'0'"), headers={"X_Ttft_Ms": "0"}),
    Wrong({}, None, ("x-ttft-ms", "soon"), headers={"X_Ttft_Ms": "soon"}),
    Wrong({}, None, ("x-itl-ms", "-3"), headers={"X_Itl_Ms": "-3"}),
    Wrong({}, None, ("x-itl-ms", "nan"), headers={"X_Itl_Ms": "nan"}),
    Wrong({}, None, ("x-request-timeout-ms", "-1"), headers={"X_Request_Timeout_Ms": "-1"}),
    Wrong({}, None, ("x-priority", "first"), headers={"X_Priority": "first"}),
    Wrong(b"", None, ("empty",)),
    Wrong(b"{", None, ("ends in the middle",)),
    Wrong(b"[]", None, ("`object`", "`array`")),
    Wrong(b"null", None, ("`object`",)),
    Wrong(b'{"model": NaN}', None, ("no NaN",)),
    Wrong(b'{"model": "talker", "temperature": 1e999}', "temperature", ("out of range",)),
    Wrong(b'{"model": "\xff"}', None, ("UTF-8",)),
    Wrong(b"[" * 100_000, None, ("`object`",)),
]
"""Of chat and completions alike."""

ONLY_CHAT = [
    field("messages", None, "messages", path=CHAT),
    field("messages", [], "messages", path=CHAT),
    field("messages", "hello", "`array`", path=CHAT),
    field("messages", ["hello"], "`object`", param="messages[0]", path=CHAT),
    message({}, "messages[0].role", "role"),
    message({"role": 5, "content": "a"}, "messages[0].role", "role"),
    message({"role": "robot", "content": "a"}, "messages[0].role", "robot", "assistant"),
    message({"role": LONG, "content": "a"}, "messages[0].role", "role"),
    message({"role": "user"}, "messages[0].content", "missing"),
    message({"role": "user", "content": None}, "messages[0].content", "missing"),
    message({"role": "user", "content": 5}, "messages[0].content", "a number"),
    message({"role": "user", "content": {"a": 1}}, "messages[0].content", "an object"),
    message({"role": "user", "content": [{"type": "image_url"}]}, "messages[0].content[0]", "image_url"),
    message({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0].text", "missing"),
    message({"role": "user", "content": [7]}, "messages[0].content[0]", "type"),
    message({"role": "assistant", "tool_calls": 5}, "messages[0].tool_calls", "list"),
    message({"role": "assistant", "tool_calls": [{}]}, "messages[0].tool_calls[0].function", "name"),
    message(
        {"role": "assistant", "tool_calls": [{"function": {"name": "a", "arguments": "{"}}]},
        "messages[0].tool_calls[0].function.arguments",
        "JSON",
    ),
    field("max_tokens", 0, "0", "at least 1", path=CHAT),
    field("max_completion_tokens", 0, "0", "at least 1", path=CHAT),
    field("max_completion_tokens", 10**6, "1000000", "{c}", path=CHAT),
    field("logprobs", 5, "`bool`", path=CHAT),
    field("top_logprobs", 5, "5", "logprobs: true", path=CHAT),
    field("top_logprobs", 21, "21", "20", path=CHAT, logprobs=True),
    field("top_logprobs", -1, "-1", path=CHAT, logprobs=True),
    field("functions", [{"name": "a"}], "tools", path=CHAT),
    field("function_call", "auto", "tool_choice", path=CHAT),
    field("modalities", ["text", "audio"], "text", path=CHAT),
    field("audio", {"voice": "a"}, "text", path=CHAT),
    field("chat_template", "{{ 1 }}", "chat_template", path=CHAT),
    field("chat_template_kwargs", {"messages": []}, "messages", path=CHAT),
    field("chat_template_kwargs", {"self": 1}, "self", path=CHAT),
    field("continue_final_message", True, "assistant", path=CHAT),
    field("continue_final_message", True, "not both", path=CHAT, add_generation_prompt=True),
    field("tools", {}, "`array`", path=CHAT),
    field("tools", [5], "`object`", param="tools[0]", path=CHAT),
    field("tools", [{"type": "retrieval"}], "retrieval", param="tools[0]", path=CHAT),
    field("tools", [{"type": "function"}], "function", param="tools[0].function", path=CHAT),
    field("tools", [{"function": {"name": LONG}}], "64", param="tools[0].function.name", path=CHAT),
    field(
        "tools",
        [{"function": {"name": "a", "parameters": []}}],
        "a list",
        param="tools[0].function.parameters",
        path=CHAT,
    ),
    field("tools", [TOOL] * 129, "129", "128", path=CHAT),
    field("tool_choice", "auto", "no tools", path=CHAT),
    field("tool_choice", "required", "no tools", path=CHAT),
    field("tool_choice", "sometimes", "sometimes", "required", path=CHAT),
    field("tool_choice", {"function": {"name": "other"}}, "other", path=CHAT, tools=[TOOL]),
    field("tool_choice", {"type": "function"}, "function", path=CHAT, tools=[TOOL]),
    field(
        "tool_choice", "required", "response_format", path=CHAT, tools=[TOOL], response_format={"type": "json_object"}
    ),
    field("messages", [{"role": "user", "content": "x1" * 1000}], "tokens", "{c} tokens", path=CHAT),
    field("messages", [{"role": "user", "content": "x" * 200_000}], "200", "{c} tokens", path=CHAT),
]
ONLY_COMPLETION = [
    field("prompt", None, "missing", path=COMPLETION),
    field("prompt", "", "no tokens", path=COMPLETION),
    field("prompt", [], "empty", path=COMPLETION),
    field("prompt", [""], "no tokens", path=COMPLETION),
    field("prompt", [[]], "no tokens", path=COMPLETION),
    field("prompt", 5, "`array`", path=COMPLETION),
    field("prompt", {"a": 1}, "`array`", path=COMPLETION),
    field("prompt", ["a", 5], "`str`", path=COMPLETION),
    field("prompt", [1, "a"], "`int`", path=COMPLETION),
    field("prompt", [1, True], "`int`", path=COMPLETION),
    field("prompt", [1.5], "`int`", path=COMPLETION),
    field("prompt", [-1], "-1", "0 to {v}", path=COMPLETION),
    field("prompt", [1, 10**6], "1000000", "position 1", "{v}", path=COMPLETION),
    field("prompt", [[1], [10**6]], "1000000", "{v}", path=COMPLETION),
    field("prompt", ["a"] * 1025, "1025", "1024", path=COMPLETION),
    field("n", 128, "1152", "1024", path=COMPLETION, prompt=["a"] * 9),
    field("prompt", [3] * 512, "{c} tokens", path=COMPLETION),
    field("prompt", [3] * 500, "500", "13", "513", "{c}", path=COMPLETION, max_tokens=13),
    field("max_tokens", 0, "0", "at least 1", path=COMPLETION),
    field("max_tokens", -1, "-1", "at least 0", path=COMPLETION, echo=True),
    field("suffix", "end", "suffix", path=COMPLETION),
    field("best_of", 2, "2", "1", path=COMPLETION),
    field("best_of", 1, "1", "2", path=COMPLETION, n=2),
    field("best_of", 200, "200", "128", path=COMPLETION),
    field("logprobs", 21, "21", "20", path=COMPLETION),
    field("logprobs", -1, "-1", path=COMPLETION),
    field("logprobs", True, "`int`", path=COMPLETION),
    field("echo", "yes", "`bool`", path=COMPLETION),
]


def requests(model: str = "talker") -> list[tuple[str, Any, Wrong]]:
    """Path, body, and what is wrong with it."""
    found = []
    for wrong in (*BOTH, *ONLY_CHAT, *ONLY_COMPLETION):
        for path in (wrong.path,) if wrong.path else (CHAT, COMPLETION):
            body = wrong.body
            if not isinstance(body, bytes):
                right = {"messages": HELLO} if path == CHAT else {"prompt": "hello"}
                body = {"model": model, **right, **body}
            found.append((path, body, wrong))
    return found
