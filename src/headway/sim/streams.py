"""Simulated workers that stream and report nothing: one result for each of their sequences in turn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from headway.core.effects import AbortSequence, AdmitSequence, TakeBack, UpdateCounters
from headway.core.events import Event, SequenceFailed, SequenceFinished, TokensEmitted
from headway.core.ids import RequestId, WorkerId
from headway.core.outcomes import Outcome
from headway.core.units import Duration
from headway.sim.costs import Cost
from headway.sim.driver import Driver
from headway.sim.workloads import Arrival


@dataclass(slots=True)
class _Stream:
    left: int
    emitted: int = 0
    aborted: bool = False


class SimStreams:
    """What one of them holds; the same face as that of `SimEngine`.

    steps: it is at a step.  began, ended: told of a step's.
    answer: told what it has to say.  slower: a factor of a step's time.  fails: whether a sequence fails in a step.
    """

    def __init__(
        self,
        worker: WorkerId,
        cost: Cost,
        driver: Driver,
        answer: Callable[[Event], None],
        slower: Callable[[], int],
        fails: Callable[[], bool],
        began: Callable[[], None],
        ended: Callable[[], None],
    ) -> None:
        self.steps = False
        self.gone = False
        self._worker = worker
        self._cost = cost
        self._driver = driver
        self._answer = answer
        self._slower = slower
        self._fails = fails
        self._began = began
        self._ended = ended
        self._streams: dict[tuple[RequestId, int], _Stream] = {}

    @property
    def is_empty(self) -> bool:
        return not self._streams

    def admit(self, effect: AdmitSequence, arrival: Arrival, emitted: int) -> None:
        """emitted: nothing, as it begins anew wherever it comes to."""
        self._streams[effect.request, effect.attempt] = _Stream(arrival.outputs)
        if not self.steps:
            self.steps = True
            self._begin()

    def abort(self, effect: AbortSequence) -> None:
        stream = self._streams.get((effect.request, effect.attempt))
        if stream is not None:
            stream.aborted = True

    def take_back(self, effect: TakeBack) -> None:
        raise AssertionError(f"{effect}: it reports nothing that waits")

    def update(self, effect: UpdateCounters) -> None:
        raise AssertionError(f"{effect}: it reports nothing that was served")

    def _begin(self) -> None:
        duration = self._cost(len(self._streams), 1) * self._slower()
        self._began()
        self._driver.at(self._driver.now + duration, lambda: self._step(duration))

    def _step(self, duration: Duration) -> None:
        """One result for each; those that are done or aborted leave."""
        service = duration // max(1, len(self._streams))
        for (request, attempt), stream in list(self._streams.items()):
            if not stream.aborted:
                if self._fails():
                    failed = SequenceFailed(self._worker, request, attempt, Outcome.MODEL_ERROR, "the model raised")
                    self._leave(request, attempt, failed)
                    continue
                self._answer(TokensEmitted(self._worker, request, attempt, stream.emitted, 1, service))
                stream.emitted += 1
                stream.left -= 1
            if stream.aborted or stream.left <= 0:
                self._leave(request, attempt, SequenceFinished(self._worker, request, attempt))
        self.steps = bool(self._streams) and not self.gone
        if self.steps:
            self._begin()
        self._ended()

    def _leave(self, request: RequestId, attempt: int, answer: Event) -> None:
        del self._streams[request, attempt]
        self._answer(answer)
