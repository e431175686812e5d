"""What is asked of a GPU, and in which order: with a fake that writes it down and computes on the CPU."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from headway.worker import torch_device  # noqa: E402
from headway.worker.torch_device import Cpu, Cuda  # noqa: E402


class FakeStream:
    def __init__(self, name: str, log: list[str]) -> None:
        self.name, self._log = name, log

    def wait_event(self, event: FakeEvent) -> None:
        self._log.append(f"{self.name} waits for the event of {event.stream}")


class FakeEvent:
    stream = ""

    def __init__(self, log: list[str]) -> None:
        self._log = log

    def record(self, stream: FakeStream) -> None:
        self.stream = stream.name
        self._log.append(f"event on {stream.name}")


class FakeBuffer:
    """A tensor that says where it lies and on which stream it is written."""

    def __init__(self, where: str, like: Any, gpu: FakeGpu) -> None:
        self.where, self.gpu = where, gpu
        self.value = torch.empty(like.shape, dtype=like.dtype)
        self.shape, self.dtype = self.value.shape, self.value.dtype

    def copy_(self, source: Any, non_blocking: bool = False) -> FakeBuffer:
        came = source.where if isinstance(source, FakeBuffer) else "host"
        self.gpu.log.append(f"{came} -> {self.where} on {self.gpu.current}")
        assert non_blocking or came == "host", "a copy between host and device must not block"
        self.value.copy_(source.value if isinstance(source, FakeBuffer) else source)
        return self

    def contiguous(self) -> Any:
        return self.value


class FakeGraph:
    """Remembers what was run while it was captured, and runs it again into the same buffers."""

    def __init__(self, gpu: FakeGpu) -> None:
        self._gpu = gpu
        self.again: Any = None

    def replay(self) -> None:
        self._gpu.log.append(f"replay on {self._gpu.current}")
        self.again()


class FakeGpu:
    def __init__(self) -> None:
        self.log: list[str] = []
        self.current = "nothing"
        self.capturing: FakeGraph | None = None
        self._names = iter(["copies", "computing"])

    def stream(self) -> FakeStream:
        return FakeStream(next(self._names), self.log)

    def event(self) -> FakeEvent:
        return FakeEvent(self.log)

    @contextmanager
    def on(self, stream: FakeStream) -> Iterator[None]:
        before, self.current = self.current, stream.name
        yield
        self.current = before

    def graph(self) -> FakeGraph:
        return FakeGraph(self)

    @contextmanager
    def capture(self, graph: FakeGraph, stream: FakeStream) -> Iterator[None]:
        self.log.append("capture")
        self.capturing = graph
        yield
        self.capturing = None

    def pinned(self, like: Any) -> FakeBuffer:
        self.log.append("pinned buffer")
        return FakeBuffer("pinned", like, self)

    def buffer(self, like: Any) -> FakeBuffer:
        return FakeBuffer("device", like, self)

    def synchronize(self, stream: FakeStream) -> None:
        self.log.append(f"wait for {stream.name}")

    def free(self) -> int:
        return 1000

    def empty_cache(self) -> None:
        self.log.append("empty cache")


class Model:
    """Doubles its input."""

    def __init__(self, gpu: FakeGpu) -> None:
        self.gpu = gpu

    def __call__(self, tensors: Sequence[Any]) -> Sequence[Any]:
        self.gpu.log.append(f"model on {self.gpu.current}")
        output = FakeBuffer("device", tensors[0], self.gpu)

        def compute() -> None:
            output.value.copy_(tensors[0].value * 2)

        compute()
        if self.gpu.capturing is not None:
            self.gpu.capturing.again = compute
        return [output]


@pytest.fixture
def gpu() -> FakeGpu:
    return FakeGpu()


def run(device: Cuda, gpu: FakeGpu, rows: int, length: int, value: float = 1) -> tuple[Any, list[str]]:
    """The answer, and what was asked of the GPU for it."""
    begun = len(gpu.log)
    (answer,) = device.run((rows, length), [(np.full((rows, length), value, np.float32), "FP32")], Model(gpu))
    return answer, gpu.log[begun:]


def test_a_batch_is_copied_on_a_stream_of_its_own_and_computing_waits_for_that_alone(gpu: FakeGpu):
    answer, asked = run(Cuda(gpu), gpu, 2, 3)
    assert answer.tolist() == [[2.0] * 3] * 2
    assert asked == [
        "pinned buffer",
        "host -> pinned on copies",
        "pinned -> device on copies",
        "event on copies",
        "computing waits for the event of copies",
        "model on computing",
        "pinned buffer",
        "device -> pinned on computing",
        "wait for computing",
    ]


def test_pinned_buffers_are_kept_while_the_size_stays(gpu: FakeGpu):
    device = Cuda(gpu)
    run(device, gpu, 2, 3)
    assert "pinned buffer" not in run(device, gpu, 2, 3)[1]
    assert run(device, gpu, 2, 4)[1].count("pinned buffer") == 2
    assert len(device._staging) == 2


def test_an_answer_stays_when_the_buffers_are_used_again(gpu: FakeGpu):
    device = Cuda(gpu)
    first, _ = run(device, gpu, 1, 2, value=1)
    run(device, gpu, 1, 2, value=5)
    assert first.tolist() == [[2, 2]]


def recorded(gpu: FakeGpu, *sizes: tuple[int, int]) -> Cuda:
    device = Cuda(gpu)
    device.recording = True
    for size in sizes:
        run(device, gpu, *size)
    device.recording = False
    return device


def test_a_size_is_recorded_while_warming_up_after_it_has_run_once_and_then_replayed(gpu: FakeGpu):
    device = recorded(gpu, (2, 4))
    capture = gpu.log.index("capture")
    assert gpu.log[:capture].count("model on computing") == 1
    assert gpu.log[capture - 1] == "wait for computing"
    for value in (3, 7):
        answer, asked = run(device, gpu, 2, 4, value)
        assert answer.tolist() == [[2.0 * value] * 4] * 2
        assert "replay on computing" in asked and "model on computing" not in asked
        copied, replayed = asked.index("computing waits for the event of copies"), asked.index("replay on computing")
        assert copied < replayed


def test_a_size_that_was_not_recorded_runs_launch_by_launch(gpu: FakeGpu):
    _, asked = run(recorded(gpu, (2, 4)), gpu, 3, 4)
    assert "model on computing" in asked and "replay on computing" not in asked and "capture" not in asked


def test_the_number_of_recorded_sizes_is_bounded(gpu: FakeGpu, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch_device, "GRAPHS", 2)
    device = recorded(gpu, (1, 1), (1, 2), (1, 3), (1, 4))
    assert gpu.log.count("capture") == 2
    assert "model on computing" in run(device, gpu, 1, 4)[1]


@pytest.mark.parametrize(
    ("size", "padded"),
    [
        ((4, 32), (4, 32)),
        ((4, 30), (4, 32)),
        ((4, 26), (4, 32)),
        ((4, 25), (4, 25)),
        ((3, 32), (3, 32)),
        ((7, 62), (8, 64)),
        ((9, 64), (9, 64)),
    ],
)
def test_a_batch_is_padded_to_a_recorded_size_where_that_wastes_little(
    gpu: FakeGpu, size: tuple[int, int], padded: tuple[int, int]
):
    assert recorded(gpu, (4, 32), (8, 64)).padded(*size) == padded


def test_while_recording_every_size_is_its_own(gpu: FakeGpu):
    device = recorded(gpu, (4, 32))
    device.recording = True
    assert device.padded(4, 31) == (4, 31)


def test_after_a_batch_that_was_too_large_the_kept_memory_is_given_back(gpu: FakeGpu):
    Cuda(gpu).recover()
    assert gpu.log == ["empty cache"]
    assert Cuda(FakeGpu()).free() == 1000


def test_a_processor_takes_sizes_as_they_are():
    device = Cpu()
    assert device.padded(3, 5) == (3, 5)
    (answer,) = device.run((1, 2), [(np.ones((1, 2), np.float32), "FP32")], lambda tensors: [tensors[0] * 2])
    assert answer.tolist() == [[2, 2]]
    assert device.free() == 0
