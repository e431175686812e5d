"""Hypothesis drives the scheduler; the oracles of the simulator judge every call.

The machine decides what happens and in which order, down to what shares a call: each rule says
whether its event is handled at once or together with the next ones. At the end it heals the world
and requires that everything comes to its end.
"""

from __future__ import annotations

import json

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from headway.core import events as ev
from headway.core.ids import BatchId, BatchKey, Capacity, Part, RequestId, VersionId, WorkerId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.scheduler import Scheduler
from headway.core.tenancy import TenantPolicy
from headway.core.units import NEVER, Instant, ms
from headway.sim.ledger import TrackedWorker
from headway.sim.oracles import Oracle

BATCHED, HELD, ENGINE = (VersionId("model", number) for number in (1, 2, 3))
VERSIONS = (BATCHED, HELD, ENGINE)
HEALING_ROUNDS = 500

together = st.booleans()
versions = st.sampled_from(VERSIONS)
delays = st.sampled_from([0, ms(1), ms(3), ms(5), ms(20), ms(200)])
picks = st.integers(0, 1000)
"""Picks one of whatever there is at the time, modulo its number."""
failures = st.sampled_from([Outcome.MODEL_ERROR, Outcome.INVALID_INPUT])
parts = st.lists(st.builds(Part, st.integers(1, 3), st.sampled_from([1, 8, 9, 64, 256])), min_size=1, max_size=5)
batch_policies = st.builds(
    BatchPolicy,
    max_batch_size=st.sampled_from([3, 4, 32]),
    max_batch_tokens=st.sampled_from([0, 256]),
    max_batch_bytes=st.sampled_from([0, 60]),
    slo=st.sampled_from([0, ms(4), ms(40)]),
    max_queue_delay=st.sampled_from([0, ms(3), ms(5)]),
    derive_delay=st.booleans(),
    max_queued_requests=st.sampled_from([3, 100_000]),
    deadline_margin=st.sampled_from([0, ms(1)]),
    equal_lengths=st.booleans(),
    unpadded=st.booleans(),
)


