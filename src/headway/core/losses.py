"""How a worker can be lost, and whether what it ran may be to blame."""

from __future__ import annotations

from enum import Enum


class Loss(Enum):
    """The kinds that have different consequences; how each is told apart: docs/failures.md."""

    KILLED = "killed"
    """From outside: by an operator, or whatever looks after the machine."""

    CRASHED = "crashed"
    """By itself: a signal of its own making, or an exit that nobody asked for."""

    OUT_OF_MEMORY = "out_of_memory"
    DEVICE_LOST = "device_lost"
    """What it computes on is broken, for all that use it."""

    HUNG = "hung"
    """No progress for far longer than was predicted."""

    PROTOCOL = "protocol"
    """It said what no worker says."""

    REFUSED = "refused"
    """It cannot load the version."""

    @property
    def blames(self) -> bool:
        """Whether what it ran may have been the cause."""
        return self in (Loss.CRASHED, Loss.OUT_OF_MEMORY, Loss.HUNG, Loss.PROTOCOL)
