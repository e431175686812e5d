"""How a worker process ends by itself. Codes that what runs in it is unlikely to choose, where they say much."""

from __future__ import annotations

import signal

EXIT_STOPPED = 0
EXIT_LOAD_FAILED = 3
EXIT_CHANNEL_CLOSED = 4
EXIT_PROTOCOL_VIOLATION = 5
EXIT_OUT_OF_MEMORY = 86
"""Beside a batch: one that is too large for the memory fails alone, and the worker lives on."""
EXIT_DEVICE_LOST = 87
"""What it computes on is broken, for all that use it."""
EXIT_DEVICE_FAULT = 88
"""What ran has broken the process's own context on the device; for others the device is as before."""

ASK_FOR_STACKS = int(signal.SIGUSR1)
"""The signal at which a worker writes what each of its threads is doing, and goes on."""
