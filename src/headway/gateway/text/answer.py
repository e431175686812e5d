"""What comes of a request to a language model: its answers' tokens, made into text, and told in pieces or at once.

Tokens are never waited for by anybody else, nor do they wait: they are kept as numbers, which are few bytes, until the
socket takes their text. Of one reply as much may be held as `MOST_HELD` says; then its client reads too slowly, and is
given up. A client that takes nothing at all is given up by its connection (`limits.body_timeout_s`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from headway.core.ids import Part
from headway.gateway.calls import Calls, SharedCall
from headway.gateway.catalog import Version
from headway.gateway.errors import HeadwayError, InternalError
from headway.gateway.exchange import Request, Response, Stream
from headway.gateway.options import Options
from headway.gateway.text.journal import BYTES_OF_TOKEN, Delta, Gap, Journal
from headway.gateway.text.languages import Language
from headway.gateway.text.parameters import Wanted
from headway.gateway.text.prompts import Prompt
from headway.gateway.text.surface import KEEP_ALIVE, Surface
from headway.gateway.text.usage import usage
from headway.wire.generation import Generation, PromptScores, Token
from headway.wire.messages import PartPayload, Reply, StreamChunk

MOST_HELD = 4 << 20
"""Bytes of tokens that one reply's client has not taken."""
AT_ONCE = 256
"""Tokens of an answer that are made text before others have their turn."""
LOOKED_AT = 64
"""Tokens of an answer after which what is held is looked at."""
KEEP_ALIVE_S = 5.0
"""A stream in which nothing comes says that it lives, once in so long."""
MOST_INLINE = 2048
"""Log probabilities of a whole reply that are written in the event loop; of more, in a thread."""
TAIL = 16
"""Tokens at the end of a prompt, which may leave a character unfinished."""

log = logging.getLogger("headway.gateway")


