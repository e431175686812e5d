"""The runtime with real worker processes, without a gateway: messages in, messages out.

Where a test has to meet a model in the middle of its work, the model opens a named pipe: opening its
other end returns when both are there.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import uvloop

from headway.config.settings import Batching, ModelSettings, Recorder, Settings, WarmUp, Workers
from headway.core.effects import Effect, KillWorker, SuspectWorker
from headway.core.events import Event, WorkerLost
from headway.core.ids import BatchKey, Part, VersionId
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.core.units import SECOND, Duration, ms, seconds
from headway.registry.spec import VersionSpec
from headway.runtime import crew
from headway.runtime.clock import Clock, monotonic
from headway.runtime.observer import BatchInfo, NullObserver, ReplyInfo
from headway.runtime.replay import replay
from headway.runtime.runtime import Runtime
from headway.wire.frames import frames
from headway.wire.messages import (
    PROTOCOL_VERSION,
    Cancel,
    Hello,
    PartPayload,
    Reply,
    StreamChunk,
    Submit,
    ToGateway,
    VersionStatus,
    Written,
)
from headway.wire.tensors import from_numpy, to_numpy
from tests import models

pytestmark = pytest.mark.e2e

WAIT_S = 60
HELD_S = 0.05

GATED = """
import os
import numpy as np
from headway.worker.errors import InputError

class Model:
    inputs = {"x": ("FP32", [-1, 1])}
    outputs = {"y": ("FP32", [-1, 1])}

    def load(self, context):
        self.gate = os.path.join(context.path, "gate")

    def execute(self, requests):
        results = []
        for request in requests:
            value = float(request["x"][0, 0])
            if value == -1:
                with open(self.gate) as gate:
                    gate.read()
            if value == -2:
                results.append(InputError("minus two is not welcome"))
            elif value == -3:
                raise ValueError("minus three breaks everything")
            elif value == -4:
                os._exit(9)
            else:
                results.append({"y": request["x"] * 2})
        return results
"""

ENDING = """
import os, signal, sys

class Model:
    inputs = {"x": ("FP32", [-1, 1])}
    outputs = {"y": ("FP32", [-1, 1])}

    def execute(self, requests):
        for request in requests:
            how = request.parameters.get("how", "")
            if how.startswith("SIG"):
                os.kill(os.getpid(), getattr(signal, how))
            elif how.startswith("CUDA"):
                raise RuntimeError(how)
            elif how == "MemoryError":
                sys.modules["headway.worker.batches"].pack = None  # it comes beside the batch
                sys.modules["headway.worker.batches"].raised = short_of_memory
                raise ValueError
            elif how == "garbage":
                os.write(CHANNEL(), b"\\xff" * 64)
            elif how:
                sys.exit(7)
        return [{"y": request["x"] * 2} for request in requests]


def short_of_memory(*args):
    raise MemoryError


def CHANNEL():
    "The one socket that is open."
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{fd}").startswith("socket:"):
                return int(fd)
        except OSError:
            continue
"""

ENDS = [
    ("SIGKILL", Loss.KILLED),
    ("SIGHUP", Loss.KILLED),
    ("SIGQUIT", Loss.KILLED),
    ("SIGSEGV", Loss.CRASHED),
    ("SIGABRT", Loss.CRASHED),
    ("SIGUSR2", Loss.CRASHED),
    ("sys.exit", Loss.CRASHED),
    ("CUDA error: device-side assert triggered", Loss.CRASHED),
    ("CUDA error: uncorrectable ECC error encountered", Loss.DEVICE_LOST),
    ("MemoryError", Loss.OUT_OF_MEMORY),
    ("garbage", Loss.PROTOCOL),
]

COUNTING = """
import os

class Model:
    inputs = {}
    outputs = {}

    def load(self, context):
        self.closed = os.path.join(context.path, "closed")

    def stream(self, request):
        try:
            for number in range(request["count"]):
                yield {"number": number}
        finally:
            if request.get("tell"):
                with open(self.closed, "w") as closed:
                    closed.write("closed")
