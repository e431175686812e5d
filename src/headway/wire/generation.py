"""What is asked of a language model, and what comes of it, token by token."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from headway.llm.sample.params import SamplingParams


class LanguageMeta(msgspec.Struct, frozen=True):
    """What the gateway needs to know of a language model in order to judge a request.

    vocabulary: token ids there are logits for.  context: tokens of a sequence, prompt and output.
    pool: tokens that the engine's memory holds, of all sequences together.
    source: of its tokenizer and chat template: a file or folder, as `headway.llm.text.tokenizer.load` takes it.
    """

    vocabulary: int
    context: int
    pool: int
    source: str


class Generation(msgspec.Struct, frozen=True):
    """What is asked for. All of it is token ids: text is the gateway's.

    prompt: at least one.  max_tokens: of each choice.  choices: answers to the same prompt.
    sampling: how they are drawn. What ends an answer is in its stops, the model's own ends among them, unless the
        client ignores those; a seed is given to whoever brings none, and kept for life.
    form: None, or the kind and the grammar of `headway.llm.grammar.form.Form`, that each answer is to have.
    prompt_logprobs: None, or of how many of the most probable tokens the log probabilities are told at each position of
        the prompt, 0 = only of the prompt's own.
    salt: who may share the prefix in the cache: "" = its own tenant.
    first_within: from its arrival until its first token is worthless, in ns; 0 = as long as it may take at all.
    itl: between its tokens at most, in ns; 0 = as the engine aims at.
    """

    prompt: list[int]
    max_tokens: int
    sampling: SamplingParams
    choices: int = 1
    form: tuple[str, str] | None = None
    prompt_logprobs: int | None = None
    salt: str = ""
    first_within: int = 0
    itl: int = 0


class Token(msgspec.Struct, frozen=True, array_like=True, tag="t"):
    """One of an answer.

    choice: of which answer.  position: in it, from 0.
    logprob: natural, None where it was not asked for.  top: the most probable tokens there, with theirs.
    end: "" while the answer goes on; "stop" or "length" with its last token. An answer may also end without one of
        these, when the whole request completes: as the engine has no room for more of it, which is "length" too.
    cached: with the first token of an answer, tokens of the prompt that were found in the prefix cache.
    """

    choice: int
    position: int
    token: int
    logprob: float | None = None
    top: tuple[tuple[int, float], ...] = ()
    end: str = ""
    cached: int = 0


class PromptScores(msgspec.Struct, frozen=True, array_like=True, tag="p"):
    """Log probabilities of a part of the prompt, whose parts come in order and before the first token.

    start: the position of its first; the first token of a prompt has none.
    scores: of each position: of the token that is there, and of the most probable with theirs.
    """

    start: int
    scores: list[tuple[float, tuple[tuple[int, float], ...]]]


Result: TypeAlias = Token | PromptScores
"""A value of `StreamChunk` where the model is a language model."""
