"""What ties a worker's life to its parent's."""

from __future__ import annotations

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def die_with_parent() -> None:
    """The kernel kills this process when its parent dies, even in the middle of a batch.

    Where there is no such thing (and when the parent died before this call) the channel's end is noticed
    instead, at the next read. Raises OSError if the kernel refuses.
    """
    if not sys.platform.startswith("linux"):
        return
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0):
        number = ctypes.get_errno()
        raise OSError(number, f"prctl(PR_SET_PDEATHSIG): {os.strerror(number)}")


def leave_signals_to_parent() -> None:
    """Ctrl-C and a service manager's SIGTERM reach all of a process group. The server answers them by
    draining, for which it needs its workers; it stops them itself, with a message."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
