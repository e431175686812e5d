"""How a worker was lost, from what is seen of its end. docs/failures.md has the same table, with what follows from it.

Nobody knows for certain: a signal has no sender. But whoever runs in a worker has no reason to send SIGKILL, SIGTERM or
SIGSTOP to himself, and the kernel counts whom it kills for want of memory.
"""

from __future__ import annotations

import signal
from pathlib import Path
from typing import NamedTuple

from headway.core.losses import Loss
from headway.wire.exits import EXIT_DEVICE_FAULT, EXIT_DEVICE_LOST, EXIT_OUT_OF_MEMORY, EXIT_PROTOCOL_VIOLATION

SIGKILL = "signal SIGKILL"
STARVED = "signal SIGKILL, counted by the kernel as a kill for want of memory"
OTHER_SIGNAL, OTHER_EXIT = "any other signal", "any other exit code"
VIOLATION = "protocol violation"
HUNG_UP = "channel closed, and the process lives on"
HANGS = "no progress"
STOPPED = "no progress, and stopped by a signal"
LOAD_FAILED, TOO_SLOW, NOT_STARTED = "load failed", "not ready within the time it has", "could not be started"

SIGNS: dict[str, Loss] = {
    SIGKILL: Loss.KILLED,
    STARVED: Loss.OUT_OF_MEMORY,
    "signal SIGTERM": Loss.KILLED,
    "signal SIGINT": Loss.KILLED,
    "signal SIGHUP": Loss.KILLED,
    "signal SIGQUIT": Loss.KILLED,
    "signal SIGSEGV": Loss.CRASHED,
    "signal SIGABRT": Loss.CRASHED,
    "signal SIGBUS": Loss.CRASHED,
    "signal SIGFPE": Loss.CRASHED,
    "signal SIGILL": Loss.CRASHED,
    OTHER_SIGNAL: Loss.CRASHED,
    f"exit code {EXIT_PROTOCOL_VIOLATION}": Loss.PROTOCOL,
    f"exit code {EXIT_OUT_OF_MEMORY}": Loss.OUT_OF_MEMORY,
    f"exit code {EXIT_DEVICE_LOST}": Loss.DEVICE_LOST,
    f"exit code {EXIT_DEVICE_FAULT}": Loss.CRASHED,
    OTHER_EXIT: Loss.CRASHED,
    VIOLATION: Loss.PROTOCOL,
    HUNG_UP: Loss.PROTOCOL,
    HANGS: Loss.HUNG,
    STOPPED: Loss.KILLED,
    LOAD_FAILED: Loss.REFUSED,
    TOO_SLOW: Loss.REFUSED,
    NOT_STARTED: Loss.REFUSED,
}
"""Of a worker that nobody asked to stop."""

MEANINGS = {
    EXIT_PROTOCOL_VIOLATION: "it was told what is not in the protocol",
    EXIT_OUT_OF_MEMORY: "out of memory",
    EXIT_DEVICE_LOST: "its device is lost",
    EXIT_DEVICE_FAULT: "what it ran broke its context on the device",
}


class End(NamedTuple):
    """cause: for people to read, beginning with the sign."""

    cause: str
    loss: Loss


def end_of(code: int, starved: bool = False) -> End:
    """code: as subprocess has it, negative = the signal.  starved: the kernel has counted this kill as one of its own
    for want of memory."""
    if code < 0:
        sign = STARVED if starved and code == -signal.SIGKILL else f"signal {_name(-code)}"
        return End(sign, SIGNS.get(sign, SIGNS[OTHER_SIGNAL]))
    sign = f"exit code {code}"
    meaning = MEANINGS.get(code)
    return End(f"{sign}: {meaning}" if meaning else sign, SIGNS.get(sign, SIGNS[OTHER_EXIT]))


def while_loading(end: End) -> End:
    """The same of a worker that was not ready yet: it has run nothing that could be to blame."""
    return End(f"{end.cause}, while it was loading", Loss.REFUSED) if end.loss.blames else end


def end_of_progress(pid: int | None, cause: str, proc: Path = Path("/proc")) -> End:
    """Of a worker that does not answer. What it runs is to blame, unless the process does not run at all."""
    sign = STOPPED if pid is not None and _is_stopped(proc / str(pid) / "stat") else HANGS
    return End(f"{sign}: {cause}", SIGNS[sign])


def _is_stopped(stat: Path) -> bool:
    """By SIGSTOP or by a debugger. False where the system does not tell."""
    try:
        return stat.read_bytes().rpartition(b") ")[2][:1] in (b"T", b"t")
    except OSError:
        return False


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
