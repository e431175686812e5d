"""The baselines serve everybody too, each in its own way, under the same judgement."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from headway.core.units import ms
from headway.llm.plan.policy import PlanPolicy
from headway.llm.plan.step_time import Coefficients
from headway.sim.llm.arrivals import Arrival, Piece
from headway.sim.llm.baselines import SARATHI_TOKENS, SCHEDULERS, Baseline, FixedChunk, PrefillFirst, StaticBatch
from headway.sim.llm.presets import Preset
from headway.sim.llm.recorder import Recorder
from headway.sim.llm.report import LlmReport, as_comparison
from headway.sim.llm.simulation import LlmScenario, simulate
from headway.sim.llm.synthetic import Client, Lengths, arrivals, greedy_and_polite

TIGHT = Preset(
    "tight",
    Coefficients(step=ms(1), prefill=10_000.0, decode=10_000.0, context=10.0, pairs=0.0),
    blocks=120,
    policy=PlanPolicy(max_sequences=32, max_step_tokens=512, max_context=1_500, target_itl=ms(5)),
)
ROOMY = replace(TIGHT, blocks=2_000, policy=replace(TIGHT.policy, max_context=8_000))
CLIENTS = (
    Client("a", 80, Lengths(60, 1.0, 600), Lengths(60, 0.8, 300), max_tokens=300, shared=40),
    Client("b", 40, Lengths(120, 0.8, 600), Lengths(60, 0.8, 300), max_tokens=300),
    Client("c", 5, Lengths(60), Lengths(20, 0.5), max_tokens=100, choices=3, leaves_after=ms(300)),
)


def play(name: str, preset: Preset, *load: Arrival) -> LlmReport:
    return simulate(LlmScenario(preset, prior=preset.steps), load, SCHEDULERS[name])


@pytest.mark.parametrize("name", SCHEDULERS)
@pytest.mark.parametrize("blocks", [50, 120])
def test_every_request_ends_once_though_blocks_are_short(name: str, blocks: int) -> None:
    kept = []

    def make(scenario: LlmScenario) -> object:
        kept.append(SCHEDULERS[name](scenario))
        return kept[0]

    scenario = LlmScenario(replace(TIGHT, blocks=blocks))
    report = simulate(scenario, islice(arrivals(CLIENTS, 1), 300), make)  # type: ignore[arg-type]
    ended = sum(report.ends.values())
    assert ended + sum(report.refused.values()) >= 300
    assert report.ends["stop"] > 250
    planner = kept[0]._planner if name != "headway" else kept[0]
    planner.check()
    assert planner.state.pool.in_use == 0


def test_prefill_first_stops_streams_and_the_planner_does_not() -> None:
    stream = Arrival(0, (Piece(1, 32),), 300, 400)
    prompts = [Arrival(ms(40 + 60 * n), (Piece(10 + n, 3_000),), 1, 10) for n in range(8)]
    stalled = play("prefill-first", ROOMY, stream, *prompts).between_tokens
    flowing = play("headway", ROOMY, stream, *prompts).between_tokens
    assert stalled.p99_ms > 25
    assert flowing.p99_ms < 12


def test_a_static_batch_ends_before_another_begins() -> None:
    first = [Arrival(0, (Piece(n, 32),), 50 if n else 200, 250) for n in range(3)]
    later = Arrival(ms(20), (Piece(9, 32),), 5, 10)
    report = play("static", ROOMY, *first, later)
    assert report.first_token.p99_ms > 150
    assert play("headway", ROOMY, *first, later).first_token.p99_ms < 20


def test_a_step_of_fixed_chunks_has_no_more_tokens_than_that() -> None:
    sizes = []

    class Watched(FixedChunk):
        def choose(self):  # type: ignore[no-untyped-def]
            decodes, chunks = super().choose()
            sizes.append(len(decodes) + sum(count for _, count in chunks))
            return decodes, chunks

    simulate(LlmScenario(ROOMY), islice(arrivals(CLIENTS, 1), 200), Watched)
    assert max(sizes) == SARATHI_TOKENS


def test_first_come_lets_a_greedy_tenant_have_it_all_and_the_planner_does_not() -> None:
    clients = greedy_and_polite(20.0, duration_s=6)
    preset = replace(ROOMY, policy=replace(ROOMY.policy, max_sequences=8))
    polite = {}
    for name in ("headway", "first-come"):
        report = simulate(LlmScenario(preset, prior=preset.steps), arrivals(clients, 1), SCHEDULERS[name])
        polite[name] = report.tenants["polite"].first_token.p99_ms
        assert report.tenants.keys() == {"greedy", "polite"}
    assert polite["first-come"] > 10 * polite["headway"]


def test_what_is_admitted_without_limit_is_preempted_more_often() -> None:
    load = list(islice(arrivals(CLIENTS[:2], 1), 300))
    assert play("unlimited", TIGHT, *load).preempted > 2 * play("first-come", TIGHT, *load).preempted > 0


def test_a_comparison_has_a_line_for_each() -> None:
    load = list(islice(arrivals(CLIENTS, 1), 20))
    table = as_comparison({name: play(name, ROOMY, *load) for name in ("headway", "static")}).splitlines()
    assert [line.split()[0] for line in table[1:]] == ["headway", "static"]


@pytest.mark.parametrize("kind", [PrefillFirst, StaticBatch, FixedChunk])
def test_one_alone_that_needs_the_whole_pool_ends_at_its_wall(kind: type[Baseline]) -> None:
    scenario = LlmScenario(replace(TIGHT, blocks=10))
    recorder = Recorder()
    report = simulate(scenario, [Arrival(0, (Piece(1, 100),), 400, 500)], kind, recorder=recorder)
    assert report.ends == {"length": 1}
    assert 50 < report.tenants["default"].output_tokens <= 160 - 100 + 1
