"""Where a model runs, checked against what is there."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeAlias

from headway.worker.errors import LoadError

Provider: TypeAlias = str | tuple[str, dict[str, Any]]
"""As ONNX Runtime takes it."""

NVIDIA = (Path("/dev/nvidiactl"), Path("/dev/dxg"))
"""One of these is there where an NVIDIA driver is (the second below Windows' Linux)."""

GPUS = Path("/dev")
"""Where the driver has nvidia0, nvidia1, ...: as many as this machine or container has."""

VISIBLE = "CUDA_VISIBLE_DEVICES"

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
    check_number(model, device)
    return [("CUDAExecutionProvider", {"device_id": int(match[1])}), "CPUExecutionProvider"]


def check_used(model: str, device: str, used: Sequence[str]) -> None:
    """ONNX Runtime falls back to the CPU in silence where CUDA does not start; that must not pass unseen."""
    if device != "cpu" and "CUDAExecutionProvider" not in used:
        raise LoadError(f"model {model}: device {device!r}: CUDA did not start; the session would run on the CPU")


def check_there(model: str, device: str) -> None:
    """For a model that finds the device by itself. Raises LoadError where the machine has no such GPU."""
    problem = absent(device)
    if problem:
        raise LoadError(f"model {model}: device {device!r}: {problem}")


def check_number(model: str, device: str) -> None:
    """Raises LoadError where there are GPUs, but not so many."""
    problem = _number_absent(device)
    if problem:
        raise LoadError(f"model {model}: device {device!r}: {problem}")


def absent(device: str) -> str:
    """Why it cannot be there, or "" where it is or nothing is known of it."""
    if device != "cpu" and not any(sign.exists() for sign in NVIDIA):
        return f'this machine has no NVIDIA driver (none of {", ".join(map(str, NVIDIA))}); set device = "cpu"'
    return _number_absent(device)


def _number_absent(device: str) -> str:
    match, count = _CUDA.fullmatch(device), gpu_count()
    if match is None or count is None or int(match[1]) < count:
        return ""
    limited = f" ({VISIBLE} = {os.environ[VISIBLE]!r})" if VISIBLE in os.environ else ""
    there = f"cuda:0 to cuda:{count - 1}" if count > 1 else "cuda:0 alone" if count else "no GPU"
    return f"there is {there}{limited}"


def gpu_count() -> int | None:
    """GPUs that a process started from here can use at most; None = not known."""
    count = len([entry for entry in GPUS.glob("nvidia*") if entry.name.removeprefix("nvidia").isdigit()])
    if not count:
        return None
    named = os.environ.get(VISIBLE)
    if named is not None:
        entries = [entry.strip() for entry in named.split(",")]
        shown = next((at for at, entry in enumerate(entries) if entry in ("", "-1")), len(entries))
        count = min(count, shown)
    return count