"""


class Watch(NullObserver):
    def __init__(self, changed: asyncio.Event) -> None:
        self.changed = changed
        self.batches: list[BatchInfo] = []
        self.replies: list[ReplyInfo] = []
        self.states: list[str] = []
        self.losses: list[Loss] = []
        self.events: list[Event] = []
        self.effects: list[Effect] = []

    def batch_done(self, batch: BatchInfo) -> None:
        self.batches.append(batch)

    def written(self, reply: ReplyInfo) -> None:
        self.replies.append(reply)

    def handled(self, now: int, events: Sequence[Event], effects: Sequence[Effect]) -> None:
        self.losses += [event.loss for event in events if isinstance(event, WorkerLost)]
        self.events += events
        self.effects += effects
        self.changed.set()

    def worker_state(self, worker: int, version: VersionId, state: str, cause: str) -> None:
        self.states.append(state)


class Gateway:
    """Stands where the gateway will: sends, and keeps what is delivered."""

    def __init__(self, settings: Settings, specs: list[VersionSpec], clock: Clock = monotonic) -> None:
        self.news = asyncio.Condition()
        self.replies: dict[int, Reply] = {}
        self.chunks: dict[int, list[Any]] = {}
        self.statuses: dict[VersionId, list[VersionStatus]] = {}
        self.changed = asyncio.Event()
        self.watch = Watch(self.changed)
        self.last = 0
        self.received: dict[int, int] = {}
        self.written: dict[int, int] = {}
        self.errors: list[BaseException] = []
        self.runtime = Runtime(settings, specs, self._deliver, self.watch, clock=clock, fatal=self.errors.append)

    def _deliver(self, message: ToGateway) -> None:
        if isinstance(message, Reply):
            assert message.request not in self.replies, "a second outcome"
            self.replies[message.request] = message
            self.written[message.request] = time.monotonic_ns()
            self.runtime.send(Written(message.request, self.written[message.request]))
        elif isinstance(message, StreamChunk):
            chunks = self.chunks.setdefault(message.request, [])
            assert message.index == len(chunks), "a gap in the stream"
            chunks.append(message.value)
        else:
            self.statuses.setdefault(VersionId(message.model, message.version), []).append(message)
        self.changed.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not condition():
                self.changed.clear()
                await self.changed.wait()
                assert not self.errors, self.errors

    def state(self, model: str) -> str:
        return self.status(model).state

    def status(self, model: str) -> VersionStatus:
        return self.statuses[VersionId(model, 1)][-1]

    async def until_state(self, model: str, state: str) -> None:
        await self.until(lambda: VersionId(model, 1) in self.statuses and self.state(model) == state)

    def submit(self, model: str, *parts: list[list[float]], timeout_s: float = 60, **parameters: Any) -> int:
        """Each part is its rows."""
        self.last += 1
        arrays = [np.array(rows, dtype=np.float32) for rows in parts]
        payload = [PartPayload([from_numpy("x", array)]) for array in arrays]
        now = self.received[self.last] = time.monotonic_ns()
        self.runtime.send(
            Submit(
                request=self.last,
                tenant="default",
                key=BatchKey(model, 1, f"x:{arrays[0].shape[1]}"),
                parts=[Part(len(array), 1) for array in arrays],
                payload=payload,
                bytes=sum(array.nbytes for array in arrays),
                deadline=now + int(timeout_s * SECOND),
                priority=1,
                parameters=parameters,
                received=now,
            )
        )
        return self.last

    def stream(self, model: str, **body: Any) -> int:
        self.last += 1
        now = time.monotonic_ns()
        key = BatchKey(model, 1, "stream")
        self.runtime.send(Submit(self.last, "default", key, [Part(1, 1)], [], 10, now + 60 * SECOND, 1, {}, now, body))
        return self.last

    async def reply(self, request: int) -> Reply:
        await self.until(lambda: request in self.replies)
        return self.replies[request]

    async def answer(self, request: int) -> list[Any]:
        """The values of its output y, part by part."""
        reply = await self.reply(request)
        assert reply.outcome is Outcome.COMPLETED, reply
        return [to_numpy(outputs[0]).tolist() for outputs in reply.outputs]

    def losses(self) -> list[Loss]:
        return self.watch.losses

    def decided(self, kind: type[Effect]) -> list[Any]:
        """Effects of this kind, so far."""
        return [effect for effect in self.watch.effects if isinstance(effect, kind)]

    def pids(self, model: str) -> list[int]:
        slots = self.runtime._supervisor.slots[VersionId(model, 1)]
        return [pid for slot in slots if (pid := slot.worker.pid) is not None]

    def assert_nothing_kept(self) -> None:
        assert self.runtime.in_flight == 0
        effects = self.runtime._effects
        assert not effects._running
        assert not effects._emitted
        assert not effects._unwritten
        assert self.runtime._memory.held == 0


class World:
    """Writes models, runs one runtime, checks that nothing is left of it."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.settings = Settings(
            workers=Workers(backoff_s=0.01, max_failures=3), recorder=Recorder(str(root / "recording"))
        )
        self.specs: list[VersionSpec] = []
        self.clock: Clock = monotonic

    def onnx(self, name: str, settings: ModelSettings | None = None) -> None:
        folder = models.affine(self.root / name / "1").parent
        self.specs.append(VersionSpec(name, 1, str(folder), "onnx", settings or small()))

    def python(self, name: str, code: str, settings: ModelSettings | None = None) -> Path:
        folder = self.root / name / "1"
        folder.mkdir(parents=True)
        (folder / "model.py").write_text(code)
        self.specs.append(VersionSpec(name, 1, str(folder), "python", settings or small(cores=0)))
        return folder

    def gated(self, settings: ModelSettings | None = None) -> Path:
        folder = self.python("gated", GATED, settings)
        os.mkfifo(folder / "gate")
        return folder / "gate"

    def run(self, case: Callable[[Gateway], Coroutine[Any, Any, None]]) -> None:
        async def main() -> None:
            gateway = Gateway(self.settings, self.specs, self.clock)
            await gateway.runtime.start()
            directory = Path(gateway.runtime._supervisor._directory)
            assert is_private(directory), "others could connect"
            try:
                await case(gateway)
                assert not gateway.errors, gateway.errors
                pids = [pid for version in gateway.runtime._versions for pid in gateway.pids(version.model)]
            finally:
                await gateway.runtime.close()
            assert not remaining([directory, *(Path(f"/proc/{pid}") for pid in pids)])
            assert all(thread.name != "headway-recorder" for thread in threading.enumerate())
            gateway.assert_nothing_kept()

        uvloop.run(main())


