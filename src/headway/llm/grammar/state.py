"""Where in its form a text is: which tokens may come next. Made anew by giving it the tokens that came."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from llguidance import LLMatcher, LLTokenizer, TokenizerWrapper
from numpy.typing import NDArray

from headway.llm.grammar.form import Form, limits


class GrammarFailed(Exception):
    """The text cannot go on: a token that its form does not let come, or a form that has become too much work. Of one
    sequence; the others are not concerned."""


class GrammarVocabulary:
    """What the tokens of a model stand for, once for all sequences. Making it takes some tenths of a second."""

    def __init__(
        self, tokens: Sequence[bytes], ends: Sequence[int], special: Sequence[int], encode: Callable[[str], list[int]]
    ) -> None:
        """tokens: bytes of each.  ends: tokens that may come when the form is complete; at least one.
        special: tokens that are no text.  encode: without anything around the text."""
        if not ends:
            raise ValueError("a vocabulary without a token that ends an output cannot complete a form")
        wrapped = TokenizerWrapper(_Told(tokens, ends[0], special, encode))
        self.tokenizer = LLTokenizer(wrapped, eos_token=list(ends))
        self.size = len(tokens)


class GrammarState:
    """Of one sequence."""

    __slots__ = ("_matcher", "_size")

    def __init__(self, vocabulary: GrammarVocabulary, form: Form, output: Sequence[int] = ()) -> None:
        """output: what has come already, after a preemption or elsewhere. Raises GrammarFailed."""
        self._size = vocabulary.size
        self._matcher = LLMatcher(vocabulary.tokenizer, form.grammar, log_level=0, limits=limits())
        self._check()
        if output:
            self._matcher.consume_tokens(list(output))
            self._check()

    @property
    def complete(self) -> bool:
        """The text may end here."""
        return bool(self._matcher.is_accepting())

    @property
    def over(self) -> bool:
        """Nothing may come any more, but for a token that ends it."""
        return bool(self._matcher.is_stopped())

    def allowed(self) -> NDArray[np.bool_]:
        """By token. Raises GrammarFailed."""
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        self._check()
        return np.unpackbits(bits, bitorder="little")[: self._size].astype(np.bool_)

    def accept(self, token: int) -> None:
        """It came. Raises GrammarFailed."""
        self._matcher.consume_token(token)
        self._check()

    def _check(self) -> None:
        if self._matcher.is_error():
            raise GrammarFailed(self._matcher.get_error())


class _Told:
    """As llguidance wants a tokenizer described."""

    def __init__(
        self, tokens: Sequence[bytes], end: int, special: Sequence[int], encode: Callable[[str], list[int]]
    ) -> None:
        self.tokens = list(tokens)
        self.eos_token_id = end
        self.bos_token_id = None
        self.special_token_ids = list(special)
        self._encode = encode

    def __call__(self, text: str | bytes) -> list[int]:
        return self._encode(text.decode("utf-8", "replace") if isinstance(text, bytes) else text)
