"""Calls with an `Idempotency-Key`: the same again joins what runs, and is given the reply that is kept after it.

What runs for a key runs on nobody's connection: a client that leaves ends its own waiting only. It runs until it is
answered, or the deadline of the call that started it has passed. Each call waits until its own deadline.

A final reply is kept: a success, a 400, and a 500 of what a worker was given. Everything else is forgotten, so that
the same again runs again; except where that must not be, since it may have been run by a model that declares
`idempotent = false`: then what is kept says so.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha256
from typing import TypeAlias

import msgspec

from headway.config.settings import Idempotency
from headway.core.outcomes import Outcome
from headway.core.units import SECOND, Instant, seconds
from headway.gateway.access import Caller
from headway.gateway.binary_tensors import HEADER as JSON_LENGTH
from headway.gateway.calls import Calls
from headway.gateway.catalog import Catalog
from headway.gateway.errors import BadRequest, HeadwayError, InternalError, KeyReused, OutcomeError, TooManyKeys
from headway.gateway.exchange import Pending, Request, Response
from headway.gateway.kept_replies import Entry, KeptReplies
from headway.gateway.options import read_options

KEY = b"idempotency-key"
LONGEST_KEY = 255
REPLAYED = (b"idempotency-replayed", b"true")
INLINE = 1 << 19
"""Bytes; larger bodies are hashed in a thread, for at up to 2 ms per MiB all others would wait."""
HASHING_THREADS = 1
BUSY_RETRY = SECOND
OF_ITS_TIME = (Outcome.DEADLINE_EXCEEDED, Outcome.DEADLINE_UNMEETABLE)
"""Outcomes that say something of one call's deadline, and nothing to those that joined it."""

Run: TypeAlias = Callable[[Request], Pending]
"""Runs a call as if it had no key. Raises HeadwayError."""

log = logging.getLogger("headway.gateway")
_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(dict[str, object]).decode
_pack = msgspec.msgpack.Encoder().encode


class Execution(Request):
    """What runs for a key: the request of the call that started it, taken from its connection.

    waiting: calls that want its reply, in the order in which they came.  begun: a worker was given it.
    once: so was one of a model that declares `idempotent = false`.  late: a deadline had something to do with its end.
    """

    __slots__ = ("begun", "catalog", "entry", "late", "model", "once", "outcome", "waiting")

    def __init__(self, first: Waiting, entry: Entry, catalog: Catalog) -> None:
        request = first.request
        super().__init__(request.method, request.target, request.headers, request.version)
        self.id, self.peer, self.tenant = request.id, request.peer, request.tenant
        self.received = request.received
        self.body, request.body = request.body, b""
        self.reservation, request.reservation = request.reservation, None
        self.catalog = catalog
        self.entry = entry
        self.waiting: dict[Waiting, None] = {}
        self.outcome: Outcome | None = None
        self.model = ""
        self.begun = self.once = self.late = False

    def heard(self, outcome: Outcome, begun: bool, model: str) -> None:
        self.outcome, self.model = outcome, model
        if outcome in OF_ITS_TIME:
            self.late = True
        if begun:
            self.begun = True
            if not self.catalog.model(model).settings.idempotent:
                self.once = True