def small(**overrides: Any) -> ModelSettings:
    return ModelSettings(warm_up=WarmUp(rows=(1,), repeats=1), **overrides)


def is_private(directory: Path) -> bool:
    return directory.stat().st_mode & 0o077 == 0


def remaining(paths: list[Path]) -> list[Path]:
    return [path for path in paths if path.exists()]


async def meet(gate: Path) -> Any:
    """Returns when a model is waiting at the gate; it goes on when what is returned is closed."""
    return await asyncio.wait_for(asyncio.to_thread(open, gate, "w"), WAIT_S)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# -- answers -----------------------------------------------------------------------------------


def test_every_request_gets_its_own_answer_with_its_parts_in_order(world):
    world.onnx("affine")

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("affine", "ready")
        sent = {gateway.submit("affine", *[[[i, j, 0, 1]] for j in range(1 + i % 3)]): i for i in range(300)}
        for request, i in sent.items():
            expected = [[[2 * i + 1, 2 * j + 1, 1, 3]] for j in range(1 + i % 3)]
            assert await gateway.answer(request) == expected
        assert sum(batch.rows for batch in gateway.watch.batches) == 600
        assert len(gateway.watch.batches) < 300, "they were not batched"

    world.run(case)


def test_phases_add_up_to_the_time_a_request_took_and_each_has_its_own_share(world):
    """The model is held as long as the test says: that shows as `execute` of what runs, as `queue` of what waits."""
    gate = world.gated()

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        begun = time.monotonic_ns()
        running = gateway.submit("gated", [[-1]])
        waiting = await meet(gate)
        held_from = time.monotonic_ns()
        queued = gateway.submit("gated", [[4]])
        await asyncio.sleep(HELD_S)
        held_until = time.monotonic_ns()
        waiting.close()
        await gateway.answer(running)
        await gateway.answer(queued)
        ended = time.monotonic_ns()
        held = held_until - held_from
        infos = {info.request: info for info in gateway.watch.replies}
        for request, phase in ((running, "execute"), (queued, "queue")):
            info = infos[request]
            spent = info.timings
            phases = [spent.parse, spent.queue, spent.hand_over, spent.execute, spent.back, info.reply]
            assert min(phases) >= 0, phases
            assert sum(phases) == gateway.written[request] - gateway.received[request]
            assert getattr(spent, phase) >= held
            assert sum(phases) - getattr(spent, phase) <= ended - begun - held, "it shows nowhere else"

    world.run(case)


