"""Turns what happens to workers, and what they say, into events for the core and news for the gateway."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import msgspec

from headway.core.events import (
    CapacityChanged,
    DeviceLost,
    DeviceRecovered,
    Event,
    Relief,
    ReliefReported,
    SequenceFailed,
    SequenceFinished,
    VersionConfigured,
    WorkerDraining,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
    WorkerStopped,
)
from headway.core.ids import BatchKey, Part, VersionId, WorkerId
from headway.core.policy import BatchPolicy
from headway.core.units import Duration
from headway.registry.placement import Place
from headway.registry.spec import VersionSpec
from headway.runtime.clock import Clock
from headway.runtime.effects import EffectRunner, failure_outcome
from headway.runtime.observer import Observer
from headway.runtime.policies import batch_policy
from headway.runtime.status import version_status
from headway.runtime.supervisor import Supervisor
from headway.runtime.worker_process import State, WorkerProcess
from headway.wire.engine import Stepped
from headway.wire.frames import ProtocolViolation
from headway.wire.messages import (
    CapacityReport,
    Emitted,
    Executed,
    ExecuteFailed,
    Failed,
    Finished,
    FromWorker,
    ModelMeta,
    Progress,
    ToGateway,
    VersionStatus,
)
from headway.wire.safety import BATCHED, EQUAL_LENGTHS, UNBATCHED, SafetyReport, class_of, stricter

log = logging.getLogger("headway.runtime")

Post = Callable[[Event], None]


class LiveCrew:
    def __init__(
        self,
        versions: Mapping[VersionId, VersionSpec],
        places: Mapping[VersionId, Place],
        post: Post,
        deliver: Callable[[ToGateway], None],
        observer: Observer,
        clock: Clock,
        slos_ms: Mapping[VersionId, float] | None = None,
    ) -> None:
        """versions: may be given other settings, see `aim`.  slos_ms: the tightest of each model's and its tenants',
        0 = none; not given = the models' own."""
        self._versions = versions
        self._places = places
        self._post = post
        self._deliver = deliver
        self._observer = observer
        self._clock = clock
        self._metas: dict[VersionId, ModelMeta] = {}
        self.safety: dict[VersionId, SafetyReport] = {}
        """What a worker found of each version: the strictest, of several workers."""
        self._slos_ms = slos_ms or {}
        self._policies: dict[VersionId, BatchPolicy] = {version: self.policy(version) for version in versions}
        self._told: dict[VersionId, VersionStatus] = {}
        self._draining = False
        self._supervisor: Supervisor
        self._effects: EffectRunner

    def join(self, supervisor: Supervisor, effects: EffectRunner) -> None:
        """Both are made with the crew, so they come later."""
        self._supervisor = supervisor
        self._effects = effects

    def aim(self, slos_ms: Mapping[VersionId, float]) -> None:
        """The versions' settings may have changed, and these are their SLOs. The core is told of what differs."""
        self._slos_ms = slos_ms
        for version in self._versions:
            self._configure(version, self.policy(version))

    def policy(self, version: VersionId) -> BatchPolicy:
        """As the settings say, within what was found of the version, if it was loaded."""
        settings, place, slo_ms = self._versions[version].settings, self._places[version], self._slos_ms.get(version)
        meta, report = self._metas.get(version), self.safety.get(version)
        if meta is None or report is None:
            return batch_policy(settings, place, slo_ms=slo_ms)
        return batch_policy(
            settings,
            place,
            meta.streaming,
            meta.max_batch_size,
            report.mode == EQUAL_LENGTHS,
            meta.max_batch_tokens,
            meta.unpadded,
            slo_ms,
        )

    def quarantine(self, version: VersionId) -> Duration:
        """For how long content is kept out of it."""
        return self._policies[version].quarantine

    def drain(self) -> None:
        """The server is going down: every version says so."""
        self._draining = True
        for version in self._versions:
            self._tell(version)

    def parts_of(self, key: BatchKey, parts: Sequence[Part]) -> tuple[Part, ...]:
        """As the core is told of them: where rows are padded to fixed lengths, that is what they cost."""
        report = self.safety.get(cast(VersionId, key[:2]))  # equal to it, and made in less time
        if report is None or not report.length_classes:
            return tuple(parts)
        return tuple(Part(part.rows, class_of(part.length, report.length_classes)) for part in parts)

    # -- what happens to workers ---------------------------------------------------------------

    def worker_starting(self, worker: WorkerProcess, expected: Duration) -> None:
        self._post(WorkerStarting(worker.id, worker.version, expected))
        self._observer.worker_state(worker.id, worker.version, State.STARTING.value, "")
        self._tell(worker.version)

    def worker_changed(self, worker: WorkerProcess) -> None:
        if worker.state is State.READY:
            self._ready(worker)
        elif worker.state is State.STOPPING:
            self._post(WorkerDraining(worker.id))
        elif worker.state is State.STOPPED:
            self._effects.worker_gone(worker.id)
            self._post(WorkerStopped(worker.id))
        elif worker.state is State.LOST:
            self._effects.worker_gone(worker.id)
            self._post(WorkerLost(worker.id, worker.cause, worker.loss))
        self._observer.worker_state(worker.id, worker.version, worker.state.value, worker.cause)
        self._tell(worker.version)

    def slot_given_up(self, version: VersionId) -> None:
        self._tell(version)

    def relief_reported(self, suspect: WorkerProcess, what: Relief, relief: WorkerProcess | None, cause: str) -> None:
        number = relief.id if relief is not None else 0
        self._post(ReliefReported(suspect.version, suspect.id, what, number, cause))

    def device_lost(self, device: str, cause: str, tried_in: Duration) -> None:
        self._post(DeviceLost(device, cause, tried_in))
        self._tell_those_on(device)

    def device_recovered(self, device: str) -> None:
        self._post(DeviceRecovered(device))
        self._tell_those_on(device)

    def _tell_those_on(self, device: str) -> None:
        for version, spec in self._versions.items():
            if spec.settings.device == device:
                self._tell(version)

    def has_work(self, worker: WorkerId) -> bool:
        return self._effects.has_work(worker)

    def _ready(self, worker: WorkerProcess) -> None:
        ready = worker.ready
        assert ready is not None
        version = worker.version
        report = self.safety[version] = stricter(self.safety.get(version), ready.safety)
        meta = self._metas[version] = _as_found(ready.meta, report)
        self._effects.unpadded[version] = meta.unpadded
        self._configure(version, self.policy(version))
        self._post(WorkerReady(worker.id, ready.capacity, tuple(ready.measurements)))

    def _configure(self, version: VersionId, policy: BatchPolicy) -> None:
        if policy != self._policies[version]:
            self._policies[version] = policy
            self._post(VersionConfigured(version, policy))

    def _tell(self, version: VersionId) -> None:
        """The gateway hears of a version only what is new."""
        slots = self._supervisor.slots.get(version, ())
        status = version_status(version, slots, self._metas.get(version), self._draining, self._clock())
        told = self._told.get(version)
        if told is not None and _same(told, status):
            return
        self._told[version] = status
        self._deliver(status)

    # -- what they say -------------------------------------------------------------------------

    def worker_message(self, worker: WorkerProcess, message: FromWorker, data: memoryview) -> None:
        if isinstance(message, Stepped):
            if message.emitted:
                self._supervisor.succeeded(message.worker)
            for told in self._effects.stepped(message):
                self._post(told)
            if message.counts is not None:
                self._observer.engine(worker.id, message.counts)
            return
        event = self._event(message, data)
        if event is not None:
            self._post(event)

    def _event(self, message: FromWorker, data: memoryview) -> Event | None:
        if isinstance(message, Executed):
            self._supervisor.succeeded(message.worker)
            return self._effects.executed(message, data, self._clock())
        if isinstance(message, Emitted):
            self._supervisor.succeeded(message.worker)
            return self._effects.emitted(message)
        if isinstance(message, ExecuteFailed):
            return self._effects.execute_failed(message, self._clock())
        if isinstance(message, Finished):
            return SequenceFinished(message.worker, message.request, message.attempt)
        if isinstance(message, Failed):
            outcome = failure_outcome(message.code)
            return SequenceFailed(message.worker, message.request, message.attempt, outcome, message.detail)
        if isinstance(message, CapacityReport):
            return CapacityChanged(message.worker, message.capacity)
        if isinstance(message, Progress):
            return None  # the bytes arrived, so it lives; nothing to decide
        raise ProtocolViolation(f"{type(message).__name__} out of turn")


def _as_found(meta: ModelMeta, report: SafetyReport) -> ModelMeta:
    """What the model takes, within what is safe."""
    rows = 1 if report.mode == UNBATCHED else meta.max_batch_size
    unpadded = meta.unpadded and report.mode == BATCHED  # the fixed sizes of invariant mode are padded
    return msgspec.structs.replace(meta, max_batch_size=rows, length_classes=report.length_classes, unpadded=unpadded)


def _same(one: VersionStatus, other: VersionStatus) -> bool:
    """One that dies again of the same is expected back at another time."""
    if one.retry_after or other.retry_after:
        return False
    return (one.state, one.reason, one.meta) == (other.state, other.reason, other.meta)
