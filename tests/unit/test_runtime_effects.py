"""Effects and answers with a channel that only notes; the books beside the core must come out even."""

from __future__ import annotations

from typing import Any, get_args

import pytest

from headway.core import effects
from headway.core.effects import (
    AbortSequence,
    AdmitSequence,
    ClearWorker,
    DeliverTokens,
    DispatchBatch,
    KillWorker,
    QuarantineRequest,
    Reason,
    Remedy,
    ReportCircuit,
    ResolveRequest,
    RetryParts,
    SuspectWorker,
    WithdrawBatch,
    WithdrawPart,
)
from headway.core.events import (
    BatchCompleted,
    BatchFailed,
    ContentQuarantined,
    Event,
    MemoryPressureChanged,
    PartFailure,
    TokensEmitted,
)
from headway.core.ids import BatchKey, Part, PartRef
from headway.core.outcomes import Outcome
from headway.core.units import seconds
from headway.runtime.effects import EffectRunner
from headway.runtime.held import Held
from headway.runtime.memory import MemoryGauge
from headway.runtime.observer import BatchInfo, NullObserver, ReplyInfo
from headway.runtime.quarantine import Quarantine
from headway.wire.frames import ProtocolViolation
from headway.wire.messages import (
    Abort,
    Admit,
    Emitted,
    Execute,
    Executed,
    ExecuteFailed,
    PartPayload,
    PartResult,
    Reply,
    StreamChunk,
    Submit,
    ToGateway,
    Withdraw,
    Written,
)
from headway.wire.tensors import Tensor, TensorHeader

KEY = BatchKey("m", 1, "x")
WORKER = 3


class NotingChannel:
    def __init__(self) -> None:
        self.data: list[tuple[Any, bytes]] = []
        self.control: list[Any] = []
        self.error: Exception | None = None

    def send(self, message: Any, buffers: Any = ()) -> None:
        if self.error is not None:
            raise self.error
        self.data.append((message, b"".join(buffers)))

    def send_control(self, message: Any) -> None:
        self.control.append(message)


class Watch(NullObserver):
    def __init__(self) -> None:
        self.replied_to: list[ReplyInfo] = []
        self.batches: list[BatchInfo] = []

    def replied(self, reply: ReplyInfo) -> None:
        self.replied_to.append(reply)

    def batch_done(self, batch: BatchInfo) -> None:
        self.batches.append(batch)


class Desk:
    def __init__(self) -> None:
        self.channel = NotingChannel()
        self.delivered: list[ToGateway] = []
        self.posted: list[Event] = []
        self.held: dict[int, Held] = {}
        self.watch = Watch()
        self.memory = MemoryGauge(1000, self.posted.append)
        self.given_up: list[tuple[int, str]] = []
        self.suspects: list[tuple[int, bool]] = []
        self.quarantine = Quarantine(self.posted.append, lambda version: seconds(600))
        self.runner = EffectRunner(
            self.held,
            lambda worker: self.channel if worker == WORKER else None,
            self.delivered.append,
            self.watch,
            self.memory,
            self.posted.append,
            self,
            self.quarantine,
        )

    # -- keeper of the workers

    def suspected(self, worker: int) -> None:
        self.suspects.append((worker, True))

    def cleared(self, worker: int) -> None:
        self.suspects.append((worker, False))

    def give_up(self, worker: int, cause: str) -> None:
        self.given_up.append((worker, cause))

    # -- what tests do

    def hold(self, request: int, *values: bytes, body: dict[str, Any] | None = None) -> Held:
        payload = [PartPayload([Tensor("x", "UINT8", (1, len(v)), v)]) for v in values]
        parts = [Part(1, len(v)) for v in values] or [Part(1, 1)]
        submit = Submit(request, "t", KEY, parts, payload, 100, 10**9, 1, {"p": request}, 1_000, body)
        held = self.held[request] = Held(submit, 1_100)
        self.memory.add(100)
        return held

    def dispatch(self, batch: int, *parts: tuple[int, int], worker: int = WORKER, now: int = 2_000) -> None:
        refs = tuple(PartRef(*part) for part in parts)
        self.runner.carry_out(now, [DispatchBatch(worker, batch, KEY, refs, Reason.IDLE)])

    def executed(self, batch: int, *values: bytes | tuple[str, str], now: int = 9_000, extra: bytes = b"") -> Event:
        results = []
        for value in values:
            if isinstance(value, tuple):
                results.append(PartResult([], value))
            else:
                results.append(PartResult([TensorHeader("y", "UINT8", (1, len(value)), len(value))]))
        data = b"".join(value for value in values if isinstance(value, bytes)) + extra
        return self.runner.executed(Executed(WORKER, batch, 10, 500, 20, results), memoryview(data), now)

    def resolve(self, request: int, outcome: Outcome = Outcome.COMPLETED, now: int = 10_000) -> Reply:
        self.runner.carry_out(now, [ResolveRequest(request, outcome, "why", 77)])
        reply = self.delivered[-1]
        assert isinstance(reply, Reply)
        return reply


