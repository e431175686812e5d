"""Counts of language models one by one, and the lines that are made of them."""

from __future__ import annotations

import pytest

from headway.core.events import (
    RequestArrived,
    RequestSatisfied,
    ServerConfigured,
    VersionConfigured,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
)
from headway.core.ids import Part, VersionId
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.scheduler import Scheduler
from headway.core.units import ms
from headway.llm.plan.request import SequenceRequest
from headway.llm.sample.params import SamplingParams
from headway.runtime.observer import ReplyInfo
from headway.telemetry.counters import Counters
from headway.telemetry.metrics import Metrics
from headway.wire.engine import EngineCounts
from headway.wire.generation import Generation, PromptScores, Result, Token
from headway.wire.messages import Submit, Timings
from headway.worker.engine_counts import EVERY, CountsReport
from tests.unit.language_model import BLOCKS, COST, KEY, LM, MODEL


def served() -> tuple[Counters, Metrics]:
    """A language model with an engine of its own, beside a model that is none."""
    counters, core = Counters(["a"]), Scheduler()
    events = [
        ServerConfigured(ServerPolicy()),
        VersionConfigured(LM, BatchPolicy(style=Style.SEQUENCE)),
        VersionConfigured(VersionId("m", 1), BatchPolicy()),
        WorkerStarting(1, LM),
        WorkerReady(1, MODEL.capacity, COST),
        WorkerStarting(2, VersionId("m", 1)),
        WorkerReady(2),
    ]
    counters.handled(0, events, core.handle(events, 0))
    return counters, Metrics(counters, core.views, clock=lambda: 0)


def ask(counters: Counters, request: int = 1, choices: int = 1, received: int = 0) -> None:
    generation = Generation([1, 2, 3], 9, SamplingParams(), choices)
    submit = Submit(request, "a", KEY, [Part(1, 3)], [], 0, 10**12, 1, {}, received, generation=generation)
    counters.asked(submit)
    counters.handled(0, [RequestArrived(request, "a", KEY, (Part(1, 3),))], [])


def lines(metrics: Metrics, start: str) -> list[str]:
    return [line for line in metrics.render()[0].decode().splitlines() if line.startswith(start)]


def test_where_no_language_model_is_served_its_metrics_are_not_there() -> None:
    page = Metrics(Counters(["a"])).render()[0].decode()
    assert "vllm:" not in page and "headway_engine" not in page and "first_token" not in page


def test_the_names_and_labels_that_dashboards_of_vllm_look_for_are_there_from_the_start() -> None:
    _, metrics = served()
    for name in (
        "num_requests_running",
        "num_requests_waiting",
        "kv_cache_usage_perc",
        "prompt_tokens_total",
        "generation_tokens_total",
        "num_preemptions_total",
        "prefix_cache_queries_total",
        "prefix_cache_hits_total",
    ):
        assert lines(metrics, f"vllm:{name}{{") == [f'vllm:{name}{{engine="0",model_name="lm"}} 0.0']
    for name in ("time_to_first_token", "inter_token_latency", "time_per_output_token", "e2e_request_latency"):
        (count,) = lines(metrics, f"vllm:{name}_seconds_count")
        assert count == f'vllm:{name}_seconds_count{{engine="0",model_name="lm"}} 0.0'
        assert any('le="0.5"' in line for line in lines(metrics, f"vllm:{name}_seconds_bucket"))
    assert lines(metrics, "vllm:request_success_total{") == [
        f'vllm:request_success_total{{engine="0",finished_reason="{reason}",model_name="lm"}} 0.0'
        for reason in ("stop", "length", "abort", "error")
    ]


def test_each_answer_has_a_first_token_and_gaps_of_its_own_and_the_prompt_counts_once() -> None:
    counters, metrics = served()
    ask(counters, choices=2, received=ms(100))
    counters.generated(1, [PromptScores(1, [])], ms(140))
    counters.generated(1, [Token(0, 0, 5)], ms(150))
    counters.generated(1, [Token(0, 1, 5), Token(1, 0, 6)], ms(170))
    counters.generated(1, [Token(0, 2, 5, end="stop"), Token(1, 1, 6)], ms(171))
    counts = counters.generations.versions[LM]
    assert (counts.first.count, counts.first.total) == (2, ms(50 + 70))
    assert (counts.gaps.count, counts.gaps.total) == (3, ms(20 + 1 + 1))
    tenant = '{model="lm",tenant="a",version="1"}'
    assert lines(metrics, f"headway_prompt_tokens_total{tenant}") == [f"headway_prompt_tokens_total{tenant} 3.0"]
    assert lines(metrics, f"headway_output_tokens_total{tenant}") == [f"headway_output_tokens_total{tenant} 5.0"]


