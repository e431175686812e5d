"""A worker tells where it is: when asked to by a signal, even in the middle of C code, and when one ends it."""

from __future__ import annotations

import faulthandler
import signal
import sys

from headway.wire.exits import ASK_FOR_STACKS


def tell_stacks(fd: int) -> None:
    """fd: where to; negative = the log. The handler is C and needs no interpreter that runs."""
    where = fd if fd >= 0 else sys.stderr.fileno()
    faulthandler.enable(where)
    faulthandler.register(signal.Signals(ASK_FOR_STACKS), where)
