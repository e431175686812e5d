"""What failed of one version, what was done about it and what is still in force, as JSON values."""

from __future__ import annotations

from typing import Any

from headway.core.breaker import Circuit
from headway.core.failure_views import FailureView
from headway.core.units import SECOND, Instant
from headway.telemetry.failures import FailureCounts


def explained(view: FailureView, counts: FailureCounts, poisoned: int, now: Instant) -> dict[str, Any]:
    """Counts are since the start.  poisoned: requests that ended so.

    circuit: tried_in_s: until a request is let in to try; 0 where it is not open.
    retries: of a minute, executions that may be repeated because workers were lost.
    """
    circuit = view.circuit(now)
    open_for = (view.refused_until - now) / SECOND if circuit is Circuit.OPEN else 0.0
    return {
        "losses": dict(sorted(counts.losses.items())),
        "retried_parts": dict(sorted(counts.retried.items())),
        "suspected": counts.suspected,
        "hung": counts.hung,
        "reliefs": dict(sorted(counts.reliefs.items())),
        "poison_requests": poisoned,
        "suspects": list(view.suspected),
        "circuit": {
            "state": circuit.value,
            "deaths": view.deaths,
            "openings": counts.openings,
            "tried_in_s": round(open_for, 3),
        },
        "retries": {"of": max(view.retries, view.left(now)), "left": view.left(now)},
        "quarantine": [
            {"content": f"{content:016x}", "left_s": round((until - now) / SECOND, 3)}
            for content, until in view.refused(now).items()
        ],
    }
