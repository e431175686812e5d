"""Simulated workers: they take batches and sequences, need time for them, answer, misbehave and die."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from random import Random

from headway.core.effects import (
    AbortSequence,
    AdmitSequence,
    ClearWorker,
    DispatchBatch,
    KillWorker,
    SuspectWorker,
    TakeBack,
    UpdateCounters,
    WithdrawBatch,
)
from headway.core.events import (
    BatchCompleted,
    BatchFailed,
    DeviceLost,
    DeviceRecovered,
    Event,
    PartFailure,
    Relief,
    ReliefReported,
    WorkerDraining,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
    WorkerStopped,
)
from headway.core.ids import BatchId, RequestId, VersionId, WorkerId
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from headway.core.units import NEVER, Duration, Instant
from headway.sim.driver import Driver
from headway.sim.engines import SimEngine
from headway.sim.faults import NO_FAULTS, Faults
from headway.sim.sim_worker import Model, SimWorker
from headway.sim.streams import SimStreams


class Fleet:
    """All workers of all versions. A worker that ends is followed by a new one with a new id; one that is suspected may
    be by another that was started beside it then."""

    def __init__(self, driver: Driver, models: dict[VersionId, Model], rng: Random, faults: Faults = NO_FAULTS) -> None:
        self.models = models
        self.faults = faults
        self.workers: dict[WorkerId, SimWorker] = {}
        self._reliefs: dict[WorkerId, SimWorker] = {}
        self._broken: dict[str, list[VersionId]] = {}
        """Devices, and whose workers are to be started there once it works again."""
        self._ran: list[tuple[Instant, Instant]] = []
        self._driver = driver
        self._rng = rng
        self._started = 0
        self._character = rng.random()
        driver.on[DispatchBatch] = self._dispatch
        driver.on[AdmitSequence] = self._admit
        driver.on[AbortSequence] = self._abort
        driver.on[UpdateCounters] = self._update_counters
        driver.on[TakeBack] = self._take_back
        driver.on[WithdrawBatch] = self._withdraw
        driver.on[SuspectWorker] = self._relieve
        driver.on[ClearWorker] = self._relieve_no_more
        driver.on[KillWorker] = self._kill

    # -- life and death -------------------------------------------------------------------------

    def start(self) -> None:
        for version, model in self.models.items():
            for _ in range(model.workers):
                self.start_worker(version)

    def _start(self, version: VersionId, relieves: WorkerId = 0) -> SimWorker:
        self._started += 1
        worker = self.workers[self._started] = SimWorker(self._started, version, relieves=relieves)
        load_time = self.models[version].load_time
        self._driver.tell(WorkerStarting(worker.worker, version, load_time))
        if load_time:
            self._driver.at(self._driver.now + load_time, lambda: self._loaded(worker))
        else:
            self._loaded(worker)
        return worker

    def start_worker(self, version: VersionId) -> None:
        """Now, or as soon as its device works."""
        broken = self._broken.get(self.models[version].device)
        if broken is None:
            self._start(version)
        else:
            broken.append(version)

    def lose(self, worker: SimWorker, cause: str, loss: Loss = Loss.CRASHED) -> None:
        """It dies with everything it runs. Its answers may still be on their way."""
        if worker.gone:
            return
        self._end(worker, WorkerLost(worker.worker, cause, loss))

    def _kill(self, effect: KillWorker) -> None:
        self.lose(self.workers[effect.worker], effect.cause, Loss.HUNG)

    def _relieve(self, effect: SuspectWorker) -> None:
        """Another is started beside it; not beside one that is itself the relief of another."""
        suspect = self.workers[effect.worker]
        if suspect.gone or suspect.draining or suspect.relieves or suspect.worker in self._reliefs:
            return
        if self.models[suspect.version].relief:
            relief = self._start(suspect.version, suspect.worker)
            if not relief.gone:
                self._reliefs[suspect.worker] = relief
            self._report_relief(suspect, Relief.STARTED, relief.worker)
        else:
            self._report_relief(suspect, Relief.REFUSED)

    def _relieve_no_more(self, effect: ClearWorker) -> None:
        """It is well again. Of the two the relief goes."""
        relief = self._reliefs.pop(effect.worker, None)
        if relief is not None:
            self._report_relief(self.workers[effect.worker], Relief.RETIRED, relief.worker)
            if relief.up:
                self.drain(relief)
            else:
                self._end(relief, WorkerStopped(relief.worker))

    def _report_relief(self, suspect: SimWorker, what: Relief, relief: WorkerId = 0) -> None:
        self._driver.tell(ReliefReported(suspect.version, suspect.worker, what, relief))

    def lose_device(self, version: VersionId) -> None:
        """What the version runs on is broken for all, and for a while."""
        device = self.models[version].device
        if not device or device in self._broken:
            return
        self._broken[device] = []
        back = self._rng.randrange(1, 200) * self.faults.grid
        self._driver.tell(DeviceLost(device, "it broke", back))
        for worker in self.living():
            if self.models[worker.version].device == device:
                self.lose(worker, "its device is lost", Loss.DEVICE_LOST)
        self._driver.at(self._driver.now + back, lambda: self._device_works(device))

    def _device_works(self, device: str) -> None:
        waiting = self._broken.pop(device)
        self._driver.tell(DeviceRecovered(device))
        for version in waiting:
            self.start_worker(version)

    def drain(self, worker: SimWorker) -> None:
        """It takes nothing new, stops after what it runs, and is replaced."""
        if worker.up and not worker.draining:
            worker.draining = True
            self._driver.tell(WorkerDraining(worker.worker))
            self._stop_if_empty(worker)

    def living(self) -> list[SimWorker]:
        return [worker for worker in self.workers.values() if not worker.gone]

    def busy(self, since: Instant, until: Instant) -> Duration:
        """How long workers ran something, all together, between these two: what a death cut short did not run."""
        running = [(worker.busy_since, until) for worker in self.workers.values() if worker.busy_since >= 0]
        return sum(max(0, min(end, until) - max(begin, since)) for begin, end in self._ran + running)

    def _begin(self, worker: SimWorker) -> None:
        if worker.busy_since < 0 and not worker.gone:
            worker.busy_since = self._driver.now

    def _rest(self, worker: SimWorker) -> None:
        """It has ended something: if that was all, or it is dead, it runs nothing from here on."""
        if worker.busy_since >= 0 and (worker.gone or not (worker.running or worker.steps)):
            self._ran.append((worker.busy_since, self._driver.now))
            worker.busy_since = -1

    def _loaded(self, worker: SimWorker) -> None:
        if worker.gone:
            return
        if self._happens(self.faults.load_fails):
            self.lose(worker, "could not load")
            return
        worker.up = True
        model = self.models[worker.version]
        worker.holder = self._made_holder(worker, model)
        self._driver.tell(WorkerReady(worker.worker, model.capacity, model.measurements))

    def _stop_if_empty(self, worker: SimWorker) -> None:
        """A process needs a moment to exit; it must not be given anything in it."""
        if worker.draining and not worker.gone and worker.is_empty:
            moment = self._rng.randrange(0, 4) * self.faults.grid
            self._driver.at(self._driver.now + moment, lambda: self._stopped(worker))

    def _stopped(self, worker: SimWorker) -> None:
        if not worker.gone:
            self._end(worker, WorkerStopped(worker.worker))

    def _end(self, worker: SimWorker, event: Event) -> None:
        worker.gone, worker.up = True, False
        if worker.holder is not None:
            worker.holder.gone = True
        self._rest(worker)
        self._driver.tell(event)
        if worker.relieves:
            if self._reliefs.get(worker.relieves) is worker:
                del self._reliefs[worker.relieves]
                self._report_relief(self.workers[worker.relieves], Relief.LOST, worker.worker)
        elif (relief := self._reliefs.pop(worker.worker, None)) is not None:
            relief.relieves = 0
            self._report_relief(worker, Relief.TOOK_OVER, relief.worker)
        else:
            self._succeed(worker)

    def _succeed(self, worker: SimWorker) -> None:
        if self._happens(self.faults.gap):
            back = self._driver.now + self._rng.randrange(1, 50) * self.faults.grid
            self._driver.at(back, lambda: self.start_worker(worker.version))
        else:
            self.start_worker(worker.version)

    # -- batches ----------------------------------------------------------------------------------

    def _dispatch(self, effect: DispatchBatch) -> None:
        worker = self.workers[effect.worker]
        parts = [self._driver.requests[request].parts[part] for request, part in effect.parts]
        model = self.models[worker.version]
        duration = model.run_time(parts)
        if self._happens(self.faults.slow):
            duration *= self.faults.slow_factor
        worker.running[effect.batch] = effect
        self._begin(worker)
        begins = worker.begins[effect.batch] = max(self._driver.now + model.hand_over, worker.free_at)
        if self._happens(self.faults.hang):
            worker.free_at = NEVER
            return  # it says nothing any more, and is for the core to give up
        if self._happens(self.faults.pauses):
            duration += self._rng.randrange(self.faults.pause) // self.faults.grid * self.faults.grid
        answer = self._answer(effect, duration)
        if any(self.is_killer(request) for request, _ in effect.parts):
            self._driver.at(begins + duration // 2, lambda: self._dies_of(worker, effect.batch))
        worker.free_at = begins + duration
        self._driver.at(worker.free_at + model.hand_over, lambda: self._batch_ended(worker, answer))
        if self._happens(self.faults.misdirected):
            early = self._driver.now + self._rng.randrange(duration)
            self._driver.at(early // self.faults.grid * self.faults.grid, lambda: self._tell_wrongly(answer))

    def _withdraw(self, effect: WithdrawBatch) -> None:
        """It hears of that when it looks at what comes next: too late for what it has begun."""
        worker = self.workers[effect.worker]
        if self._driver.now < worker.begins.get(effect.batch, 0):
            worker.withdrawn[effect.batch] = None

    def is_killer(self, request: RequestId) -> bool:
        """Whether whatever runs it dies."""
        return self._nature(request) < self.faults.kills

    def is_spoiler(self, request: RequestId) -> bool:
        """Whether whatever runs it raises."""
        return 0 <= self._nature(request) - self.faults.kills < self.faults.raises

    def _nature(self, request: RequestId) -> float:
        content = self._driver.requests[request].content if request in self._driver.requests else 0
        return Random(f"{self._character} {content}").random() if content else 1.0

    def _dies_of(self, worker: SimWorker, batch: BatchId) -> None:
        if batch in worker.running and batch not in worker.withdrawn:
            self.lose(worker, "it ran what kills", Loss.CRASHED)

    def _answer(self, effect: DispatchBatch, duration: Duration) -> BatchCompleted | BatchFailed:
        if any(self.is_spoiler(request) for request, _ in effect.parts) or self._happens(self.faults.batch_fails):
            return BatchFailed(effect.worker, effect.batch, duration, Outcome.MODEL_ERROR, "the model raised")
        sizes = [self._driver.requests[request].parts[part] for request, part in effect.parts]
        tokens = sum(part.rows for part in sizes) * max(part.length for part in sizes)
        if 0 < self.faults.memory < tokens:
            return BatchFailed(effect.worker, effect.batch, duration, Outcome.OUT_OF_MEMORY, "too large")
        failures = tuple(
            PartFailure(position, self._rng.choice((Outcome.MODEL_ERROR, Outcome.INVALID_INPUT)), "this one is bad")
            for position in range(len(effect.parts))
            if self._happens(self.faults.part_fails)
        )
        return BatchCompleted(effect.worker, effect.batch, duration, failures)

    def _batch_ended(self, worker: SimWorker, answer: BatchCompleted | BatchFailed) -> None:
        effect = worker.running.pop(answer.batch, None)
        self._rest(worker)
        if effect is not None and answer.batch in worker.withdrawn:
            left_out = (PartFailure(at, Outcome.MODEL_ERROR, "withdrawn") for at in range(len(effect.parts)))
            answer = BatchCompleted(worker.worker, answer.batch, 0, tuple(left_out))
        self._report(worker, answer)
        self._stop_if_empty(worker)

    def _tell_wrongly(self, answer: BatchCompleted | BatchFailed) -> None:
        """The same answer in another worker's name: it never ran that batch."""
        others = [worker.worker for worker in self.workers.values() if worker.worker != answer.worker]
        if others:
            self._driver.tell(replace(answer, worker=self._rng.choice(others)))

    # -- sequences ----------------------------------------------------------------------------------

    def _admit(self, effect: AdmitSequence) -> None:
        request = self._driver.scheduler._state.requests.get(effect.request)
        emitted = 0 if request is None else request.emitted
        self._holder(effect.worker).admit(effect, self._driver.requests[effect.request], emitted)

    def _abort(self, effect: AbortSequence) -> None:
        self._holder(effect.worker).abort(effect)

    def _update_counters(self, effect: UpdateCounters) -> None:
        self._holder(effect.worker).update(effect)

    def _take_back(self, effect: TakeBack) -> None:
        self._holder(effect.worker).take_back(effect)

    def _holder(self, worker: WorkerId) -> SimEngine | SimStreams:
        holder = self.workers[worker].holder
        assert holder is not None, f"worker {worker} was never ready"
        return holder

    def _made_holder(self, worker: SimWorker, model: Model) -> SimEngine | SimStreams:
        def slower() -> int:
            return self.faults.slow_factor if self._happens(self.faults.slow) else 1

        def fails() -> bool:
            return self._happens(self.faults.sequence_fails)

        def answered(answer: Event) -> None:
            self._report(worker, answer)

        def ended() -> None:
            self._rest(worker)
            self._stop_if_empty(worker)

        if model.engine is not None:
            return SimEngine(worker.worker, model.engine, self._driver, answered, slower, fails, ended)
        began = partial(self._begin, worker)
        return SimStreams(worker.worker, model.cost, self._driver, answered, slower, fails, began, ended)

    # -- what reaches the core ----------------------------------------------------------------------

    def _report(self, worker: SimWorker, answer: Event) -> None:
        """Tell the core; a dead worker's answer is stale, and some answers come twice."""
        if worker.gone and not self._happens(self.faults.stale):
            return
        self._driver.tell(answer)
        if self._happens(self.faults.duplicate):
            later = self._driver.now + self._rng.randrange(0, 4) * self.faults.grid
            self._driver.at(later, lambda: self._driver.tell(answer))

    def _happens(self, probability: float) -> bool:
        return probability > 0 and self._rng.random() < probability
