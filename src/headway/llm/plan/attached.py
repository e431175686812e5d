"""A planner under a core: what passes between them, as the core's events and effects.

The core decides who comes here and keeps the books; the planner decides what each step computes. A report after each
step says what of the core's orders it has heard, what room there is, who was served and who waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice

from headway.core.effects import AdmitSequence, TakeBack, UpdateCounters
from headway.core.events import (
    EngineReported,
    Event,
    SequenceFailed,
    SequenceFinished,
    SequenceReturned,
    Served,
    TokensEmitted,
)
from headway.core.ids import Capacity, RequestId, WorkerId
from headway.core.outcomes import Outcome
from headway.llm.plan.planner import Planner
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.sequence import RUNNING
from headway.llm.plan.step import Emitted, End

ATTEMPTS = 1 << 16
"""Of a sequence in the planner, for one of its request in the core: so often it is never preempted."""
LOOK_AT = 32
"""Prefixes, of which it is looked in a report whether they are still there."""
MOST_PREFIXES = 2048
OUTCOMES = {End.DEADLINE: Outcome.DEADLINE_EXCEEDED, End.TOO_LONG: Outcome.TOO_LARGE}
NOTHING: Mapping[RequestId, int] = {}
REFUSALS = {"deadline_unmeetable": Outcome.DEADLINE_UNMEETABLE, "context_length_exceeded": Outcome.TOO_LARGE}


class AttachedPlanner:
    """planner: whose prices are nanoseconds, as the core counts them.

    Each method returns what is to be told to the core, in order.
    """

    __slots__ = ("_attempts", "_emitted", "_heard", "_learned", "_number", "_prefixes", "planner", "worker")

    def __init__(self, worker: WorkerId, planner: Planner) -> None:
        self.worker = worker
        self.planner = planner
        self._heard = self._number = self._learned = 0
        self._attempts: dict[RequestId, int] = {}
        self._emitted: dict[RequestId, int] = {}
        self._prefixes: dict[int, tuple[RequestId, bytes]] = {}

    @property
    def capacity(self) -> Capacity:
        state = self.planner.state
        policy = state.policy
        return Capacity(
            batch_slots=0,
            sequences=policy.max_sequences,
            kv_blocks=state.pool.usable,
            block_size=state.block_size,
            step_tokens=policy.max_step_tokens,
            max_context=policy.max_context,
        )

    # -- what the core wants -----------------------------------------------------------------

    def admit(
        self, effect: AdmitSequence, request: SequenceRequest, prefix: tuple[tuple[int, int], ...], now: int
    ) -> list[Event]:
        """request: what its client asks for, with what was produced elsewhere."""
        self._heard += 1
        request = replace(request, paid=effect.paid, attempt=effect.attempt * ATTEMPTS)
        refused = self.planner.add(request, now)
        if refused is not None:
            outcome = REFUSALS.get(refused.code, Outcome.INVALID_INPUT)
            return [self.report(), SequenceFailed(self.worker, request.id, effect.attempt, outcome, refused.message)]
        self._attempts[request.id] = effect.attempt
        self._emitted[request.id] = len(request.output)
        self.planner.state.tenants.learn([(request.tenant, effect.counter)], self._learned)
        self._remember(request.id, prefix)
        return []

    def refuse(self, effect: AdmitSequence, outcome: Outcome, detail: str) -> list[Event]:
        """It is not even shown to the planner."""
        self._heard += 1
        return [self.report(), SequenceFailed(self.worker, effect.request, effect.attempt, outcome, detail)]

    def has(self, request: RequestId) -> bool:
        return request in self._attempts

    def take_back(self, effect: TakeBack) -> list[Event]:
        """It goes if it waits, all of it; a request of several answers stays, and one of which more was told than its
        tokens: another engine would tell that again."""
        self._heard += 1
        ids = self.planner.state.requests.get(effect.request, [])
        if self._attempts.get(effect.request) != effect.attempt or len(ids) != 1:
            return [self.report()]
        if self._emitted[effect.request] != self.planner.state.sequences[ids[0]].produced:
            return [self.report()]
        request = self.planner.take_back(ids[0])
        if request is None:
            return [self.report()]
        self._forget(effect.request)
        returned = SequenceReturned(self.worker, effect.request, effect.attempt, request.paid)
        return [self.report(), returned]

    def abort(self, request: RequestId, attempt: int) -> list[Event]:
        """Its room is free once all that runs has run; nobody is told of that but by reports."""
        if self._attempts.get(request) != attempt:
            return []
        self.planner.abort(request)
        return [self.report(), self._over(request)]

    def fail(self, request: RequestId, outcome: Outcome, detail: str) -> list[Event]:
        """What computes it has failed, for this one alone."""
        attempt = self._attempts[request]
        self.planner.abort(request)
        self._forget(request)
        return [self.report(), SequenceFailed(self.worker, request, attempt, outcome, detail)]

    def update(self, effect: UpdateCounters) -> None:
        self._learned = effect.number
        self.planner.state.tenants.learn(effect.counters, effect.number)

    # -- what has come of a step -------------------------------------------------------------

    def stepped(
        self,
        emitted: Iterable[Emitted],
        ended: Iterable[tuple[SequenceId, End]] = (),
        others: Mapping[RequestId, int] = NOTHING,
    ) -> list[Event]:
        """emitted: as committed.  ended: that a plan has given up since.  others: results that are no tokens, how many
        before the tokens of each."""
        events: list[Event] = [self.report()]
        counts: dict[RequestId, int] = {id: count for id, count in others.items() if id in self._attempts}
        over: dict[RequestId, Event] = {}
        for each in emitted:
            request = each.id.request
            counts[request] = counts.get(request, 0) + 1
            if each.end is not None and request not in self.planner.state.requests:
                over[request] = SequenceFinished(self.worker, request, self._attempts[request])
        for id, end in ended:
            if id.request not in self.planner.state.requests and id.request in self._attempts:
                over[id.request] = self._ended(id.request, end)
        for request, count in counts.items():
            first = self._emitted[request]
            self._emitted[request] = first + count
            events.append(TokensEmitted(self.worker, request, self._attempts[request], first, count, 0))
        for request, event in over.items():
            self._forget(request)
            events.append(event)
        return events

    def report(self) -> EngineReported:
        """How things are now."""
        state = self.planner.state
        self._number += 1
        running, in_use = state.running.values(), state.pool.in_use + state.leaving
        growing = -(-len(state.running) // state.block_size)
        blocks = min(state.pool.available - growing, state.room.free(running, in_use, state.pool.usable))
        waiting = dict.fromkeys(
            id.request for id, sequence in state.sequences.items() if sequence.status is not RUNNING
        )
        begun = dict.fromkeys(id.request for id in state.running)
        return EngineReported(
            self.worker,
            self._number,
            self._heard,
            max(0, state.policy.max_sequences - len(state.running)),
            max(0, blocks),
            sum(sequence.to_prefill for sequence in running if sequence.to_prefill > 1),
            tuple(Served(*service) for service in state.tenants.report(self._number)),
            tuple((request, self._attempts[request]) for request in waiting if request not in begun),
            self._forgotten(),
        )

    def _ended(self, request: RequestId, end: End) -> Event:
        outcome = OUTCOMES.get(end)
        if outcome is None:
            return SequenceFinished(self.worker, request, self._attempts[request])
        return SequenceFailed(self.worker, request, self._attempts[request], outcome, end.value)

    def _over(self, request: RequestId) -> SequenceFinished:
        finished = SequenceFinished(self.worker, request, self._attempts[request])
        self._forget(request)
        return finished

    def _forget(self, request: RequestId) -> None:
        del self._attempts[request], self._emitted[request]

    # -- prefixes ----------------------------------------------------------------------------

    def _remember(self, request: RequestId, prefix: tuple[tuple[int, int], ...]) -> None:
        state = self.planner.state
        hashes = state.sequences[state.requests[request][0]].hashes
        for tokens, hash in prefix:
            number = tokens // state.block_size
            if 0 < number <= len(hashes):
                self._prefixes.pop(hash, None)
                self._prefixes[hash] = (request, hashes[number - 1])
        while len(self._prefixes) > MOST_PREFIXES:
            del self._prefixes[next(iter(self._prefixes))]

    def _forgotten(self) -> tuple[int, ...]:
        """A few are looked at each time, in turn: whether whoever brought them has gone, and their blocks as well."""
        state = self.planner.state
        forgotten = []
        for hash in list(islice(self._prefixes, LOOK_AT)):
            entry = self._prefixes.pop(hash)
            if entry[0] in state.requests or state.cache.knows(entry[1]):
                self._prefixes[hash] = entry
            else:
                forgotten.append(hash)
        return tuple(forgotten)