def test_inputs_of_many_megabytes_arrive_whole(world):
    world.python("wide", GATED.replace("[-1, 1]", "[-1, 1000000]"))

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("wide", "ready")
        rows = [[float(i)] * 1_000_000 for i in range(3)]
        answers = [await gateway.answer(request) for request in [gateway.submit("wide", [row]) for row in rows]]
        for i, [[[*values]]] in enumerate(answers):
            assert set(values) == {2.0 * i}
            assert len(values) == 1_000_000

    world.run(case)


def test_a_part_that_the_model_refuses_fails_alone_and_of_a_batch_that_raises_only_who_makes_it_raise(world):
    world.gated(small(batching=Batching(hold=True, max_batch_size=2, max_queue_delay_ms=10_000)))

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        refused, fine = gateway.submit("gated", [[-2]]), gateway.submit("gated", [[21]])
        reply = await gateway.reply(refused)
        assert (reply.outcome, reply.outputs) == (Outcome.INVALID_INPUT, [])
        assert "minus two is not welcome" in reply.detail
        assert await gateway.answer(fine) == [[[42]]]
        bad, innocent = gateway.submit("gated", [[-3]]), gateway.submit("gated", [[1]])
        reply = await gateway.reply(bad)
        assert reply.outcome is Outcome.POISON_REQUEST
        assert "minus three breaks everything" in reply.detail
        assert await gateway.answer(innocent) == [[[2]]]
        assert [batch.failed for batch in gateway.watch.batches] == [False, True, True, False]

    world.run(case)


def test_a_parameter_that_cannot_be_passed_on_fails_its_own_request_and_no_other(world):
    world.gated()

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        odd, fine = gateway.submit("gated", [[1]], seed=10**30), gateway.submit("gated", [[1]], seed=10)
        reply = await gateway.reply(odd)
        assert reply.outcome is Outcome.INVALID_INPUT
        assert "cannot be passed on" in reply.detail
        assert await gateway.answer(fine) == [[[2]]]

    world.run(case)


def test_a_late_answer_of_a_cancelled_request_is_dropped(world):
    gate = world.gated()

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        request = gateway.submit("gated", [[-1]])
        waiting = await meet(gate)
        gateway.runtime.send(Cancel(request))
        assert (await gateway.reply(request)).outcome is Outcome.CANCELLED
        waiting.close()
        assert await gateway.answer(gateway.submit("gated", [[5]])) == [[[10]]]
        assert len(gateway.watch.batches) == 2

    world.run(case)


def test_a_deadline_is_kept_while_the_worker_is_busy(world):
    gate = world.gated()

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        running = gateway.submit("gated", [[-1]])
        waiting = await meet(gate)
        late = gateway.submit("gated", [[1]], timeout_s=0.05)
        reply = await gateway.reply(late)
        assert reply.outcome is Outcome.DEADLINE_EXCEEDED
        assert running not in gateway.replies
        waiting.close()
        assert await gateway.answer(running) == [[[-2]]]

    world.run(case)


def test_a_request_id_in_use_is_an_error_of_whoever_sent_it(world):
    gate = world.gated()

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        request = gateway.submit("gated", [[-1]])
        waiting = await meet(gate)
        gateway.last -= 1
        with pytest.raises(ValueError, match="in use"):
            gateway.submit("gated", [[1]])
        waiting.close()
        assert await gateway.answer(request) == [[[-2]]]

    world.run(case)


# -- streams -----------------------------------------------------------------------------------


def test_a_stream_arrives_in_order_and_without_gaps(world):
    world.python("counting", COUNTING, small(max_sequences=4))

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("counting", "ready")
        assert gateway.status("counting").meta.streaming
        requests = [gateway.stream("counting", count=20 + i) for i in range(10)]
        for i, request in enumerate(requests):
            reply = await gateway.reply(request)
            assert (reply.outcome, reply.outputs) == (Outcome.COMPLETED, [])
            assert gateway.chunks[request] == [{"number": n} for n in range(20 + i)]

    world.run(case)


