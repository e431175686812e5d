"""A planner under observation: every call is checked against what it has promised.

The observer knows what was asked for and what it was told, and keeps its own books: tokens, positions that were handed
out, memory of a pretended device, what each tenant is to be charged. It looks into the planner's state only for what
plans do not say: who runs, whose turn it is, how many tokens of whom were found in the cache.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence as Listed
from dataclasses import dataclass, replace
from typing import Any

from headway.core.ids import RequestId
from headway.core.units import NEVER, Duration, Instant
from headway.llm.plan.planner import Planner
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.step import Emitted, End, Refusal, Row, StepPlan
from headway.sim.llm import promises
from headway.sim.llm.device import Device, PlanViolation
from headway.sim.llm.told import Told


@dataclass(frozen=True, slots=True)
class Flying:
    """A plan without results. tables: of its rows, as they were."""

    plan: StepPlan
    tables: list[list[int]]


class Judge:
    """told: of all that are not over.  flying: plans without results.  calls: so many were judged.
    deep_every: calls after which the planner looks through all of its own state, too: that takes long."""

    def __init__(self, planner: Planner, deep_every: int = 1) -> None:
        self.planner = planner
        self.told: dict[SequenceId, Told] = {}
        self.flying: deque[Flying] = deque()
        self.device = Device(planner.state.block_size)
        self.calls = 0
        self.deep_every = deep_every
        self._ended: list[SequenceId] = []
        self._number = 0
        self._steps = 0
        self._owed: dict[str, int] = {}
        self._again = 0
        """Positions that were handed out a second time."""

    # -- the calls ---------------------------------------------------------------------------

    def add(self, request: SequenceRequest, now: Instant, first_choice: int = 0) -> Refusal | None:
        refusal = self.planner.add(request, now, first_choice)
        wanted = self.planner.state.deadlines(request.tenant)
        if wanted.first_token and request.first_by == NEVER and not request.output:
            request = replace(request, first_by=now + wanted.first_token)
        request = replace(request, itl=request.itl or wanted.itl)
        promises.refusal(self.planner.state, request, refusal)
        if refusal is None:
            for choice in range(first_choice, first_choice + request.choices):
                self._number += 1
                id = SequenceId(request.id, choice)
                first = choice == first_choice
                pays = (first or not self.planner.state.policy.prefix_cache) and not request.output
                self.told[id] = Told(id, request, self._number, first, pays)
        self._after({})
        return refusal

    def abort(self, request: RequestId, choice: int | None = None) -> bool:
        served = self._served()
        ids = [id for id in self.told if id.request == request and choice in (None, id.choice)]
        existed = self.planner.abort(request, choice)
        self._require(existed is bool(ids), f"abort said {existed} of request {request} with {len(ids)} sequences")
        self._require(not self.planner.abort(request, choice), "a second abort says that it was over")
        for id in ids:
            self._over(id)
        self._after(served)
        return existed

    def take_back(self, id: SequenceId) -> SequenceRequest | None:
        served = self._served()
        told = self.told.get(id)
        moved = self.planner.take_back(id)
        self._require((moved is not None) is (told is not None and not told.runs), f"take_back of {told!r}: {moved}")
        if moved is not None and told is not None:
            self._require(list(moved.output) == told.tokens[told.num_prompt :], f"{told!r} is taken back as {moved}")
            self._require(moved.prompt == told.request.prompt, "its prompt stays its prompt")
            self._over(id)
        self._after(served)
        return moved

    def resize(self, blocks: int) -> None:
        self.planner.resize(blocks)
        for id in [id for id in self.told if id not in self.planner.state.sequences]:
            told = self.told[id]
            need = len(told.tokens) + (told.request.max_tokens > 0)
            self._require(need > blocks * self.device.block_size, f"{id} would fit")
            self._ended.append(self.told.pop(id).id)
        self._after({})

    def plan(self, now: Instant) -> StepPlan:
        state = self.planner.state
        served = self._served()
        before = promises.Before(state, self.told)
        waiting = list(self.told.values())
        plan = self.planner.plan(now)
        for id in plan.preempted:
            self._lost(self._alive(id))
        for id, end in plan.finished:
            if id in self._ended:
                self._ended.remove(id)
                self._require(end is End.TOO_LONG, f"{id} ended when the pool shrank, and is told {end.value}")
                continue
            promises.ending(state, self._alive(id), end)
            self._over(id)
        begun = [self.told[id] for id in state.running if not self.told[id].runs]
        for told in begun:
            sequence = state.running[told.id]
            promises.beginning(state, told, sequence)
            told.first_at = told.emitted = 0
            told.begins(sequence.cached * state.block_size)
        promises.order(state, before, begun, plan, waiting)
        promises.victims(state, before, begun, plan, self.told, len(self.flying))
        self._step(plan, now)
        self._after(served)
        return plan

    def commit(self, sampled: Listed[int | None], now: Instant, elapsed: Duration = 0) -> list[Emitted]:
        """The oldest plan runs, on the pretended device."""
        served = self._served()
        flying = self.flying.popleft()
        expected: list[Emitted] = []
        goes_on = [self._goes_on(row) for row in flying.plan.rows]
        for row, table, told, token in zip(flying.plan.rows, flying.tables, goes_on, sampled, strict=True):
            if told is None:
                self.device.spoil(table, row.start, row.size)
                continue
            self._run(told, row, table)
            self._owe(told, row.start + row.size)
            if row.samples:
                assert token is not None
                expected.append(self._sampled(told, token, now))
        emitted = self.planner.commit(sampled, now, elapsed)
        self._require(emitted == expected, f"step {flying.plan.number} brings {emitted}, expected {expected}")
        for each in emitted:
            if each.end is not None:
                self._over(each.id)
        self._after(served)
        return emitted

    def is_idle(self) -> None:
        """Nothing is left of all that was there."""
        self.planner.check()
        state = self.planner.state
        left: list[Any] = [state.requests, state.sequences, state.running, state.resuming, state.computing]
        left += [state.later, state.pool.held, list(state.plans), self.told, self._ended]
        self._require(not any(left), f"something is left: {left}")
        self._require(state.pool.available == state.pool.usable, "all blocks can be had")
        self._require(state.pool.idle_count == len(state.cache), "what is cached is idle")
        self._require(sum(a.reserved for a in state.tenants.accounts.values()) == 0, "nothing is reserved")

    # -- what becomes of sequences -----------------------------------------------------------

    def _alive(self, id: SequenceId) -> Told:
        told = self.told.get(id)
        if told is None:
            raise PlanViolation(f"{id} is over, or was never there")
        return told

    def _goes_on(self, row: Row) -> Told | None:
        told = self.told.get(row.id)
        return told if told is not None and told.runs and told.attempt == row.attempt else None

    def _lost(self, told: Told) -> None:
        if told.runs:
            self._owe(told, told.done or 0)
        else:  # it was admitted in this very plan
            sequence = self.planner.state.sequences.get(told.id)
            told.paid = told.paid if sequence is None else sequence.paid
        told.loses()

    def _over(self, id: SequenceId) -> None:
        told = self.told.pop(id)
        if told.runs:
            self._owe(told, told.done or 0)

    # -- a step ------------------------------------------------------------------------------

    def _step(self, plan: StepPlan, now: Instant) -> None:
        state = self.planner.state
        if not plan.rows:
            self._require(plan.number == 0, "a plan without rows is no step")
            stuck = self.told and not self.flying and not plan.finished and not plan.preempted
            self._require(not stuck, f"nothing is planned, and these wait: {list(self.told.values())[:5]}")
            return
        self._steps += 1
        self._require(plan.number == self._steps, f"step {plan.number} follows {self._steps - 1}")
        self._require(len({row.id for row in plan.rows}) == len(plan.rows), "a sequence is in a step once")
        promises.budget(state, plan, self._alive, now)
        for row in plan.rows:
            told = self._alive(row.id)
            promises.row(state, told, row)
            told.table = list(row.block_table)
            told.done = row.start + row.size
            told.awaited += row.samples
            self._again += max(0, min(told.done, told.reached) - row.start)
        recomputed = state.counts.recomputed
        self._require(recomputed == self._again, f"{recomputed} positions are computed again, and {self._again} were")
        self.flying.append(Flying(plan, [list(row.block_table) for row in plan.rows]))
        rows = [
            (row, table) for flying in self.flying for row, table in zip(flying.plan.rows, flying.tables, strict=True)
        ]
        promises.apart(rows, self.device.block_size)

    def _run(self, told: Told, row: Row, table: list[int]) -> None:
        last = row.start + row.size
        self._require(last <= len(told.tokens), f"{told!r} has no tokens for {row}")
        values = self.device.values(told.root, told.tokens, told.values)
        try:
            self.device.run(table, row.start, values[:last])
        except PlanViolation as violation:
            raise PlanViolation(f"{told!r}: {violation}") from None

    def _sampled(self, told: Told, token: int, now: Instant) -> Emitted:
        policy, request = self.planner.state.policy, told.request
        told.awaited -= 1
        told.tokens.append(token)
        if told.emitted == 0:
            told.first_at = now
        told.emitted += 1
        self._owed[request.tenant] = self._owed.get(request.tenant, 0) + policy.prices.output
        end = None
        if token in request.stops:
            end = End.STOP
        elif told.produced == request.max_tokens or len(told.tokens) == policy.max_context:
            end = End.LENGTH
        return Emitted(told.id, told.produced - 1, token, end)

    # -- books -------------------------------------------------------------------------------

    def _owe(self, told: Told, computed: int) -> None:
        tenant = told.request.tenant
        due = told.due(computed) * self.planner.state.policy.prices.prompt
        self._owed[tenant] = self._owed.get(tenant, 0) + due

    def _served(self) -> dict[int, int]:
        self._owed = {}
        return {id(account): account.served for account in self.planner.state.tenants.accounts.values()}

    def _after(self, served: dict[int, int]) -> None:
        self.calls += 1
        state = self.planner.state
        if served:
            for tenant, account in state.tenants.accounts.items():
                charged = account.served - served.get(id(account), 0)
                owed = self._owed.get(tenant, 0)
                self._require(charged == owed, f"{tenant} is charged {charged} and owes {owed}")
        self._require(sorted(state.sequences) == sorted(self.told), "nobody is lost, and nobody comes back")
        if self.calls % self.deep_every == 0:
            self.planner.check()

    def _require(self, holds: bool, what: str) -> None:
        if not holds:
            raise PlanViolation(what)
