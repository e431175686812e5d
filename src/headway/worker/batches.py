"""The loop of a worker that runs batches: one at a time, in the order they come."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from time import perf_counter_ns

from headway.wire.frames import ProtocolViolation
from headway.wire.messages import Abort, Admit, Execute, Executed, ExecuteFailed, Failed, Stop, ToWorker, Withdraw
from headway.worker.channel import Channel, Received
from headway.worker.device_errors import check_device
from headway.worker.errors import ChannelClosed, InputError, ResultError, raised
from headway.worker.executor import BatchExecutor, Durations, PartArrays, PartError, PartOutput
from headway.worker.memory import is_out_of_memory
from headway.worker.payload import pack, unpack
from headway.worker.progress import ProgressReport

log = logging.getLogger("headway.worker")


class BatchLoop:
    def __init__(
        self,
        channel: Channel,
        worker: int,
        name: str,
        executor: BatchExecutor,
        bf16: frozenset[str] = frozenset(),
    ) -> None:
        """name: model/version.  bf16: names of the outputs that are BF16, which the executor gives as uint16."""
        self._channel = channel
        self._worker = worker
        self._name = name
        self._executor = executor
        self._bf16 = bf16
        self._durations = Durations()
        self._progress = ProgressReport(channel, worker)
        self._received: deque[Received] = deque()
        self._withdrawn: dict[tuple[int, int], None] = {}
        self._last = 0

    def run(self) -> None:
        """Returns when told to stop. Raises ChannelClosed, ProtocolViolation, DeviceBroken."""
        while True:
            message, data = self._next()
            if isinstance(message, Execute):
                self._progress.step()
                self._execute(message, data)
            elif isinstance(message, Stop):
                return
            else:
                self._other(message)

    def _next(self) -> Received:
        """The next message that is no withdrawal, once all that have come were looked at: one that is
        meant for a batch which waits behind the last one comes after that batch."""
        while True:
            received = self._channel.receive() if not self._received else self._channel.poll()
            while received is not None:
                self._sort(received)
                received = self._channel.poll()
            if self._received:
                return self._received.popleft()

    def _sort(self, received: Received) -> None:
        message = received[0]
        if not isinstance(message, Withdraw):
            self._received.append(received)
        elif message.batch > self._last:
            self._withdrawn[message.batch, message.position] = None

    def _leave_out(self, batch: int, parts: list[PartArrays | PartError]) -> None:
        """Those that were withdrawn; numbers of batches only grow."""
        self._last = batch
        for number, position in list(self._withdrawn):
            if number == batch:
                parts[position] = PartError("withdrawn before its batch began")
            if number <= batch:
                del self._withdrawn[number, position]

    def _execute(self, message: Execute, data: memoryview) -> None:
        begun = perf_counter_ns()
        durations = self._durations
        try:
            durations.hand_over = durations.execute = durations.finish = 0
            parts = unpack(message.parts, data)
            self._leave_out(message.batch, parts)
            unpacked = perf_counter_ns()
            outputs = self._outputs(parts)
            ran = perf_counter_ns()
            results, buffers = pack(outputs, self._bf16)
            durations.hand_over += unpacked - begun
            durations.finish += perf_counter_ns() - ran
            executed = Executed(
                self._worker, message.batch, durations.hand_over, durations.execute, durations.finish, results
            )
            self._channel.send(executed, buffers)
        except (ProtocolViolation, ChannelClosed):
            raise
        except Exception as error:
            self._fail(message, perf_counter_ns() - begun, error)

    def _outputs(self, parts: Sequence[PartArrays | PartError]) -> list[PartOutput]:
        """One output per part: parts that could not be unpacked keep their error, the others run without them."""
        sound = [part for part in parts if not isinstance(part, PartError)]
        outputs = self._executor.execute(sound, self._durations) if sound else []
        if len(outputs) != len(sound):
            raise ResultError(f"model {self._name} returned {len(outputs)} results for {len(sound)} requests")
        if len(sound) == len(parts):
            return outputs
        rest = iter(outputs)
        return [part if isinstance(part, PartError) else next(rest) for part in parts]

    def _fail(self, message: Execute, elapsed: int, error: Exception) -> None:
        """Raises DeviceBroken where no batch will work any more."""
        log.exception("batch %d of %d parts failed", message.batch, len(message.parts))
        check_device(error)
        detail = str(error) if isinstance(error, ResultError) else raised(self._name, error)
        # of a batch of several nobody knows whose input it was; a model should return an InputError, not raise it
        code = ResultError.code
        if isinstance(error, (InputError, PartError)) and len(message.parts) == 1:
            code, detail = error.code, str(error)
        memory = is_out_of_memory(error)
        self._channel.send(ExecuteFailed(self._worker, message.batch, elapsed, code, detail, memory))

    def _other(self, message: ToWorker) -> None:
        if isinstance(message, Admit):
            detail = f"model {self._name} answers batches, it does not stream"
            self._channel.send(Failed(self._worker, message.request, message.attempt, "model_error", detail))
        elif not isinstance(message, Abort):  # an abort that came after its sequence had failed
            raise ProtocolViolation(f"a {type(message).__name__} to a worker that is ready")