def test_a_cancelled_stream_is_closed_in_the_model_and_makes_room(world):
    folder = world.python("counting", COUNTING, small(max_sequences=1))
    os.mkfifo(folder / "closed")

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("counting", "ready")
        endless = gateway.stream("counting", count=10**12, tell=True)
        await gateway.until(lambda: len(gateway.chunks.get(endless, ())) >= 3)
        queued = gateway.stream("counting", count=2)
        gateway.runtime.send(Cancel(endless))
        assert (await gateway.reply(endless)).outcome is Outcome.CANCELLED
        closed = await asyncio.wait_for(asyncio.to_thread((folder / "closed").read_text), WAIT_S)
        assert closed == "closed"
        assert (await gateway.reply(queued)).outcome is Outcome.COMPLETED
        assert gateway.chunks[queued] == [{"number": 0}, {"number": 1}]

    world.run(case)


# -- deaths ------------------------------------------------------------------------------------


def test_after_a_kill_what_ran_and_what_waited_is_answered_and_service_comes_back_by_itself(world):
    gate = world.gated()

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        running = gateway.submit("gated", [[-1]])
        waiting = await meet(gate)
        queued = gateway.submit("gated", [[4]])
        os.kill(gateway.pids("gated")[0], signal.SIGKILL)
        await gateway.until_state("gated", "unavailable")
        assert gateway.status("gated").retry_after > 0
        assert gateway.status("gated").reason == "signal SIGKILL"
        waiting.close()
        (await meet(gate)).close()
        assert await gateway.answer(running) == [[[-2]]]
        assert await gateway.answer(queued) == [[[8]]]
        assert gateway.losses() == [Loss.KILLED]

    world.run(case)


def test_who_ends_what_runs_it_is_told_how_and_not_let_in_again_until_an_operator_lifts_that(world):
    world.gated()

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        reply = await gateway.reply(gateway.submit("gated", [[-4]]))
        assert reply.outcome is Outcome.POISON_REQUEST
        assert "exit code 9" in reply.detail
        assert gateway.losses() == [Loss.CRASHED] * 2
        [kept] = gateway.runtime.quarantined()
        assert (kept.model, kept.version, kept.request, kept.tenant) == ("gated", 1, 1, "default")
        assert "exit code 9" in kept.cause
        again = await gateway.reply(gateway.submit("gated", [[-4]]))
        assert again.outcome is Outcome.POISON_REQUEST
        assert len(gateway.losses()) == 2, "it was not run"
        assert await gateway.answer(gateway.submit("gated", [[1]])) == [[[2]]]
        assert gateway.runtime.lift(VersionId("gated", 1), kept.content) == 1
        assert gateway.runtime.quarantined() == []
        await gateway.reply(gateway.submit("gated", [[-4]]))
        assert len(gateway.losses()) == 4, "it was run"

    world.run(case)


def test_a_version_whose_workers_die_while_they_serve_is_never_given_up(world):
    world.settings = Settings(workers=Workers(backoff_s=0.01, max_failures=1))
    world.gated()

    async def case(gateway: Gateway) -> None:
        for number in range(3):  # each dies twice of one request, before the circuit breaker opens
            await gateway.reply(gateway.submit("gated", [[-4], [float(number)]]))
        assert len(gateway.losses()) == 6
        await gateway.until_state("gated", "ready")
        assert await gateway.answer(gateway.submit("gated", [[1]])) == [[[2]]]

    world.run(case)


def hangs_after(monkeypatch: pytest.MonkeyPatch, floor: Duration) -> None:
    """Of the versions of this test."""
    real = crew.batch_policy

    def hasty(*args: Any, **kwargs: Any) -> BatchPolicy:
        return replace(real(*args, **kwargs), hang_floor=floor)

    monkeypatch.setattr(crew, "batch_policy", hasty)


