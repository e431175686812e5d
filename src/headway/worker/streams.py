"""The loop of a worker that streams: it holds several sequences and steps each in turn."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from time import perf_counter_ns
from typing import Any, NamedTuple

from headway.wire.frames import ProtocolViolation
from headway.wire.messages import Abort, Admit, Emitted, Execute, ExecuteFailed, Failed, Finished, Stop, ToWorker
from headway.worker.channel import Channel
from headway.worker.device_errors import check_device
from headway.worker.errors import part_error
from headway.worker.executor import StreamExecutor
from headway.worker.progress import ProgressReport

log = logging.getLogger("headway.worker")


UNSENDABLE = (TypeError, ValueError, OverflowError, RecursionError)
"""What encoding a value raises that is not JSON, or not for this channel."""


class SequenceKey(NamedTuple):
    request: int
    attempt: int


class Sequence:
    """One request's results as they are made. count: how many were sent."""

    __slots__ = ("count", "results")

    def __init__(self, results: Iterator[Any]) -> None:
        self.results = results
        self.count = 0


class StreamLoop:
    def __init__(self, channel: Channel, worker: int, name: str, executor: StreamExecutor, room: int) -> None:
        """name: model/version.  room: sequences held at once."""
        self._channel = channel
        self._worker = worker
        self._name = name
        self._executor = executor
        self._room = room
        self._sequences: dict[SequenceKey, Sequence] = {}
        self._stopping = False
        self._progress = ProgressReport(channel, worker)

    def run(self) -> None:
        """Returns when told to stop and all sequences have ended. Raises ChannelClosed, ProtocolViolation,
        DeviceBroken."""
        while self._sequences or not self._stopping:
            if not self._sequences:
                self._take(*self._channel.receive())
            else:
                self._listen()
                self._turn()

    def _turn(self) -> None:
        """One step of the sequence whose turn it is: the one whose last step is longest ago."""
        key = next(iter(self._sequences), None)
        if key is None:
            return  # all aborted a moment ago
        sequence = self._sequences[key] = self._sequences.pop(key)
        self._progress.step()
        self._step(key, sequence)

    def _listen(self) -> None:
        while (received := self._channel.poll()) is not None:
            self._take(*received)

    def _take(self, message: ToWorker, data: memoryview) -> None:
        if isinstance(message, Admit):
            self._admit(message)
        elif isinstance(message, Abort):
            self._abort(SequenceKey(message.request, message.attempt))
        elif isinstance(message, Stop):
            self._stopping = True
        elif isinstance(message, Execute):
            detail = f"model {self._name} streams, it does not answer batches"
            self._channel.send(ExecuteFailed(self._worker, message.batch, 0, "model_error", detail))
        else:
            raise ProtocolViolation(f"a {type(message).__name__} to a worker that is ready")

    def _admit(self, message: Admit) -> None:
        key = SequenceKey(message.request, message.attempt)
        if key in self._sequences:
            raise ProtocolViolation(f"request {key.request}, attempt {key.attempt}, admitted twice")
        if self._stopping or len(self._sequences) >= self._room:
            why = "is stopping" if self._stopping else f"holds {self._room} sequences already, its capacity"
            detail = f"protocol violation: worker {self._worker} of model {self._name} {why}"
            log.error("request %d refused: %s", message.request, detail)
            self._channel.send(Failed(self._worker, *key, "model_error", detail))
            return
        try:
            self._sequences[key] = Sequence(self._executor.start(message.body))
        except Exception as error:
            self._failed(key, error)

    def _step(self, key: SequenceKey, sequence: Sequence) -> None:
        begun = perf_counter_ns()
        try:
            value = next(sequence.results)
        except StopIteration:
            del self._sequences[key]
            self._channel.send(Finished(self._worker, *key))
            return
        except Exception as error:
            self._failed(key, error)
            return
        emitted = Emitted(self._worker, *key, sequence.count, [value], perf_counter_ns() - begun)
        sequence.count += 1
        try:
            self._channel.send(emitted)
        except UNSENDABLE as error:  # nothing of it was sent
            self._close(key, error)

    def _abort(self, key: SequenceKey) -> None:
        if key in self._sequences:  # else it ended by itself while the abort was on its way
            self._close(key, None)

    def _close(self, key: SequenceKey, error: Exception | None) -> None:
        """Ends a sequence before its time; `finally` blocks of the model run, and may themselves raise."""
        try:
            close = getattr(self._sequences[key].results, "close", None)
            if close is not None:
                close()
        except Exception as raised:
            error = error or raised
        if error is not None:
            self._failed(key, error)
            return
        del self._sequences[key]
        self._channel.send(Finished(self._worker, *key))

    def _failed(self, key: SequenceKey, error: Exception) -> None:
        """Raises DeviceBroken where none will work any more."""
        self._sequences.pop(key, None)
        log.error("request %d failed", key.request, exc_info=error)
        check_device(error)
        failure = part_error(self._name, error)
        self._channel.send(Failed(self._worker, *key, failure.code, failure.detail))
