"""A real worker process, spoken to by hand."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from headway.config.settings import ModelSettings, WarmUp
from headway.core.ids import Capacity
from headway.wire.frames import CHUNK
from headway.wire.messages import (
    Abort,
    Admit,
    Emitted,
    Execute,
    Executed,
    ExecuteFailed,
    Failed,
    Finished,
    LoadFailed,
    PartInput,
    Progress,
    Stop,
    Withdraw,
)
from headway.wire.tensors import TensorHeader, from_numpy
from tests import models
from tests.conformance.executors import python_model
from tests.worker_process import WorkerProcess, command, environment, ready, worker_process

EXAMPLES = Path(__file__).parents[2] / "examples"

pytestmark = pytest.mark.e2e

PICKY = """
import sys
from headway.worker.errors import InputError
class Model:
    inputs = {"x": ("FP32", [-1])}
    outputs = {"y": ("FP32", [-1])}
    def execute(self, requests):
        print("a model may print what it likes", flush=True)
        for request in requests:
            if request["x"][0] == -1: raise ValueError("no -1 please")
            if request["x"][0] == -2: raise MemoryError
            if request["x"][0] == -3: raise InputError("no -3 please")
            if request["x"][0] == -4: return []
        return [{"y": request["x"]} for request in requests]
"""

GATED = """
class Model:
    def load(self, context):
        self.gate = open(context.settings.options["gate"], "rb", buffering=0)
    def stream(self, request):
        number = 0
        while self.gate.read(1) == b"s":  # a step ends when the test says so
            yield number
            number += 1
"""

STUCK = """
import threading
class Model:
    inputs = {"x": ("FP32", [-1])}
    outputs = {"y": ("FP32", [-1])}
    def execute(self, requests):
        threading.Event().wait()