@pytest.fixture
def desk() -> Desk:
    return Desk()


def values(reply: Reply) -> list[list[bytes]]:
    return [[bytes(tensor.data) for tensor in part] for part in reply.outputs]


def test_a_batch_goes_to_its_worker_with_the_parts_in_order_and_their_bytes_behind_it(desk):
    desk.hold(1, b"aa", b"b")
    desk.hold(2, b"ccc")
    desk.dispatch(5, (2, 0), (1, 1))
    [(message, data)] = desk.channel.data
    assert isinstance(message, Execute)
    assert (message.worker, message.batch, data) == (WORKER, 5, b"cccb")
    assert [(p.request, p.index, p.rows, p.length, p.parameters) for p in message.parts] == [
        (2, 0, 1, 3, {"p": 2}),
        (1, 1, 1, 1, {"p": 1}),
    ]


def test_the_next_batch_is_handed_over_before_the_answers_of_the_last_are_given(desk):
    desk.hold(1, b"a")
    desk.hold(2, b"b")
    desk.dispatch(5, (1, 0))
    desk.executed(5, b"A")
    sent_when_delivered: list[int] = []
    runner = desk.runner
    runner._deliver = lambda message: sent_when_delivered.append(len(desk.channel.data))
    next_batch = DispatchBatch(WORKER, 6, KEY, (PartRef(2, 0),), Reason.IDLE)
    runner.carry_out(9_500, [ResolveRequest(1, Outcome.COMPLETED), next_batch])
    assert sent_when_delivered == [2]


def test_what_is_given_up_is_withdrawn_before_anybody_is_told_that_it_was(desk):
    desk.hold(1, b"a")
    desk.dispatch(5, (1, 0))
    withdrawn_when_delivered: list[int] = []
    runner = desk.runner
    runner._deliver = lambda message: withdrawn_when_delivered.append(len(desk.channel.control))
    runner.carry_out(9_500, [ResolveRequest(1, Outcome.DEADLINE_EXCEEDED), WithdrawPart(WORKER, 5, 0)])
    assert withdrawn_when_delivered == [1]


def test_parts_answered_by_different_batches_come_back_in_the_order_of_the_request(desk):
    desk.hold(1, b"a", b"b")
    desk.dispatch(5, (1, 1))
    desk.dispatch(6, (1, 0))
    assert desk.executed(6, b"A") == BatchCompleted(WORKER, 6, 530)
    desk.executed(5, b"B")
    assert values(desk.resolve(1)) == [[b"A"], [b"B"]]


def test_the_event_of_an_answer_names_the_parts_that_failed(desk):
    desk.hold(1, b"a")
    desk.hold(2, b"b")
    desk.dispatch(5, (1, 0), (2, 0))
    event = desk.executed(5, ("invalid_input", "no"), b"B")
    assert event == BatchCompleted(WORKER, 5, 530, (PartFailure(0, Outcome.INVALID_INPUT, "no"),))
    assert values(desk.resolve(2)) == [[b"B"]]
    assert desk.resolve(1, Outcome.INVALID_INPUT).outputs == []


def test_a_failed_batch_is_an_event_with_the_models_words(desk):
    desk.hold(1, b"a")
    desk.dispatch(5, (1, 0))
    event = desk.runner.execute_failed(ExecuteFailed(WORKER, 5, 99, "model_error", "boom"), 9_000)
    assert event == BatchFailed(WORKER, 5, 99, Outcome.MODEL_ERROR, "boom")
    assert desk.watch.batches[0].failed


def test_an_answer_for_a_request_that_has_its_outcome_is_dropped_without_a_trace(desk):
    desk.hold(1, b"a")
    desk.hold(2, b"b")
    desk.dispatch(5, (1, 0), (2, 0))
    desk.resolve(1, Outcome.DEADLINE_EXCEEDED)
    desk.executed(5, b"A", b"B")
    assert values(desk.resolve(2)) == [[b"B"]]
    assert (desk.held, desk.runner._running, desk.memory.held) == ({}, {}, 0)


