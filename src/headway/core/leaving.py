"""When a batch leaves: the first reason that fires, in the order of `Reason`."""

from __future__ import annotations

from headway.core.effects import Reason
from headway.core.policy import BatchPolicy
from headway.core.units import Duration, Instant


def why(
    policy: BatchPolicy,
    *,
    filled: bool,
    latest_start: Instant,
    oldest: Instant,
    delay: Duration,
    draining: bool,
    pressure: bool,
    now: Instant,
) -> Reason | None:
    """Why what waits for one key should leave now, given that a worker is free. None: it should wait.

    filled: a cap is reached.  latest_start: the first latest safe start among it.
    oldest: when its longest-waiting part arrived.  delay: the ceiling of its waiting that is in force.
    """
    if filled:
        return Reason.FULL
    if now >= latest_start:
        return Reason.DEADLINE
    if not policy.hold:
        return Reason.IDLE  # where waiting beside an idle worker pays, `patience` has waited already
    if now >= oldest + delay:
        return Reason.LINGER
    if draining:
        return Reason.DRAIN
    if pressure:
        return Reason.MEMORY
    return None
