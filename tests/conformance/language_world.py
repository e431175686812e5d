"""A gateway with a language model whose answers a test writes down: its tokenizer is real, and tiny."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from headway.core.outcomes import Outcome
from headway.llm.text.tokenizer import Tokenizer, load
from headway.llm.text.vocabulary import byte_alphabet
from headway.wire.generation import LanguageMeta, PromptScores, Token
from headway.wire.messages import Cancel, Enough, ModelMeta, Submit
from tests.conformance.http_world import FakeRuntime, World, done, failed, model, world
from tests.unit.gguf_file import gguf_bytes

SPECIAL = ["<|note|>", "<|im_start|>", "<|im_end|>"]
LETTERS = sorted(byte_alphabet(), key=byte_alphabet().__getitem__)
MERGES = ["h e", "l l", "he ll", "hell o", "Ġ w", "o r", "Ġw or", "l d", "Ġwor ld"]
TEMPLATE = (
    "{%- if tools %}<|im_start|>system\n<tools>{% for tool in tools %}{{ tool | tojson }}{% endfor %}</tools> "
    "answer with <tool_call></tool_call><|im_end|>\n{% endif -%}"
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}"
    "{% if message.tool_calls %}{% for call in message.tool_calls %}<tool_call>{{ call.function.arguments | tojson }}"
    "</tool_call>{% endfor %}{% endif %}<|im_end|>\n{% endfor -%}"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
METADATA: dict[str, Any] = {
    "general.architecture": "llama",
    "tokenizer.ggml.model": "gpt2",
    "tokenizer.ggml.pre": "gpt-2",
    "tokenizer.ggml.tokens": [*SPECIAL, *LETTERS, *(merge.replace(" ", "") for merge in MERGES)],
    "tokenizer.ggml.token_type": [3] * len(SPECIAL) + [1] * (256 + len(MERGES)),
    "tokenizer.ggml.merges": MERGES,
    "tokenizer.ggml.eos_token_id": 2,
    "tokenizer.chat_template": TEMPLATE,
}
STOP = 2
"""<|im_end|>."""
CONTEXT = 512


def write_model(folder: Path, template: str | None = TEMPLATE) -> Path:
    file = folder / "model.gguf"
    metadata = dict(METADATA)
    if template is None:
        del metadata["tokenizer.chat_template"]
    else:
        metadata["tokenizer.chat_template"] = template
    file.write_bytes(gguf_bytes(metadata))
    return file


def meta_of(file: Path, context: int = CONTEXT) -> ModelMeta:
    """Its logits are padded beyond its tokens, as those of many models are."""
    language = LanguageMeta(len(SPECIAL) + 256 + len(MERGES) + 20, context, 4 * context, str(file))
    return ModelMeta("llm", (), (), streaming=True, language=language)


Script = Sequence[int]


def answers(*scripts: Script, end: str = "stop", scores: bool = True, outcome: Outcome = Outcome.COMPLETED) -> Any:
    """A runtime's answer to each Submit: choice i says scripts[i % len(scripts)], cut at max_tokens."""

    def answer(runtime: FakeRuntime, submit: Submit) -> None:
        generation = submit.generation
        assert generation is not None
        if generation.prompt_logprobs is not None:
            told = [
                (-0.5, tuple((t, -0.5 - t) for t in range(generation.prompt_logprobs))) for _ in generation.prompt[1:]
            ]
            half = len(told) // 2
            runtime.chunk(submit.request, 0, PromptScores(1, told[:half]))
            runtime.chunk(submit.request, 1, PromptScores(1 + half, told[half:]))
        for choice in range(generation.choices):
            script = list(scripts[choice % len(scripts)])[: generation.max_tokens]
            for position, token in enumerate(script):
                if any(isinstance(said, Enough | Cancel) and said.request == submit.request for said in runtime.said):
                    break
                runtime.chunk(submit.request, position, token_of(submit, choice, position, token, len(script), end))
        reply = done(submit.request) if outcome is Outcome.COMPLETED else failed(submit.request, outcome, "it broke")
        runtime.deliver(reply)

    return answer


def token_of(submit: Submit, choice: int, position: int, token: int, count: int, end: str) -> Token:
    generation = submit.generation
    assert generation is not None
    last = position == count - 1
    stops = token in generation.sampling.stops
    ending = "stop" if last and stops else "length" if last and count == generation.max_tokens else ""
    wanted = generation.sampling.logprobs
    top = tuple((other, -1.0 - other) for other in range(wanted or 0))
    cached = 3 if position == 0 else 0
    return Token(choice, position, token, None if wanted is None else -0.25, top, ending, cached)


class LanguageRuntime(FakeRuntime):
    """Answers by a script, in the loop's next turn."""

    def __init__(self, answer: Callable[[FakeRuntime, Submit], None] | None = None) -> None:
        super().__init__(answer=None)
        self.script = answer

    def send(self, message: Any) -> None:
        super().send(message)
        if self.script is not None and isinstance(message, Submit):
            self.script(self, message)


def language_world(file: Path, runtime: FakeRuntime, context: int = CONTEXT, **more: Any) -> Any:
    return world(
        runtime, models=[model("talker", 1), model("add", 1)], metas={"talker": meta_of(file, context)}, **more
    )


def tokens(file: Path, text: str) -> list[int]:
    return load(file).encode(text)


def tokenizer(file: Path) -> Tokenizer:
    return load(file)


async def chat(w: World, content: Any = "hello", **body: Any) -> Any:
    messages = body.pop("messages", [{"role": "user", "content": content}])
    headers = body.pop("headers", {})
    return await w.ask("POST", "/v1/chat/completions", {"model": "talker", "messages": messages, **body}, **headers)


async def complete(w: World, prompt: Any = "hello", **body: Any) -> Any:
    headers = body.pop("headers", {})
    return await w.ask("POST", "/v1/completions", {"model": "talker", "prompt": prompt, **body}, **headers)


def events(body: bytes) -> list[Any]:
    """Of a stream: JSON values, and "[DONE]" as it is. AssertionError where a line is no event and no comment."""
    text = body.decode()
    assert text.endswith("\n\n")
    found = []
    for block in text[:-2].split("\n\n"):
        assert "\n" not in block and len(block.splitlines()) == 1
        if block.startswith(":"):
            continue
        assert block.startswith("data: ")
        found.append(block[6:] if block[6:] == "[DONE]" else json.loads(block[6:]))
    return found