@pytest.mark.parametrize(
    "answer",
    [
        lambda desk: desk.executed(5, b"A"),
        lambda desk: desk.executed(5, b"A", b"B", extra=b"!"),
        lambda desk: desk.executed(5, b"A", ("what_error", "no such code")),
        lambda desk: desk.executed(6, b"A", b"B"),
        lambda desk: desk.runner.executed(
            Executed(WORKER, 5, 0, 0, 0, [PartResult([TensorHeader("y", "UINT8", (1, 9), 9)])] * 2), memoryview(b""), 1
        ),
        lambda desk: desk.runner.execute_failed(ExecuteFailed(WORKER + 1, 5, 0, "model_error", ""), 1),
    ],
    ids=["too few parts", "too many bytes", "unknown code", "another batch", "missing bytes", "another worker"],
)
def test_an_answer_that_does_not_fit_its_batch_breaks_the_protocol(desk, answer):
    desk.hold(1, b"a")
    desk.hold(2, b"b")
    desk.dispatch(5, (1, 0), (2, 0))
    with pytest.raises(ProtocolViolation):
        answer(desk)


def test_a_second_answer_to_a_batch_breaks_the_protocol(desk):
    desk.hold(1, b"a")
    desk.dispatch(5, (1, 0))
    desk.executed(5, b"A")
    with pytest.raises(ProtocolViolation, match="batch 5"):
        desk.executed(5, b"A")


def test_a_batch_for_a_worker_that_is_gone_waits_for_the_event_that_says_so(desk):
    desk.hold(1, b"a")
    desk.dispatch(5, (1, 0), worker=WORKER + 1)
    assert desk.channel.data == []
    desk.resolve(1, Outcome.WORKER_LOST)
    assert desk.runner._running == {}


def test_what_a_lost_worker_ran_is_forgotten(desk):
    desk.hold(1, b"a")
    desk.dispatch(5, (1, 0))
    desk.runner.worker_gone(WORKER)
    assert desk.runner._running == {}


def test_a_batch_too_large_for_a_message_fails_and_nothing_else(desk):
    desk.hold(1, b"a")
    desk.channel.error = ValueError("message of 3 GB")
    desk.dispatch(5, (1, 0))
    assert desk.posted == [BatchFailed(WORKER, 5, 0, Outcome.TOO_LARGE, "message of 3 GB")]
    assert desk.runner._running == {}


def test_a_completed_request_without_a_result_is_our_bug_and_told(desk):
    desk.hold(1, b"a")
    with pytest.raises(RuntimeError, match="part 0 has no result"):
        desk.resolve(1)


def test_phases_add_up_from_received_to_reply_whatever_happened(desk):
    desk.hold(1, b"a")
    desk.hold(2, b"b")
    desk.dispatch(5, (1, 0), now=2_000)
    desk.executed(5, b"A")
    done, never_ran = desk.resolve(1).timings, desk.resolve(2, Outcome.DEADLINE_EXCEEDED).timings
    assert (done.parse, done.queue, done.hand_over, done.execute) == (100, 900, 10, 500)
    assert done.parse + done.queue + done.hand_over + done.execute + done.back == 10_000 - 1_000
    assert (never_ran.parse, never_ran.queue, never_ran.back) == (100, 8_900, 0)


def test_a_written_reply_completes_its_phases_once(desk):
    desk.hold(1, b"a")
    desk.resolve(1, Outcome.QUEUE_FULL)
    info = desk.runner.written(Written(1, 10_400))
    assert info is desk.watch.replied_to[0]
    assert info.reply == 400
    assert desk.runner.written(Written(1, 10_500)) is None


def test_a_client_that_went_away_after_its_reply_leaves_nothing(desk):
    desk.hold(1, b"a")
    desk.resolve(1, Outcome.QUEUE_FULL)
    desk.runner.gone(1)
    assert desk.runner._unwritten == {}


def test_a_sequence_is_admitted_and_aborted_in_one_lane(desk):
    desk.hold(1, body={"text": "hi"})
    desk.runner.carry_out(2_000, [AdmitSequence(WORKER, 1, 0, KEY), AbortSequence(WORKER, 1, 0)])
    assert desk.channel.control == [Admit(WORKER, 1, 0, {"text": "hi"}), Abort(WORKER, 1, 0)]


def test_values_go_to_the_client_only_when_the_core_says_that_they_are_current(desk):
    desk.hold(1, body={})
    assert desk.runner.emitted(Emitted(WORKER, 1, 0, 0, ["a", "b"], 7)) == TokensEmitted(WORKER, 1, 0, 0, 2, 7)
    desk.runner.emitted(Emitted(WORKER, 1, 9, 0, ["stale"], 7))
    desk.runner.carry_out(2_000, [DeliverTokens(1, 0, 0, 2)])
    assert desk.delivered == [StreamChunk(1, 0, "a"), StreamChunk(1, 1, "b")]
    assert desk.runner._emitted == {}, "the stale one is not kept"


def test_memory_pressure_begins_at_90_and_ends_at_70_percent(desk):
    for request in range(9):
        desk.hold(request, b"a")
    assert desk.posted == [MemoryPressureChanged(True)]
    desk.hold(9, b"a")
    for request in range(2):
        desk.resolve(request, Outcome.CANCELLED)
    assert desk.posted == [MemoryPressureChanged(True)]
    desk.resolve(2, Outcome.CANCELLED)
    assert desk.posted == [MemoryPressureChanged(True), MemoryPressureChanged(False)]


