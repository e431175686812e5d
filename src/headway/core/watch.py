"""Workers that make no progress: suspected, and after as long again given up.

How long a batch may take follows from what it was predicted to take. Nothing is held against a worker because this
process itself stood still: answers are read before the clock is asked, and from suspicion to the end the full time has
to pass once more.
"""

from __future__ import annotations

from headway.core.effects import KillWorker, SuspectWorker
from headway.core.pool import Pool
from headway.core.retry import take_back
from headway.core.state import State
from headway.core.units import NEVER, SECOND, Instant


def look(state: State, pool: Pool, now: Instant) -> None:
    """Who has exceeded his time by now."""
    placement = pool.placement
    placement.watch_at = NEVER
    for worker in placement.busy.values():
        if worker.watch_at <= now:
            running = next(iter(worker.batches.values()))
            took, expected = (now - running.started) / SECOND, worker.pace * running.predicted / SECOND
            story = f"no answer for {took:.3g} s to a batch that should take {expected:.3g} s"
            if worker.is_suspected:
                worker.watch_at = NEVER
                state.effects.append(KillWorker(worker.id, running.id, story))
            else:
                worker.is_suspected = True
                state.touch(pool)  # what it keeps busy counts as free from now on
                worker.watch_at = now + worker.patience
                state.effects.append(SuspectWorker(worker.id, running.id, story))
                take_back(state, worker, f"worker {worker.id} does not answer")
                placement.refresh(worker)
        placement.watch_at = min(placement.watch_at, worker.watch_at)
