"""The loop of a worker that is an engine: hear all orders, make a step, tell what came of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from time import monotonic_ns, sleep
from typing import TypeVar

from headway.core.effects import AdmitSequence, TakeBack, UpdateCounters
from headway.core.events import EngineReported, Event, SequenceFailed, SequenceFinished, SequenceReturned, TokensEmitted
from headway.core.ids import BatchKey, RequestId
from headway.core.outcomes import Outcome
from headway.core.units import NEVER
from headway.llm.engine import Engine, FormOf, Step, with_stops
from headway.llm.grammar.form import Form, Kind
from headway.llm.grammar.state import GrammarFailed, GrammarState, GrammarVocabulary
from headway.llm.plan.attached import AttachedPlanner
from headway.llm.plan.request import SequenceRequest
from headway.llm.plan.step import End
from headway.llm.sample.params import ParamError
from headway.wire.engine import Counters, GiveBack, Start, Stepped
from headway.wire.frames import ProtocolViolation
from headway.wire.generation import PromptScores, Result, Token
from headway.wire.messages import Abort, Stop, ToWorker
from headway.worker.channel import Channel
from headway.worker.device_errors import check_device
from headway.worker.engine_counts import CountsReport
from headway.worker.errors import raised
from headway.worker.progress import ProgressReport

log = logging.getLogger("headway.worker")

E = TypeVar("E")
KEY = BatchKey("", 0, "")
"""An engine serves one version: whose orders these are is known."""
NOTHING_TO_DO_S = 0.001
SHOWN = {None: "", End.STOP: "stop", End.LENGTH: "length"}


class EngineLoop:
    def __init__(
        self,
        channel: Channel,
        worker: int,
        name: str,
        attached: AttachedPlanner,
        engine: Engine,
        vocabulary: Callable[[], GrammarVocabulary],
    ) -> None:
        """name: model/version.  engine: of the attached planner.  vocabulary: that forms are about."""
        self._channel = channel
        self._worker = worker
        self._name = name
        self._attached = attached
        self._engine = engine
        self._vocabulary = vocabulary
        self._forms = ThreadPoolExecutor(1, "forms")
        self._progress = ProgressReport(channel, worker)
        self._counts = CountsReport(attached.planner.state)
        self._stopping = False

    def run(self) -> None:
        """Returns when told to stop and all sequences have ended. Raises ChannelClosed, ProtocolViolation,
        DeviceBroken."""
        try:
            while not (self._stopping and self._engine.is_idle):
                if self._engine.is_idle:
                    self._take(self._channel.receive()[0])
                while (received := self._channel.poll()) is not None:
                    self._take(received[0])
                if not self._engine.is_idle:
                    self._progress.step()
                    self._step()
        finally:
            self._forms.shutdown(wait=False, cancel_futures=True)

    # -- orders ------------------------------------------------------------------------------

    def _take(self, message: ToWorker) -> None:
        if isinstance(message, Start):
            self._start(message)
        elif isinstance(message, Abort):
            events = self._attached.abort(message.request, message.attempt)
            if events:
                self._engine.forget(message.request)
                self._tell(events)
        elif isinstance(message, GiveBack):
            events = self._attached.take_back(TakeBack(self._worker, message.request, message.attempt))
            if message.request not in self._engine.planner.state.requests:
                self._engine.forget(message.request)
            self._tell(events)
        elif isinstance(message, Counters):
            self._attached.update(UpdateCounters(self._worker, message.number, message.counters))
        elif isinstance(message, Stop):
            self._stopping = True
        else:
            raise ProtocolViolation(f"a {type(message).__name__} to an engine that is ready")

    def _start(self, message: Start) -> None:
        asked = message.generation
        effect = AdmitSequence(self._worker, message.request, message.attempt, KEY, message.counter, message.paid)
        now = monotonic_ns()
        request = SequenceRequest(
            message.request,
            message.tenant,
            asked.prompt,
            asked.max_tokens,
            message.priority,
            first_by=now + message.left if message.left else NEVER,
            itl=asked.itl,
            choices=asked.choices,
            salt=asked.salt,
            read_cache=asked.prompt_logprobs is None,
            output=message.output,
        )
        request = with_stops(request, asked.sampling)
        try:
            asked.sampling.check_vocabulary(self._engine.vocabulary)
            self._engine.check_prompt(asked.prompt)
        except ParamError as error:
            self._tell(self._attached.refuse(effect, Outcome.INVALID_INPUT, str(error)))
            return
        events = self._attached.admit(effect, request, message.prefix, now)
        if not events:
            self._engine.follow(request, asked.sampling, asked.prompt_logprobs, self._form_of(message))
        else:
            self._tell(events)

    def _form_of(self, message: Start) -> FormOf | None:
        """It is made ready beside the steps of the prompt; a step waits for it that cannot do without."""
        told = message.generation.form
        if told is None:
            return None
        form = Form(Kind(told[0]), told[1])
        ready: Future[None] = self._forms.submit(self._make, form)

        def begin() -> GrammarState:
            ready.result()
            return GrammarState(self._vocabulary(), form, message.output)

        return begin

    def _make(self, form: Form) -> None:
        """Once, in another thread: what it takes to begin is kept by the library. Each choice begins by itself."""
        with suppress(GrammarFailed):  # whoever begins is told
            GrammarState(self._vocabulary(), form).allowed()

    # -- steps -------------------------------------------------------------------------------

    def _step(self) -> None:
        try:
            step = self._engine.step()
        except Exception as error:
            self._broken(error)
            return
        if not self._engine.plan.rows and not step.ended:
            sleep(NOTHING_TO_DO_S)  # what waits cannot begin yet, and nothing is told that was told before
            return
        counts = {scores.id.request: 1 for scores in step.scores}
        events = self._attached.stepped(step.emitted, step.ended, counts)
        self._tell(events, _values(step))
        for failure in step.failed:
            if self._attached.has(failure.id.request):
                self._tell(self._attached.fail(failure.id.request, Outcome.MODEL_ERROR, failure.detail))

    def _broken(self, error: Exception) -> None:
        """Raises DeviceBroken where no step will work any more."""
        log.error("a step of %d rows failed", len(self._engine.plan.rows), exc_info=error)
        check_device(error)
        detail = raised(self._name, error)
        for request in self._engine.drop():
            self._tell(self._attached.fail(request, Outcome.MODEL_ERROR, detail))

    def _tell(self, events: Sequence[Event], values: dict[RequestId, tuple[Result, ...]] | None = None) -> None:
        """events: of a report and what has come since, as an attached planner has them."""
        report, *rest = events
        assert isinstance(report, EngineReported)
        emitted = _of(TokensEmitted, rest)
        self._channel.send(
            Stepped(
                self._worker,
                report,
                emitted,
                tuple((values or {})[event.request] for event in emitted),
                _of(SequenceFinished, rest),
                _of(SequenceFailed, rest),
                _of(SequenceReturned, rest),
                self._counts.due(monotonic_ns()),
            )
        )


def _of(kind: type[E], events: Iterable[Event]) -> tuple[E, ...]:
    return tuple(event for event in events if isinstance(event, kind))


def _values(step: Step) -> dict[RequestId, tuple[Result, ...]]:
    """By request: what of it the step has brought, in order."""
    values: dict[RequestId, list[Result]] = {}
    for scores in step.scores:
        told = [(each.logprob, each.top) for each in scores.scores]
        values.setdefault(scores.id.request, []).append(PromptScores(scores.start, told))
    for id, position, token, logprob, end, cached in step.tokens:
        value, top = (None, ()) if logprob is None else (logprob.logprob, logprob.top)
        result = Token(id.choice, position, token, value, top, SHOWN[end], cached)
        values.setdefault(id.request, []).append(result)
    return {request: tuple(results) for request, results in values.items()}