def test_a_worker_that_hangs_writes_down_what_it_does_and_is_killed_and_what_it_ran_is_run_again(
    world, monkeypatch, caplog
):
    hangs_after(monkeypatch, ms(700))
    gate = world.gated()

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        assert await gateway.answer(gateway.submit("gated", [[1]])) == [[[2]]]  # a size that was run before
        (stuck,) = gateway.pids("gated")
        ended = os.pidfd_open(stuck)
        running = gateway.submit("gated", [[-1]])
        await gateway.until(lambda: gateway.losses() == [Loss.HUNG])
        assert await asyncio.to_thread(select.select, [ended], [], [], WAIT_S) == ([ended], [], [])
        os.close(ended)
        (await meet(gate)).close()
        assert await gateway.answer(running) == [[[-2]]]
        assert len(gateway.decided(SuspectWorker)) == len(gateway.decided(KillWorker)) == 1

    world.run(case)
    told = [record.message for record in caplog.records]
    assert any("is given no new work (batch 2): no answer for" in line for line in told)
    assert any("what it was doing" in line and "in execute" in line for line in told)


def test_a_stopped_worker_that_was_given_up_never_wakes_up_again_and_what_it_ran_is_answered_once(world, monkeypatch):
    hangs_after(monkeypatch, ms(700))
    gate = world.gated()

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        assert await gateway.answer(gateway.submit("gated", [[1]])) == [[[2]]]
        running = gateway.submit("gated", [[-1]])
        waiting = await meet(gate)
        (stopped,) = gateway.pids("gated")
        ended = os.pidfd_open(stopped)
        os.kill(stopped, signal.SIGSTOP)
        waiting.close()  # awake, it would answer now
        await gateway.until(lambda: gateway.losses() == [Loss.KILLED])
        assert await asyncio.to_thread(select.select, [ended], [], [], WAIT_S) == ([ended], [], [])
        os.close(ended)
        (await meet(gate)).close()
        assert await gateway.answer(running) == [[[-2]]]
        assert await gateway.answer(gateway.submit("gated", [[3]])) == [[[6]]]

    world.run(case)


def stand_still(seconds: float) -> None:
    """All of this process that matters: the loop."""
    time.sleep(seconds)


def test_after_the_loop_itself_stood_still_nobody_is_blamed(world, monkeypatch):
    hangs_after(monkeypatch, ms(200))
    gate = world.gated()

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        assert await gateway.answer(gateway.submit("gated", [[1]])) == [[[2]]]
        running = gateway.submit("gated", [[-1]])
        waiting = await meet(gate)
        also = gateway.submit("gated", [[5]])  # asks for a turn of the scheduler, which comes late
        waiting.close()
        stand_still(0.5)  # the answer comes meanwhile
        assert await gateway.answer(running) == [[[-2]]]
        assert await gateway.answer(also) == [[[10]]]
        assert gateway.decided(SuspectWorker) == gateway.losses() == []

    world.run(case)


@pytest.mark.parametrize(("how", "loss"), ENDS, ids=[how for how, _ in ENDS])
def test_a_worker_is_lost_as_it_ended(world, how, loss):
    world.python("ending", ENDING, small(cores=0, per_row_parameters=("how",)))

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("ending", "ready")
        await gateway.reply(gateway.submit("ending", [[1]], how=how, timeout_s=2))
        assert set(gateway.losses()) == {loss}
        assert await gateway.answer(gateway.submit("ending", [[1]])) == [[[2]]]

    world.run(case)


def test_a_worker_leaves_sigterm_and_ctrl_c_to_the_server(world):
    gate = world.gated()

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        running = gateway.submit("gated", [[-1]])
        waiting = await meet(gate)
        os.kill(gateway.pids("gated")[0], signal.SIGTERM)
        os.kill(gateway.pids("gated")[0], signal.SIGINT)
        waiting.close()
        assert await gateway.answer(running) == [[[-2]]]

    world.run(case)


def test_a_version_that_cannot_be_loaded_is_tried_again_then_failed_with_the_reason_and_others_serve(world):
    world.python("broken", "raise RuntimeError('no such luck')")
    world.onnx("affine")

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("broken", "failed")
        assert "no such luck" in gateway.status("broken").reason
        assert Counter(gateway.watch.states)["lost"] == 3
        reply = await gateway.reply(gateway.submit("broken", [[1]]))
        assert reply.outcome is Outcome.NO_WORKER
        await gateway.until_state("affine", "ready")
        assert await gateway.answer(gateway.submit("affine", [[0, 0, 0, 0]])) == [[[1, 1, 1, 1]]]

    world.run(case)