class Answer:
    """Of one HTTP request: the calls of its prompts, in order."""

    def __init__(
        self,
        calls: Calls,
        request: Request,
        surface: Surface,
        wanted: Wanted,
        prompts: Sequence[Prompt],
        language: Language,
        form: tuple[str, str] | None,
    ) -> None:
        self._calls = calls
        self._request = request
        self._surface = surface
        self._wanted = wanted
        self._prompts = prompts
        self._form = form
        self._sampling = wanted.with_ends(language.tokenizer.stops, form is not None)
        vocabulary = language.shown if wanted.special else language.hidden
        self._journals = [
            Journal(
                index,
                vocabulary,
                prompts[index // wanted.choices].ids[-TAIL:],
                wanted.stops,
                wanted.include_stop,
                wanted.sampling.min_tokens,
                () if wanted.include_stop else self._sampling.stops,
                silent=wanted.max_tokens == 0,
            )
            for index in range(len(prompts) * wanted.choices)
        ]
        self._shared: list[SharedCall] = []
        self._open: dict[int, SharedCall] = {}
        """By place: those that have no outcome."""
        self._replied: list[SharedCall] = []
        self._enough: dict[int, None] = {}
        self._cached = [0] * len(prompts)
        self._news: dict[int, Journal] = {}
        """Whose text is to be made, by index."""
        self._begun: dict[int, None] = {}
        self._finished: dict[int, None] = {}
        self._stream: Stream | None = None
        self._problem: HeadwayError | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._quiet = True
        """Nothing was written since the timer was set."""
        self._comment = False
        """It is time to say that it lives."""
        self._over = False

    # -- to the runtime ---------------------------------------------------------------------------

    def submit(self, first: SharedCall, version: Version, options: Options) -> None:
        """first: the call that the reply is given to. Raises HeadwayError."""
        wanted = self._wanted
        self._shared = [first, *(SharedCall(self._calls, self._request, n) for n in range(1, len(self._prompts)))]
        for call in self._shared:
            call.listener = self
            self._open[call.place] = call
        if wanted.stream:
            self._set_timer()
        for call, prompt in zip(self._shared, self._prompts, strict=True):
            generation = Generation(
                prompt=prompt.ids,
                max_tokens=prompt.most,
                sampling=self._sampling,
                choices=wanted.choices,
                form=self._form,
                prompt_logprobs=wanted.prompt_scores,
                salt=wanted.salt,
                first_within=wanted.first_within,
                itl=wanted.itl,
            )
            length = len(prompt.ids)
            size = length * BYTES_OF_TOKEN
            parts, payload = [Part(1, length)], [PartPayload([])]
            self._calls.submit(call, version.stream_key, parts, payload, size, options, {}, generation=generation)
            if self._over:
                return
            self._request.on_disconnect = self.cancelled

    def abandon(self) -> None:
        """Another answers in its place."""
        self._close()

    def cancelled(self) -> None:
        """The client went away."""
        self._close()
        self._cancel_open()
        for call in self._replied:
            call.cancelled()

    def written(self) -> None:
        for call in self._replied:
            call.written()

    # -- from the runtime -------------------------------------------------------------------------

    def came(self, call: SharedCall, message: StreamChunk) -> None:
        value = message.value
        try:
            if type(value) is Token:
                self._token(call, value)
            elif type(value) is PromptScores:
                self._surface.scored(call.place, value)
        except Gap as error:
            log.error("request %s: %s", self._request.id, error)
            self._broke(call)
        except Exception:
            log.exception("request %s: a token could not be taken", self._request.id)
            self._broke(call)

    def completed(self, call: SharedCall, message: Reply) -> None:
        self._closed(call)
        self._complete(call)

    def failed(self, call: SharedCall, error: HeadwayError) -> None:
        """An outcome other than completed, or a reply that could not be made."""
        self._closed(call)
        if self._over:
            return
        if all(journal.end or journal.done for journal in self._of(call)):
            self._complete(call)  # all that was wanted had come
        else:
            self._fail(error)

    def _complete(self, call: SharedCall) -> None:
        for journal in self._of(call):
            journal.complete()
            self._news[journal.index] = journal
        if self._wanted.stream:
            self._begin().ready()
        elif not self._open:
            self._tell_all()

    def _closed(self, call: SharedCall) -> None:
        """It has its outcome."""
        self._open.pop(call.place, None)
        self._replied.append(call)
        self._request.on_disconnect = self.cancelled
        self._request.on_written = self.written

    def _of(self, call: SharedCall) -> list[Journal]:
        count = self._wanted.choices
        return self._journals[call.place * count : (call.place + 1) * count]

    def _token(self, call: SharedCall, token: Token) -> None:
        if not 0 <= token.choice < self._wanted.choices:
            raise Gap(f"a token of answer {token.choice}, where {self._wanted.choices} were asked for")
        journal = self._journals[call.place * self._wanted.choices + token.choice]
        if not journal.accept(token):
            return
        if token.cached:
            self._cached[call.place] = max(self._cached[call.place], token.cached)
        self._news[journal.index] = journal
        if self._wanted.stops or not self._wanted.stream:
            journal.advance(AT_ONCE)
            if journal.matched is not None:
                self._have_enough(call)
        if self._wanted.stream:
            stream = self._begin()
            if len(journal.tokens) % LOOKED_AT == 0 and self._held() > MOST_HELD:
                stream.give_up()
            stream.ready()

    def _held(self) -> int:
        return sum(journal.held for journal in self._news.values())

    def _have_enough(self, call: SharedCall) -> None:
        """Where all the answers to a prompt are at their ends, nothing more needs to be made."""
        if call.place not in self._enough and all(journal.done for journal in self._of(call)):
            self._enough[call.place] = None
            self._calls.enough(call)

    # -- to the client ----------------------------------------------------------------------------

    def _begin(self) -> Stream:
        if self._stream is None:
            self._stream = Stream()
            self._stream.source = self._take
            self._shared[0].complete(self._stream)
        return self._stream

    def _take(self) -> bytes:
        """What can be told now. Asked when the socket takes it."""
        stream = self._stream
        assert stream is not None
        try:
            out = self._more()
        except Exception:
            log.exception("request %s: its text could not be made", self._request.id)
            self._problem = InternalError(f"internal error, logged under {self._request.id}")
            out = b""
        if self._problem is not None:
            out += self._surface.error(self._problem, self._request.id)
            self._problem = None  # it was raised, and its frames would keep all that they knew
            self._end(stream)
        elif self._news:
            asyncio.get_running_loop().call_soon(stream.ready)
        elif len(self._finished) == len(self._journals) and not self._open:
            out += self._surface.end(self._usage())
            self._end(stream)
        elif self._comment and not out:
            out = KEEP_ALIVE
        if out:
            self._quiet = self._comment = False
        return out

    def _end(self, stream: Stream) -> None:
        self._cancel_open()
        self._close()
        stream.end()

    def _more(self) -> bytes:
        out = []
        for index, journal in list(self._news.items()):
            if index not in self._begun:
                self._begun[index] = None
                out.append(self._surface.begin(index))
            journal.advance(AT_ONCE)
            delta = journal.drain()
            if delta is not None:
                out.append(self._surface.more(index, delta, self._usage_so_far()))
            if journal.done and index not in self._finished:
                self._finished[index] = None
                out.append(self._surface.finish(index, journal.end, self._usage_so_far()))
            if not journal.behind:
                del self._news[index]
        return b"".join(out)

    def _tell_all(self) -> None:
        answers = []
        for journal in self._journals:
            while not journal.done:
                journal.advance(AT_ONCE)
            answers.append((journal.drain() or Delta("", [], journal.counted), journal.end))
        told = sum(len(delta.scores) for delta, _ in answers) * (1 + (self._wanted.scores or 0))
        if told <= MOST_INLINE:
            self._tell(self._surface.whole(answers, self._usage()))
            return
        loop = asyncio.get_running_loop()
        done = loop.run_in_executor(None, self._surface.whole, answers, self._usage())
        done.add_done_callback(self._made)

    def _made(self, done: asyncio.Future[bytes]) -> None:
        """A long reply, in a thread."""
        if self._over or done.cancelled():
            return
        if done.exception() is None:
            self._tell(done.result())
        else:
            log.error("request %s: its reply could not be made", self._request.id, exc_info=done.exception())
            self._fail(InternalError(f"internal error, logged under {self._request.id}"))

    def _tell(self, body: bytes) -> None:
        first = self._shared[0]
        self._close()
        first.complete(Response(200, body))

    def _usage(self) -> dict[str, object]:
        prompt = sum(len(prompt.ids) for prompt in self._prompts)
        return usage(prompt, sum(journal.counted for journal in self._journals), sum(self._cached))

    def _usage_so_far(self) -> dict[str, object] | None:
        return self._usage() if self._wanted.continuous_usage else None

    # -- its end ----------------------------------------------------------------------------------

    def _broke(self, call: SharedCall) -> None:
        self._calls.cancel(call)
        self._open.pop(call.place, None)
        self._fail(InternalError(f"internal error, logged under {self._request.id}"))

    def _fail(self, error: HeadwayError) -> None:
        if self._stream is not None:
            self._problem = self._problem or error
            self._cancel_open()
            self._stream.ready()
            return
        self._cancel_open()
        self._close()
        self._request.on_written = self.written
        self._shared[0].fail(error)

    def _cancel_open(self) -> None:
        for call in self._open.values():
            if call.id:
                self._calls.cancel(call)
        self._open.clear()

    def _close(self) -> None:
        """Nothing more is told, and nobody is to tell it anything."""
        self._over = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for call in self._shared:
            call.listener = None
        if self._stream is not None:
            self._stream.source = None  # or each would keep the other

    def _set_timer(self) -> None:
        self._quiet = True
        self._timer = asyncio.get_running_loop().call_later(KEEP_ALIVE_S, self._look)

    def _look(self) -> None:
        """A stream for which a fallback may still be asked has not begun: its reply may be another."""
        if self._quiet and self._shared[0].again is None:
            self._comment = True
            self._begin().ready()
        self._set_timer()
