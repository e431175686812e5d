"""Order among equals: of one tenant, class, key and length, nobody leaves while one that came earlier waits.

Among requests without a deadline: with one, urgency depends on what the core expects a run to take.
"""

from __future__ import annotations

from collections.abc import Iterable

from headway.core.ids import PartRef
from headway.core.units import NEVER
from headway.sim.ledger import Ledger, TrackedRequest
from headway.sim.retrials import Retrials


def overtaking(started: Iterable[tuple[TrackedRequest, int]], ledger: Ledger, retrials: Retrials) -> str:
    """In words; "" = there is none. started: requests, and which of their parts, that left just now."""
    for request, part in started:
        event = request.event
        if PartRef(event.request, part) in retrials.apart:
            continue  # it has a queue of its own
        for other in ledger.versions[request.version].waiting.values():
            if other.event.request == event.request or not _came_first(other, request):
                continue
            same = any(other.event.parts[index] == event.parts[part] for index in retrials.ordinary(other))
            if same and _lane(other) == _lane(request):
                return f"request {event.request} overtook {other.event.request}, its equal"
    return ""


def _came_first(one: TrackedRequest, other: TrackedRequest) -> bool:
    """Request ids are given in order of arrival. A class may have become less patient in between."""
    timed = one.event.deadline != NEVER or other.event.deadline != NEVER
    return not timed and one.event.request < other.event.request and one.due <= other.due


def _lane(request: TrackedRequest) -> tuple[object, ...]:
    return (request.event.tenant, request.event.priority, request.event.key)
