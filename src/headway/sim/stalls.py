"""The server's own loop stands still now and then: whatever happens meanwhile it hears at once, afterwards."""

from __future__ import annotations

from dataclasses import dataclass

from headway.core.units import Duration, Instant


@dataclass(frozen=True, slots=True)
class Stalls:
    """every: from the end of one to the beginning of the next.  lasts: each; 0: there are none."""

    every: Duration = 1
    lasts: Duration = 0

    def over(self, due: Instant) -> Instant:
        """When a call takes place that is due then."""
        into = due % (self.every + self.lasts) - self.every
        return due if into <= 0 else due + self.lasts - into


NO_STALLS = Stalls()
