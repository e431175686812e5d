"""Where a model runs, checked against what is there."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from headway.worker.errors import LoadError

Provider: TypeAlias = str | tuple[str, dict[str, Any]]
"""As ONNX Runtime takes it."""

NVIDIA = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""One of these is there where an NVIDIA driver is (the second below Windows' Linux)."""

_CUDA = re.compile(r"cuda:(\d+)")


def providers(model: str, device: str, available: Sequence[str]) -> list[Provider]:
    """ONNX Runtime's providers for "cpu" or "cuda:N". available: those of the installed onnxruntime."""
    if device == "cpu":
        return ["CPUExecutionProvider"]
    match = _CUDA.fullmatch(device)
    if match is None:
        raise LoadError(f'model {model}: device {device!r}: expected "cpu" or "cuda:N"')
    if "CUDAExecutionProvider" not in available:
        raise LoadError(
            f"model {model}: device {device!r}: the installed onnxruntime has no CUDAExecutionProvider, "
            f'only {", ".join(available)}; install onnxruntime-gpu, or set device = "cpu"'
        )
    return [("CUDAExecutionProvider", {"device_id": int(match[1])}), "CPUExecutionProvider"]


def check_used(model: str, device: str, used: Sequence[str]) -> None:
    """ONNX Runtime falls back to the CPU in silence where CUDA does not start; that must not pass unseen."""
    if device != "cpu" and "CUDAExecutionProvider" not in used:
        raise LoadError(f"model {model}: device {device!r}: CUDA did not start; the session would run on the CPU")


def check_there(model: str, device: str) -> None:
    """For a model that finds the device by itself. Raises LoadError where the machine has no GPU at all."""
    if device != "cpu" and not any(sign.exists() for sign in NVIDIA):
        raise LoadError(
            f"model {model}: device {device!r}: this machine has no NVIDIA driver "
            f'(none of {", ".join(map(str, NVIDIA))}); set device = "cpu"'
        )
