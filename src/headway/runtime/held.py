"""What the runtime keeps beside the core: payloads and results, by request and by batch."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from headway.core.effects import AdmitSequence, DispatchBatch, Reason
from headway.core.ids import BatchId, BatchKey, PartRef, WorkerId
from headway.core.units import Duration, Instant
from headway.runtime.observer import BatchInfo
from headway.wire.engine import Start
from headway.wire.frames import Buffer, ProtocolViolation
from headway.wire.messages import Admit, Executed, PartInput, Submit, Timings
from headway.wire.tensors import Tensor, TensorHeader


class Held:
    """One request that has no outcome yet.

    sent_at: (last) dispatch or admission, 0 = none.  last_batch: what was dispatched then.
    results: part -> its outputs, as far as they are there.
    output: of a language model, tokens that its client was given: another engine goes on behind them.
    """

    __slots__ = ("execute", "hand_over", "last_batch", "output", "results", "sent_at", "submit", "submitted_at")

    def __init__(self, submit: Submit, now: Instant) -> None:
        self.submit = submit
        self.submitted_at = now
        self.sent_at: Instant = 0
        self.last_batch: BatchId = -1
        self.hand_over: Duration = 0
        self.execute: Duration = 0
        self.output: list[int] = []
        self.results: list[list[Tensor] | None] = [None] * len(submit.parts)

    def dispatched(self, batch: BatchId, now: Instant) -> None:
        self.sent_at = now
        self.last_batch = batch

    def timings(self, now: Instant) -> Timings:
        """Phases that add up to now - received exactly, whatever did or did not happen."""
        submit = self.submit
        queue_end = self.sent_at or now
        back = now - queue_end - self.hand_over - self.execute
        return Timings(
            parse=self.submitted_at - submit.received,
            queue=queue_end - self.submitted_at,
            hand_over=self.hand_over,
            execute=self.execute,
            back=back,
        )


class Running:
    """One batch that a worker has. rows: of all its parts.  padded_tokens: that the worker computes.  real_tokens: that
    the rows have.  withdrawn: all of it was, and its parts may have run elsewhere."""

    __slots__ = ("key", "padded_tokens", "parts", "real_tokens", "reason", "rows", "sent_at", "withdrawn", "worker")

    def __init__(self, effect: DispatchBatch, inputs: Sequence[PartInput], now: Instant, unpadded: bool) -> None:
        self.key: BatchKey = effect.key
        self.worker: WorkerId = effect.worker
        self.parts: tuple[PartRef, ...] = effect.parts
        self.reason: Reason = effect.reason
        self.sent_at = now
        self.withdrawn = False
        rows = tokens = longest = 0
        for part in inputs:
            length = part.length
            rows += part.rows
            tokens += part.rows * length
            if length > longest:
                longest = length
        self.rows = rows
        self.real_tokens = tokens
        self.padded_tokens = tokens if unpadded else rows * longest

    def info(self, answer: Executed | None, now: Instant) -> BatchInfo:
        """answer: None = the whole batch failed."""
        return BatchInfo(
            worker=self.worker,
            model=self.key.model,
            version=self.key.version,
            rows=self.rows,
            padded_tokens=self.padded_tokens,
            real_tokens=self.real_tokens,
            hand_over=answer.hand_over if answer else 0,
            execute=answer.execute if answer else 0,
            finish=answer.finish if answer else 0,
            round_trip=now - self.sent_at,
            reason=self.reason,
            failed=answer is None,
        )


def unsendable(submit: Submit) -> str:
    """Why its JSON values cannot be sent to a worker, or "": JSON has integers of any size, MessagePack has not."""
    try:
        msgspec.msgpack.encode((submit.parameters, submit.body))
    except (OverflowError, RecursionError, TypeError, ValueError) as error:
        return f"a value of the request cannot be passed on: {error}"
    return ""


def part_input(held: Held, part: int, buffers: list[Buffer]) -> PartInput:
    """The part as a worker gets it; its raw tensors are appended to `buffers`."""
    submit = held.submit
    rows, length = submit.parts[part]
    headers: list[TensorHeader] = []
    for tensor in submit.payload[part].tensors:
        headers.append(tensor.header)
        buffers.append(tensor.data)
    return PartInput(submit.request, part, rows, length, headers, submit.parameters)


def admission(effect: AdmitSequence, held: Held, now: Instant) -> Admit | Start:
    """A sequence as a worker that streams, or an engine, gets it."""
    submit = held.submit
    asked = submit.generation
    if asked is None:
        return Admit(effect.worker, effect.request, effect.attempt, submit.body or {})
    first_by = submit.received + asked.first_within if asked.first_within else submit.deadline
    return Start(
        effect.worker,
        effect.request,
        effect.attempt,
        submit.tenant,
        submit.priority,
        effect.counter,
        effect.paid,
        max(1, min(first_by, submit.deadline) - now),
        asked,
        prefix_of(submit),
        tuple(held.output),
    )


PREFIX_TOKENS = 64
MOST_PREFIXES = 8


def prefix_of(submit: Submit) -> tuple[tuple[int, int], ...]:
    """By which an engine is sought that has computed a part of the prompt: what so many of its tokens hash to, each
    time twice as many, and all that are whole such pieces. Empty for what is no language model's."""
    asked = submit.generation
    if asked is None:
        return ()
    prompt, whose = asked.prompt, asked.salt or submit.tenant
    lengths, length = [], PREFIX_TOKENS
    while length <= len(prompt):
        lengths.append(length)
        length *= 2
    whole = len(prompt) - len(prompt) % PREFIX_TOKENS
    if whole and whole not in lengths:
        lengths.append(whole)
    return tuple((length, hash((whose, *prompt[:length]))) for length in lengths[-MOST_PREFIXES:])


class TensorSplitter:
    """Cuts the bytes that follow a message into its tensors, in order."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def take(self, headers: Sequence[TensorHeader]) -> list[Tensor]:
        tensors: list[Tensor] = []
        for name, datatype, shape, size in map(_fields, headers):
            end = self._at + size
            if size < 0 or end > len(self._data):
                raise ProtocolViolation(f"tensor {name!r} of {size} bytes, but {len(self._data) - self._at} came")
            tensors.append(Tensor(name, datatype, shape, self._data[self._at : end]))
            self._at = end
        return tensors

    def finish(self) -> None:
        if self._at != len(self._data):
            raise ProtocolViolation(f"{len(self._data) - self._at} bytes more than the message's tensors have")


def _fields(header: TensorHeader) -> tuple[str, str, tuple[int, ...], int]:
    return header.name, header.datatype, header.shape, header.size
