"""Simple schedulers to compare the planner with, in the same simulator and over the same blocks and prefix cache.

All serve first come first, whoever's it is. What an engine gives up when blocks run out is the last to come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from headway.core.ids import RequestId
from headway.core.units import Duration, Instant
from headway.llm.plan.planner import Planner
from headway.llm.plan.policy import Admit
from headway.llm.plan.request import SequenceRequest
from headway.llm.plan.sequence import RUNNING
from headway.llm.plan.sequence import Sequence as Known
from headway.llm.plan.state import State
from headway.llm.plan.step import Emitted, End, Refusal, StepPlan
from headway.sim.llm.simulation import LlmScenario, headway

WATERMARK = 0.01
"""Of the pool, that is left free when somebody is admitted, for those that run to grow into."""
SARATHI_TOKENS = 512
"""Of a step, in all: what Sarathi-Serve takes under a strict limit."""


class Baseline:
    """What they have in common: the planner's state, its way of making a step of rows and of taking the results."""

    def __init__(self, scenario: LlmScenario) -> None:
        self._planner = headway(scenario)
        self.state: State = self._planner.state
        self.policy = self.state.policy

    def add(self, request: SequenceRequest, now: Instant) -> Refusal | None:
        return self._planner.add(request, now)

    def abort(self, request: RequestId) -> bool:
        return self._planner.abort(request)

    def plan(self, now: Instant) -> StepPlan:
        decodes, chunks = self.choose()
        return self._planner._step(decodes, chunks)

    def commit(self, results: Sequence[int | None], now: Instant, elapsed: Duration = 0) -> list[Emitted]:
        return self._planner.commit(results, now, elapsed)

    def choose(self) -> tuple[list[Known], list[tuple[Known, int]]]:
        """Streams that go on by a token, and chunks of prompts with their sizes."""
        raise NotImplementedError

    # -- for those that choose ---------------------------------------------------------------

    def waiting(self) -> Iterator[Known]:
        """In the order of arrival; each may be admitted when it is had."""
        return (s for s in list(self.state.sequences.values()) if s.status is not RUNNING)

    def prompts(self) -> list[Known]:
        """Under way, in the order of admission."""
        return [s for s in self.state.running.values() if s.to_prefill > 1 or (s.to_prefill == 1 and not s.confirmed)]

    def admit(self, sequence: Known, spare: int) -> bool:
        """With all the blocks of its prompt, `spare` being left; else nothing happens."""
        state = self.state
        if len(state.running) >= self.policy.max_sequences or sequence.id in state.preempted:
            return False
        found = state.found(sequence)
        idle = sum(1 for block in found if state.pool.is_idle(block))
        need = state.blocks_of(len(sequence.tokens)) - len(found) + idle
        if need + (spare if state.running else 0) > state.pool.available:
            return False
        state.start(sequence, found)
        return True

    @property
    def watermark(self) -> int:
        return int(WATERMARK * self.state.pool.size) + 1

    def streams(self) -> list[Known]:
        """Those that go on; for the sake of an older one the last to come loses its blocks."""
        state, policy = self.state, self.policy
        for s in list(state.running.values()):
            known = len(s.tokens) + s.pending
            going = known - s.computed == 1 and (s.pending or s.confirmed)
            full = s.pending and (known - s.num_prompt >= s.max_tokens or known >= policy.max_context)
            s.stalled = not going or bool(full)
            if s.status is not RUNNING or s.stalled or s.computed < len(s.blocks) * state.block_size:
                continue
            while not state.pool.available and not state.leaving and s.status is RUNNING:
                last = next(reversed(state.running.values()))
                if len(state.running) > 1:
                    state.preempt(last, "growth")
                elif state.plans:
                    break  # what it brings is its last
                else:
                    state.end(s, End.LENGTH)  # alone with the pool, and at the end of it
            if s.status is RUNNING:
                s.stalled = not state.pool.available  # what it wants is on its way back
                if not s.stalled:
                    s.blocks += state.pool.take(1, s.account.tenant)
        return [s for s in state.running.values() if not s.stalled]


class PrefillFirst(Baseline):
    """Whole prompts before anything else, as many as a step holds; streams wait meanwhile (vLLM before chunks)."""

    def choose(self) -> tuple[list[Known], list[tuple[Known, int]]]:
        chunks: list[tuple[Known, int]] = []
        left = self.policy.max_step_tokens
        for sequence in self.waiting():
            if (chunks and len(sequence.tokens) > left) or not self.admit(sequence, self.watermark):
                break
            chunks.append((sequence, sequence.to_prefill))
            left -= sequence.to_prefill
        return ([], chunks) if chunks else (self.streams(), [])


class StaticBatch(Baseline):
    """Who is admitted runs to the end before anybody else is (FasterTransformer). Each has all the blocks that it may
    ever need. Better than the original: whoever is finished costs nothing any more."""

    def choose(self) -> tuple[list[Known], list[tuple[Known, int]]]:
        state = self.state
        if not state.running and not state.plans:
            size, left = state.block_size, state.pool.available
            for sequence in self.waiting():
                left -= -(-(sequence.num_prompt + sequence.max_tokens) // size)
                if (left < 0 and state.running) or not self.admit(sequence, 0):
                    break
        chunks: list[tuple[Known, int]] = []
        tokens = self.policy.max_step_tokens
        for sequence in self.prompts():
            if chunks and sequence.to_prefill > tokens:
                break
            tokens -= sequence.to_prefill
            chunks.append((sequence, sequence.to_prefill))
        return ([], chunks) if chunks else (self.streams(), [])


class FixedChunk(Baseline):
    """Streams first, then prompts under way, then new ones, up to a fixed number of tokens (Sarathi-Serve)."""

    def __init__(self, scenario: LlmScenario, tokens: int = SARATHI_TOKENS) -> None:
        super().__init__(scenario)
        self._tokens = tokens

    def choose(self) -> tuple[list[Known], list[tuple[Known, int]]]:
        decodes = self.streams()
        left = self._tokens - len(decodes)
        chunks: list[tuple[Known, int]] = []
        for sequence in self.prompts():
            count = min(left, sequence.to_prefill)
            if count > 0:
                chunks.append((sequence, count))
                left -= count
        if left > 0:
            for sequence in self.waiting():
                if left <= 0 or not self.admit(sequence, self.watermark):
                    break
                count = min(left, sequence.to_prefill)
                chunks.append((sequence, count))
                left -= count
        return decodes, chunks


class FirstCome:
    """The planner, to which all are one tenant, each with a salt of its own."""

    def __init__(self, scenario: LlmScenario) -> None:
        self._planner: Planner = headway(scenario)
        self.state = self._planner.state
        self.abort = self._planner.abort
        self.plan = self._planner.plan
        self.commit = self._planner.commit

    def add(self, request: SequenceRequest, now: Instant) -> Refusal | None:
        return self._planner.add(replace(request, tenant="everybody", salt=request.salt or request.tenant), now)


def unlimited(scenario: LlmScenario) -> FirstCome:
    """First come, and whatever fits now is admitted."""
    return FirstCome(replace(scenario, policy=replace(scenario.plan_policy, admit=Admit.UNLIMITED)))


SCHEDULERS: dict[str, Callable[[LlmScenario], Baseline | FirstCome | Planner]] = {
    "headway": headway,
    "first-come": FirstCome,
    "unlimited": unlimited,
    "fixed-chunk": FixedChunk,
    "prefill-first": PrefillFirst,
    "static": StaticBatch,
}
"""By name; headway's own first."""
