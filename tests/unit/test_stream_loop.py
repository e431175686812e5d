from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from headway.wire.frames import ProtocolViolation
from headway.wire.messages import Abort, Admit, Emitted, Execute, ExecuteFailed, Failed, Finished, Load, Progress, Stop
from headway.worker.errors import ChannelClosed, InputError
from headway.worker.executor import PartError
from headway.worker.streams import StreamLoop

WORKER = 3


class FakeChannel:
    """A script: one entry per look at the channel, each the messages that have come by then. Its end closes it."""

    def __init__(self, *looks: list[Any]) -> None:
        self.looks = deque(looks)
        self.waiting: deque[Any] = deque()
        self.sent: list[Any] = []

    def send(self, message: Any) -> None:
        if isinstance(message, Emitted) and type(message.values[0]) is object:
            raise TypeError("Encoding objects of type object is unsupported")
        if not isinstance(message, Progress):
            self.sent.append(message)

    def receive(self) -> tuple[Any, memoryview]:
        while not self.waiting:
            self._look()
        return self.waiting.popleft(), memoryview(b"")

    def poll(self) -> tuple[Any, memoryview] | None:
        if not self.waiting:
            self._look()
        return (self.waiting.popleft(), memoryview(b"")) if self.waiting else None

    def _look(self) -> None:
        if not self.looks:
            raise ChannelClosed("end of the script")
        self.waiting.extend(self.looks.popleft())


class Counting:
    """Counts up to body["to"]; closed sequences are noted."""

    def __init__(self) -> None:
        self.closed: list[int] = []

    def load(self, context: Any) -> Any: ...
    def unload(self) -> None: ...

    def start(self, body: dict[str, Any]) -> Iterator[Any]:
        if "refuse" in body:
            raise body["refuse"]
        return self._count(body)

    def _count(self, body: dict[str, Any]) -> Iterator[Any]:
        try:
            for number in range(body["to"]):
                if number == body.get("raise_at"):
                    raise body["error"]
                yield object() if number == body.get("odd_at") else number
        except GeneratorExit:
            self.closed.append(body["to"])
            if "on_close" in body:
                raise body["on_close"] from None


def admit(request: int, to: int = 100, **body: Any) -> Admit:
    return Admit(WORKER, request, 1, {"to": to, **body})


def abort(request: int) -> Abort:
    return Abort(WORKER, request, 1)


def run(*looks: list[Any], room: int = 4) -> tuple[list[Any], Counting]:
    """What was sent, until Stop was heeded or the script had ended. Durations are not looked at."""
    channel, executor = FakeChannel(*looks), Counting()
    loop = StreamLoop(channel, WORKER, "toy/1", executor, room)  # type: ignore[arg-type]
    try:
        loop.run()
        channel.sent.append("stopped")
    except ChannelClosed:
        channel.sent.append("closed")
    return [_plain(message) for message in channel.sent], executor


def _plain(message: Any) -> Any:
    if isinstance(message, Emitted):
        return message.request, message.first, *message.values
    if isinstance(message, Finished):
        return message.request, "finished"
    if isinstance(message, Failed):
        return message.request, message.code, message.detail
    return message


def test_a_sequence_is_emitted_value_by_value_numbered_from_zero_and_finishes():
    sent, _ = run([admit(1, to=2)], [], [], [])
    assert sent == [(1, 0, 0), (1, 1, 1), (1, "finished"), "closed"]


def test_sequences_take_turns_one_step_each():
    sent, _ = run([admit(1, to=2), admit(2, to=3)], *[[]] * 7)
    assert sent[:4] == [(1, 0, 0), (2, 0, 0), (1, 1, 1), (2, 1, 1)]
    assert sent[4:] == [(1, "finished"), (2, 2, 2), (2, "finished"), "closed"]