def test_padding_is_counted_per_batch(desk):
    desk.hold(1, b"a", b"bbbb")
    desk.dispatch(5, (1, 0), (1, 1))
    desk.executed(5, b"A", b"B")
    [batch] = desk.watch.batches
    assert (batch.rows, batch.padded_tokens, batch.real_tokens, batch.round_trip) == (2, 8, 5, 7_000)


def test_a_worker_that_is_suspected_has_somebody_look_after_it_until_it_is_cleared(desk):
    desk.runner.carry_out(1, [SuspectWorker(WORKER, 5, "no answer for 9 s")])
    desk.runner.carry_out(2, [ClearWorker(WORKER)])
    assert desk.suspects == [(WORKER, True), (WORKER, False)]


def test_a_worker_has_work_until_it_has_answered(desk):
    desk.hold(1, b"a")
    desk.dispatch(5, (1, 0))
    assert desk.runner.has_work(WORKER)
    assert not desk.runner.has_work(WORKER + 1)
    desk.executed(5, b"A")
    assert not desk.runner.has_work(WORKER)


def test_a_worker_that_hangs_is_given_up_with_the_reason(desk):
    desk.runner.carry_out(1, [KillWorker(WORKER, 5, "no answer for 9 s")])
    assert desk.given_up == [(WORKER, "no answer for 9 s")]


def test_a_batch_that_is_taken_back_is_withdrawn_part_by_part_and_its_answer_is_nobodys(desk):
    """Not even where it is an answer: the same parts run again elsewhere."""
    desk.hold(1, b"a", b"b")
    desk.dispatch(5, (1, 0), (1, 1))
    desk.runner.carry_out(1, [WithdrawBatch(WORKER, 5, "it hangs")])
    assert desk.channel.control == [Withdraw(WORKER, 5, 0), Withdraw(WORKER, 5, 1)]
    desk.dispatch(6, (1, 0), (1, 1))
    desk.executed(6, b"A", b"B")
    desk.executed(5, b"X", b"Y")
    desk.resolve(1, Outcome.COMPLETED)
    [reply] = desk.delivered
    assert [bytes(outputs[0].data) for outputs in reply.outputs] == [b"A", b"B"]
    assert len(desk.watch.batches) == 1


def test_a_batch_that_was_never_sent_need_not_be_taken_back(desk):
    desk.runner.carry_out(1, [WithdrawBatch(WORKER, 5, "it hangs"), WithdrawBatch(WORKER + 1, 6, "it hangs")])
    assert desk.channel.control == []


def test_a_request_that_kills_is_kept_out_before_it_is_let_go_and_the_reason_with_it(desk):
    desk.hold(1, b"a")
    desk.runner.carry_out(5, [QuarantineRequest(KEY.version_id, 1), ResolveRequest(1, Outcome.POISON_REQUEST, "boom")])
    [entry] = desk.quarantine.listed(5)
    assert desk.posted == [ContentQuarantined(KEY.version_id, entry.content)]
    assert (entry.request, entry.cause) == (1, "boom")


@pytest.mark.parametrize(
    ("effect", "level", "line"),
    [
        (
            RetryParts(KEY.version_id, (PartRef(1, 0), PartRef(1, 1)), Remedy.ALONE, "signal SIGSEGV"),
            "INFO",
            "model m/1: parts 1.0, 1.1 run each alone, one at a time: signal SIGSEGV",
        ),
        (
            RetryParts(KEY.version_id, tuple(PartRef(1, part) for part in range(9)), Remedy.HALVES, "boom"),
            "INFO",
            "model m/1: parts 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.7 and 1 more run in halves: boom",
        ),
        (
            ReportCircuit(KEY.version_id, True, seconds(10), "the 8th worker"),
            "WARNING",
            "model m/1 is refused for 10 s, then tried again: the 8th worker",
        ),
        (ReportCircuit(KEY.version_id, False), "WARNING", "model m/1 is served again: a batch came back"),
        (ClearWorker(3), "WARNING", "worker 3 is well again: it has answered, and is given work as before"),
        (SuspectWorker(3, 5, "no answer"), "WARNING", "worker 3 is given no new work (batch 5): no answer"),
    ],
)
def test_what_the_core_tells_is_one_line_of_the_log(desk, caplog, effect, level, line):
    caplog.set_level("INFO", "headway.runtime")
    desk.runner.carry_out(1, [effect])
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [(level, line)]


def test_there_is_no_effect_that_cannot_be_carried_out(desk):
    assert {*desk.runner._by_type, DispatchBatch} == {*get_args(effects.Effect)}
