"""What others may see of engines: what each has, and what keeps more from running in it."""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING

from headway.core.ids import Capacity, WorkerId
from headway.core.record import record

if TYPE_CHECKING:
    from headway.core.engine import Engine
    from headway.core.pool import Pool
    from headway.core.workers import Worker


class Binds(Enum):
    """What keeps who waits next from running."""

    NOTHING = "nothing"
    """Nobody waits."""
    SEQUENCES = "sequences"
    """It has as many as it takes."""
    KV_MEMORY = "kv_memory"
    """Its blocks are held, or kept for the growth of what runs."""
    STEP_TIME = "step_time"
    """There is room: each step computes as many tokens as its time, or its cap, allows."""


@record
class EngineDetail:
    """running, waiting: requests that it has, by its last report and what it was handed since.
    slots, blocks: of its sequences and blocks, free by that report and not needed for the growth of what runs.
    prefilling: tokens of prompts under way that are yet to be computed."""

    worker: WorkerId
    capacity: Capacity
    running: int
    waiting: int
    slots: int
    blocks: int
    prefilling: int
    binds: Binds


def engines(pool: Pool) -> list[EngineDetail]:
    return [
        _detail(worker, worker.engine, pool) for worker in pool.placement.workers.values() if worker.engine is not None
    ]


def _detail(worker: Worker, engine: Engine, pool: Pool) -> EngineDetail:
    waiting = len(engine.waiting)
    return EngineDetail(
        worker=worker.id,
        capacity=engine.capacity,
        running=len(worker.sequences) - waiting,
        waiting=waiting,
        slots=engine.slots,
        blocks=engine.blocks,
        prefilling=engine.prefilling,
        binds=_binds(engine, pool),
    )


def _binds(engine: Engine, pool: Pool) -> Binds:
    """Judged by the one that needs least of those that wait in it, or else of those that wait for any engine, who are
    more than it was handed only where it has enough to do."""
    if engine.waiting:
        least = min(running.tokens for running in engine.waiting.values())
    elif pool.waiting:
        least = 1
    else:
        return Binds.NOTHING
    if engine.slots <= 0:
        return Binds.SEQUENCES
    return Binds.KV_MEMORY if engine.blocks_of(least) > engine.blocks else Binds.STEP_TIME
