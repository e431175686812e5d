"""What runs a version in a simulation, and what is known of one of its workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from headway.core.effects import DispatchBatch
from headway.core.ids import BatchId, Capacity, Measurement, Part, VersionId, WorkerId
from headway.core.units import Duration, Instant
from headway.sim.costs import Cost
from headway.sim.engines import EngineModel, SimEngine
from headway.sim.streams import SimStreams

BATCH_WORKER = Capacity(batch_slots=1)


@dataclass(slots=True)
class Model:
    """What runs a version: how long it takes, how many copies of it, what each can hold.

    load_time: from WorkerStarting to WorkerReady.
    hand_over: what a batch, and its answer, spends on the way.
    unpadded: rows run end to end: they take what as many of their mean length would.
    relief: there is memory for another worker beside one that is suspected.
    device: that it shares with others; "" = none.
    engine: where its workers are engines.
    """

    cost: Cost
    workers: int = 1
    capacity: Capacity = BATCH_WORKER
    measurements: tuple[Measurement, ...] = ()
    load_time: Duration = 0
    hand_over: Duration = 0
    unpadded: bool = False
    relief: bool = False
    device: str = ""
    engine: EngineModel | None = None

    def run_time(self, parts: Sequence[Part]) -> Duration:
        rows = sum(part.rows for part in parts)
        if not self.unpadded:
            return self.cost(rows, max(part.length for part in parts))
        return self.cost(rows, -(-sum(part.rows * part.length for part in parts) // rows))


@dataclass(slots=True)
class SimWorker:
    """busy_since: -1 while it runs nothing.  free_at: when what it was given will have run, one after the other.
    begins: of what it was given, when it begins with it.  withdrawn: what it will not run.
    holder: of its sequences, once it is ready.
    relieves: the one that it was started for, as that is suspected; 0: it is nobody's relief.
    """

    worker: WorkerId
    version: VersionId
    up: bool = False
    gone: bool = False
    draining: bool = False
    busy_since: Instant = -1
    free_at: Instant = 0
    running: dict[BatchId, DispatchBatch] = field(default_factory=dict)
    begins: dict[BatchId, Instant] = field(default_factory=dict)
    withdrawn: dict[BatchId, None] = field(default_factory=dict)
    relieves: WorkerId = 0
    holder: SimEngine | SimStreams | None = None

    @property
    def is_empty(self) -> bool:
        return not self.running and (self.holder is None or self.holder.is_empty)

    @property
    def steps(self) -> bool:
        """Whether it is at a step of streams."""
        return isinstance(self.holder, SimStreams) and self.holder.steps
