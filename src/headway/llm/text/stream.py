"""The text of an output as it comes, and which of its tokens are told with it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from headway.llm.text.detokenize import Detokenizer, Vocabulary
from headway.llm.text.stops import StopStrings


class Piece(NamedTuple):
    """text: new.  tokens: how many more tokens are told with it, in their order (log probabilities are held back with
    the text that they belong to).  offset: where in the output the text begins, in characters."""

    text: str
    tokens: int
    offset: int


class TextStream:
    """Of one choice. A token that ends it and is not shown is not fed."""

    __slots__ = ("_decoder", "_fed", "_given", "_min_tokens", "_stops", "_waiting")

    def __init__(
        self,
        vocabulary: Vocabulary,
        prompt: Sequence[int] = (),
        stops: Sequence[str] = (),
        include_stop: bool = False,
        min_tokens: int = 0,
    ) -> None:
        """prompt: or its last tokens.  min_tokens: text of the first so many tokens is no part of a match."""
        self._decoder = Detokenizer(vocabulary, prompt)
        self._stops = StopStrings(stops, include_stop)
        self._min_tokens = min_tokens
        self._fed = 0
        self._given = 0
        self._waiting: deque[tuple[int, int]] = deque()
        """Of tokens not told yet: where the text of each begins and ends in the output, in characters."""

    @property
    def matched(self) -> str | None:
        """The stop string that ended it; nothing that is fed after it counts."""
        return self._stops.matched

    @property
    def position(self) -> int:
        """Where in the output the text of the next token begins, in characters."""
        return self._decoder.emitted

    def feed(self, token: int) -> Piece:
        if self.matched is not None:
            return Piece("", 0, self._given)
        self._fed += 1
        start = self._decoder.emitted
        text = self._decoder.feed(token)
        self._waiting.append((start, self._decoder.emitted + (1 if self._decoder.held else 0)))
        return self._piece(self._stops.feed(text, watch=self._fed > self._min_tokens))

    def finish(self) -> Piece:
        """What was held back; all tokens are told with it."""
        if self.matched is not None:
            return Piece("", 0, self._given)
        text = self._stops.feed(self._decoder.finish(), watch=self._fed > self._min_tokens)
        return self._piece(text + self._stops.finish(), last=True)

    def _piece(self, text: str, last: bool = False) -> Piece:
        offset = self._given
        self._given += len(text)
        told = 0
        while self._waiting:
            start, end = self._waiting[0]
            # Of what a stop string cut, a token is told if some of its text is.
            if not (start < self._given if self.matched is not None else last or end <= self._given):
                break
            self._waiting.popleft()
            told += 1
        return Piece(text, told, offset)
