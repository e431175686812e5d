"""The planner: `add`, `abort`, `plan(now) -> StepPlan`, `commit(results, now)`.

A pure state machine: it reads no clock and does no I/O, and the same calls give the same plans. There is no prefill and
no decode phase: each step computes tokens until those that are computed have caught up with those that are known;
streams come first, so that no prompt stalls them. One plan may be made while another runs, so that planning takes no
time from the device: a plan counts on what the one before it will bring.
"""

from __future__ import annotations

from collections.abc import Callable
from collections.abc import Sequence as Listed
from heapq import heapify, heappop, heappush

from headway.core.ids import RequestId, Tenant
from headway.core.units import NEVER, Duration, Instant
from headway.llm.plan import invariants
from headway.llm.plan.admitting import admit, latest_start
from headway.llm.plan.chunks import Prefill
from headway.llm.plan.growing import grow, unlock
from headway.llm.plan.judging import refusal, with_deadlines
from headway.llm.plan.policy import NO_DEADLINES, Deadlines, PlanPolicy
from headway.llm.plan.prefix import Hash, chained
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.sequence import FINISHED, RUNNING, Sequence
from headway.llm.plan.state import State
from headway.llm.plan.step import Emitted, End, Refusal, Row, StepPlan
from headway.llm.plan.step_time import DEFAULT, Coefficients, pairs

MOST_DRY = 4
"""Steps in a row whose streams leave nothing for the prompts under way; then the oldest gets a tile all the same, or
whoever was admitted before the streams grew so long would wait for ever."""
MOST_PLANS = 2
"""One that runs, and one beyond it."""
SLACK = 64
"""Entries that are of no use any more, and not worth a look at all."""