class Waiting:
    """One call with a key, until it has its reply or its client has left. deadline: monotonic nanoseconds."""

    __slots__ = ("deadline", "digest", "execution", "gone", "key", "pending", "request", "run", "tenant", "timer")

    def __init__(self, request: Request, tenant: str, key: bytes, deadline: Instant, run: Run) -> None:
        self.request = request
        self.tenant = tenant
        self.key = key
        self.deadline = deadline
        self.run = run
        self.digest = b""
        self.pending = Pending()
        self.execution: Execution | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.gone = False

    def leave(self) -> None:
        """Its client went away. What runs goes on: its reply is for whoever asks again."""
        self.gone = True
        self.part()

    def part(self) -> None:
        """It waits for nothing any more."""
        execution, self.execution = self.execution, None
        if execution is not None:
            execution.waiting.pop(self, None)
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class KeyedCalls:
    """replayed, joined, reused, refused: calls, since the start. What is kept has counts of its own.

    now: monotonic nanoseconds.
    """

    def __init__(self, settings: Idempotency, catalog: Catalog, calls: Calls, now: Callable[[], int]) -> None:
        bound = int(settings.max_mb * (1 << 20))
        self._kept = KeptReplies(bound, settings.max_reply_kb << 10, seconds(settings.keep_s))
        self._catalog = catalog
        self._calls = calls
        self._now = now
        self._running: dict[int, Execution] = {}
        """By the number of its entry."""
        self._hasher: ThreadPoolExecutor | None = None
        self.stored = self.replayed = self.joined = self.reused = self.refused = 0

    def close(self) -> None:
        if self._hasher is not None:
            self._hasher.shutdown(wait=False, cancel_futures=True)

    @property
    def counts(self) -> dict[str, int]:
        """What became of keys, since the start."""
        return {
            "stored": self.stored,
            "replayed": self.replayed,
            "joined": self.joined,
            "reused": self.reused,
            "evicted": self._kept.evicted,
            "too_large": self._kept.too_large,
            "refused": self.refused,
        }

    @property
    def held(self) -> int:
        """Bytes of keys and kept replies, now."""
        self._kept.expire(self._now())
        return self._kept.held

    def release(self, model: str) -> None:
        """What this model found to kill its workers may run again."""
        self._kept.release(model)

    def submit(self, request: Request, caller: Caller, asked: tuple[str, ...], run: Run) -> Pending:
        """For a caller who may do what he asks for. asked: what beside headers and body tells one request from another.

        Raises BadRequest, Forbidden.
        """
        key = key_of(request.headers[KEY])
        timeout = read_options(request, caller, {}).timeout
        longest = self._calls.longest
        # A body's own timeout need not be looked at: who joins has sent the same, and later, than who is waited for.
        deadline = request.received + (longest if timeout is None else min(timeout, longest))
        waiting = Waiting(request, caller.tenant, key, deadline, run)
        request.on_disconnect = waiting.leave
        headers = request.headers
        start = _pack((asked, headers.get(b"content-type", b""), headers.get(JSON_LENGTH, b"")))
        if len(request.body) <= INLINE:
            waiting.digest = digest_of(start, request.body)
            self._enter(waiting)
        else:
            self._hash(start, waiting)
        return waiting.pending

    def _hash(self, start: bytes, waiting: Waiting) -> None:
        loop = asyncio.get_running_loop()
        if self._hasher is None:
            self._hasher = ThreadPoolExecutor(HASHING_THREADS, thread_name_prefix="headway-hasher")
        done = loop.run_in_executor(self._hasher, digest_of, start, waiting.request.body)
        done.add_done_callback(partial(self._hashed, waiting))

    def _hashed(self, waiting: Waiting, done: asyncio.Future[bytes]) -> None:
        if not done.cancelled() and not waiting.gone:
            waiting.digest = done.result()
            self._enter(waiting)

    def _enter(self, waiting: Waiting) -> None:
        """It starts what it asks for, joins it, or is given the reply that is kept."""
        now = self._now()
        try:
            entry = self._kept.find(waiting.tenant, waiting.key, waiting.digest, now)
        except KeyReused as error:
            self.reused += 1
            self._refuse(waiting, error)
            return
        if entry is None:
            self._start(waiting, now)
        elif entry.reply is not None:
            self.replayed += 1
            waiting.pending.complete(replayed(entry.reply, waiting.request))
        else:
            self.joined += 1
            self._join(waiting, self._running[entry.number], now)

    def _refuse(self, waiting: Waiting, error: HeadwayError) -> None:
        waiting.pending.complete(self._calls.error_response(error, waiting.request))

    def _start(self, waiting: Waiting, now: Instant) -> None:
        entry = self._kept.begin(waiting.tenant, waiting.key, waiting.digest, now)
        if entry is None:
            self.refused += 1
            self._refuse(waiting, TooManyKeys("too many requests with an Idempotency-Key run", retry_after=BUSY_RETRY))
            return
        execution = Execution(waiting, entry, self._catalog)
        self._running[entry.number] = execution
        waiting.execution = execution
        execution.waiting[waiting] = None
        execution.expect_reply(partial(self._ended, execution, waiting))
        try:
            waiting.run(execution).attach(execution)
        except HeadwayError as error:
            execution.answer(self._calls.error_response(error, execution))
        except Exception:
            log.exception("request %s: the handler failed", execution.id)
            broke = InternalError(f"internal error, logged under {execution.id}")
            execution.answer(self._calls.error_response(broke, execution))

    def _join(self, waiting: Waiting, execution: Execution, now: Instant) -> None:
        waiting.execution = execution
        execution.waiting[waiting] = None
        left = max(0, waiting.deadline - now) / SECOND
        waiting.timer = asyncio.get_running_loop().call_later(left, self._late, waiting)

    def _late(self, waiting: Waiting) -> None:
        """What it joined goes on."""
        waiting.part()
        self._refuse(waiting, OutcomeError(Outcome.DEADLINE_EXCEEDED, ""))

    def _ended(self, execution: Execution, first: Waiting) -> None:
        """Its reply is there. first: who started it, and may have left."""
        reply = execution.reply
        assert isinstance(reply, Response)
        del self._running[execution.entry.number]
        self._settle(execution, reply)
        waiting = list(execution.waiting)
        again = execution.late and reply.status >= 500
        told = [one for one in waiting if one is first or not again]
        if told:  # the runtime is told once that the reply was written
            told[0].request.on_written = execution.written
            told[0].request.on_disconnect = execution.disconnected
        else:
            execution.disconnected()
        for one in waiting:
            one.part()
        for one in waiting:
            if one is first:
                one.pending.complete(reply)
            elif not again:
                one.pending.complete(replayed(reply, one.request))
            elif one.deadline <= self._now():
                self._refuse(one, OutcomeError(Outcome.DEADLINE_EXCEEDED, ""))
            else:
                self._enter(one)

    def _settle(self, execution: Execution, reply: Response) -> None:
        """Keep the reply, or what is to be said in its place, or forget the key."""
        status, entry, now = reply.status, execution.entry, self._now()
        poison = execution.model if execution.outcome is Outcome.POISON_REQUEST else ""
        final = status < 300 or status == 400 or (status == 500 and execution.begun)
        if final and self._kept.keep(entry, reply, now, poison):
            self.stored += 1
            return
        if execution.once:
            why = "its reply was not kept" if final else f"it ended as {_outcome_of(execution)}"
            told = OutcomeError(
                Outcome.MAY_HAVE_RUN, f"it may have been run: {why}, and the model declares idempotent = false"
            )
            if self._kept.keep(entry, self._calls.error_response(told, execution), now):
                self.stored += 1
                return
        self._kept.forget(entry)


def _outcome_of(execution: Execution) -> str:
    return execution.outcome.value if execution.outcome is not None else "unknown"


def key_of(header: bytes) -> bytes:
    """Raises BadRequest."""
    key = header.strip()
    if not 0 < len(key) <= LONGEST_KEY or not all(32 <= byte <= 126 for byte in key):
        raise BadRequest(f"Idempotency-Key must be 1 to {LONGEST_KEY} printable ASCII characters, got {len(key)} bytes")
    return key


def refuse_key(request: Request) -> None:
    """For calls that are answered by a stream. Raises BadRequest."""
    if KEY in request.headers:
        raise BadRequest("Idempotency-Key is not taken here: the results of a stream are not kept; send it without")


def digest_of(start: bytes, body: bytes) -> bytes:
    """start: says where it ends."""
    hashed = sha256(start)
    hashed.update(body)
    return hashed.digest()


def replayed(reply: Response, request: Request) -> Response:
    """The reply once more, for this request. An error names its request in its body; a success does not."""
    body = reply.body
    if reply.status >= 400:
        told = _decode(body)
        if "request_id" in told:
            told["request_id"] = request.id
            body = _encode(told)
    return Response(reply.status, body, reply.content_type, (*reply.headers, REPLAYED))
