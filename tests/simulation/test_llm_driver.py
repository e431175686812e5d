"""Engines in virtual time: whatever the load, each request ends once and each token comes once, in order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest

from headway.core.units import NEVER, Duration, Instant, ms, seconds
from headway.llm.plan.planner import Planner
from headway.llm.plan.policy import Admit, PlanPolicy
from headway.llm.plan.request import SequenceId
from headway.llm.plan.step import Emitted, End, StepPlan
from headway.llm.plan.step_time import Coefficients
from headway.sim.llm.arrivals import STOP, Arrival, Piece, answer, prompt
from headway.sim.llm.driver import Stuck
from headway.sim.llm.engine import Engine
from headway.sim.llm.presets import PRESETS, Preset
from headway.sim.llm.recorder import Recorder
from headway.sim.llm.report import LlmReport
from headway.sim.llm.simulation import LlmScenario, headway, simulate
from headway.sim.llm.synthetic import Client, Lengths, arrivals
from headway.sim.oracles import OracleViolation

SMALL = Preset(
    "small",
    Coefficients(step=ms(1), prefill=10_000.0, decode=10_000.0, context=10.0, pairs=0.0),
    blocks=160,
    policy=PlanPolicy(max_sequences=16, max_step_tokens=256, max_context=1_000, target_itl=ms(5)),
)
CLIENTS = (
    Client(
        "chat", 60, Lengths(60, 1.0, 500), Lengths(40, 0.8, 300), max_tokens=300, shared=40, first_within=seconds(2)
    ),
    Client("batch", 30, Lengths(150, 0.8, 600), Lengths(60, 0.8, 300), max_tokens=300, priority=1),
    Client("many", 5, Lengths(60), Lengths(20, 0.5), max_tokens=100, choices=3, leaves_after=ms(200)),
)


def play(count: int = 400, clients: tuple[Client, ...] = CLIENTS, **changes: object) -> LlmReport:
    scenario = replace(LlmScenario(SMALL, noise=0.1), **changes)  # type: ignore[arg-type]
    return simulate(scenario, islice(arrivals(clients, scenario.seed), count))


def one(at: float, tokens: int = 100, output: int = 5, **more: object) -> Arrival:
    return Arrival(ms(at), (Piece(round(at * 1000) + 7, tokens),), output, 50, **more)  # type: ignore[arg-type]


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first, again, other = play(), play(), play(seed=2)
    assert replace(first, wall_s=0) == replace(again, wall_s=0)
    assert first.digest != other.digest


@pytest.mark.parametrize("admit", list(Admit))
@pytest.mark.parametrize("late", [0, ms(0.5)])
def test_every_request_ends_once_and_every_token_comes_once_in_order(admit: Admit, late: Duration) -> None:
    """That tokens do is judged by the recorder, at each."""
    report = play(policy=replace(SMALL.policy, admit=admit), late=late)
    sequences = sum(tenant.ends.get(end, 0) for tenant in report.tenants.values() for end in tenant.ends)
    refused = sum(report.refused.values())
    many = report.tenants["many"]
    assert sequences + refused == report.requests + 2 * (many.requests - sum(many.refused.values()))
    assert report.ends["stop"] > 300
    assert sum(report.preemptions.values()) > 0 or admit is not Admit.UNLIMITED


def test_a_request_alone_takes_its_steps_and_nothing_else() -> None:
    report = simulate(LlmScenario(SMALL, prior=SMALL.steps), [one(0, tokens=100, output=3)])
    k = SMALL.steps
    prefill = k.step + 100 * k.prefill + 100 * k.context
    decodes = [k.step + k.decode + k.context * context for context in (101, 102)]
    assert report.first_token.p50_ms * ms(1) == prefill
    assert report.end_to_end.p50_ms * ms(1) == pytest.approx(prefill + sum(decodes), abs=ms(0.001))
    assert report.between_tokens.count == 2
    assert report.steps == 4  # the last was planned before it was known that there would be no more


def test_time_jumps_to_what_happens_next() -> None:
    report = simulate(LlmScenario(SMALL), [one(0), one(3_600_000)])
    assert report.duration_s > 3600
    assert report.steps < 20
    assert report.busy < 1e-4


def test_an_answer_longer_than_it_may_be_is_cut() -> None:
    report = simulate(LlmScenario(SMALL), [one(0, output=1000)])
    assert report.ends == {"length": 1}
    assert report.tenants["default"].output_tokens == 50


def test_a_client_that_leaves_frees_its_place() -> None:
    report = simulate(LlmScenario(SMALL), [one(0, output=40, leaves_after=ms(20)), one(100)])
    assert report.ends == {"client_closed_request": 1, "stop": 1}
    assert 0 < report.tenants["default"].output_tokens < 5 + 40


def test_what_never_fits_is_refused_with_its_code() -> None:
    report = simulate(LlmScenario(SMALL), [one(0, tokens=2000)])
    assert report.refused == {"context_length_exceeded": 1}
    assert report.ends == {}


def test_a_deadline_that_passes_is_counted() -> None:
    jam = [one(number / 1000, tokens=400, output=30) for number in range(40)]
    report = simulate(LlmScenario(SMALL), [*jam, one(50, tokens=10, first_within=ms(30))])
    too_late = report.ends.get("deadline_exceeded", 0) + report.refused.get("deadline_unmeetable", 0)
    assert too_late == 1
    assert report.in_time == pytest.approx(40 / 41, abs=1e-4)


def test_several_engines_share_the_load_and_a_placement_decides() -> None:
    load = list(islice(arrivals(CLIENTS, 1), 200))
    two = simulate(LlmScenario(SMALL, engines=2), load)
    one_of_two = simulate(LlmScenario(SMALL, engines=2), load, place=lambda arrival, engines, now: 1)
    assert two.first_token.p99_ms < one_of_two.first_token.p99_ms
    assert one_of_two.busy <= 0.5


def test_the_device_never_waits_for_a_plan_while_there_is_work() -> None:
    backlog = [one(0.001 * number, output=30) for number in range(100)]
    assert simulate(LlmScenario(SMALL), backlog).busy == pytest.approx(1, abs=0.001)


def test_the_clock_stops_where_it_is_told_to() -> None:
    report = simulate(LlmScenario(SMALL, until=seconds(1)), arrivals(CLIENTS, 1))
    assert 0.9 < report.duration_s <= 1.0


def test_the_scheduler_learns_how_long_steps_take_from_nothing_but_their_times() -> None:
    wrong = Coefficients(step=ms(9), prefill=1_000.0, decode=500_000.0, context=0.0, pairs=0.0)
    planners = []

    def make(scenario: LlmScenario) -> Planner:
        planners.append(headway(scenario))
        return planners[0]

    report = simulate(LlmScenario(SMALL, prior=wrong), islice(arrivals(CLIENTS, 1), 300), make)
    assert report.step_error < 0.05
    step = (100, 8, 1_000, 5_000)
    assert planners[0].state.steps.predict(*step) == pytest.approx(SMALL.steps.predict(*step), rel=0.05)


@pytest.mark.parametrize(("late", "steps"), [(0, 2), (ms(0.2), 1)])
def test_who_comes_while_a_step_runs_is_in_the_next_that_is_not_planned_yet(late: Duration, steps: int) -> None:
    """Steps of a stream take about 1.01 ms; somebody comes in the midst of one, with a prompt of a token."""
    stream = one(0, tokens=32, output=40)
    recorder = Recorder()
    scenario = LlmScenario(SMALL, prior=SMALL.steps, late=late)
    simulate(scenario, [stream, one(10.0, tokens=1, output=1, tenant="late")], recorder=recorder)
    waited = recorder.tenants["late"].first_tokens[0] / ms(1.01)
    assert steps < waited < steps + 1.1


def test_time_is_virtual_wherever_something_is_decided() -> None:
    """Only what tells how long a simulation took looks at a clock."""
    folder = Path(__file__).parents[2] / "src" / "headway" / "sim" / "llm"
    for name in ("arrivals", "baselines", "driver", "engine", "presets", "recorder", "report", "synthetic", "traces"):
        text = (folder / f"{name}.py").read_text()
        assert not re.search(r"^\s*(import time|from time|from datetime|import datetime)", text, re.MULTILINE), name


def test_prompts_of_equal_pieces_are_equal_and_of_others_not() -> None:
    same = prompt((Piece(5, 100), Piece(6, 30)))
    assert same == prompt((Piece(5, 100), Piece(6, 30)))
    assert same[:100] == prompt((Piece(5, 100),))
    assert len(same) == 130
    assert STOP not in same
    assert len({tuple(prompt((Piece(key, 8),))) for key in range(40_000)}) == 40_000
    assert len({tuple(prompt((Piece(key * 31_999, 8),))) for key in range(20_000)}) == 20_000


def test_an_answer_ends_with_the_stop_token_at_its_length() -> None:
    tokens = [answer(SequenceId(3), position, 6) for position in range(6)]
    assert tokens.index(STOP) == 5
    assert tokens != [answer(SequenceId(4), position, 6) for position in range(6)]
    assert tokens != [answer(SequenceId(3, 1), position, 6) for position in range(6)]


class Broken:
    """The planner, with something planted."""

    def __init__(self, scenario: LlmScenario, bug: str) -> None:
        self._planner = headway(scenario)
        self._bug = bug
        self.state = self._planner.state
        self.add = self._planner.add
        self.abort = self._planner.abort

    def plan(self, now: Instant) -> StepPlan:
        if self._bug == "sleeps" and self.state.step > 20:
            return StepPlan(0, [])
        return self._planner.plan(now)

    def commit(self, results: Sequence[int | None], now: Instant, elapsed: Duration = 0) -> list[Emitted]:
        emitted = self._planner.commit(results, now, elapsed)
        if self._bug == "twice" and len(emitted) > 3:
            return [*emitted, emitted[0]]
        if self._bug == "gap" and len(emitted) > 3:
            return emitted[1:]
        if self._bug == "swap" and len(emitted) > 3:
            one, two, *rest = emitted
            return [one._replace(token=two.token), two._replace(token=one.token), *rest]
        if self._bug == "early":
            return [e._replace(end=End.STOP) if e.position == 2 else e for e in emitted]
        if self._bug == "silent":
            return [e._replace(end=None) for e in emitted]
        return emitted


@pytest.mark.parametrize("bug", ["twice", "gap", "swap", "early", "silent"])
def test_a_scheduler_that_loses_repeats_or_invents_is_caught(bug: str) -> None:
    load = islice(arrivals(CLIENTS, 1), 50)
    with pytest.raises(OracleViolation):
        simulate(LlmScenario(SMALL), load, lambda scenario: Broken(scenario, bug))


def test_a_scheduler_that_goes_on_no_more_is_caught() -> None:
    with pytest.raises(Stuck):
        simulate(LlmScenario(SMALL), islice(arrivals(CLIENTS, 1), 50), lambda scenario: Broken(scenario, "sleeps"))


def test_presets_all_run_under_a_moderate_load() -> None:
    client = Client("a", 1.0, max_tokens=1000)
    for preset in PRESETS.values():
        rate = 0.5 * preset.capacity(800, 170)
        load = islice(arrivals((replace(client, rate=rate),), 1), 40)
        report = simulate(LlmScenario(preset), load)
        assert report.ends == {"stop": 40}, preset.name
        assert NEVER > report.duration_s > 0


def test_an_engine_knows_its_load() -> None:
    engine = Engine(0, Planner(SMALL.policy, 100), lambda plan: 1)
    engine.scheduler.add(one(0).request(1), 0)
    assert engine.load == 1


def test_places_that_hold_nothing_are_reported() -> None:
    """33 tokens are in three blocks of 16 places each, and then some more."""
    report = simulate(LlmScenario(SMALL, late=0), [one(0, tokens=33, output=3)])
    assert 10 / 48 < report.kv_unfilled < 15 / 48
    assert 0 < play().kv_unfilled < 0.5
