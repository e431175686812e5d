"""One answer as it grows: the token ids that came, and what of them is text so far.

The journal is what another worker would resume from: it takes each position once and in order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from headway.llm.text.detokenize import Vocabulary
from headway.llm.text.stream import TextStream
from headway.wire.generation import Token

MATCHED = "matched"
"""The end of an answer that a stop string ended."""
BYTES_OF_TOKEN, BYTES_OF_SCORE = 36, 120
"""What is held for a token whose text is not made yet, about: a number, and each log probability told with it."""


class Gap(Exception):
    """A token is missing."""


class Score(NamedTuple):
    """A token that is told with its log probability. offset: where its text begins in the output, in characters."""

    token: int
    logprob: float
    top: tuple[tuple[int, float], ...]
    offset: int


class Delta(NamedTuple):
    """What an answer has more of. tokens: how many it has now, all of them."""

    text: str
    scores: list[Score]
    tokens: int


class Journal:
    """tokens: of one answer. end: "" while it goes on, then "stop", "length" or `MATCHED`.

    done: all its text is made. matched: the stop string that ended it. held: bytes that wait to be told, about.
    """

    __slots__ = (
        *("_at", "_hidden", "_scores", "_silent", "_stream", "_told", "_waiting", "_written"),
        *("done", "end", "held", "index", "tokens"),
    )

    def __init__(
        self,
        index: int,
        vocabulary: Vocabulary,
        prompt: Sequence[int] = (),
        stops: Sequence[str] = (),
        include_stop: bool = False,
        min_tokens: int = 0,
        hidden: Sequence[int] = (),
        silent: bool = False,
    ) -> None:
        """index: in the reply.  prompt: its last tokens.  hidden: tokens that end an answer, and are not shown when
        they do.  silent: of no token is anything told or counted."""
        self.index = index
        self.tokens: list[int] = []
        self.end = ""
        self.done = False
        self.held = 0
        self._stream = TextStream(vocabulary, prompt, stops, include_stop, min_tokens)
        self._hidden = hidden
        self._silent = silent
        self._scores: deque[tuple[float, tuple[tuple[int, float], ...]]] = deque()
        """Of tokens whose text is not made."""
        self._waiting: deque[Score] = deque()
        """Of tokens whose text is held back."""
        self._at = 0
        """Tokens whose text is made, or held back by what comes."""
        self._written: list[str] = []
        self._told: list[Score] = []

    @property
    def matched(self) -> str | None:
        return self._stream.matched

    @property
    def counted(self) -> int:
        """Tokens, as usage has them."""
        return 0 if self._silent else len(self.tokens) if self.matched is None else self._at

    @property
    def behind(self) -> bool:
        """Whether text can be made."""
        return not self.done and (self._at < len(self.tokens) or bool(self.end))

    def accept(self, token: Token) -> bool:
        """Whether it is new. Raises Gap."""
        if self.done or self.end or token.position < len(self.tokens):
            return False
        if token.position > len(self.tokens):
            raise Gap(f"token {token.position} of answer {self.index} came where {len(self.tokens)} was the next")
        self.tokens.append(token.token)
        self.held += BYTES_OF_TOKEN
        if token.logprob is not None:
            self._scores.append((token.logprob, token.top))
            self.held += BYTES_OF_SCORE * (1 + len(token.top))
        self.end = token.end
        return True

    def complete(self) -> None:
        """Nothing more comes: there was no room for more."""
        self.end = self.end or "length"

    def advance(self, most: int) -> None:
        """Make text of what came, of at most so many tokens."""
        if self.done:
            return
        last = min(len(self.tokens), self._at + most)
        while self._at < last:
            token = self.tokens[self._at]
            self._at += 1
            ends = self.end == "stop" and self._at == len(self.tokens) and token in self._hidden
            if not (ends or self._silent):
                self._feed(token)
                if self.matched is not None:
                    self._finish(MATCHED)
                    return
            elif self._scores:
                self._scores.popleft()
        if self.end and self._at == len(self.tokens):
            piece = self._stream.finish()
            self._add(piece.text, piece.tokens)
            self._finish(MATCHED if self.matched is not None else self.end)

    def drain(self) -> Delta | None:
        """What there is more of since this was asked last."""
        if not (self._written or self._told):
            return None
        delta = Delta("".join(self._written), self._told, self.counted if self.done else self._at)
        self._written, self._told = [], []
        self.held = BYTES_OF_TOKEN * (len(self.tokens) - self._at) + BYTES_OF_SCORE * len(self._scores)
        return delta

    def _feed(self, token: int) -> None:
        stream = self._stream
        if self._scores:
            logprob, top = self._scores.popleft()
            self._waiting.append(Score(token, logprob, top, stream.position))
        piece = stream.feed(token)
        self._add(piece.text, piece.tokens)

    def _add(self, text: str, told: int) -> None:
        if text:
            self._written.append(text)
        if self._waiting:
            self._told += [self._waiting.popleft() for _ in range(told)]

    def _finish(self, end: str) -> None:
        self.end = end
        self.done = True
        self._scores.clear()
        self._waiting.clear()
