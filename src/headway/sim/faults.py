"""What goes wrong, and how often."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.units import MILLISECOND, Duration
from headway.sim.stalls import NO_STALLS, Stalls


@dataclass(frozen=True, slots=True)
class Faults:
    """Probabilities, each per batch or step unless it says otherwise.

    hang: no answer, until the worker is given up.
    pauses: it stands still for up to `pause`, and then goes on as if nothing had been.
    stale: a dead worker's answer still arrives.
    misdirected: an answer arrives in the name of a worker that never ran the batch.
    load_fails: per start. gap: per ended worker, that its successor is not announced at once.
    memory: padded tokens beyond which a batch is too large for its worker; 0 = any will do.
    raises, kills: per content: whatever runs it raises, or dies.
    blameless: per death of a worker that runs something, that it was killed from outside.
    time_to_loss, time_to_drain, time_to_device_loss: mean time between two such events in the whole fleet (0: never).
    stalls: of the loop that calls the core.
    grid: delays are multiples of it.
    """

    batch_fails: float = 0
    part_fails: float = 0
    sequence_fails: float = 0
    slow: float = 0
    slow_factor: int = 10
    hang: float = 0
    pauses: float = 0
    pause: Duration = 0
    duplicate: float = 0
    stale: float = 0
    misdirected: float = 0
    load_fails: float = 0
    gap: float = 0
    memory: int = 0
    raises: float = 0
    kills: float = 0
    blameless: float = 0
    time_to_loss: Duration = 0
    time_to_drain: Duration = 0
    time_to_device_loss: Duration = 0
    stalls: Stalls = NO_STALLS
    grid: Duration = MILLISECOND


NO_FAULTS = Faults()
