"""Where tensors are computed: on the CPU as they lie, or on a GPU, with copies that overlap and recorded launches.

On a GPU a batch goes through pinned staging buffers on a stream of its own (`copies`); the computing stream waits for
the event that ends the copy, not the CPU. While a version warms up the launches of each padded size are recorded as a
CUDA graph, GRAPHS of them at most; later batches are padded up to a recorded size where that wastes little, and
replayed; all other sizes run launch by launch.

All calls to CUDA go through `Gpu` (`torch_cuda.TorchGpu`). Their order is tested with a fake one. None of this has
run on a GPU yet.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, Protocol, TypeAlias

from headway.worker.executor import Array
from headway.worker.memory import HostPeak, Peak
from headway.worker.torch_tensors import to_array, to_tensor

Fed: TypeAlias = Sequence[tuple[Array, str]]
"""(stacked input, its datatype), in the order of the model's inputs."""

Run: TypeAlias = Callable[[Sequence[Any]], Sequence[Any]]
Size: TypeAlias = tuple[int, int]
"""(rows, length)"""

GRAPHS = 32
"""Recorded at most: each holds its own buffers."""

WASTE = 1.25
"""A batch is padded up to a recorded size of at most so many times its tokens."""


class Device(Protocol):
    recording: bool
    """Whether sizes that are run now are worth remembering: while warming up."""

    def padded(self, rows: int, length: int) -> Size:
        """The size that a batch of this one should be padded to."""

    def run(self, size: Size, fed: Fed, model: Run) -> list[Array]:
        """The model's outputs for these inputs. size: what `padded` said."""

    def free(self) -> int:
        """Bytes that batches may take; 0 = not known, or no matter."""

    def peak(self) -> Peak:
        """Measures what a batch takes."""

    def recover(self) -> None:
        """After a batch that ran out of memory."""


class Cpu:
    recording = False

    def padded(self, rows: int, length: int) -> Size:
        return rows, length

    def run(self, size: Size, fed: Fed, model: Run) -> list[Array]:
        return [to_array(output) for output in model([to_tensor(array, datatype) for array, datatype in fed])]

    def free(self) -> int:
        return 0

    def peak(self) -> Peak:
        return HostPeak()

    def recover(self) -> None:
        """Nothing is kept."""


class Gpu(Protocol):
    """What is used of CUDA, for one device."""

    def stream(self) -> Any: ...

    def event(self) -> Any:
        """With record(stream)."""

    def on(self, stream: Any) -> AbstractContextManager[Any]: ...

    def graph(self) -> Any:
        """With replay()."""

    def capture(self, graph: Any, stream: Any) -> AbstractContextManager[Any]: ...

    def pinned(self, like: Any) -> Any:
        """A buffer in page-locked memory of the host, as large as this tensor."""

    def buffer(self, like: Any) -> Any:
        """One on the device."""

    def synchronize(self, stream: Any) -> None: ...

    def free(self) -> int: ...

    def peak(self) -> Peak: ...

    def empty_cache(self) -> None: ...


class Recorded(NamedTuple):
    """A graph reads `inputs` and writes `outputs`, always the same buffers."""

    graph: Any
    inputs: Sequence[Any]
    outputs: Sequence[Any]


class Cuda:
    def __init__(self, gpu: Gpu) -> None:
        self.recording = False
        self._gpu = gpu
        self._copies, self._computing = gpu.stream(), gpu.stream()
        self._staging: dict[tuple[Any, ...], Any] = {}
        self._recorded: dict[tuple[Any, ...], Recorded] = {}
        self._sizes: dict[Size, None] = {}

    def padded(self, rows: int, length: int) -> Size:
        if self.recording:
            return rows, length
        fitting = [size for size in self._sizes if size[0] >= rows and size[1] >= length]
        best = min(fitting, key=lambda size: size[0] * size[1], default=(rows, length))
        return best if best[0] * best[1] <= WASTE * rows * length else (rows, length)

    def run(self, size: Size, fed: Fed, model: Run) -> list[Array]:
        hosts = [to_tensor(array, datatype) for array, datatype in fed]
        key = tuple((tuple(host.shape), host.dtype) for host in hosts)
        recorded = self._recorded.get(key)
        if recorded is None and self.recording and len(self._recorded) < GRAPHS:
            recorded = self._record(key, size, hosts, model)
        inputs = recorded.inputs if recorded else [self._gpu.buffer(host) for host in hosts]
        self._copy(hosts, inputs)
        with self._gpu.on(self._computing):
            if recorded:
                recorded.graph.replay()
                outputs = recorded.outputs
            else:
                outputs = model(inputs)
            answers = [self._fetched(number, output) for number, output in enumerate(outputs)]
        self._gpu.synchronize(self._computing)
        return [to_array(answer).copy() for answer in answers]  # the buffers are used again by the next batch

    def free(self) -> int:
        return self._gpu.free()

    def peak(self) -> Peak:
        return self._gpu.peak()

    def recover(self) -> None:
        self._gpu.empty_cache()

    def _copy(self, hosts: Sequence[Any], inputs: Sequence[Any]) -> None:
        """Host -> pinned -> device on the stream for copies; the computing stream waits for its end."""
        with self._gpu.on(self._copies):
            for number, (host, target) in enumerate(zip(hosts, inputs, strict=True)):
                target.copy_(self._staged(("in", number), host).copy_(host), non_blocking=True)
        copied = self._gpu.event()
        copied.record(self._copies)
        self._computing.wait_event(copied)

    def _fetched(self, number: int, output: Any) -> Any:
        return self._staged(("out", number), output).copy_(output, non_blocking=True)

    def _staged(self, place: tuple[str, int], like: Any) -> Any:
        """One pinned buffer per input and output, made anew when the shape changes: their number is bounded."""
        held = self._staging.get(place)
        if held is None or held.shape != like.shape or held.dtype != like.dtype:
            held = self._staging[place] = self._gpu.pinned(like)
        return held

    def _record(self, key: tuple[Any, ...], size: Size, hosts: Sequence[Any], model: Run) -> Recorded:
        """Runs once as it is, for what the first run of a size has to itself, and once to record."""
        inputs = [self._gpu.buffer(host) for host in hosts]
        self._copy(hosts, inputs)
        with self._gpu.on(self._computing):
            model(inputs)
        self._gpu.synchronize(self._computing)
        graph = self._gpu.graph()
        with self._gpu.capture(graph, self._computing):
            outputs = model(inputs)
        self._sizes[size] = None
        self._recorded[key] = Recorded(graph, inputs, outputs)
        return self._recorded[key]