NO_DATATYPE = 'class Model:\n    inputs = outputs = {"x": ("FP33", [-1])}\n    def execute(self, requests): return []\n'


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (NO_DATATYPE, "unknown datatype 'FP33'"),
        ("class Model:\n  def (", "SyntaxError"),
        ("import a_module_that_there_is_not", "ModuleNotFoundError"),
        ("open('/nowhere/weights')", "FileNotFoundError"),
    ],
)
def test_a_version_that_can_never_be_loaded_is_not_tried_again(world, code, reason):
    world.python("broken", code)

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("broken", "failed")
        assert reason in gateway.status("broken").reason
        assert Counter(gateway.watch.states)["lost"] == 1

    world.run(case)


@pytest.mark.parametrize("content", [b"", b"no protobuf", None], ids=["empty", "garbage", "missing"])
def test_an_onnx_file_that_is_none_is_not_tried_again(world, content):
    world.onnx("affine")
    file = Path(world.specs[0].path) / "model.onnx"
    file.unlink() if content is None else file.write_bytes(content)

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("affine", "failed")
        assert "model affine/1: ONNX Runtime cannot load model.onnx" in gateway.status("affine").reason
        assert gateway.status("affine").retry_after == 0, "never"
        assert Counter(gateway.watch.states)["lost"] == 1

    world.run(case)


def test_a_version_that_was_ready_before_is_tried_again_whatever_lies_there_now(world):
    folder = world.gated()

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        (folder.parent / "model.py").write_text("class Model: pass")
        await gateway.reply(gateway.submit("gated", [[-4]]))
        await gateway.until_state("gated", "failed")
        assert gateway.losses() == [Loss.CRASHED] + [Loss.REFUSED] * 3

    world.run(case)


def test_a_version_that_was_given_up_is_tried_again_after_a_while_and_serves_if_it_loads_by_then(world):
    world.settings = Settings(workers=Workers(max_failures=1, retry_given_up_s=0.01))
    folder = world.python("broken", "raise RuntimeError('no such luck')")

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("broken", "failed")
        await gateway.until(lambda: len(gateway.losses()) >= 2)
        assert gateway.state("broken") == "failed"
        (folder / "model.py").write_text(GATED)
        await gateway.until_state("broken", "ready")
        assert await gateway.answer(gateway.submit("broken", [[1]])) == [[[2]]]

    world.run(case)


def test_a_version_that_does_not_get_ready_in_time_is_given_up(world):
    world.settings = Settings(workers=Workers(start_timeout_s=0.2, max_failures=1))
    folder = world.python("stuck", "import os; open(os.path.join(os.path.dirname(__file__), 'never')).read()")
    os.mkfifo(folder / "never")

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("stuck", "failed")
        assert gateway.status("stuck").reason == "not ready within 0.2 s"
        assert gateway.status("stuck").retry_after > seconds(Workers().retry_given_up_s), "it is tried again then"

    world.run(case)


@pytest.mark.parametrize(
    ("hello", "reason"),
    [
        (Hello(PROTOCOL_VERSION + 1, 1, 1, "guess"), "protocol version"),
        (Hello(PROTOCOL_VERSION, 99, 1, "guess"), "worker 99 is not expected"),
        (Hello(PROTOCOL_VERSION, 1, 1, "guess"), "wrong token for worker 1"),
    ],
)
def test_a_stranger_at_the_workers_socket_is_refused_with_a_line_in_the_log(world, caplog, hello, reason):
    world.onnx("affine")

    async def case(gateway: Gateway) -> None:
        loop = asyncio.get_running_loop()
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.setblocking(False)
            await loop.sock_connect(stranger, gateway.runtime._supervisor.address.removeprefix("unix:"))
            await loop.sock_sendall(stranger, b"".join(next(frames(hello, (), 1))))
            assert await loop.sock_recv(stranger, 1) == b""
        assert reason in caplog.text
        await gateway.until_state("affine", "ready")

    world.run(case)


def test_a_long_path_for_temporary_files_is_no_reason_not_to_start(world, monkeypatch, tmp_path):
    folder = tmp_path / ("long" * 30)
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    world.onnx("affine")

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("affine", "ready")

    world.run(case)


# -- the end -----------------------------------------------------------------------------------


