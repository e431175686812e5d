"""The loop of an engine: plan, compute, choose, commit; one step after the other.

It runs in a worker process. Whoever drives it adds requests, aborts them, calls `step`, and passes on what comes of it;
the planner's deadlines and step times are of the clock that is passed in.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Listed
from dataclasses import replace
from typing import NamedTuple, TypeAlias

import torch
from torch import Tensor

from headway.core.ids import RequestId
from headway.core.units import Instant
from headway.llm.grammar.state import GrammarFailed, GrammarState
from headway.llm.plan.planner import Planner
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.step import Emitted, End, Refusal, Row, StepPlan
from headway.llm.run.runner import Runner
from headway.llm.sample.history import History
from headway.llm.sample.logprobs import Logprob, prompt_logprobs
from headway.llm.sample.params import ParamError, SamplingParams
from headway.llm.sample.sampler import sample


class Token(NamedTuple):
    """position: in the output, from 0.  end: None while it goes on.
    cached: with the first of a request, tokens of its prompt that others had computed."""

    id: SequenceId
    position: int
    token: int
    logprob: Logprob | None
    end: End | None
    cached: int = 0


class Failure(NamedTuple):
    """A sequence of which no token can come: all are banned, its form lets none, or the model's numbers are none."""

    id: SequenceId
    detail: str


class Scores(NamedTuple):
    """Log probabilities of a part of a prompt. start: position of its first."""

    id: SequenceId
    start: int
    scores: list[Logprob]


class Step(NamedTuple):
    """What came of one. emitted: the same tokens as the planner tells of them.  ended: sequences that were given up
    without a token."""

    tokens: list[Token]
    ended: list[tuple[SequenceId, End]]
    failed: list[Failure]
    scores: list[Scores]
    emitted: list[Emitted]


FormOf: TypeAlias = Callable[[], GrammarState]
"""Where in its form a sequence begins; it may take its time. Raises GrammarFailed."""


class Followed:
    """What the engine keeps of a sequence beside its planner.

    scores: None, or how many of the most probable tokens are told of each position of the prompt; scored: how far.
    """

    __slots__ = ("form_of", "history", "prompt", "scored", "scores", "state")

    def __init__(self, history: History, prompt: Listed[int], scores: int | None, form_of: FormOf | None) -> None:
        self.history = history
        self.prompt = prompt
        self.scores = scores
        self.scored = 1
        self.form_of = form_of
        self.state: GrammarState | None = None

    @property
    def form(self) -> GrammarState | None:
        if self.state is None and self.form_of is not None:
            self.state, self.form_of = self.form_of(), None
        return self.state

    def targets(self, row: Row) -> tuple[int, list[int]]:
        """Of the prompt's tokens that the row computes the odds of: those not told yet, and the position of the first.
        A sequence that lost its blocks computes some again."""
        first = max(self.scored, row.start + 1)
        return first, list(self.prompt[first : row.start + row.size + 1])