class SchedulerMachine(RuleBasedStateMachine):
    """twin: from the last snapshot on, a restored scheduler that must do the very same."""

    def __init__(self) -> None:
        super().__init__()
        self.scheduler = Scheduler()
        self.twin: Scheduler | None = None
        self.oracle = Oracle()
        self.now: Instant = 0
        self.mailbox: list[ev.Event] = []
        self.answers: list[ev.Event] = []
        self.starting: dict[WorkerId, VersionId] = {}
        self.requests = 0
        self.workers = 0

    # -- how events reach the scheduler -------------------------------------------------------------

    def tell(self, event: ev.Event, more_follows: bool = False) -> None:
        self.mailbox.append(event)
        if not more_follows:
            self.handle()

    def handle(self) -> None:
        events, self.mailbox = self.mailbox, []
        effects = self.scheduler.handle(events, self.now)
        self.oracle.observe(self.now, events, effects, self.scheduler)
        if self.twin is not None:
            assert self.twin.handle(events, self.now) == effects

    def advance(self, to: Instant) -> None:
        """Wake the scheduler whenever it asked to be."""
        self.handle()
        while (wakeup := self.scheduler.next_wakeup()) <= to:
            self.now = wakeup
            self.handle()
        self.now = to

    # -- what there is --------------------------------------------------------------------------------

    @property
    def running(self) -> list[tuple[WorkerId, BatchId, int]]:
        """(worker, batch, how many parts)"""
        workers = self.oracle.ledger.workers.values()
        return [(w.worker, batch, len(tracked.parts)) for w in workers for batch, tracked in w.batches.items()]

    @property
    def sequences(self) -> list[tuple[WorkerId, RequestId, int]]:
        return [(w.worker, *sequence) for w in self.oracle.ledger.workers.values() for sequence in w.sequences]

    @property
    def living(self) -> list[TrackedWorker]:
        return list(self.oracle.ledger.workers.values())

    # -- configuration --------------------------------------------------------------------------------

    @initialize(
        policies=st.tuples(batch_policies, batch_policies),
        weight=st.sampled_from([0.5, 1.0, 3.0]),
        bound=st.sampled_from([1 << 30, 1000]),
    )
    def configure(self, policies: tuple[BatchPolicy, BatchPolicy], weight: float, bound: int) -> None:
        batched, held = policies
        held.hold = True
        self.mailbox.append(
            ev.ServerConfigured(ServerPolicy(max_queued_bytes=bound, tenants=(("a", TenantPolicy(weight=weight)),)))
        )
        engine = BatchPolicy(style=Style.SEQUENCE)
        for version, policy in zip(VERSIONS, (batched, held, engine), strict=True):
            self.mailbox.append(ev.VersionConfigured(version, policy))
        for version in VERSIONS:
            self.start_worker(version, more=True)
            self.worker_is_ready(0, more=True)
        self.handle()

    @rule(version=st.sampled_from([BATCHED, HELD]), policy=batch_policies, more=together)
    def reconfigure(self, version: VersionId, policy: BatchPolicy, more: bool) -> None:
        policy.hold = version == HELD
        self.tell(ev.VersionConfigured(version, policy), more)

    @rule(high=st.booleans(), more=together)
    def memory(self, high: bool, more: bool) -> None:
        self.tell(ev.MemoryPressureChanged(high), more)

    @rule(version=versions, pick=picks, more=together)
    def drain_version(self, version: VersionId, pick: int, more: bool) -> None:
        if pick % 4 == 0:  # seldom: little happens afterwards
            self.tell(ev.VersionDrained(version), more)

    @rule(pick=picks, more=together)
    def drain_server(self, pick: int, more: bool) -> None:
        if pick % 8 == 0:
            self.tell(ev.DrainStarted(), more)

    # -- clients --------------------------------------------------------------------------------------

    @rule(
        version=versions,
        signature=st.sampled_from(["x", "y"]),
        tenant=st.sampled_from(["a", "b", "c"]),
        parts=parts,
        patience=st.one_of(st.none(), delays),
        priority=st.integers(0, 3),
        size=st.integers(0, 300),
        more=together,
    )
    def arrive(
        self,
        version: VersionId,
        signature: str,
        tenant: str,
        parts: list[Part],
        patience: int | None,
        priority: int,
        size: int,
        more: bool,
    ) -> None:
        self.requests += 1
        deadline = NEVER if patience is None else self.now + patience
        wanted = tuple(parts[:1] if version == ENGINE else parts)
        key = BatchKey(*version, signature)
        self.tell(ev.RequestArrived(self.requests, tenant, key, wanted, size, deadline, priority), more)

    @precondition(lambda self: self.requests)
    @rule(pick=picks, more=together)
    def cancel(self, pick: int, more: bool) -> None:
        """Often of a request that has its outcome already."""
        self.tell(ev.RequestCancelled(1 + pick % self.requests), more)

    @rule(version=versions, overhead=delays, more=together)
    def reply_is_written(self, version: VersionId, overhead: int, more: bool) -> None:
        self.tell(ev.ReplyWritten(1, overhead, version), more)

    # -- workers --------------------------------------------------------------------------------------

    @rule(version=versions, more=together)
    def start_worker(self, version: VersionId, more: bool) -> None:
        self.workers += 1
        self.starting[self.workers] = version
        self.tell(ev.WorkerStarting(self.workers, version, ms(5)), more)

    @precondition(lambda self: self.starting)
    @rule(pick=picks, more=together)
    def worker_is_ready(self, pick: int, more: bool) -> None:
        worker = list(self.starting)[pick % len(self.starting)]
        engine = self.starting.pop(worker) == ENGINE
        self.tell(ev.WorkerReady(worker, Capacity(0, 2) if engine else Capacity(1)), more)

    @precondition(lambda self: self.living)
    @rule(pick=picks, end=st.sampled_from([ev.WorkerLost, ev.WorkerStopped]), more=together)
    def worker_ends(self, pick: int, end: type[ev.WorkerLost] | type[ev.WorkerStopped], more: bool) -> None:
        worker = self.living[pick % len(self.living)].worker
        self.starting.pop(worker, None)
        self.tell(end(worker), more)

    @precondition(lambda self: self.living)
    @rule(pick=picks, more=together)
    def worker_drains(self, pick: int, more: bool) -> None:
        worker = self.living[pick % len(self.living)].worker
        self.starting.pop(worker, None)
        self.tell(ev.WorkerDraining(worker), more)

    @precondition(lambda self: self.living)
    @rule(pick=picks, room=st.integers(0, 3), more=together)
    def capacity_changes(self, pick: int, room: int, more: bool) -> None:
        worker = self.living[pick % len(self.living)]
        if worker.ready:
            capacity = Capacity(0, room) if worker.version == ENGINE else Capacity(min(1, room))
            self.tell(ev.CapacityChanged(worker.worker, capacity), more)

    # -- answers --------------------------------------------------------------------------------------

    @precondition(lambda self: self.running)
    @rule(pick=picks, took=delays, failing=st.lists(failures, max_size=3), more=together)
    def batch_completes(self, pick: int, took: int, failing: list[Outcome], more: bool) -> None:
        """The last parts of it fail."""
        worker, batch, size = self.running[pick % len(self.running)]
        failed = [ev.PartFailure(size - 1 - n, outcome, "bad") for n, outcome in enumerate(failing[:size])]
        self.answer(ev.BatchCompleted(worker, batch, took, tuple(failed)), more)

    @precondition(lambda self: self.running)
    @rule(pick=picks, took=delays, outcome=failures, more=together)
    def batch_fails(self, pick: int, took: int, outcome: Outcome, more: bool) -> None:
        worker, batch, _ = self.running[pick % len(self.running)]
        self.answer(ev.BatchFailed(worker, batch, took, outcome, "the model raised"), more)

    @precondition(lambda self: self.sequences)
    @rule(pick=picks, count=st.integers(1, 3), more=together)
    def tokens(self, pick: int, count: int, more: bool) -> None:
        worker, request, attempt = self.sequences[pick % len(self.sequences)]
        tracked = self.oracle.ledger.open.get(request)
        if tracked is not None:
            self.answer(ev.TokensEmitted(worker, request, attempt, tracked.emitted, count, ms(1)), more)

    @precondition(lambda self: self.sequences)
    @rule(pick=picks, fails=st.booleans(), more=together)
    def sequence_ends(self, pick: int, fails: bool, more: bool) -> None:
        worker, request, attempt = self.sequences[pick % len(self.sequences)]
        if fails:
            self.answer(ev.SequenceFailed(worker, request, attempt, Outcome.MODEL_ERROR, "it raised"), more)
        else:
            self.answer(ev.SequenceFinished(worker, request, attempt), more)

    def answer(self, event: ev.Event, more: bool) -> None:
        self.answers.append(event)
        self.tell(event, more)

    @precondition(lambda self: self.answers)
    @rule(pick=picks, more=together)
    def an_old_answer_comes_again(self, pick: int, more: bool) -> None:
        """Late, or twice; perhaps from a worker that is long gone."""
        self.tell(self.answers[pick % len(self.answers)], more)

    @precondition(lambda self: self.running and self.workers > 1)
    @rule(pick=picks, other=picks, more=together)
    def an_answer_comes_from_the_wrong_worker(self, pick: int, other: int, more: bool) -> None:
        worker, batch, _ = self.running[pick % len(self.running)]
        wrong = 1 + other % self.workers
        if wrong != worker:
            self.tell(ev.BatchCompleted(wrong, batch, ms(1)), more)

    # -- time, snapshots --------------------------------------------------------------------------------

    @rule(delay=delays)
    def time_passes(self, delay: int) -> None:
        self.advance(self.now + delay)

    @rule()
    def snapshot(self) -> None:
        saved = self.scheduler.snapshot()
        self.twin = Scheduler.restore(json.loads(json.dumps(saved)))
        self.twin.check()
        assert self.twin.snapshot() == saved

    @invariant()
    def a_wakeup_is_never_missed(self) -> None:
        assert self.scheduler.next_wakeup() > self.now or not self.oracle.ledger.versions

    # -- the end ----------------------------------------------------------------------------------------

    def teardown(self) -> None:
        """Heal; then everything that was let in comes to its end."""
        if not self.oracle.ledger.versions:
            return
        self.mailbox.append(ev.MemoryPressureChanged(False))
        for worker in self.living:
            if worker.ready and not worker.draining:
                capacity = Capacity(0, 2) if worker.version == ENGINE else Capacity(1)
                self.mailbox.append(ev.CapacityChanged(worker.worker, capacity))
        for version in VERSIONS:
            self.start_worker(version, more=True)
        while self.starting:
            self.worker_is_ready(0, more=True)
        self.handle()
        for _ in range(HEALING_ROUNDS):
            if self.scheduler.is_idle():
                break
            for worker, batch, _ in self.running:
                self.mailbox.append(ev.BatchCompleted(worker, batch, ms(1)))
            for sequence in self.sequences:
                self.mailbox.append(ev.SequenceFinished(*sequence))
            self.advance(self.now + ms(1))
        self.advance(self.now + ms(200))  # timers of what has left since
        self.oracle.finish(self.scheduler)


TestScheduler = SchedulerMachine.TestCase
TestScheduler.settings = settings(
    max_examples=150,
    stateful_step_count=40,
    deadline=None,
    database=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
