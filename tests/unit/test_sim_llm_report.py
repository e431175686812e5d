"""The arithmetic of the report, on cases made by hand."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headway.core.units import Duration, Instant, ms
from headway.llm.plan.planner import Planner
from headway.llm.plan.policy import PlanPolicy
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.state import State
from headway.llm.plan.step import Emitted, End, Refusal, Row, StepPlan
from headway.sim.llm.arrivals import Arrival, Piece, answer
from headway.sim.llm.engine import Engine
from headway.sim.llm.recorder import Recorder
from headway.sim.llm.report import as_table, report
from headway.sim.oracles import OracleViolation
from headway.sim.timeline import Timeline
from tests.unit.plan_world import sequence


class Told:
    """A scheduler that has a state, and decides nothing."""

    def __init__(self) -> None:
        self.state: State = Planner(PlanPolicy(max_sequences=8), 10).state

    def add(self, request: SequenceRequest, now: Instant) -> Refusal | None: ...
    def abort(self, request: int) -> bool: ...
    def plan(self, now: Instant) -> StepPlan: ...
    def commit(self, results: Sequence[int | None], now: Instant, elapsed: Duration = 0) -> list[Emitted]: ...


class Case:
    """A recorder that is told of steps of 10 ms by hand."""

    def __init__(self, **weights: float) -> None:
        self.timeline = Timeline()
        self.recorder = Recorder(lambda tenant: weights.get(tenant, 1.0), self.timeline)
        self.engine = Engine(0, Told(), lambda plan: ms(10))
        self.now = 0

    def arrive(self, number: int, tenant: str, prompt: int, output: int, **more: int) -> None:
        arrival = Arrival(self.now, (Piece(number, prompt),), output, 100, tenant, **more)
        self.recorder.arrived(number, arrival, None, self.now)

    def step(self, *rows: tuple[int, int, int], emit: tuple[tuple[int, int, End | None], ...] = ()) -> None:
        """rows: sequence, start, size.  emit: sequence, position, end."""
        listed = [Row(SequenceId(number), 0, start, size, [], [], True) for number, start, size in rows]
        plan = StepPlan(1, listed)
        for number, _, _ in rows:
            self.engine.scheduler.state.running[SequenceId(number)] = sequence(number)
        self.recorder.planned(self.engine, plan, self.now)
        self.engine.begin(plan, self.now)
        self.now += ms(10)
        outputs = {id.request: track.arrival.output for id, track in self.recorder._tracks.items()}
        emitted = [
            Emitted(SequenceId(n), position, answer(SequenceId(n), position, outputs[n]), end)
            for n, position, end in emit
        ]
        for one in emitted:
            if one.end is not None:
                del self.engine.scheduler.state.running[one.id]
        self.recorder.ran(self.engine, plan, emitted, self.now)

    def preempt(self, number: int) -> None:
        del self.engine.scheduler.state.running[SequenceId(number)]
        self.recorder.planned(self.engine, StepPlan(0, [], preempted=[SequenceId(number)]), self.now)


def two_tenants() -> Case:
    """a: 8 prompt tokens in two chunks, then 2 answers; b: waits, 4 prompt tokens, 1 answer. b comes at 10 ms."""
    case = Case(a=2.0)
    case.arrive(1, "a", 8, 2)
    case.step((1, 0, 5))
    case.arrive(2, "b", 4, 1)
    case.step((1, 5, 3), emit=((1, 0, None),))
    case.step((1, 8, 1), (2, 0, 4), emit=((1, 1, End.STOP), (2, 0, End.STOP)))
    return case


def test_latencies_are_from_arrival_to_token_and_from_token_to_token() -> None:
    case = two_tenants()
    shown = report(case.recorder, [case.engine])
    assert (shown.tenants["a"].first_token.p50_ms, shown.tenants["b"].first_token.p50_ms) == (20, 20)
    assert shown.between_tokens.p50_ms == 10 and shown.between_tokens.count == 1
    assert (shown.tenants["a"].end_to_end.p50_ms, shown.tenants["b"].end_to_end.p50_ms) == (30, 20)


def test_throughput_is_over_the_time_from_the_first_arrival_to_the_last_end() -> None:
    case = two_tenants()
    shown = report(case.recorder, [case.engine])
    assert shown.duration_s == pytest.approx(0.03)
    assert (shown.requests_per_s, shown.input_tokens_per_s, shown.output_tokens_per_s) == (66.67, 400, 100)
    assert shown.busy == 1
    assert shown.ends == {"stop": 2}


def test_service_is_priced_tokens_and_shares_add_up() -> None:
    case = two_tenants()
    a, b = report(case.recorder, [case.engine]).tenants.values()
    assert (a.service, b.service) == (8 + 2 * 2, 4 + 2 * 1)
    assert a.share + b.share == pytest.approx(1, abs=1e-3)
    assert (a.weight, b.weight) == (2, 1)


def test_prompt_tokens_that_are_computed_again_are_no_service() -> None:
    case = Case()
    case.arrive(1, "a", 8, 1)
    case.step((1, 0, 5))
    case.preempt(1)
    case.step((1, 0, 8), emit=((1, 0, End.STOP),))
    shown = report(case.recorder, [case.engine])
    assert shown.tenants["a"].service == 8 + 2
    assert (shown.preempted, shown.preempted_once) == (1, 1)


def test_cached_prompt_tokens_are_no_service() -> None:
    case = Case()
    case.arrive(1, "a", 40, 1)
    case.step((1, 32, 8), emit=((1, 0, End.STOP),))
    assert report(case.recorder, [case.engine]).tenants["a"].service == 8 + 2


def test_the_largest_gap_is_by_weight_and_only_while_both_wait() -> None:
    """Both have one more that waits throughout; what a got before b came does not count."""
    case = Case(a=2.0)
    for number, tenant in ((1, "a"), (2, "a")):
        case.arrive(number, tenant, 30, 1)
    case.step((1, 0, 20))
    for number, tenant in ((3, "b"), (4, "b")):
        case.arrive(number, tenant, 30, 1)
    case.step((1, 20, 8))
    case.step((1, 28, 1), (3, 0, 7))
    case.step((4, 0, 30))  # b has nothing left that waits
    case.step((3, 7, 20))
    gap = report(case.recorder, [case.engine]).largest_gap
    assert gap is not None
    assert (gap.ahead, gap.behind, gap.service) == ("b", "a", 7 - 1 / 2)


def test_deadlines_count_whoever_got_nothing() -> None:
    case = Case()
    case.arrive(1, "a", 8, 1, first_within=ms(10))
    case.arrive(2, "a", 8, 1, first_within=ms(10))
    case.recorder.arrived(3, Arrival(0, (Piece(3, 8),), 1, 1, "a"), Refusal("deadline_unmeetable", ""), 0)
    case.step((1, 0, 8), emit=((1, 0, End.STOP),))
    case.step((2, 0, 8), emit=((2, 0, End.STOP),))
    shown = report(case.recorder, [case.engine])
    assert shown.in_time == pytest.approx(1 / 3, abs=1e-4)
    assert shown.refused == {"deadline_unmeetable": 1}


def test_what_has_not_ended_is_named_at_the_end() -> None:
    case = Case()
    case.arrive(1, "a", 8, 3)
    with pytest.raises(OracleViolation, match="has not ended: 0 of 3"):
        case.recorder.finish()


def test_the_timeline_has_service_and_first_tokens() -> None:
    timeline = two_tenants().timeline
    assert sum(step.service for step in timeline.steps["a"].values()) == pytest.approx(12)
    assert timeline.steps["b"][0].latencies == [ms(20)]
    assert timeline.steps["b"][0].queue == 1


def test_the_table_has_a_line_for_each_tenant() -> None:
    case = two_tenants()
    table = as_table(report(case.recorder, [case.engine]))
    assert "66.67 completed/s, 400 prompt and 100 output tokens/s" in table
    assert table.splitlines()[-2].startswith("a ") and table.splitlines()[-1].startswith("b ")