"""

PARENT = """
import subprocess, sys
worker = subprocess.Popen(sys.argv[1:])
print(worker.pid, flush=True)
worker.wait()
"""


def numbers(*values: float) -> np.ndarray:
    return np.array(values, np.float32)


def exits(process: WorkerProcess) -> int:
    return process.process.wait(60)


@pytest.mark.parametrize("tcp", [False, True])
def test_it_says_hello_loads_is_ready_executes_and_stops(tmp_path: Path, tcp: bool):
    models.affine(tmp_path / "affine" / "1")
    with worker_process(tmp_path, tcp=tcp) as worker:
        answer = ready(worker, tmp_path / "affine" / "1", "onnx")
        assert answer.capacity == Capacity(batch_slots=1)
        assert {one.rows for one in answer.measurements} == {1, 2, 4, 8, 16, 32}
        x = np.arange(4, dtype=np.float32).reshape(1, 4)
        executed, outputs = worker.execute(11, [{"x": x}, {"x": np.concatenate([x + 1, x])}])
        assert (executed.worker, executed.batch) == (7, 11)
        assert min(executed.hand_over, executed.execute, executed.finish) > 0
        assert [output["y"].tolist() for output in outputs] == [[[1, 3, 5, 7]], [[3, 5, 7, 9], [1, 3, 5, 7]]]
        worker.send(Stop(7))
        assert exits(worker) == 0


def test_tensors_larger_than_a_chunk_go_both_ways(tmp_path: Path):
    models.affine(tmp_path / "affine" / "1")
    with worker_process(tmp_path) as worker:
        ready(worker, tmp_path / "affine" / "1", "onnx", ModelSettings(warm_up=WarmUp(enabled=False)))
        x = np.random.default_rng(0).normal(size=(CHUNK // 4, 4)).astype(np.float32)
        _, outputs = worker.execute(1, [{"x": x}, {"x": x + 1}])
        for output, sent in zip(outputs, (x, x + 1), strict=True):
            np.testing.assert_allclose(output["y"], sent * 2 + 1, rtol=1e-6)


def test_a_batch_may_have_more_tensors_than_the_kernel_takes_pieces(tmp_path: Path):
    models.affine(tmp_path / "affine" / "1", width=64)
    with worker_process(tmp_path) as worker:
        ready(worker, tmp_path / "affine" / "1", "onnx", ModelSettings(warm_up=WarmUp(enabled=False)))
        parts = [{"x": np.full((1, 64), number, np.float32)} for number in range(2000)]
        _, outputs = worker.execute(1, parts)
        assert [output["y"][0, 0] for output in outputs] == [number * 2 + 1 for number in range(2000)]


def test_a_batch_that_raises_is_answered_and_the_worker_lives_on(tmp_path: Path):
    path = python_model(tmp_path / "picky" / "3", PICKY)
    with worker_process(tmp_path) as worker:
        ready(worker, path, "python")
        failed, _ = worker.execute(1, [{"x": numbers(1)}, {"x": numbers(-1)}])
        assert isinstance(failed, ExecuteFailed)
        assert (failed.batch, failed.code) == (1, "model_error")
        assert failed.detail == "model picky version 3: ValueError: no -1 please"
        assert failed.elapsed > 0
        assert worker.execute(2, [{"x": numbers(-2)}])[0].detail == "model picky version 3: MemoryError: "
        alone, _ = worker.execute(3, [{"x": numbers(-3)}])
        assert (alone.code, alone.detail) == ("invalid_input", "no -3 please")
        assert worker.execute(4, [{"x": numbers(-3)}, {"x": numbers(1)}])[0].code == "model_error"
        wrong, _ = worker.execute(5, [{"x": numbers(-4)}, {"x": numbers(1)}])
        assert wrong.detail == "model picky/3 returned 0 results for 2 requests"
        assert worker.execute(6, [{"x": numbers(4)}])[1][0]["y"].tolist() == [4]


def test_a_part_that_is_not_what_its_header_says_fails_alone(tmp_path: Path):
    path = python_model(tmp_path / "picky" / "3", PICKY)
    with worker_process(tmp_path) as worker:
        ready(worker, path, "python")
        good = from_numpy("x", numbers(5))
        broken = PartInput(1, 0, 1, 1, [TensorHeader("x", "FP32", (2,), 4)], {})
        parts = [broken, PartInput(2, 0, 1, 1, [good.header], {}), broken]
        worker.send(Execute(7, 1, parts), [good.data] * 3)
        executed, outputs = worker.outcome()
        assert isinstance(executed, Executed)
        assert outputs[1]["y"].tolist() == [5]
        complaint = ("invalid_input", "tensor 'x': FP32 of shape [2] is 8 bytes, got 4")
        assert [part.error for part in executed.parts] == [complaint, None, complaint]


def test_progress_is_told_before_a_batch_runs(tmp_path: Path):
    path = python_model(tmp_path / "picky" / "3", PICKY)
    with worker_process(tmp_path) as worker:
        ready(worker, path, "python")
        worker.send(Execute(7, 1, []))
        assert worker.receive(progress=True)[0] == Progress(7, 1)
        assert isinstance(worker.receive(progress=True)[0], Executed)


def test_bytes_go_in_and_out(tmp_path: Path):
    with worker_process(tmp_path) as worker:
        ready(worker, EXAMPLES / "upper" / "1", "python")
        _, outputs = worker.execute(1, [{"text": np.array([["a"], ["ü"]], object)}])
        assert outputs[0]["upper"].tolist() == [[b"A"], ["Ü".encode()]]


def test_a_stream_is_emitted_word_by_word_and_finishes(tmp_path: Path):
    with worker_process(tmp_path) as worker:
        answer = ready(worker, EXAMPLES / "toy-stream" / "1", "python", ModelSettings(max_sequences=2))
        assert answer.meta.streaming
        assert answer.capacity == Capacity(batch_slots=0, sequences=2)
        worker.send(Admit(7, 21, 1, {"text_input": "to be"}))
        received = [worker.receive()[0] for _ in range(3)]
        assert [(one.request, one.attempt, one.first, one.values) for one in received[:2]] == [
            (21, 1, 0, [{"text_output": "to", "index": 0}]),
            (21, 1, 1, [{"text_output": " be", "index": 1}]),
        ]
        assert all(one.service > 0 for one in received[:2])
        assert received[2] == Finished(7, 21, 1)
        worker.send(Admit(7, 22, 1, {}))
        refused = worker.receive()[0]
        assert (refused.code, refused.detail) == ("invalid_input", "text_input must be a string, got NoneType")
        worker.send(Stop(7))
        assert exits(worker) == 0


DOUBLES = """
class Model:
    inputs = {"x": ("FP32", [-1])}
    outputs = {"y": ("FP32", [-1]), "together": ("FP32", [-1])}

    def execute(self, requests):
        return [{"y": 2 * request["x"], "together": 0 * request["x"] + len(requests)} for request in requests]
