"""python -m headway.worker.device_probe cuda:N: whether a GPU computes at all, asked by a process of its own.

By the driver's interface (libcuda), which is there wherever a GPU is: a context, some memory, a pattern written by the
device and read back. What is broken shows in the process that touches it, and may hang it: the server does not ask
itself. Exit code 0: it works; 1: it does not, and the reason is printed.
"""

from __future__ import annotations

import ctypes
import re
import sys
from typing import Any

LIBRARY = "libcuda.so.1"
PATTERN, WORDS = 0x48656164, 1 << 18
"""What is written, and how many times: 1 MiB of it."""

SUCCESS, OUT_OF_MEMORY = 0, 2
"""Results of the driver. A device whose memory others have taken works."""


class Broken(Exception):
    """The device does not work; the message says what the driver said."""


class Full(Exception):
    """Others have all of its memory."""


def probe(device: str, cuda: Any) -> str:
    """Why it does not work; "" = it does.  cuda: the driver's library, or what behaves like it."""
    match = re.fullmatch(r"cuda:(\d+)", device)
    if match is None:
        return f"{device!r} is no GPU"
    try:
        _compute(_Driver(cuda), int(match[1]))
    except Full:
        return ""
    except Broken as broken:
        return str(broken)
    return ""


class _Driver:
    def __init__(self, cuda: Any) -> None:
        self._cuda = cuda

    def __call__(self, function: str, *arguments: Any) -> None:
        """Raises Broken, Full."""
        result = getattr(self._cuda, function)(*arguments)
        if result == OUT_OF_MEMORY:
            raise Full
        if result != SUCCESS:
            raise Broken(f"{function}: {self._meaning(result)}")

    def _meaning(self, result: int) -> str:
        text = ctypes.c_char_p()
        self._cuda.cuGetErrorString(result, ctypes.byref(text))
        return text.value.decode("utf-8", "replace") if text.value else f"error {result}"


def _compute(driver: _Driver, number: int) -> None:
    device, context, address = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
    driver("cuInit", 0)
    driver("cuDeviceGet", ctypes.byref(device), number)
    driver("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    driver("cuCtxSetCurrent", context)
    read = (ctypes.c_uint32 * WORDS)()
    size = ctypes.c_size_t(ctypes.sizeof(read))
    driver("cuMemAlloc_v2", ctypes.byref(address), size)
    driver("cuMemsetD32_v2", address, ctypes.c_uint(PATTERN), ctypes.c_size_t(WORDS))
    driver("cuMemcpyDtoH_v2", read, address, size)
    if any(word != PATTERN for word in read):
        raise Broken("what it wrote into its memory did not come back")


def main(device: str) -> int:
    try:
        cuda: Any = ctypes.CDLL(LIBRARY)
    except OSError as error:
        print(f"there is no driver: {error}")
        return 1
    problem = probe(device, cuda)
    if problem:
        print(problem)
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
