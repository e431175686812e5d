"""The calls to CUDA that `torch_device.Cuda` makes, as torch has them. Never run on a GPU so far."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from headway.worker import devices
from headway.worker.errors import LoadError
from headway.worker.memory import Peak
from headway.worker.torch_device import Cpu, Cuda, Device


class TorchGpu:
    def __init__(self, device: str) -> None:
        """device: "cuda:N"."""
        self._device = torch.device(device)
        torch.cuda.set_device(self._device)

    def stream(self) -> Any:
        return torch.cuda.Stream(self._device)

    def event(self) -> Any:
        return torch.cuda.Event()

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = torch.cuda.stream(stream)
        return context

    def graph(self) -> Any:
        return torch.cuda.CUDAGraph()

    def capture(self, graph: Any, stream: Any) -> AbstractContextManager[Any]:
        context: AbstractContextManager[Any] = torch.cuda.graph(graph, stream=stream)
        return context

    def pinned(self, like: Any) -> Any:
        return torch.empty(like.shape, dtype=like.dtype, pin_memory=True)

    def buffer(self, like: Any) -> Any:
        return torch.empty(like.shape, dtype=like.dtype, device=self._device)

    def synchronize(self, stream: Any) -> None:
        stream.synchronize()

    def free(self) -> int:
        return int(torch.cuda.mem_get_info(self._device)[0])

    def peak(self) -> Peak:
        return AllocatedPeak(self._device)

    def empty_cache(self) -> None:
        torch.cuda.empty_cache()


class AllocatedPeak:
    """By torch's allocator, which counts what tensors take."""

    def __init__(self, device: Any) -> None:
        self._device = device
        self._before = int(torch.cuda.memory_allocated(device))

    def begin(self) -> bool:
        torch.cuda.reset_peak_memory_stats(self._device)
        return True

    def taken(self) -> int:
        return max(0, int(torch.cuda.max_memory_allocated(self._device)) - self._before)


def device_of(model: str, device: str) -> Device:
    """For "cpu" or "cuda:N". model: name/version, for messages. Raises LoadError."""
    if device == "cpu":
        return Cpu()
    devices.check_there(model, device)
    if not torch.cuda.is_available():
        raise LoadError(
            f"model {model}: device {device!r}: the installed torch ({torch.__version__}) finds no CUDA; "
            'install one that has it, or set device = "cpu"'
        )
    return Cuda(TorchGpu(device))