"""


def test_what_is_withdrawn_before_its_batch_begins_is_not_run_and_the_rest_is(tmp_path: Path):
    path = python_model(tmp_path / "doubles" / "1", DOUBLES)
    with worker_process(tmp_path) as worker:
        ready(worker, path, "python")
        worker.send(Withdraw(7, 2, 1))
        worker.execute(1, [{"x": numbers(1)}])
        message, results = worker.execute(2, [{"x": numbers(1)}, {"x": numbers(2)}, {"x": numbers(3)}])
        assert [part.error is None for part in message.parts] == [True, False, True]
        assert "withdrawn" in message.parts[1].error[1]
        assert [result["y"][0] for result in results if result] == [2, 6]
        assert results[0]["together"][0] == 2
        worker.send(Withdraw(7, 2, 0))  # too late: nothing comes of it
        worker.send(Withdraw(7, 3, 0))
        message, _ = worker.execute(3, [{"x": numbers(1)}])
        assert message.parts[0].error is not None and message.execute == 0
        message, results = worker.execute(4, [{"x": numbers(5)}])
        assert results[0]["y"][0] == 10


def test_an_abort_that_comes_within_a_step_takes_effect_when_that_step_ends(tmp_path: Path):
    path = python_model(tmp_path / "gated" / "1", GATED)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with worker_process(tmp_path) as worker, open(gate, "r+b", buffering=0) as steps:
        ready(worker, path, "python", ModelSettings(options={"gate": str(gate)}))
        worker.send(Admit(7, 1, 1, {}))
        steps.write(b"s")
        assert worker.receive()[0].values == [0]
        worker.send(Abort(7, 1, 1))  # the worker is in its second step, or about to begin it
        steps.write(b"s")
        last = worker.receive()[0]
        if isinstance(last, Emitted):
            assert last.values == [1]
            last = worker.receive()[0]
        assert last == Finished(7, 1, 1)


def test_more_sequences_than_its_capacity_are_refused(tmp_path: Path):
    path = python_model(tmp_path / "gated" / "1", GATED)
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    with worker_process(tmp_path) as worker, open(gate, "r+b", buffering=0) as steps:
        ready(worker, path, "python", ModelSettings(max_sequences=2, options={"gate": str(gate)}))
        for request in (1, 2, 3):
            worker.send(Admit(7, request, 1, {}))
        steps.write(b"s" * 4)
        received = [worker.receive()[0] for _ in range(5)]
        (refused,) = (one for one in received if isinstance(one, Failed))
        assert (refused.request, refused.code) == (3, "model_error")
        assert "holds 2 sequences already, its capacity" in refused.detail
        emitted = [one.request for one in received if isinstance(one, Emitted)]
        assert len(emitted) == 4 and dict.fromkeys(emitted).keys() == {1, 2}


def test_a_version_that_cannot_be_loaded_is_reported_and_the_worker_exits_3(tmp_path: Path):
    path = python_model(tmp_path / "broken" / "2", "import a_module_that_there_is_not")
    with worker_process(tmp_path) as worker:
        answer = worker.load(path, "python")
        assert isinstance(answer, LoadFailed)
        assert answer.detail == (
            "model broken version 2: ModuleNotFoundError: No module named 'a_module_that_there_is_not'"
        )
        assert exits(worker) == 3


def test_the_end_of_the_channel_ends_the_worker(tmp_path: Path):
    with worker_process(tmp_path) as worker:
        ready(worker, EXAMPLES / "upper" / "1", "python")
        worker.socket.close()
        assert exits(worker) == 4


@pytest.mark.parametrize("loaded", [False, True])
def test_what_is_not_the_protocol_ends_the_worker_with_5(tmp_path: Path, loaded: bool):
    with worker_process(tmp_path) as worker:
        if loaded:
            ready(worker, EXAMPLES / "upper" / "1", "python")
        worker.socket.sendall(b"GET / HTTP/1.1\r\n\r\n")
        assert exits(worker) == 5


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_to_the_whole_group_leaves_the_worker_to_its_server(tmp_path: Path, number: signal.Signals):
    with worker_process(tmp_path) as worker:
        ready(worker, EXAMPLES / "upper" / "1", "python")
        worker.process.send_signal(number)
        assert isinstance(worker.execute(1, [{"text": np.array([["a"]], object)}])[0], Executed)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the kernel has to tell it")
def test_a_worker_stuck_in_a_batch_dies_with_its_parent(tmp_path: Path):
    path = python_model(tmp_path / "stuck" / "1", STUCK)
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "s"))
        listener.listen()
        listener.settimeout(60)
        arguments = [sys.executable, "-c", PARENT, *command(f"unix:{tmp_path / 's'}", 7)]
        with subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE) as parent:
            sock, _ = listener.accept()
            sock.settimeout(60)
            assert parent.stdout is not None
            child = int(parent.stdout.readline())
            stuck = WorkerProcess(parent, sock, 7)
            hello, _ = stuck.receive()
            assert hello.pid == child
            stuck.load_as(path, "python")
            x = from_numpy("x", numbers(1))
            stuck.send(Execute(7, 1, [PartInput(1, 0, 1, 1, [x.header], {})]), [x.data])
            assert isinstance(stuck.receive(progress=True)[0], Progress)
            parent.kill()
            with pytest.raises(EOFError):  # only the worker held this end: it is gone
                stuck.receive()
            sock.close()


def test_without_its_token_or_its_address_it_says_what_is_missing(tmp_path: Path):
    without = {name: value for name, value in os.environ.items() if name != "HEADWAY_WORKER_TOKEN"}
    arguments = command("unix:" + str(tmp_path / "nobody"), 7)
    refused = subprocess.run(arguments, env=without, capture_output=True, text=True, timeout=60)
    assert refused.returncode == 2
    assert "the environment has no HEADWAY_WORKER_TOKEN" in refused.stderr
    nobody = subprocess.run(arguments, env=environment(), capture_output=True, text=True, timeout=60)
    assert nobody.returncode == 4
    assert "worker 7: error: cannot connect to unix:" in nobody.stderr
    wrong = subprocess.run(command("carrier pigeon", 7), env=environment(), capture_output=True, text=True, timeout=60)
    assert "expected unix:/path/of/socket or tcp:host:port" in wrong.stderr


def test_its_log_is_one_line_per_event_naming_worker_and_model(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    path = python_model(tmp_path / "picky" / "3", PICKY)
    with worker_process(tmp_path) as worker:
        ready(worker, path, "python")
        worker.execute(9, [{"x": numbers(-1)}])
        worker.send(Stop(7))
        assert exits(worker) == 0
    lines = capfd.readouterr().err.splitlines()
    assert all(re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z ", line) for line in lines)
    assert [line.partition(" ")[2].split(": ")[:2] for line in lines] == [
        ["worker 7 picky/3", level] for level in ("warning", "info", "error", "info")
    ]
    assert "batch safety: not judged" in lines[0]
    assert "batch 9 of 1 parts failed: ValueError: no -1 please" in lines[2]
    assert f"{path / 'model.py'}:10 in execute" in lines[2]
