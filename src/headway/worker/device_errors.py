"""When a device, or what a process has on it, is broken for good: no batch after that will work.

CUDA calls such errors sticky: all that the process asks of the device from then on fails. Which of them it is matters,
for one kind is the fault of what ran and the other is not.
"""

from __future__ import annotations

import re

from headway.wire.exits import EXIT_DEVICE_FAULT, EXIT_DEVICE_LOST

FAULTS = (
    "device-side assert",
    "illegal memory access",
    "misaligned address",
    "illegal instruction",
    "invalid program counter",
    "unspecified launch failure",
    "hardware stack error",
    "launch timed out",
)
"""A kernel did what it must not; only the process that ran it is hit."""

LOST = (
    "uncorrectable ecc error",
    "uncorrectable nvlink error",
    "no cuda-capable device is detected",
    "device is busy or unavailable",
    "devices are busy or unavailable",
    "driver shutting down",
    "unknown error",
)
"""The device itself: memory that is worn out, or fallen off the bus (the driver then logs an Xid)."""

TORCH = re.compile(r"CUDA error: ")
ONNX_RUNTIME = re.compile(r"CUDA (failure \d+|error \w+): ?", re.IGNORECASE)


class DeviceBroken(Exception):
    """The worker has to end. exit_code: how."""

    def __init__(self, detail: str, exit_code: int) -> None:
        super().__init__(detail)
        self.exit_code = exit_code


def check_device(error: BaseException) -> None:
    """Raises DeviceBroken if that is what the error says.

    Only where CUDA's own words begin the message, or ONNX Runtime passes them on: what a model writes into its
    messages may come from a client.
    """
    said = _said(error)
    for words, exit_code in ((FAULTS, EXIT_DEVICE_FAULT), (LOST, EXIT_DEVICE_LOST)):
        if any(word in said for word in words):
            raise DeviceBroken(said, exit_code) from error


def _said(error: BaseException) -> str:
    """What CUDA said, in lower case; "" where it said nothing."""
    text = str(error)
    if type(error).__module__.startswith("onnxruntime"):
        found = ONNX_RUNTIME.search(text)
        return text[found.start() :].lower().partition("\n")[0] if found else ""
    if isinstance(error, RuntimeError) and TORCH.match(text):
        return text.lower().partition("\n")[0]
    return ""
