"""Carries out what the core wants done, and keeps what its results need."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeAlias

from headway.core.effects import (
    AbortSequence,
    AdmitSequence,
    ClearWorker,
    DeliverTokens,
    DispatchBatch,
    Effect,
    KillWorker,
    QuarantineRequest,
    ReportCircuit,
    ReportMemoryCap,
    ReportStarvation,
    ResolveRequest,
    RetryParts,
    SuspectWorker,
    TakeBack,
    UpdateCounters,
    WithdrawBatch,
    WithdrawPart,
)
from headway.core.events import BatchCompleted, BatchFailed, Event, PartFailure, TokensEmitted
from headway.core.ids import BatchId, RequestId, VersionId, WorkerId
from headway.core.outcomes import Outcome
from headway.core.units import Duration, Instant
from headway.runtime.channel import Channel
from headway.runtime.held import Held, Running, TensorSplitter, admission, part_input
from headway.runtime.memory import MemoryGauge
from headway.runtime.observer import Observer, ReplyInfo
from headway.runtime.quarantine import Quarantine
from headway.runtime.reports import (
    report_circuit,
    report_memory_cap,
    report_recovery,
    report_retry,
    report_starvation,
    report_suspicion,
)
from headway.wire.engine import Counters, GiveBack, Stepped
from headway.wire.frames import Buffer, ProtocolViolation
from headway.wire.generation import Token
from headway.wire.messages import (
    Abort,
    Emitted,
    Execute,
    Executed,
    ExecuteFailed,
    PartInput,
    Reply,
    StreamChunk,
    ToGateway,
    Withdraw,
    Written,
)
from headway.wire.tensors import Tensor

MAX_UNWRITTEN = 50_000
"""Replies handed over of which the gateway has not said that they were written; older ones are forgotten."""

FAILURE_CODES: dict[str, Outcome] = {
    "model_error": Outcome.MODEL_ERROR,
    "invalid_input": Outcome.INVALID_INPUT,
}

WITHDRAWALS = (WithdrawPart, WithdrawBatch)
BEFORE_REPLIES = (DispatchBatch, *WITHDRAWALS)

ChannelOf: TypeAlias = Callable[[WorkerId], Channel | None]


class Keeper(Protocol):
    """Who looks after the workers."""

    def suspected(self, worker: WorkerId) -> None:
        """It does not answer, and is given no new work."""

    def cleared(self, worker: WorkerId) -> None:
        """It has answered after all."""

    def give_up(self, worker: WorkerId, cause: str) -> None:
        """It hangs. cause: why it is thought to."""


class EffectRunner:
    """held: requests without an outcome, shared with the runtime, which adds them.

    A worker without a channel is gone; the event that says so is on its way, and answers for the effect.
    """

    def __init__(
        self,
        held: dict[RequestId, Held],
        channel_of: ChannelOf,
        deliver: Callable[[ToGateway], None],
        observer: Observer,
        memory: MemoryGauge,
        post: Callable[[Event], None],
        keeper: Keeper,
        quarantine: Quarantine,
    ) -> None:
        self._post = post
        self._keeper = keeper
        self._quarantine = quarantine
        self._held = held
        self._channel_of = channel_of
        self._deliver = deliver
        self._observer = observer
        self._memory = memory
        self._running: dict[BatchId, Running] = {}
        self.unpadded: dict[VersionId, bool] = {}
        """Versions whose workers compute no padding, as they say."""
        self._emitted: dict[tuple[RequestId, int, int], list[Any]] = {}
        self._unwritten: dict[RequestId, ReplyInfo] = {}
        self._by_type: dict[type[Any], Callable[[Any, Instant], None]] = {
            WithdrawPart: self._withdraw,
            WithdrawBatch: self._withdraw_all,
            AdmitSequence: self._admit,
            AbortSequence: self._abort,
            UpdateCounters: self._update_counters,
            TakeBack: self._take_back,
            DeliverTokens: self._deliver_tokens,
            ReportStarvation: report_starvation,
            ResolveRequest: self._resolve,
            RetryParts: report_retry,
            ReportCircuit: report_circuit,
            ReportMemoryCap: report_memory_cap,
            SuspectWorker: self._suspect,
            ClearWorker: self._clear,
            KillWorker: self._kill,
            QuarantineRequest: self._keep_out,
        }

    def carry_out(self, now: Instant, effects: Sequence[Effect]) -> None:
        by_type = self._by_type
        # Batches first: a device must not wait for the answers of the last one to be written. An effect on a request
        # of theirs can only come after them, so nothing is turned round that belongs together.
        for effect in effects:
            if type(effect) is DispatchBatch:
                self._dispatch(effect, now)
        # Then withdrawals: who has been told that his time is over may count on it that nothing is run for him.
        for effect in effects:
            if type(effect) in WITHDRAWALS:
                by_type[type(effect)](effect, now)
        for effect in effects:
            if type(effect) not in BEFORE_REPLIES:
                by_type[type(effect)](effect, now)
        if self._emitted:
            # The core has seen the events of all of these; what it did not want delivered is stale.
            self._emitted.clear()

    # -- effects -------------------------------------------------------------------------------

    def _dispatch(self, effect: DispatchBatch, now: Instant) -> None:
        inputs: list[PartInput] = []
        buffers: list[Buffer] = []
        for request, part in effect.parts:
            held = self._held[request]
            held.dispatched(effect.batch, now)
            inputs.append(part_input(held, part, buffers))
        channel = self._channel_of(effect.worker)
        if channel is None:
            return
        try:
            channel.send(Execute(effect.worker, effect.batch, inputs), buffers)
        except ValueError as error:  # more bytes than a message may have; nothing was sent
            self._post(BatchFailed(effect.worker, effect.batch, 0, Outcome.TOO_LARGE, str(error)))
            return
        self._running[effect.batch] = Running(effect, inputs, now, self.unpadded.get(effect.key.version_id, False))

    def _withdraw(self, effect: WithdrawPart, now: Instant) -> None:
        channel = self._channel_of(effect.worker)
        if channel is not None:
            channel.send_control(Withdraw(effect.worker, effect.batch, effect.position))

    def _withdraw_all(self, effect: WithdrawBatch, now: Instant) -> None:
        running = self._running.get(effect.batch)
        channel = self._channel_of(effect.worker)
        if running is None or channel is None:
            return
        running.withdrawn = True
        for position in range(len(running.parts)):
            channel.send_control(Withdraw(effect.worker, effect.batch, position))

    def _admit(self, effect: AdmitSequence, now: Instant) -> None:
        held = self._held[effect.request]
        held.sent_at = now
        channel = self._channel_of(effect.worker)
        if channel is not None:
            # In the control lane, so that an abort cannot overtake the sequence that it is meant for.
            channel.send_control(admission(effect, held, now))

    def _update_counters(self, effect: UpdateCounters, now: Instant) -> None:
        channel = self._channel_of(effect.worker)
        if channel is not None:
            channel.send_control(Counters(effect.worker, effect.number, effect.counters))

    def _take_back(self, effect: TakeBack, now: Instant) -> None:
        channel = self._channel_of(effect.worker)
        if channel is not None:
            channel.send_control(GiveBack(effect.worker, effect.request, effect.attempt))

    def _abort(self, effect: AbortSequence, now: Instant) -> None:
        channel = self._channel_of(effect.worker)
        if channel is not None:
            channel.send_control(Abort(effect.worker, effect.request, effect.attempt))

    def _deliver_tokens(self, effect: DeliverTokens, now: Instant) -> None:
        values = self._emitted.pop((effect.request, effect.attempt, effect.first))
        held = self._held.get(effect.request)
        if held is not None and held.submit.generation is not None:
            held.output += [value.token for value in values if type(value) is Token]
        for offset, value in enumerate(values[: effect.count]):
            self._deliver(StreamChunk(effect.request, effect.first + offset, value))
        self._observer.generated(effect.request, values, now)

    def _suspect(self, effect: SuspectWorker, now: Instant) -> None:
        report_suspicion(effect, now)
        self._keeper.suspected(effect.worker)

    def _clear(self, effect: ClearWorker, now: Instant) -> None:
        report_recovery(effect, now)
        self._keeper.cleared(effect.worker)

    def _kill(self, effect: KillWorker, now: Instant) -> None:
        self._keeper.give_up(effect.worker, effect.cause)

    def _keep_out(self, effect: QuarantineRequest, now: Instant) -> None:
        self._quarantine.take(effect.version, self._held[effect.request].submit, now)

    def _resolve(self, effect: ResolveRequest, now: Instant) -> None:
        if effect.outcome is Outcome.POISON_REQUEST:
            self._quarantine.explain(effect.request, effect.detail)
        self.resolve(self._held[effect.request], effect.outcome, effect.detail, effect.retry_after, now)

    def resolve(self, held: Held, outcome: Outcome, detail: str, retry_after: Duration, now: Instant) -> None:
        """The request's Reply; everything that was kept for it is freed."""
        submit = held.submit
        del self._held[submit.request]
        self._memory.remove(submit.bytes)
        streamed = submit.body is not None or submit.generation is not None
        outputs = _outputs(held) if outcome is Outcome.COMPLETED and not streamed else []
        timings = held.timings(now)
        rows = 0
        for part in submit.parts:
            rows += part.rows
        info = ReplyInfo(
            submit.request,
            submit.key.model,
            submit.key.version,
            submit.tenant,
            outcome,
            rows,
            submit.received,
            timings,
        )
        self._observer.replied(info)
        if outcome is not Outcome.CANCELLED:
            self._unwritten[submit.request] = info
            if len(self._unwritten) > MAX_UNWRITTEN:
                del self._unwritten[next(iter(self._unwritten))]
        begun = held.sent_at != 0
        self._deliver(Reply(submit.request, outcome, detail, retry_after, outputs, timings, begun))

    # -- the gateway's notes -------------------------------------------------------------------

    def written(self, message: Written) -> ReplyInfo | None:
        """None: not known (any more)."""
        info = self._unwritten.pop(message.request, None)
        if info is not None:
            spent = info.timings
            inside = spent.parse + spent.queue + spent.hand_over + spent.execute + spent.back
            info.reply = message.at - info.received - inside
            self._observer.written(info)
        return info

    def gone(self, request: RequestId) -> None:
        """The client went away: if there was a reply already, it will not be written."""
        self._unwritten.pop(request, None)

    # -- answers of workers: each becomes the event that answers the effect --------------------

    def executed(self, message: Executed, data: memoryview, now: Instant) -> Event:
        """Raises ProtocolViolation where the answer does not fit the batch."""
        running = self._pop(message.batch, message.worker)
        if len(message.parts) != len(running.parts):
            raise ProtocolViolation(
                f"batch {message.batch}: answers for {len(message.parts)} parts, expected {len(running.parts)}"
            )
        splitter = TensorSplitter(data)
        failures: list[PartFailure] = []
        for position, result in enumerate(message.parts):
            tensors = splitter.take(result.tensors)
            if result.error is not None:
                code, detail = result.error
                failures.append(PartFailure(position, failure_outcome(code), detail))
            request, part = running.parts[position]
            held = self._held.get(request)
            if held is None or running.withdrawn:
                continue  # it has its outcome already, or another's: this answer is late
            if result.error is None:
                held.results[part] = tensors
            if held.last_batch == message.batch:
                held.hand_over, held.execute = message.hand_over, message.execute
        splitter.finish()
        if not running.withdrawn:
            self._observer.batch_done(running.info(message, now))
        duration = message.hand_over + message.execute + message.finish
        return BatchCompleted(message.worker, message.batch, duration, tuple(failures))

    def execute_failed(self, message: ExecuteFailed, now: Instant) -> Event:
        running = self._pop(message.batch, message.worker)
        if not running.withdrawn:
            self._observer.batch_done(running.info(None, now))
        outcome = Outcome.OUT_OF_MEMORY if message.out_of_memory else failure_outcome(message.code)
        return BatchFailed(message.worker, message.batch, message.elapsed, outcome, message.detail)

    def emitted(self, message: Emitted) -> Event:
        held = self._held.get(message.request)
        if held is not None:
            held.execute += message.service
            self._emitted[message.request, message.attempt, message.first] = message.values
        return TokensEmitted(
            message.worker, message.request, message.attempt, message.first, len(message.values), message.service
        )

    def stepped(self, message: Stepped) -> list[Event]:
        """In the order that the core is to be told of them. Raises ProtocolViolation."""
        if len(message.values) != len(message.emitted):
            raise ProtocolViolation(f"results of {len(message.values)} sequences, {len(message.emitted)} were told of")
        events: list[Any] = [message.report]
        for event, values in zip(message.emitted, message.values, strict=True):
            if len(values) != event.count:
                raise ProtocolViolation(f"{len(values)} results of request {event.request}, {event.count} were told of")
            if event.request in self._held:
                self._emitted[event.request, event.attempt, event.first] = list(values)
            events.append(event)
        events += [*message.finished, *message.failed, *message.returned]
        if any(event.worker != message.worker for event in events):
            raise ProtocolViolation(f"worker {message.worker} tells of another one's step")
        return events

    def worker_gone(self, worker: WorkerId) -> None:
        """Nothing that it ran will be answered."""
        for batch in [batch for batch, running in self._running.items() if running.worker == worker]:
            del self._running[batch]

    def has_work(self, worker: WorkerId) -> bool:
        """It was given a batch that it has not answered."""
        return any(running.worker == worker for running in self._running.values())

    def _pop(self, batch: BatchId, worker: WorkerId) -> Running:
        running = self._running.pop(batch, None)
        if running is None or running.worker != worker:
            raise ProtocolViolation(f"an answer for batch {batch}, which worker {worker} does not have")
        return running


def failure_outcome(code: str) -> Outcome:
    """Raises ProtocolViolation for a code that is not in the protocol."""
    try:
        return FAILURE_CODES[code]
    except KeyError:
        raise ProtocolViolation(f"failure code {code!r}, expected one of {', '.join(FAILURE_CODES)}") from None


def _outputs(held: Held) -> list[list[Tensor]]:
    outputs: list[list[Tensor]] = []
    for part, tensors in enumerate(held.results):
        if tensors is None:
            raise RuntimeError(f"request {held.submit.request} completed, but part {part} has no result")
        outputs.append(tensors)
    return outputs
