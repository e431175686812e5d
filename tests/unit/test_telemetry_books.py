"""The books balance: whatever the real core is told, received = outcomes + in flight, at every moment."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.effects import AbortSequence, AdmitSequence, DispatchBatch, Effect
from headway.core.events import (
    BatchCompleted,
    BatchFailed,
    DrainStarted,
    Event,
    PartFailure,
    RequestArrived,
    RequestCancelled,
    VersionConfigured,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
)
from headway.core.ids import BatchKey, Part, VersionId
from headway.core.outcomes import Kind, Outcome
from headway.core.policy import BatchPolicy
from headway.core.scheduler import Scheduler
from headway.telemetry.counters import Counters
from headway.telemetry.families import request_families

M1 = VersionId("m", 1)
KINDS = {kind.value for kind in Kind}
SECOND = 1_000_000_000

STEPS = st.one_of(
    st.tuples(
        st.just("arrive"),
        st.sampled_from(["a", "b", "stranger"]),
        st.sampled_from(["m", "m", "m", "missing"]),
        st.lists(st.integers(1, 40), min_size=1, max_size=4),
        st.sampled_from([5, 50, 5000]),
    ),
    st.tuples(st.just("cancel"), st.integers(1, 60)),
    st.tuples(st.just("answer"), st.sampled_from(["whole", "one part failed", "failed"])),
    st.tuples(st.just("worker lost")),
    st.tuples(st.just("worker")),
    st.tuples(st.just("wait"), st.integers(1, 30)),
    st.tuples(st.just("drain")),
)


class World:
    """The core, its observer, and a driver that does what it is told to."""

    def __init__(self) -> None:
        self.core = Scheduler()
        self.counters = Counters(["a", "b"])
        self.now = 0
        self.requests = 0
        self.workers = 0
        self.up: list[int] = []
        self.running: list[DispatchBatch] = []
        self.tell(VersionConfigured(M1, BatchPolicy(max_batch_size=4, max_queued_requests=5)))
        self.worker()

    def tell(self, *events: Event) -> None:
        effects = self.core.handle(events, self.now)
        self.counters.handled(self.now, events, effects)
        for effect in effects:
            self.carry_out(effect)

    def carry_out(self, effect: Effect) -> None:
        assert not isinstance(effect, AdmitSequence | AbortSequence)
        if isinstance(effect, DispatchBatch):
            self.running.append(effect)

    def worker(self) -> None:
        self.workers += 1
        self.up.append(self.workers)
        self.tell(WorkerStarting(self.workers, M1), WorkerReady(self.workers))

    def arrive(self, tenant: str, model: str, lengths: list[int], patience_ms: int) -> None:
        self.requests += 1
        parts = tuple(Part(1, length) for length in lengths)
        deadline = self.now + patience_ms * 1_000_000
        self.tell(RequestArrived(self.requests, tenant, BatchKey(model, 1, "s"), parts, deadline=deadline))

    def answer(self, how: str) -> None:
        if not self.running:
            return
        batch = self.running.pop(0)
        if how == "failed":
            self.tell(BatchFailed(batch.worker, batch.batch, 1000, Outcome.MODEL_ERROR, "it raised"))
            return
        failures = (PartFailure(0, Outcome.INVALID_INPUT, "bad"),) if how == "one part failed" else ()
        self.tell(BatchCompleted(batch.worker, batch.batch, 1000, failures))

    def worker_lost(self) -> None:
        if self.up:
            worker = self.up.pop()
            self.running = [batch for batch in self.running if batch.worker != worker]
            self.tell(WorkerLost(worker, "signal SIGKILL"))

    def step(self, name: str, *arguments: object) -> None:
        if name == "arrive":
            self.arrive(*arguments)  # type: ignore[arg-type]
        elif name == "cancel":
            self.tell(RequestCancelled(int(str(arguments[0]))))
        elif name == "answer":
            self.answer(str(arguments[0]))
        elif name == "worker lost":
            self.worker_lost()
        elif name == "worker":
            self.worker()
        elif name == "drain":
            self.tell(DrainStarted())
        elif name == "wait":
            self.now += int(str(arguments[0])) * 1_000_000
            self.tell()

    def books(self) -> tuple[int, dict[str, int], int]:
        """(received, by class of outcome, in flight) as the page of metrics shows them."""
        received, ended, flying, _ = request_families(self.counters)
        by_class = dict.fromkeys(sorted(KINDS), 0)
        for sample in ended.samples:
            by_class[sample.labels["outcome"]] += int(sample.value)
        return sum(int(s.value) for s in received.samples), by_class, sum(int(s.value) for s in flying.samples)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEPS, max_size=60))
def test_received_is_the_sum_of_outcomes_and_in_flight_at_every_moment_and_nothing_is_in_flight_when_idle(steps):
    world = World()
    for step in steps:
        world.step(*step)
        received, by_class, in_flight = world.books()
        assert received == world.requests
        assert received == sum(by_class.values()) + in_flight
        if world.core.is_idle():
            assert in_flight == 0
    world.now += 3600 * SECOND  # every deadline has passed
    world.tell()
    received, by_class, in_flight = world.books()
    assert in_flight == 0 and received == sum(by_class.values())
