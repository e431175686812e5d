"""Whether what is shown of a version is so."""

from __future__ import annotations

from headway.core.units import NEVER
from headway.core.views import VersionView
from headway.sim.ledger import TrackedVersion


def disagreement(view: VersionView, version: TrackedVersion) -> str:
    """In words; "" = there is none."""
    waiting, workers = version.waiting.values(), version.workers.values()
    expected = (
        len(waiting),
        sum(len(request.waiting) for request in waiting),
        sum(request.waiting_rows for request in waiting),
        min((request.arrived for request in waiting), default=NEVER),
        sum(len(worker.batches) for worker in workers),
        sum(len(worker.sequences) for worker in workers),
        list(version.workers),
    )
    shown = (
        view.waiting_requests,
        view.waiting_parts,
        view.waiting_rows,
        view.oldest,
        view.running_batches,
        view.running_sequences,
        list(view.workers),
    )
    return "" if shown == expected else f"{view.version}: shown {shown}, expected {expected}"
