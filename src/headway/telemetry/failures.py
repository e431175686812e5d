"""Counts of what failed and what was done about it, from what the core is told and says.

Workers are followed by their events, so that nothing depends on whether the observer hears of a worker's end sooner.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from headway.core.effects import KillWorker, ReportCircuit, RetryParts, SuspectWorker
from headway.core.events import DeviceLost, DeviceRecovered, ReliefReported, WorkerLost, WorkerStarting, WorkerStopped
from headway.core.ids import VersionId, WorkerId


class FailureCounts:
    """Of one version.  retried: parts, by `Remedy`.  losses: of workers, by `Loss`.
    suspected, hung: workers; those that hung were suspected first.  openings: of the circuit.
    reliefs: of those that are suspected, by `Relief`."""

    __slots__ = ("hung", "losses", "openings", "reliefs", "retried", "suspected")

    def __init__(self) -> None:
        self.retried: dict[str, int] = {}
        self.losses: dict[str, int] = {}
        self.reliefs: dict[str, int] = {}
        self.suspected = self.hung = self.openings = 0


NONE = FailureCounts()


class Failures:
    """watched: type of event or effect -> what counts it.  devices: how often each was lost."""

    def __init__(self) -> None:
        self.versions: dict[tuple[str, int], FailureCounts] = {}
        self.devices: dict[str, int] = {}
        self._workers: dict[WorkerId, VersionId] = {}
        self._broken: dict[str, None] = {}
        self.watched: dict[type, Callable[[Any], object]] = {
            WorkerStarting: self._starting,
            WorkerStopped: lambda event: self._workers.pop(event.worker, None),
            WorkerLost: self._lost,
            ReliefReported: self._relieved,
            DeviceLost: self._device_lost,
            DeviceRecovered: lambda event: self._broken.pop(event.device, None),
            RetryParts: self._retried,
            ReportCircuit: self._circuit,
            SuspectWorker: self._suspected,
            KillWorker: self._killed,
        }

    def of(self, version: tuple[str, int]) -> FailureCounts:
        """To look at."""
        return self.versions.get(version, NONE)

    def _starting(self, event: WorkerStarting) -> None:
        self._workers[event.worker] = event.version

    def _lost(self, event: WorkerLost) -> None:
        """Told twice, by its exit and by the end of its channel, it is counted once."""
        version = self._workers.pop(event.worker, None)
        if version is not None:
            _add(self._counts(version).losses, event.loss.value, 1)

    def _device_lost(self, event: DeviceLost) -> None:
        """Told again each time that it was tried in vain."""
        if event.device not in self._broken:
            self._broken[event.device] = None
            _add(self.devices, event.device, 1)

    def _relieved(self, event: ReliefReported) -> None:
        _add(self._counts(event.version).reliefs, event.what.value, 1)

    def _retried(self, effect: RetryParts) -> None:
        _add(self._counts(effect.version).retried, effect.how.value, len(effect.parts))

    def _circuit(self, effect: ReportCircuit) -> None:
        if effect.open:
            self._counts(effect.version).openings += 1

    def _suspected(self, effect: SuspectWorker) -> None:
        if version := self._workers.get(effect.worker):
            self._counts(version).suspected += 1

    def _killed(self, effect: KillWorker) -> None:
        if version := self._workers.get(effect.worker):
            self._counts(version).hung += 1

    def _counts(self, version: VersionId) -> FailureCounts:
        """The core knows the version, so it is configured: labels do not grow with traffic."""
        counts = self.versions.get(version)
        if counts is None:
            counts = self.versions[version] = FailureCounts()
        return counts


def _add(counts: dict[str, int], name: str, number: int) -> None:
    counts[name] = counts.get(name, 0) + number