def test_an_abort_takes_effect_before_the_next_step_and_is_answered_by_finished():
    sent, executor = run([admit(1), admit(2, to=1)], [], [], [abort(1)], [])
    assert sent == [(1, 0, 0), (2, 0, 0), (1, "finished"), (2, "finished"), "closed"]
    assert executor.closed == [100]


def test_an_abort_of_one_sequence_is_heard_between_the_steps_of_others():
    sent, _ = run([admit(1, to=1), admit(2)], [], [abort(2)], [])
    assert sent == [(1, 0, 0), (2, "finished"), (1, "finished"), "closed"]


def test_an_abort_of_what_has_ended_or_of_another_attempt_is_ignored():
    sent, _ = run([admit(1, to=1), Abort(WORKER, 1, 2)], [], [abort(9)], [abort(1)])
    assert sent == [(1, 0, 0), (1, "finished"), "closed"]


def test_what_a_model_raises_ends_its_sequence_alone():
    sent, _ = run([admit(1, raise_at=1, error=KeyError("k")), admit(2, to=2)], *[[]] * 5)
    assert (1, "model_error", "model toy version 1: KeyError: 'k'") in sent
    assert (2, "finished") in sent


@pytest.mark.parametrize("error", [InputError("no text"), PartError("no text", "invalid_input")])
def test_a_request_at_fault_is_told_so(error: Exception):
    assert run([admit(1, raise_at=0, error=error)], [])[0] == [(1, "invalid_input", "no text"), "closed"]
    assert run([admit(1, refuse=error)])[0] == [(1, "invalid_input", "no text"), "closed"]


def test_a_value_that_cannot_be_sent_ends_its_sequence_and_runs_its_finally():
    sent, executor = run([admit(1, odd_at=1)], [], [])
    assert sent[:1] == [(1, 0, 0)]
    assert sent[1][:2] == (1, "model_error")
    assert "TypeError: Encoding objects of type object" in sent[1][2]
    assert executor.closed == [100]


def test_a_model_that_raises_while_it_is_closed_has_failed():
    sent, _ = run([admit(1, on_close=OSError("disk"))], [], [abort(1)])
    assert sent == [(1, 0, 0), (1, "model_error", "model toy version 1: OSError: disk"), "closed"]


def test_more_than_the_capacity_is_a_protocol_violation_answered_by_failed():
    sent, _ = run([admit(1, to=1), admit(2, to=1), admit(3)], [], [], [], [], room=2)
    complaint = "protocol violation: worker 3 of model toy/1 holds 2 sequences already, its capacity"
    assert (3, "model_error", complaint) in sent
    assert sent.count((1, "finished")) == sent.count((2, "finished")) == 1


def test_room_is_free_again_when_a_sequence_has_finished():
    sent, _ = run([admit(1, to=0)], [], [admit(2, to=0)], [], room=1)
    assert sent == [(1, "finished"), (2, "finished"), "closed"]


def test_stop_lets_what_runs_finish_and_takes_nothing_new():
    sent, _ = run([admit(1, to=2)], [Stop(WORKER), admit(2)], [], [], [])
    complaint = "protocol violation: worker 3 of model toy/1 is stopping"
    assert sent == [(2, "model_error", complaint), (1, 0, 0), (1, 1, 1), (1, "finished"), "stopped"]


def test_stop_ends_an_idle_worker_at_once():
    assert run([Stop(WORKER)])[0] == ["stopped"]


def test_a_batch_is_refused_and_the_sequences_go_on():
    sent, _ = run([Execute(WORKER, 5, []), admit(1, to=0)], [])
    assert sent[0] == ExecuteFailed(WORKER, 5, 0, "model_error", "model toy/1 streams, it does not answer batches")
    assert sent[1:] == [(1, "finished"), "closed"]


@pytest.mark.parametrize("messages", [[Load(WORKER, "", 1, "", "", "", 1, {})], [admit(1), admit(1)]])
def test_what_can_never_be_sent_to_a_ready_worker_is_a_violation(messages: list[Any]):
    with pytest.raises(ProtocolViolation):
        run(messages, [])
