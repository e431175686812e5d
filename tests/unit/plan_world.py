"""A planner and a device that does what it says, with short names for what tests tell them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from headway.core.units import Instant, ms
from headway.llm.plan.planner import Planner
from headway.llm.plan.policy import PlanPolicy
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.sequence import Sequence as Seq
from headway.llm.plan.step import Emitted, End, Refusal, StepPlan
from headway.llm.plan.step_time import Coefficients
from headway.llm.plan.tenants import Account

QUICK = Coefficients(step=ms(0.1), prefill=1_000.0, decode=10_000.0)
"""0.1 ms a step, 1 us a prefill token, 10 us a decode row: no step of a test comes near its limit in time."""
TOKEN = 500
"""What the device samples unless told otherwise."""


def sequence(
    number: int = 1,
    prompt: int = 10,
    produced: int = 0,
    *,
    computed: int = 0,
    max_tokens: int = 100,
    priority: int = 0,
    tenant: str = "a",
) -> Seq:
    request = SequenceRequest(number, tenant, [1] * prompt, max_tokens, priority)
    made = Seq(SequenceId(number), request, Account(tenant, 1.0), number, 0)
    made.tokens += [2] * produced
    made.computed = made.confirmed = computed
    return made


def prompt(length: int, start: int = 0) -> list[int]:
    """Tokens that are like those of no other start."""
    return [1_000 * start + place for place in range(length)]


class World:
    """add(...) and step() check the whole state. tokens: of each sequence, as a client would have them, by position."""

    def __init__(
        self,
        blocks: int = 64,
        block_size: int = 4,
        *,
        prior: Coefficients = QUICK,
        weight: Callable[[str], float] = lambda tenant: 1.0,
        hash: Any = None,
        planner: type[Planner] = Planner,
        **policy: Any,
    ) -> None:
        settings: dict[str, Any] = {"max_sequences": 8, "max_step_tokens": 64, "tile": 4, "max_context": 1_000}
        more = {} if hash is None else {"hash": hash}
        self.planner = planner(PlanPolicy(**{**settings, **policy}), blocks, block_size, (), weight, prior, **more)
        self.state = self.planner.state
        self.now: Instant = ms(1)
        self.tokens: dict[SequenceId, list[int]] = {}
        self.ends: dict[SequenceId, End] = {}
        self.plans: list[StepPlan] = []

    def add(self, id: int, prompt: list[int], max_tokens: int = 4, tenant: str = "a", **more: Any) -> Refusal | None:
        refused = self.planner.add(SequenceRequest(id, tenant, prompt, max_tokens, **more), self.now)
        self.planner.check()
        return refused

    def plan(self) -> StepPlan:
        self.now += ms(1)
        plan = self.planner.plan(self.now)
        self.planner.check()
        self.ends.update(plan.finished)
        if plan.rows:
            self.plans.append(plan)
        return plan

    def commit(self, token: int | Callable[[SequenceId], int] = TOKEN) -> list[Emitted]:
        plan = self.plans.pop(0)
        sampled = [(token if isinstance(token, int) else token(row.id)) if row.samples else None for row in plan.rows]
        emitted = self.planner.commit(sampled, self.now)
        self.planner.check()
        for each in emitted:
            told = self.tokens.setdefault(each.id, [])
            assert each.position == len(told), "each position once, in order"
            told.append(each.token)
            if each.end is not None:
                assert each.id not in self.ends
                self.ends[each.id] = each.end
        return emitted

    def step(self, token: int | Callable[[SequenceId], int] = TOKEN) -> StepPlan:
        plan = self.plan()
        if plan.rows:
            self.commit(token)
        return plan

    def run(self, most: int = 500) -> int:
        """Steps until nothing is left."""
        for count in range(most):
            if not self.state.sequences:
                self.step()
                return count
            self.step()
        raise AssertionError(f"after {most} steps there are {list(self.state.sequences.values())}")

    def of(self, id: int, choice: int = 0) -> Seq:
        return self.state.sequences[SequenceId(id, choice)]


def sizes(plan: StepPlan) -> dict[int, int]:
    """Tokens of each request in a step."""
    return {row.id.request: row.size for row in plan.rows}


def runs(world: World) -> list[int]:
    return [id.request for id in world.state.running]


def waits(world: World, ids: Sequence[int]) -> bool:
    return all(SequenceId(id) in world.state.sequences and SequenceId(id) not in world.state.running for id in ids)