class Engine:
    """planner, runner: of equal block size; the runner has its blocks. clock: monotonic, in ns."""

    def __init__(self, planner: Planner, runner: Runner, clock: Callable[[], Instant]) -> None:
        self.planner = planner
        self._runner = runner
        self._clock = clock
        self._followed: dict[SequenceId, Followed] = {}

    @property
    def is_idle(self) -> bool:
        return not self.planner.state.sequences

    @property
    def vocabulary(self) -> int:
        """Token ids that there are logits for."""
        return self._runner.config.vocabulary

    def check_prompt(self, prompt: Listed[int]) -> None:
        """ParamError for a token that the vocabulary lacks."""
        if min(prompt, default=0) < 0 or max(prompt, default=0) >= self.vocabulary:
            odd = next(token for token in prompt if not 0 <= token < self.vocabulary)
            raise ParamError("prompt", f"has token {odd}; the vocabulary has {self.vocabulary}")

    def add(self, request: SequenceRequest, params: SamplingParams) -> Refusal | None:
        """params: of all its choices; their stops become the request's. Why it is not taken, if so. ParamError for
        tokens that the vocabulary lacks."""
        params.check_vocabulary(self.vocabulary)
        request = with_stops(request, params)
        refused = self.planner.add(request, self._clock())
        if refused is None:
            self.follow(request, params)
        return refused

    def follow(
        self,
        request: SequenceRequest,
        params: SamplingParams,
        scores: int | None = None,
        form_of: FormOf | None = None,
    ) -> None:
        """The planner has taken it.  scores: see `Followed`; of its first choice only."""
        params = replace(params, stops=request.stops)
        for id in self.planner.state.requests[request.id]:
            history = History(params, request.prompt, request.output, id.choice)
            told = scores if id.choice == 0 else None
            self._followed[id] = Followed(history, request.prompt, told, form_of)

    def forget(self, request: RequestId) -> None:
        """The planner has it no more."""
        for id in [id for id in self._followed if id.request == request]:
            del self._followed[id]

    def abort(self, request: RequestId) -> bool:
        """Its blocks are free when this returns, as no step is running. False: it was over."""
        self.forget(request)
        return self.planner.abort(request)

    def step(self) -> Step:
        """One step; nothing in it where nothing can be computed. Raises what the runner does: `drop` is next then."""
        began = self._clock()
        self.plan = plan = self.planner.plan(began)
        ended = plan.finished
        for id, _ in ended:
            self._followed.pop(id, None)
        if not plan.rows:
            return Step([], ended, [], [], [])
        chosen, told, failed, scores = self._compute(plan)
        cached = self._cached(plan)
        now = self._clock()
        emitted = self.planner.commit(chosen, now, now - began)
        failed += self._accept(emitted)
        broken = dict.fromkeys(failure.id.request for failure in failed)
        for request in broken:
            self.abort(request)
        emitted = [each for each in emitted if each.id.request not in broken]
        tokens = [self._token(each, told, cached.get(each.id, 0)) for each in emitted]
        return Step(tokens, ended, failed, scores, emitted)

    def drop(self) -> list[RequestId]:
        """The step that was begun has come to nothing: who was in it. They are over."""
        requests = list(dict.fromkeys(row.id.request for row in self.plan.rows))
        for request in requests:
            self.abort(request)
        self.planner.commit([None] * len(self.plan.rows), self._clock())
        return requests

    def _compute(
        self, plan: StepPlan
    ) -> tuple[list[int | None], dict[SequenceId, Logprob | None], list[Failure], list[Scores]]:
        """Row by row the tokens for `commit`, and what is told of them."""
        scored = [n for n, row in enumerate(plan.rows) if self._scores(row)]
        output = self._runner.step(plan, scored)
        ids = [plan.rows[number].id for number in output.rows]
        allowed, failed = self._allowed(ids)
        sampled = sample(output.logits, [self._followed[id].history for id in ids], allowed)
        tokens = [0 if each.token is None else each.token for each in sampled]
        self._runner.sampled(tokens)
        chosen: list[int | None] = [None] * len(plan.rows)
        for number, token in zip(output.rows, tokens, strict=True):
            chosen[number] = token
        told = {id: each.logprob for id, each in zip(ids, sampled, strict=True)}
        for id, each in zip(ids, sampled, strict=True):
            if each.token is None and id not in failed:
                failed[id] = "no token can come: all are banned, or the logits are not numbers"
        failures = [Failure(id, detail) for id, detail in failed.items()]
        scores = [self._scored(plan.rows[number], output.states[number]) for number in scored]
        return chosen, told, failures, scores

    def _scores(self, row: Row) -> bool:
        followed = self._followed[row.id]
        return followed.scores is not None and bool(followed.targets(row)[1])

    def _scored(self, row: Row, states: Tensor) -> Scores:
        """states: [size, width] of the row's tokens."""
        followed = self._followed[row.id]
        first, targets = followed.targets(row)
        followed.scored = first + len(targets)
        hidden = states[first - 1 - row.start :]
        return Scores(row.id, first, prompt_logprobs(hidden, self._runner.logits, targets, followed.scores or 0))

    def _allowed(self, ids: Listed[SequenceId]) -> tuple[dict[int, Tensor], dict[SequenceId, str]]:
        """By place in `ids`: which tokens its form lets come; and whose form has failed."""
        allowed: dict[int, Tensor] = {}
        failed: dict[SequenceId, str] = {}
        for place, id in enumerate(ids):
            followed = self._followed[id]
            try:
                if followed.form is not None:
                    mask = torch.zeros(self.vocabulary, dtype=torch.bool)
                    of_form = followed.form.allowed()[: len(mask)]
                    mask[: len(of_form)] = torch.from_numpy(of_form)
                    allowed[place] = mask
            except Exception as error:  # of this one alone, whatever it is: its form, or the model's tokenizer
                failed[id] = f"its form cannot go on: {error}"
        return allowed, failed

    def _accept(self, emitted: Listed[Emitted]) -> list[Failure]:
        failed = []
        for id, _, token, end in emitted:
            followed = self._followed[id]
            followed.history.append(token)
            try:
                if end is None and followed.state is not None:
                    followed.state.accept(token)
            except GrammarFailed as error:
                failed.append(Failure(id, f"its form cannot go on: {error}"))
        return failed

    def _cached(self, plan: StepPlan) -> dict[SequenceId, int]:
        """Of first choices that are about to have their first token: one that ends with it is gone after that."""
        state = self.planner.state
        cached: dict[SequenceId, int] = {}
        for id in [row.id for row in plan.rows if row.samples and row.id.choice == 0]:
            sequence = state.sequences.get(id)
            if sequence is not None and sequence.cached and sequence.produced == 0:
                cached[id] = min(sequence.cached * state.block_size, sequence.num_prompt)
        return cached

    def _token(self, emitted: Emitted, told: dict[SequenceId, Logprob | None], cached: int) -> Token:
        if emitted.end is not None:
            del self._followed[emitted.id]
        return Token(emitted.id, emitted.position, emitted.token, told[emitted.id], emitted.end, cached)


def with_stops(request: SequenceRequest, params: SamplingParams) -> SequenceRequest:
    return replace(request, stops=tuple(dict.fromkeys((*request.stops, *params.stops))))
