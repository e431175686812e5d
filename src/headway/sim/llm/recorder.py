"""What happens to every sequence of a simulation: kept for the report, and judged meanwhile.

Judged: each position of an answer comes exactly once, in order, with the token that the model sampled there; a sequence
ends once, and nothing comes of it afterwards; what has arrived ends.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable
from hashlib import blake2b

from headway.core.ids import RequestId, Tenant
from headway.core.units import Instant
from headway.llm.plan.request import SequenceId
from headway.llm.plan.step import Emitted, Refusal, StepPlan
from headway.sim.gaps import Gaps
from headway.sim.llm.arrivals import Arrival, answer
from headway.sim.llm.engine import Engine
from headway.sim.oracles import OracleViolation
from headway.sim.timeline import Timeline

COMPLETED = ("stop", "length")
LEFT = "client_closed_request"


class Track:
    """Of a sequence. last: when its last token came.  longest: between two of them, so far.
    paid: prompt positions that were computed for it once.  waits: it has no blocks."""

    __slots__ = ("arrival", "emitted", "first", "id", "last", "longest", "of", "paid", "preemptions", "prompt", "waits")

    def __init__(self, id: SequenceId, arrival: Arrival, of: TenantRecord) -> None:
        self.id = id
        self.arrival = arrival
        self.of = of
        self.prompt = arrival.prompt_tokens
        self.paid = self.prompt if id.choice else 0
        self.emitted = self.preemptions = 0
        self.first: Instant = 0
        self.last: Instant = 0
        self.longest = 0
        self.waits = True


class TenantRecord:
    """first_tokens, gaps, answers: of sequences, in ns: from arrival to the first token, from a token to the next, from
    arrival to the last.  stalls: the longest gap of each that has ended and had one.
    prompt, output: tokens computed or found in the cache, and emitted.
    service: priced tokens that were computed.  late: first tokens after their deadline.
    ends: why sequences ended; a request that is refused is counted by the refusal's code.
    """

    __slots__ = (
        "answers",
        "arrived",
        "ends",
        "first_tokens",
        "gaps",
        "late",
        "name",
        "output",
        "prompt",
        "refused",
        "service",
        "stalls",
        "waiting",
        "weight",
    )

    def __init__(self, name: Tenant, weight: float) -> None:
        self.name = name
        self.weight = weight
        self.first_tokens, self.gaps, self.answers = array("q"), array("q"), array("q")
        self.stalls = array("q")
        self.prompt = self.output = self.service = self.late = self.arrived = self.waiting = 0
        self.ends: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()


class Recorder:
    """weight: of a tenant, for the gaps.  began, ended: first arrival, last end.  preempted: how often -> how many
    sequences.  kv_time: blocks held x ns.  unfilled_time: of places in them that hold nothing, the same.
    kv_peak: the greatest share of a pool that was ever held.
    """

    def __init__(
        self, weight: Callable[[Tenant], float] = lambda tenant: 1.0, timeline: Timeline | None = None
    ) -> None:
        self.tenants: dict[Tenant, TenantRecord] = {}
        self.gaps = Gaps()
        self.timeline = timeline
        self.kv_steps: dict[int, float] = {}
        self.began: Instant = -1
        self.ended: Instant = 0
        self.preempted: Counter[int] = Counter()
        self.kv_time = self.unfilled_time = 0.0
        self.kv_peak = 0.0
        self.step_times = array("q")
        self._weight = weight
        self._tracks: dict[SequenceId, Track] = {}
        self._choices: dict[RequestId, int] = {}
        self._running: dict[int, dict[SequenceId, None]] = {}
        self._digest = blake2b(digest_size=16)

    # -- what the driver tells ---------------------------------------------------------------

    def arrived(self, number: RequestId, arrival: Arrival, refusal: Refusal | None, now: Instant) -> None:
        if self.began < 0:
            self.began = now
        of = self.tenants.get(arrival.tenant)
        if of is None:
            of = self.tenants[arrival.tenant] = TenantRecord(arrival.tenant, self._weight(arrival.tenant))
        of.arrived += 1
        if refusal is not None:
            of.refused[refusal.code] += 1
            self.ended = max(self.ended, now)
            self._digest.update(f"{number} {now} {refusal.code}\n".encode())
            return
        self._choices[number] = arrival.choices
        for choice in range(arrival.choices):
            id = SequenceId(number, choice)
            self._tracks[id] = Track(id, arrival, of)
            self._waits(of, 1, now)

    def planned(self, engine: Engine, plan: StepPlan, now: Instant) -> None:
        state = engine.scheduler.state
        known = self._running.setdefault(engine.number, {})
        for id in plan.preempted:
            track = self._known(id, "was preempted", now)
            track.preemptions += 1
            if not track.waits:
                track.waits = True
                known.pop(id, None)
                self._waits(track.of, 1, now)
        for id in reversed(state.running):  # in the order of admission: the last are new
            if id in known:
                break
            known[id] = None
            track = self._known(id, "runs", now)
            track.waits = False
            self._waits(track.of, -1, now)
        for id, end in plan.finished:
            self._end(self._known(id, "ended", now), end.value, now)
        share = state.pool.in_use / state.pool.size
        if share > self.kv_peak:
            self.kv_peak = share
        if self.timeline is not None:
            number = now // self.timeline.step
            self.kv_steps[number] = max(self.kv_steps.get(number, 0.0), share)

    def ran(self, engine: Engine, plan: StepPlan, emitted: list[Emitted], now: Instant) -> None:
        state = engine.scheduler.state
        elapsed = engine.ends - engine.began
        self.kv_time += state.pool.in_use / state.pool.size * elapsed
        self.unfilled_time += state.unfilled / (state.block_size * state.pool.size) * elapsed
        self.step_times.append(elapsed)
        prices = state.policy.prices
        served: dict[Tenant, int] = {}
        tracks = self._tracks
        for id, _, start, size, _, _, _ in plan.rows:
            track = tracks.get(id)
            if track is None or track.paid >= track.prompt:
                continue
            end = min(start + size, track.prompt)
            fresh = end - max(start, track.paid)
            if fresh > 0:
                track.paid = end
                served[track.of.name] = served.get(track.of.name, 0) + prices.prompt * fresh
        for one in emitted:
            track = self._emitted(one, now)
            served[track.of.name] = served.get(track.of.name, 0) + prices.output
        for tenant, service in served.items():
            self.tenants[tenant].service += service
            if self.timeline is not None:
                self.timeline.served(tenant, engine.began, now, service)
        if len(self.tenants) > 1:
            self.gaps.add({tenant: service / self.tenants[tenant].weight for tenant, service in served.items()}, now)
        for one in emitted:
            if one.end is not None:
                self._end(tracks[one.id], one.end.value, now)

    def left(self, number: RequestId, now: Instant) -> None:
        """Its client has gone away."""
        for choice in range(self._choices[number]):
            track = self._tracks.get(SequenceId(number, choice))
            if track is not None:
                self._end(track, LEFT, now)

    def finish(self) -> None:
        """Nothing is to come. OracleViolation where something has not ended."""
        for track in self._tracks.values():
            raise OracleViolation(f"{track.id} has not ended: {track.emitted} of {track.arrival.output} tokens came")

    @property
    def digest(self) -> str:
        """Of all ends: equal where two runs went alike."""
        return self._digest.hexdigest()

    # -- keeping and judging -----------------------------------------------------------------

    def _known(self, id: SequenceId, what: str, now: Instant) -> Track:
        track = self._tracks.get(id)
        if track is None:
            raise OracleViolation(f"at {now} {id} {what}, which never came or has ended")
        return track

    def _emitted(self, one: Emitted, now: Instant) -> Track:
        track = self._known(one.id, "emitted a token", now)
        of, at = track.of, track.emitted
        if one.position != at:
            raise OracleViolation(f"at {now} {one.id} emitted position {one.position}: expected {at}")
        if one.token != answer(one.id, at, track.arrival.output):
            raise OracleViolation(f"at {now} {one.id} emitted at {at} a token that was sampled elsewhere")
        if at == 0:
            track.first = now
            waited = now - track.arrival.at
            of.first_tokens.append(waited)
            of.late += waited > track.arrival.first_within
            of.prompt += track.prompt if one.id.choice == 0 else 0
            if self.timeline is not None:
                self.timeline.answered(of.name, now, waited)
        else:
            gap = now - track.last
            of.gaps.append(gap)
            if gap > track.longest:
                track.longest = gap
        track.last = now
        track.emitted = at + 1
        of.output += 1
        return track

    def _end(self, track: Track, why: str, now: Instant) -> None:
        if why in COMPLETED:
            whole = track.emitted == min(track.arrival.output, track.arrival.max_tokens)
            if why == "stop" and not whole:
                raise OracleViolation(f"at {now} {track.id} stopped after {track.emitted} tokens")
            track.of.answers.append(now - track.arrival.at)
            if track.longest:
                track.of.stalls.append(track.longest)
        if track.waits:
            self._waits(track.of, -1, now)
        track.of.ends[why] += 1
        self.preempted[track.preemptions] += 1
        del self._tracks[track.id]
        for known in self._running.values():
            known.pop(track.id, None)
        self.ended = max(self.ended, now)
        self._digest.update(f"{track.id} {now} {why} {track.emitted} {track.first} {track.preemptions}\n".encode())

    def _waits(self, of: TenantRecord, change: int, now: Instant) -> None:
        """So many more of its sequences wait."""
        before = of.waiting
        of.waiting += change
        if before == 0:
            self.gaps.open(of.name, now)
        elif of.waiting == 0:
            self.gaps.close(of.name)
        if self.timeline is not None:
            self.timeline.waiting(of.name, now, of.waiting)
