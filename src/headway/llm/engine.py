"""The loop of an engine: plan, compute, choose, commit; one step after the other.

It runs in a worker process. Whoever drives it adds requests, aborts them, calls `step`, and passes on what comes of it;
the planner's deadlines and step times are of the clock that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from headway.core.ids import RequestId
from headway.core.units import Instant
from headway.llm.plan.planner import Planner
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.step import Emitted, End, Refusal, StepPlan
from headway.llm.run.runner import Runner
from headway.llm.sample.history import History
from headway.llm.sample.logprobs import Logprob
from headway.llm.sample.params import SamplingParams
from headway.llm.sample.sampler import sample


class Token(NamedTuple):
    """position: in the output, from 0.  end: None while it goes on."""

    id: SequenceId
    position: int
    token: int
    logprob: Logprob | None
    end: End | None


class Failure(NamedTuple):
    """A sequence of which no token can come: all are banned, or the model's numbers are none."""

    id: SequenceId
    detail: str


class Step(NamedTuple):
    """What came of one. ended: sequences that were given up without a token."""

    tokens: list[Token]
    ended: list[tuple[SequenceId, End]]
    failed: list[Failure]


class Engine:
    """planner, runner: of equal block size; the runner has its blocks. clock: monotonic, in ns."""

    def __init__(self, planner: Planner, runner: Runner, clock: Callable[[], Instant]) -> None:
        self.planner = planner
        self._runner = runner
        self._clock = clock
        self._histories: dict[SequenceId, History] = {}

    @property
    def is_idle(self) -> bool:
        return not self.planner.state.sequences

    def add(self, request: SequenceRequest, params: SamplingParams) -> Refusal | None:
        """params: of all its choices; their stops become the request's. Why it is not taken, if so. ParamError for
        tokens that the vocabulary lacks."""
        params.check_vocabulary(self._runner.config.vocabulary)
        ends = tuple(dict.fromkeys((*request.stops, *params.stops)))
        refused = self.planner.add(replace(request, stops=ends), self._clock())
        if refused is not None:
            return refused
        params = replace(params, stops=ends)
        for id in self.planner.state.requests[request.id]:
            self._histories[id] = History(params, request.prompt, request.output, id.choice)
        return None

    def abort(self, request: RequestId) -> bool:
        """Its blocks are free when this returns, as no step is running. False: it was over."""
        ids = list(self.planner.state.requests.get(request, ()))
        for id in ids:
            del self._histories[id]
        return self.planner.abort(request)

    def step(self) -> Step:
        """One step; nothing in it where nothing can be computed."""
        began = self._clock()
        plan = self.planner.plan(began)
        ended = plan.finished
        for id, _ in ended:
            self._histories.pop(id, None)
        if not plan.rows:
            return Step([], ended, [])
        chosen, told, failed = self._compute(plan)
        now = self._clock()
        emitted = self.planner.commit(chosen, now, now - began)
        for failure in failed:
            self.planner.abort(failure.id.request)
            for id in [id for id in self._histories if id.request == failure.id.request]:
                del self._histories[id]
        broken = dict.fromkeys(failure.id.request for failure in failed)
        tokens = [self._token(each, told) for each in emitted if each.id.request not in broken]
        return Step(tokens, ended, failed)

    def _compute(self, plan: StepPlan) -> tuple[list[int | None], dict[SequenceId, Logprob | None], list[Failure]]:
        """Row by row the tokens for `commit`, and what is told of them."""
        output = self._runner.step(plan)
        ids = [plan.rows[number].id for number in output.rows]
        sampled = sample(output.logits, [self._histories[id] for id in ids])
        tokens = [0 if each.token is None else each.token for each in sampled]
        self._runner.sampled(tokens)
        chosen: list[int | None] = [None] * len(plan.rows)
        for number, token in zip(output.rows, tokens, strict=True):
            chosen[number] = token
        told = {id: each.logprob for id, each in zip(ids, sampled, strict=True)}
        failed = [
            Failure(id, "no token can come: all are banned, or the logits are not numbers")
            for id, each in zip(ids, sampled, strict=True)
            if each.token is None
        ]
        return chosen, told, failed

    def _token(self, emitted: Emitted, told: dict[SequenceId, Logprob | None]) -> Token:
        if emitted.end is None:
            self._histories[emitted.id].append(emitted.token)
        else:
            del self._histories[emitted.id]
        return Token(emitted.id, emitted.position, emitted.token, told[emitted.id], emitted.end)
