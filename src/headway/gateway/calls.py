"""What is in flight between the gateway and the runtime.

Every Reply of the runtime is followed by exactly one Written, when its last byte was handed to the socket, or by
a Cancel when there was nobody to write it to.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias

from headway.core.ids import BatchKey, Part
from headway.core.outcomes import Outcome
from headway.gateway.errors import HeadwayError, InternalError, OutcomeError
from headway.gateway.exchange import Pending, Request, Response, Stream
from headway.gateway.options import Options
from headway.wire.generation import Generation
from headway.wire.messages import Cancel, Enough, PartPayload, Reply, StreamChunk, Submit, ToRuntime, Written

Render: TypeAlias = Callable[[list[list[Any]]], Response]
"""From the outputs of the parts to the reply. Raises HeadwayError."""

log = logging.getLogger("headway.gateway")

OVERLOAD = (
    Outcome.QUEUE_FULL,
    Outcome.OVERLOADED,
    Outcome.DEADLINE_UNMEETABLE,
    Outcome.RECLAIMED,
    Outcome.NO_WORKER,
    Outcome.CIRCUIT_OPEN,
)
"""Refusals after which a model's fallback is asked. A tenant's own limits are none: it would get around them."""
SERVED_BY = b"x-headway-served-by"


class Call(ABC):
    """One request that the runtime has. Subclasses say what becomes of its answer.

    model: that was asked, the last of them.
    again: gives it to its model's fallback, if there is one and it was not asked yet. Raises HeadwayError.
    refusal: what the model itself said, once its fallback was asked.
    served_by: the fallback that answers, as MODEL/VERSION.  on_served: called when it has.
    """

    def __init__(self, calls: Calls, request: Request) -> None:
        self.id = 0
        self.model = ""
        self.calls = calls
        self.request = request
        self.pending = Pending()
        self.again: Callable[[], None] | None = None
        self.refusal: HeadwayError | None = None
        self.served_by = b""
        self.on_served: Callable[[], None] | None = None

    @abstractmethod
    def chunk(self, message: StreamChunk) -> None:
        """A result of a stream."""

    @abstractmethod
    def reply(self, message: Reply) -> None:
        """The outcome. Whatever this raises becomes the reply."""

    def complete(self, reply: Response | Stream) -> None:
        if self.served_by:
            reply.headers = (*reply.headers, (SERVED_BY, self.served_by))
            if self.on_served is not None:
                self.on_served()
        self.again = self.on_served = None  # or they and the call would keep each other
        self.pending.complete(reply)

    def fail(self, error: HeadwayError) -> None:
        self.complete(self.calls.error_response(error, self.request))

    def fall_back(self, refusal: HeadwayError) -> bool:
        """Whether the fallback has it now."""
        again, self.again = self.again, None
        if again is None:
            return False
        self.request.on_disconnect = self.request.on_written = None
        self.refusal = refusal
        try:
            again()
        except HeadwayError:
            self.stand_by(refusal)
            return False
        return True

    def stand_by(self, error: HeadwayError) -> HeadwayError:
        """What to say where the fallback does not answer: what the model itself said, if it was asked first."""
        refusal, self.refusal = self.refusal, None
        self.served_by = b""
        return refusal or error

    def cancelled(self) -> None:
        self.again = None
        self.calls.cancel(self)

    def written(self) -> None:
        self.calls.written(self.id)


class WholeCall(Call):
    """A request with one answer."""

    def __init__(self, calls: Calls, request: Request, render: Render | None = None) -> None:
        """render: may be set later, before the answer comes."""
        super().__init__(calls, request)
        self.render = render

    def chunk(self, message: StreamChunk) -> None:
        """Its model does not stream."""

    def reply(self, message: Reply) -> None:
        assert self.render is not None
        self.complete(self.render(message.outputs))


class Listener(Protocol):
    """What becomes of several calls that are answered by one reply."""

    def came(self, call: SharedCall, message: StreamChunk) -> None:
        """A result of a stream."""

    def completed(self, call: SharedCall, message: Reply) -> None: ...

    def failed(self, call: SharedCall, error: HeadwayError) -> None: ...


class SharedCall(Call):
    """One of the calls that are answered by one reply. place: which of them, from 0."""

    def __init__(self, calls: Calls, request: Request, place: int) -> None:
        super().__init__(calls, request)
        self.place = place
        self.listener: Listener | None = None

    def chunk(self, message: StreamChunk) -> None:
        if self.listener is not None:
            self.listener.came(self, message)

    def reply(self, message: Reply) -> None:
        if self.listener is not None:
            self.listener.completed(self, message)

    def fail(self, error: HeadwayError) -> None:
        if self.listener is not None:
            self.listener.failed(self, error)
        else:
            super().fail(error)


class Calls:
    """send: to the runtime. clock: monotonic nanoseconds. longest: nanoseconds that a request may take at most."""

    def __init__(
        self,
        send: Callable[[ToRuntime], None],
        clock: Callable[[], int],
        longest: int,
        error_response: Callable[[HeadwayError, Request], Response],
    ) -> None:
        self._send = send
        self._clock = clock
        self.longest = longest
        self.error_response = error_response
        self._in_flight: dict[int, Call] = {}
        self._last_id = 0

    def __len__(self) -> int:
        return len(self._in_flight)

    def submit(
        self,
        call: Call,
        key: BatchKey,
        parts: list[Part],
        payload: list[PartPayload],
        size: int,
        options: Options,
        parameters: dict[str, Any],
        body: dict[str, Any] | None = None,
        generation: Generation | None = None,
    ) -> Pending:
        """Hand the request over. size: payload bytes."""
        self._last_id += 1
        call.id = self._last_id
        call.model = key.model
        self._in_flight[call.id] = call
        request = call.request
        request.on_disconnect = call.cancelled
        timeout = self.longest if options.timeout is None else min(options.timeout, self.longest)
        self._send(
            Submit(
                request=call.id,
                tenant=options.tenant,
                key=key,
                parts=parts,
                payload=payload,
                bytes=size,
                deadline=request.received + timeout,
                priority=options.priority,
                parameters=parameters,
                received=request.received,
                body=body,
                generation=generation,
            )
        )
        if call.again is None:
            request.let_go()  # the runtime has counted its payload
        return call.pending

    def chunk(self, message: StreamChunk) -> None:
        call = self._in_flight.get(message.request)
        if call is not None:
            call.chunk(message)

    def reply(self, message: Reply) -> None:
        call = self._in_flight.pop(message.request, None)
        if call is None:
            self._send(Cancel(message.request))  # its client went away while the reply was under way
            return
        call.request.heard(message.outcome, message.begun, call.model)
        if call.again is not None and self._fell_back(call, message):
            self._send(Cancel(message.request))  # that reply will never be written
            return
        call.request.on_disconnect = call.cancelled
        call.request.on_written = call.written
        try:
            if message.outcome is not Outcome.COMPLETED:
                error = OutcomeError(message.outcome, message.detail, message.retry_after)
                raise call.stand_by(error) if message.outcome in OVERLOAD else error
            call.reply(message)
        except HeadwayError as error:
            call.fail(error)
        except Exception:
            log.exception("request %s: the reply could not be made", call.request.id)
            call.fail(InternalError(f"internal error, logged under {call.request.id}"))

    def _fell_back(self, call: Call, message: Reply) -> bool:
        if message.outcome not in OVERLOAD:
            return False
        try:
            return call.fall_back(OutcomeError(message.outcome, message.detail, message.retry_after))
        except Exception:
            log.exception("request %s: the fallback could not be asked", call.request.id)
            return False

    def cancel(self, call: Call) -> None:
        self._in_flight.pop(call.id, None)
        self._send(Cancel(call.id))

    def enough(self, call: Call) -> None:
        """Its client has all that it wants: what has come so far is the whole of it."""
        self._send(Enough(call.id))

    def written(self, request: int) -> None:
        self._send(Written(request, self._clock()))


class CollectedCall(Call):
    """A stream whose results are wanted together, in one reply."""

    def __init__(self, calls: Calls, request: Request, finish: Callable[[list[Any]], Response] | None = None) -> None:
        """finish: may be set later, before the answer comes."""
        super().__init__(calls, request)
        self.finish = finish
        self._values: list[Any] = []

    def chunk(self, message: StreamChunk) -> None:
        self._values.append(message.value)

    def reply(self, message: Reply) -> None:
        assert self.finish is not None
        self.complete(self.finish(self._values))


class StreamCall(Call):
    """A stream passed on as it comes. encode: one result as bytes of the stream; encode_error: likewise."""

    def __init__(
        self,
        calls: Calls,
        request: Request,
        encode: Callable[[Any], bytes],
        encode_error: Callable[[HeadwayError, str], bytes],
    ) -> None:
        super().__init__(calls, request)
        self._encode = encode
        self._encode_error = encode_error
        self._stream: Stream | None = None

    def _begin(self) -> Stream:
        if self._stream is None:
            self._stream = Stream()
            self.complete(self._stream)
        return self._stream

    def chunk(self, message: StreamChunk) -> None:
        self._begin().send(self._encode(message.value))

    def reply(self, message: Reply) -> None:
        self._begin().end()

    def fail(self, error: HeadwayError) -> None:
        """Before the first result this is a plain error reply; after it, the status has been sent already."""
        if self._stream is None:
            super().fail(error)
        else:
            self._stream.send(self._encode_error(error, self.request.id))
            self._stream.end()