class Planner:
    """state: for those who look; only the planner changes it."""

    __slots__ = ("_scored", "_starts", "state")

    def __init__(
        self,
        policy: PlanPolicy,
        blocks: int,
        block_size: int = 16,
        names: tuple[str, ...] = (),
        weight: Callable[[Tenant], float] = lambda tenant: 1.0,
        prior: Coefficients = DEFAULT,
        hash: Hash = chained,
        deadlines: Callable[[Tenant], Deadlines] = lambda tenant: NO_DEADLINES,
    ) -> None:
        """blocks: of the pool, of so many tokens each.  names: of what all keys and values depend on besides the
        tokens (the model's version).  weight: of a tenant.  prior: how long steps take, until it is learned.
        deadlines: of a tenant, for requests that say nothing of theirs."""
        self.state = State(policy, blocks, block_size, names, weight, prior, hash, deadlines)
        self._starts: list[tuple[Instant, int, Sequence]] = []
        self._scored: list[Sequence] = []
        """That want no tokens, and whose prompts are computed: the next plan tells that they have ended."""

    # -- what comes and goes -----------------------------------------------------------------

    def add(self, request: SequenceRequest, now: Instant, first_choice: int = 0) -> Refusal | None:
        """Its sequences wait from now on; else why they are not taken. ValueError for one that is there already.
        first_choice: the number of its first, where the others are elsewhere, or come by themselves."""
        state = self.state
        choices = range(first_choice, first_choice + request.choices)
        if any(SequenceId(request.id, choice) in state.sequences for choice in choices):
            raise ValueError(f"request {request.id} is there already")
        request = with_deadlines(state, request, now)
        refused = refusal(state, request, now)
        if refused is not None:
            return refused
        account = state.tenants.account(request.tenant)
        state.requests.setdefault(request.id, [])
        for choice in choices:
            state.number += 1
            sequence = Sequence(SequenceId(request.id, choice), request, account, state.number, now)
            if choice > first_choice:
                sequence.reads_cache = True  # all that the first one computes
            if request.output or (choice > first_choice and state.policy.prefix_cache):
                sequence.paid = sequence.num_prompt  # paid for, or found
            else:
                sequence.paid = request.paid
            if state.policy.prefix_cache:
                state.cache.extend(state.root_of(sequence), sequence.hashes, sequence.tokens)
            state.sequences[sequence.id] = sequence
            state.requests[request.id].append(sequence.id)
            account.adds_ahead(sequence, 1)
            state.tenants.waits(sequence, request.tenant)
            if request.first_by < NEVER:
                self._watch(sequence)
        return None

    def abort(self, request: RequestId, choice: int | None = None) -> bool:
        """All its sequences end, or that of one choice, in whatever state they are; their blocks are free at the next
        step boundary. False: it was over already."""
        ids = self.state.requests.get(request, [])
        ending = [id for id in ids if choice is None or id.choice == choice]
        for id in ending:
            self.state.finish(self.state.sequences[id])
        return bool(ending)

    def take_back(self, id: SequenceId) -> SequenceRequest | None:
        """A sequence that waits goes elsewhere, with what it has produced: `add` it there, with its choice as the
        first. None: it runs, or is over."""
        sequence = self.state.sequences.get(id)
        if sequence is None or sequence.status is RUNNING:
            return None
        self.state.finish(sequence)
        output = tuple(sequence.tokens[sequence.num_prompt :])
        r = sequence.request
        return SequenceRequest(
            r.id,
            r.tenant,
            r.prompt,
            r.max_tokens,
            r.priority,
            r.first_by,
            r.itl,
            r.stops,
            1,
            r.salt,
            sequence.reads_cache,
            output,
            sequence.paid,
            sequence.attempt,
            r.adapter,
        )

    def resize(self, blocks: int) -> None:
        """So many blocks are usable from now on. Whoever can no longer fit is ended by the next plan."""
        state = self.state
        state.pool.resize(blocks)
        most = blocks * state.block_size
        for sequence in list(state.sequences.values()):
            if sequence.status is not RUNNING and len(sequence.tokens) + (sequence.max_tokens > 0) > most:
                state.end(sequence, End.TOO_LONG)

    # -- a step ------------------------------------------------------------------------------

    def plan(self, now: Instant) -> StepPlan:
        """The next step; without rows where there is nothing to compute, or everything waits for a plan that runs.
        ValueError where two plans have no results yet."""
        state = self.state
        if len(state.plans) == MOST_PLANS:
            raise ValueError(f"{MOST_PLANS} plans are without results")
        self._expire(now)
        for sequence in self._scored:
            if sequence.status is RUNNING:
                state.end(sequence, End.LENGTH)
        self._scored.clear()
        rows, chunks = self._fill(now)
        if not rows and not chunks and not state.plans and state.running:
            unlock(state)
            rows = [s for s in state.running.values() if _streams(s) and len(s.blocks) * state.block_size > s.computed]
            if not state.running:
                rows, chunks = self._fill(now)  # it was alone with the pool, and at its end: those that wait have it
        return self._step(rows, chunks)

    def _fill(self, now: Instant) -> tuple[list[Sequence], list[tuple[Sequence, int]]]:
        """A step: the streams that go on, and the chunks of prompts, for whom there is room."""
        state = self.state
        rows = self._decodes()
        limit, room = self._limits(now, rows)
        prefill = Prefill(
            state.steps,
            room / state.steps.upper - state.steps.predict(0, len(rows), sum(s.computed for s in rows), 0),
            state.policy.max_step_tokens - len(rows),
            state.policy.tile,
            state.policy.oldest_part,
        )
        for sequence in state.running.values():
            if sequence.to_prefill and not _streams(sequence):
                prefill.add(sequence)
        admit(state, prefill, len(rows), sum(s.computed for s in rows), limit)
        if state.preempted:
            rows = [sequence for sequence in rows if sequence.status is RUNNING]
        chunks = prefill.deal(must=not rows or state.dry >= MOST_DRY)
        state.dry = 0 if chunks or not prefill.under_way else state.dry + 1
        return rows, chunks

    def _decodes(self) -> list[Sequence]:
        """The streams that go on by a token."""
        state = self.state
        size, most = state.block_size, state.policy.max_context
        streams: list[Sequence] = []
        wanting: list[Sequence] = []
        for sequence in state.running.values():
            if not _streams(sequence):
                continue
            known = len(sequence.tokens) + sequence.pending
            if sequence.pending and (known - sequence.num_prompt >= sequence.max_tokens or known >= most):
                continue  # the sample that is under way is its last
            streams.append(sequence)
            if sequence.computed >= len(sequence.blocks) * size:
                wanting.append(sequence)
        if wanting:
            grow(state, wanting)
            streams = [s for s in streams if s.status is RUNNING and not s.stalled]
        return streams

    def _limits(self, now: Instant, streams: list[Sequence]) -> tuple[float, float]:
        """In ns: what a step may take by the targets of the streams in it; and by how far they are ahead of those."""
        policy = self.state.policy
        target = room = float(policy.target_itl) * policy.slack
        default = policy.target_itl
        for sequence in streams:
            itl = float(sequence.itl or default)
            ahead = sequence.first_at + itl * sequence.emitted - now if sequence.first_at else itl
            target = min(target, itl)
            room = min(room, max(0.5 * itl, min(ahead, policy.slack * itl)))
        return target, room

    def _step(self, decodes: list[Sequence], chunks: list[tuple[Sequence, int]]) -> StepPlan:
        state = self.state
        preempted, state.preempted = state.preempted, []
        ended, state.ended = state.ended, []
        if not decodes and not chunks:
            if not state.running and not state.plans:
                invariants.check_idle(state)
            return StepPlan(0, [], preempted, ended)
        state.step += 1
        number = state.step
        rows: list[Row] = []
        context = prefill = paired = 0
        for sequence in decodes:
            at = sequence.computed
            rows.append(Row(sequence.id, sequence.attempt, at, 1, sequence.tokens[at : at + 1], sequence.blocks, True))
            sequence.computed = at + 1
            state.counts.recomputed += at < sequence.reached
            sequence.pending += 1
            sequence.last_plan = number
            context += at + 1
        for sequence, count in chunks:
            at = sequence.computed
            last = at + count == len(sequence.tokens)
            tokens = sequence.tokens[at : at + count]
            samples = last and sequence.max_tokens > 0
            rows.append(Row(sequence.id, sequence.attempt, at, count, tokens, sequence.blocks, samples))
            sequence.computed = at + count
            if at < sequence.reached:
                state.counts.recomputed += min(at + count, sequence.reached) - at
            sequence.pending += samples
            sequence.last_plan = number
            prefill += count
            context += at + count
            paired += pairs(at, count)
        predicted = state.steps.predict(prefill, len(decodes), context, paired)
        plan = StepPlan(number, rows, preempted, ended, prefill, len(decodes), context, paired, predicted)
        state.plans.append(plan)
        state.room.stepped()
        state.counts.steps += 1
        state.counts.computed += prefill + len(decodes)
        return plan

    def commit(self, results: Listed[int | None], now: Instant, elapsed: Duration = 0) -> list[Emitted]:
        """The oldest plan has run: what was sampled, row by row; None where a row samples nothing. elapsed: how long
        the step took, in ns; 0 teaches nothing. ValueError where no plan waits, or results do not match its rows."""
        state = self.state
        if not state.plans:
            raise ValueError("no plan is without results")
        plan = state.plans[0]
        if len(results) != len(plan.rows):
            raise ValueError(f"step {plan.number} has {len(plan.rows)} rows, {len(results)} results came")
        for row, token in zip(plan.rows, results, strict=True):
            if token is None and row.samples and self._goes_on(row) is not None:
                raise ValueError(f"step {plan.number} has no token for {self._goes_on(row)!r}")
        state.plans.popleft()
        state.steps.learn(plan.prefill, plan.decodes, plan.context, plan.pairs, elapsed)
        emitted: list[Emitted] = []
        size = state.block_size
        for row, token in zip(plan.rows, results, strict=True):
            sequence = self._goes_on(row)
            if sequence is None:
                state.counts.void += 1
                continue
            end = row.start + row.size
            if sequence.paid < sequence.num_prompt:
                state.charge(sequence, end)
            before = sequence.confirmed // size
            sequence.confirmed = end
            if end // size > before:
                self._keep(sequence, before, end // size)
            if row.samples and token is not None:
                emitted.append(self._emit(sequence, token, now))
            elif sequence.max_tokens == 0 and end == sequence.num_prompt:
                self._scored.append(sequence)
        state.ran(plan.number)
        return emitted

    def _goes_on(self, row: Row) -> Sequence | None:
        """Whose row it is; None where it is over, or has lost its blocks since."""
        sequence = self.state.running.get(row.id)
        return sequence if sequence is not None and sequence.attempt == row.attempt else None

    def _keep(self, sequence: Sequence, first: int, last: int) -> None:
        """Its blocks from number `first` to before `last` are full and computed: others may share them."""
        state = self.state
        if not state.policy.prefix_cache:
            return
        root = state.root_of(sequence)
        if len(sequence.hashes) < last:
            state.cache.extend(root, sequence.hashes, sequence.tokens)
        for number in range(first, last):
            if not state.cache.keep(root, sequence.hashes, sequence.tokens, sequence.blocks, number):
                state.unite(sequence.blocks[number])
            if state.computing.get(sequence.hashes[number]) == sequence.id:
                del state.computing[sequence.hashes[number]]

    def _emit(self, sequence: Sequence, token: int, now: Instant) -> Emitted:
        state, account = self.state, sequence.account
        sequence.pending -= 1
        sequence.tokens.append(token)
        if sequence.emitted == 0:
            sequence.first_at = now
        sequence.emitted += 1
        state.tenants.charge(account, state.policy.prices.output)
        produced = sequence.produced
        end: End | None = None
        if token in sequence.request.stops:
            end = End.STOP
        elif produced >= sequence.max_tokens or len(sequence.tokens) >= state.policy.max_context:
            end = End.LENGTH
        if end is not None:
            state.room.lengths.add(produced)
            state.finish(sequence)
        return Emitted(sequence.id, produced - 1, token, end)

    def _watch(self, sequence: Sequence) -> None:
        """Whether its first token is in time."""
        heappush(self._starts, (latest_start(self.state, sequence), sequence.number, sequence))
        if len(self._starts) > 2 * len(self.state.sequences) + SLACK:
            self._starts = [each for each in self._starts if each[2].status is not FINISHED and not each[2].produced]
            heapify(self._starts)

    def _expire(self, now: Instant) -> None:
        """Who waits, and whose first token cannot come in time any more, even alone."""
        starts = self._starts
        while starts and starts[0][0] < now:
            sequence = heappop(starts)[2]
            if sequence.status is FINISHED or sequence.produced:
                continue
            runs = sequence.status is RUNNING
            latest = sequence.request.first_by if runs else latest_start(self.state, sequence)
            if latest >= now:
                heappush(starts, (latest, sequence.number, sequence))  # it may yet be, or others have computed for it
            else:
                self.state.end(sequence, End.DEADLINE)

    def check(self) -> None:
        """InvariantViolation where the state contradicts itself. Takes a look at everything."""
        invariants.check(self.state)


def _streams(sequence: Sequence) -> bool:
    """Whether all that is known of it is computed or under way but for the last token, and it has begun to answer.
    Who wants no answer never does."""
    return (
        len(sequence.tokens) + sequence.pending - sequence.computed == 1
        and (sequence.pending > 0 or sequence.confirmed > 0)
        and sequence.max_tokens > 0
    )