def test_results_of_models_that_stream_something_else_are_not_looked_into() -> None:
    counters, _ = served()
    counters.generated(5, [{"any": "value"}], ms(1))  # type: ignore[list-item]
    assert counters.generations.versions[LM].first.count == 0


@pytest.mark.parametrize(
    ("values", "satisfied", "reason"),
    [
        ([Token(0, 0, 5, end="stop"), Token(1, 0, 5, end="stop")], False, "stop"),
        ([Token(0, 0, 5, end="stop"), Token(1, 0, 5, end="length")], False, "length"),
        ([Token(0, 0, 5), Token(1, 0, 5)], False, "length"),
        ([Token(0, 0, 5), Token(1, 0, 5)], True, "stop"),
    ],
    ids=["all stopped", "one was cut off", "no room for more", "a stop string came"],
)
def test_a_request_was_stopped_where_all_its_answers_were(values: list[Result], satisfied: bool, reason: str) -> None:
    counters, metrics = served()
    ask(counters, choices=2)
    counters.generated(1, values, ms(1))
    if satisfied:
        counters.handled(0, [RequestSatisfied(1)], [])
    counters.replied(ReplyInfo(1, "lm", 1, "a", Outcome.COMPLETED, 1, 0, Timings(1, 2, 3, 4, 5)))
    assert [line[-3:] for line in lines(metrics, "headway_generations_total") if f'"{reason}"' in line] == ["1.0"]
    assert counters.generations.versions[LM].finished[reason] == 1


def test_what_an_engine_has_counted_stays_when_it_is_gone_and_what_it_holds_does_not() -> None:
    counters, metrics = served()
    counters.engine(1, EngineCounts(running=2, kv_used=6, kv_cached=2, kv_free=16, steps=9, hits=5, preempted_class=1))
    assert lines(metrics, "vllm:kv_cache_usage_perc{") == ['vllm:kv_cache_usage_perc{engine="0",model_name="lm"} 0.25']
    counters.handled(0, [WorkerLost(1, "signal SIGKILL"), WorkerStarting(3, LM), WorkerReady(3, MODEL.capacity)], [])
    counters.engine(1, EngineCounts(running=2, steps=10))  # late: it is gone
    counters.engine(3, EngineCounts(kv_free=24, steps=1))
    version = '{model="lm",version="1"}'
    assert lines(metrics, "headway_engine_steps_total{") == [f"headway_engine_steps_total{version} 10.0"]
    assert lines(metrics, "vllm:kv_cache_usage_perc{") == ['vllm:kv_cache_usage_perc{engine="0",model_name="lm"} 0.0']
    assert lines(metrics, "vllm:num_preemptions_total{") == [
        'vllm:num_preemptions_total{engine="0",model_name="lm"} 1.0'
    ]
    assert not any('worker="1"' in line for line in lines(metrics, "headway_engine"))


def test_an_engine_tells_of_itself_ten_times_a_second_at_most_and_whenever_it_has_fallen_idle() -> None:
    attached = MODEL.planner(1)
    planner = attached.planner
    report = CountsReport(planner.state)
    assert planner.add(SequenceRequest(1, "t", [1, 2, 3], 20), 0) is None
    told = []
    for step in range(10):
        plan = planner.plan(step * ms(30))
        planner.commit([9 for _ in plan.rows], step * ms(30))
        told.append(report.due(step * ms(30)) is not None)
    assert ms(100) == EVERY
    assert told == [True, False, False, False, True, False, False, False, True, False]
    planner.abort(1)
    idle = report.due(ms(271))
    assert idle is not None and (idle.running, idle.kv_used, idle.kv_free + idle.kv_cached) == (0, 0, BLOCKS)
    assert report.due(ms(600)) is None, "nothing is new"