def test_draining_refuses_what_is_new_and_loses_nothing_that_is_in_flight(world):
    gate = world.gated()

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        running = gateway.submit("gated", [[-1]])
        waiting = await meet(gate)
        queued = [gateway.submit("gated", [[i]]) for i in range(50)]
        await asyncio.sleep(0)
        draining = asyncio.ensure_future(gateway.runtime.drain(WAIT_S))
        await gateway.until_state("gated", "draining")
        refused = await gateway.reply(gateway.submit("gated", [[1]]))
        assert refused.outcome is Outcome.DRAINING
        waiting.close()
        assert await draining
        assert await gateway.answer(running) == [[[-2]]]
        assert [await gateway.answer(request) for request in queued] == [[[[2 * i]]] for i in range(50)]

    world.run(case)


def test_what_is_left_when_the_grace_is_over_gets_an_outcome_too(world):
    gate = world.gated()

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        running = gateway.submit("gated", [[-1]])
        waiting = await meet(gate)
        queued = gateway.submit("gated", [[1]])
        assert not await gateway.runtime.drain(0.05)
        await gateway.runtime.close()
        waiting.close()
        outcomes = [gateway.replies[request].outcome for request in (running, queued)]
        assert outcomes[0] is Outcome.NO_WORKER, "its worker was stopped, and there is none to try again"
        assert outcomes[1] is not Outcome.COMPLETED
        assert (await gateway.reply(gateway.submit("gated", [[1]]))).outcome is Outcome.DRAINING

    world.run(case)


def test_closing_while_workers_start_leaves_nothing_behind(world):
    world.onnx("affine", small(instances=2))

    async def case(gateway: Gateway) -> None:
        await gateway.until(lambda: len(gateway.watch.states) == 2)

    world.run(case)


def test_the_recording_of_it_all_replays_to_the_same_effects(world, tmp_path):
    gate = world.gated()
    world.python("counting", COUNTING, small(max_sequences=2))

    async def case(gateway: Gateway) -> None:
        await gateway.until_state("gated", "ready")
        await gateway.until_state("counting", "ready")
        many = [gateway.submit("gated", [[i]]) for i in range(100)]
        streams = [gateway.stream("counting", count=10) for _ in range(5)]
        for request in [*many, *streams]:
            await gateway.reply(request)
        running = gateway.submit("gated", [[-1]])
        waiting = await meet(gate)
        os.kill(gateway.pids("gated")[0], signal.SIGKILL)
        await gateway.until(lambda: gateway.losses() == [Loss.KILLED])  # or it might be who is met
        waiting.close()
        (await meet(gate)).close()  # it is tried again
        assert (await gateway.reply(running)).outcome is Outcome.COMPLETED
        await gateway.reply(gateway.submit("gated", [[1]], timeout_s=0.000001))
        await gateway.runtime.drain(WAIT_S)

    world.run(case)
    [path] = (tmp_path / "recording").iterdir()
    report = replay(path, Scheduler.restore)
    assert report.difference is None
    assert report.events["RequestArrived"] == 107
    assert report.effects["ResolveRequest"] == 107
    assert report.events["WorkerLost"] == 1


SERVER = """
import asyncio, sys
from headway.config.settings import ModelSettings, Settings
from headway.core.ids import VersionId
from headway.registry.spec import VersionSpec
from headway.runtime.runtime import Runtime

async def main():
    spec = VersionSpec("gated", 1, sys.argv[1], "python", ModelSettings())

    def deliver(message):
        if message.state == "ready":
            slot = runtime._supervisor.slots[VersionId("gated", 1)][0]
            print(slot.worker.pid, flush=True)

    runtime = Runtime(Settings(), [spec], deliver)
    await runtime.start()
    await asyncio.get_running_loop().create_future()

asyncio.run(main())
"""


def test_workers_die_with_a_server_that_is_killed(world):
    gate = world.gated()
    command = [sys.executable, "-c", SERVER, str(gate.parent)]
    with (
        tempfile.TemporaryDirectory() as folder,  # a killed server cannot remove its socket
        subprocess.Popen(command, stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": folder}) as server,
    ):
        worker = int(server.stdout.readline())
        ended = os.pidfd_open(worker)
        server.kill()
        assert select.select([ended], [], [], WAIT_S)[0], "the worker lives on"
        os.close(ended)
