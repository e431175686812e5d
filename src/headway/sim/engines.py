"""Simulated engines: the real planner behind the core, on a device that takes as long as its step-time model says."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from headway.core.effects import AbortSequence, AdmitSequence, TakeBack, UpdateCounters
from headway.core.events import CapacityChanged, Event
from headway.core.ids import Capacity, RequestId, Tenant, WorkerId
from headway.core.outcomes import Outcome
from headway.core.units import Duration
from headway.llm.plan.attached import AttachedPlanner
from headway.llm.plan.planner import Planner
from headway.llm.plan.policy import PlanPolicy
from headway.llm.plan.request import SequenceRequest
from headway.llm.plan.step import StepPlan
from headway.llm.plan.step_time import Coefficients
from headway.sim.driver import Driver
from headway.sim.workloads import Arrival

MANY = 1_000_000


@dataclass(frozen=True, slots=True)
class EngineModel:
    """What each engine of a version is. policy: its prices in ns.  steps: how long its steps take.
    ahead: a step is planned while the one before it runs.  grid: steps take multiples of it.
    weights: of tenants, as the server has configured them."""

    policy: PlanPolicy
    blocks: int
    block_size: int
    steps: Coefficients
    ahead: bool = False
    grid: Duration = 1
    weights: tuple[tuple[Tenant, float], ...] = ()

    @property
    def capacity(self) -> Capacity:
        return self.planner(0).capacity

    def planner(self, worker: WorkerId) -> AttachedPlanner:
        weights = dict(self.weights)
        planner = Planner(
            self.policy,
            self.blocks,
            self.block_size,
            weight=lambda tenant: weights.get(tenant, 1.0),
            prior=self.steps,
        )
        return AttachedPlanner(worker, planner)

    def time(self, plan: StepPlan) -> Duration:
        took = int(self.steps.predict(plan.prefill, plan.decodes, plan.context, plan.pairs))
        return max(1, -(-took // self.grid)) * self.grid


class SimEngine:
    """One of them.

    answer: told what it has to say.  ended: told after each thing it has said.
    slower: a factor of a step's time.  fails: whether a sequence fails in a step.
    checked: the planner's state is looked at after every step.
    """

    def __init__(
        self,
        worker: WorkerId,
        model: EngineModel,
        driver: Driver,
        answer: Callable[[Event], None],
        slower: Callable[[], int],
        fails: Callable[[], bool],
        ended: Callable[[], None],
    ) -> None:
        self.attached = model.planner(worker)
        self.gone = False
        self._model = model
        self._driver = driver
        self._answer = answer
        self._slower = slower
        self._fails = fails
        self._end = ended
        self._plans: deque[StepPlan] = deque()
        self._steps = False

    @property
    def is_empty(self) -> bool:
        return not self.attached.planner.state.sequences and not self._plans

    # -- orders ------------------------------------------------------------------------------

    def admit(self, effect: AdmitSequence, arrival: Arrival, emitted: int) -> None:
        """emitted: results that its client has already."""
        request = SequenceRequest(
            effect.request,
            arrival.tenant,
            prompt(effect.request, arrival),
            max(arrival.outputs, emitted + 1),
            arrival.priority,
            output=tuple(range(emitted)),
        )
        self._tell(self.attached.admit(effect, request, arrival.prefix, self._driver.now))
        self._go_on()

    def abort(self, effect: AbortSequence) -> None:
        self._tell(self.attached.abort(effect.request, effect.attempt))

    def take_back(self, effect: TakeBack) -> None:
        self._tell(self.attached.take_back(effect))

    def update(self, effect: UpdateCounters) -> None:
        self.attached.update(effect)

    def resize(self, blocks: int) -> None:
        """So many are usable from now on."""
        self.attached.planner.resize(blocks)
        self._tell([CapacityChanged(self.attached.worker, self.attached.capacity), self.attached.report()])
        self._go_on()

    # -- steps -------------------------------------------------------------------------------

    def _go_on(self) -> None:
        """At the end of this instant, when all that is ordered in it has been heard."""
        if not self._steps and not self.gone:
            self._steps = True
            self._driver.at(self._driver.now, self._begin)

    def _begin(self) -> None:
        if not self._plans and not self.gone:
            self._plan()
        if not self._plans or self.gone:
            self._steps = False
            return
        plan = self._plans[0]
        if self._model.ahead:
            self._plan()
        elapsed = self._model.time(plan) * self._slower()
        self._driver.at(self._driver.now + elapsed, lambda: self._ended(elapsed))

    def _plan(self) -> None:
        plan = self.attached.planner.plan(self._driver.now)
        if plan.finished:
            self._tell(self.attached.stepped((), plan.finished))
        if plan.rows:
            self._plans.append(plan)

    def _ended(self, elapsed: Duration) -> None:
        plan = self._plans.popleft()
        planner = self.attached.planner
        failed: dict[RequestId, None] = {}
        for row in plan.rows:
            if row.id.request in planner.state.requests and self._fails():
                failed[row.id.request] = None
        for request in failed:
            self._tell(self.attached.fail(request, Outcome.MODEL_ERROR, "the model raised"))
        results = [self._driver.now % MANY if row.samples else None for row in plan.rows]
        emitted = planner.commit(results, self._driver.now, elapsed)
        self._tell(self.attached.stepped(emitted))
        planner.check()
        self._begin()

    def _tell(self, events: list[Event]) -> None:
        for event in events:
            self._answer(event)
            self._end()


def prompt(request: RequestId, arrival: Arrival) -> list[int]:
    """The longest of its prefixes, as all that have it begin, then tokens of its own."""
    length = arrival.parts[0].length
    shared, hash = arrival.prefix[-1] if arrival.prefix else (0, 0)
    shared = min(shared, length)
    common = [hash * MANY + at for at in range(shared)]
    return common + [-(request * MANY + at) for at in range(length - shared)]
