"""The virtual clock of engines: it does with a scheduler of steps what a live engine does.

While a step runs the next is planned; when it ends its results are committed and the next begins at once. Where nothing
runs, time jumps to what happens next. Of one instant: arrivals first, then clients that leave, then steps that end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from heapq import heappop, heappush

from headway.core.ids import RequestId
from headway.core.units import NEVER, Duration, Instant
from headway.llm.plan.step import StepPlan
from headway.sim.llm.arrivals import Arrival, answer
from headway.sim.llm.engine import Engine
from headway.sim.llm.recorder import Recorder

Placement = Callable[[Arrival, Sequence[Engine], Instant], int]
"""Which engine a request goes to: its index."""

LEAVE, END, PLAN = range(3)
TRIES = 4
"""To plan, where a plan brought nothing but that sequences lost their blocks."""


class Stuck(AssertionError):
    """Sequences wait, nothing runs, and the scheduler plans nothing: it would stay so for ever."""


def least_loaded(arrival: Arrival, engines: Sequence[Engine], now: Instant) -> int:
    """The first of those with the fewest sequences."""
    return min(range(len(engines)), key=lambda index: engines[index].load)


class Driver:
    """late: the next step is planned so long before the running one is expected to end, in ns; 0 plans it as soon as
    that has begun."""

    def __init__(
        self, engines: Sequence[Engine], recorder: Recorder, place: Placement = least_loaded, late: Duration = 0
    ) -> None:
        self.engines = engines
        self.recorder = recorder
        self.now: Instant = 0
        self._place = place
        self._late = late
        self._agenda: list[tuple[Instant, int, int, int]] = []
        """When, what, number of the engine or request, step."""
        self._answers: dict[RequestId, tuple[Engine, int, int]] = {}
        """Where it is; tokens of its prompt, and of its answers."""
        self._requests = 0

    def run(self, arrivals: Iterable[Arrival], until: Instant = NEVER) -> None:
        """Until all that arrive have ended, or the clock would pass `until`. Arrivals are in the order of time."""
        coming = iter(arrivals)
        arrival = next(coming, None)
        agenda = self._agenda
        while True:
            due = min(arrival.at if arrival else NEVER, agenda[0][0] if agenda else NEVER)
            if due > until or due == NEVER:
                return
            self.now = max(self.now, due)
            arrival = self._arrive(arrival, coming)
            while agenda and agenda[0][0] <= self.now:
                self._happen(*heappop(agenda)[1:])
            for engine in self.engines:
                if engine.running is None and engine.scheduler.state.sequences:
                    self._go_on(engine)

    def _arrive(self, arrival: Arrival | None, coming: Iterator[Arrival]) -> Arrival | None:
        while arrival is not None and arrival.at <= self.now:
            number = self._requests = self._requests + 1
            engine = self.engines[self._place(arrival, self.engines, self.now)]
            refusal = engine.scheduler.add(arrival.request(number), self.now)
            self.recorder.arrived(number, arrival, refusal, self.now)
            if refusal is None:
                self._answers[number] = (engine, arrival.prompt_tokens, arrival.output)
                if arrival.leaves_after < NEVER:
                    heappush(self._agenda, (self.now + arrival.leaves_after, LEAVE, number, 0))
            arrival = next(coming, None)
        return arrival

    def _happen(self, what: int, number: int, step: int) -> None:
        if what == LEAVE:
            place = self._answers.pop(number, None)
            if place is not None and place[0].scheduler.abort(number):
                self.recorder.left(number, self.now)
            return
        engine = self.engines[number]
        if engine.running is None or engine.step != step:
            return
        if what == END:
            self._end(engine)
        elif engine.ready is None:
            engine.ready = self._plan(engine)

    def _end(self, engine: Engine) -> None:
        plan = engine.running
        assert plan is not None
        engine.running = None
        emitted = engine.scheduler.commit(self._results(plan), self.now, engine.ends - engine.began)
        self.recorder.ran(engine, plan, emitted, self.now)
        if engine.ready is not None:
            ready, engine.ready = engine.ready, None
            self._begin(engine, ready)

    def _go_on(self, engine: Engine) -> None:
        """Nothing runs, and something is there."""
        for _ in range(TRIES):
            plan = self._plan(engine)
            if plan is not None:
                self._begin(engine, plan)
                return
            if not engine.scheduler.state.sequences:
                return
        waiting = list(engine.scheduler.state.sequences.values())
        raise Stuck(f"at {self.now} engine {engine.number} plans nothing for {len(waiting)} sequences: {waiting[:5]}")

    def _begin(self, engine: Engine, plan: StepPlan) -> None:
        engine.begin(plan, self.now)
        heappush(self._agenda, (engine.ends, END, engine.number, engine.step))
        if not self._late:
            engine.ready = self._plan(engine)
            return
        at = max(self.now, self.now + plan.predicted - self._late)
        if at < engine.ends:
            heappush(self._agenda, (at, PLAN, engine.number, engine.step))

    def _plan(self, engine: Engine) -> StepPlan | None:
        plan = engine.scheduler.plan(self.now)
        self.recorder.planned(engine, plan, self.now)
        return plan if plan.rows else None

    def _results(self, plan: StepPlan) -> list[int | None]:
        """What the model samples. Who is not there any more gets some token: the scheduler has to know better."""
        results: list[int | None] = []
        answers = self._answers
        for id, _, start, size, _, _, samples in plan.rows:
            if not samples:
                results.append(None)
                continue
            place = answers.get(id.request)
            results.append(answer(id, start + size - place[1], place[2]) if place else 1)
        return results
