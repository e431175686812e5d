"""The books of language models balance: the real core, the real planner and what the runtime does with both, in virtual
time, with everything that goes wrong: at every step what is counted is held against what the gateway got."""

from __future__ import annotations

from collections import Counter, deque
from random import Random
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from headway.core.effects import AdmitSequence, TakeBack, UpdateCounters
from headway.core.events import (
    EngineReported,
    Event,
    RequestArrived,
    RequestCancelled,
    RequestSatisfied,
    SequenceFailed,
    SequenceFinished,
    SequenceReturned,
    ServerConfigured,
    TokensEmitted,
    VersionConfigured,
    WorkerLost,
    WorkerReady,
    WorkerStarting,
)
from headway.core.ids import Part
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy, Style
from headway.core.scheduler import Scheduler
from headway.core.units import ms, seconds, us
from headway.llm.plan.request import SequenceRequest
from headway.llm.plan.step import End
from headway.llm.sample.params import SamplingParams
from headway.runtime.effects import EffectRunner
from headway.runtime.held import Held, prefix_of
from headway.runtime.memory import MemoryGauge
from headway.runtime.quarantine import Quarantine
from headway.telemetry.counters import Counters
from headway.telemetry.generations import SINCE
from headway.telemetry.metrics import Metrics
from headway.wire.engine import Counters as CountersMessage
from headway.wire.engine import GiveBack, Start, Stepped
from headway.wire.generation import Generation, PromptScores, Result, Token
from headway.wire.messages import Abort, PartPayload, Reply, StreamChunk, Submit
from headway.worker.engine_counts import CountsReport, counts_of
from tests.unit.language_model import BLOCKS, COST, KEY, LM, MODEL, STOP

TENANTS = ("a", "b", "stranger")
SHOWN = {None: "", End.STOP: "stop", End.LENGTH: "length"}


class Engine:
    """One as its worker runs it, without a model. inbox: orders.  outbox: what it has said and nobody has read."""

    def __init__(self, worker: int) -> None:
        self.attached = MODEL.planner(worker)
        self.inbox: deque[Any] = deque()
        self.outbox: deque[Stepped] = deque()
        self.report = CountsReport(self.attached.planner.state)
        self.scored: dict[int, bool] = {}

    def send_control(self, message: Any) -> None:
        self.inbox.append(message)

    @property
    def is_empty(self) -> bool:
        return not (self.inbox or self.outbox or self.attached.planner.state.sequences)

    def step(self, now: int, rng: Random) -> None:
        attached, planner = self.attached, self.attached.planner
        while self.inbox:
            self.take(self.inbox.popleft(), now)
        plan = planner.plan(now)
        if plan.finished:
            self.tell(attached.stepped((), plan.finished), now)
        if plan.rows:
            chosen = [
                (STOP if rng.random() < 0.05 else rng.randrange(100, 999)) if r.samples else None for r in plan.rows
            ]
            emitted = planner.commit(chosen, now, ms(3))
            values: dict[int, list[Result]] = {}
            for id, position, token, end in emitted:
                results = values.setdefault(id.request, [])
                if self.scored.pop(id.request, False):
                    results.append(PromptScores(1, [(-1.0, ())]))
                results.append(Token(id.choice, position, token, end=SHOWN[end]))
            others = {request: 1 for request, results in values.items() if type(results[0]) is PromptScores}
            self.tell(attached.stepped(emitted, (), others), now, values)
        planner.check()

    def take(self, message: Any, now: int) -> None:
        attached = self.attached
        if isinstance(message, Start):
            asked = message.generation
            effect = AdmitSequence(message.worker, message.request, message.attempt, KEY, message.counter, message.paid)
            request = SequenceRequest(
                message.request,
                message.tenant,
                asked.prompt,
                asked.max_tokens,
                message.priority,
                stops=asked.sampling.stops,
                choices=asked.choices,
                output=message.output,
            )
            self.scored[message.request] = asked.prompt_logprobs is not None and not message.output
            self.tell(attached.admit(effect, request, message.prefix, now), now)
        elif isinstance(message, Abort):
            self.tell(attached.abort(message.request, message.attempt), now)
        elif isinstance(message, GiveBack):
            self.tell(attached.take_back(TakeBack(message.worker, message.request, message.attempt)), now)
        else:
            assert isinstance(message, CountersMessage)
            attached.update(UpdateCounters(message.worker, message.number, message.counters))

    def fail(self, request: int, now: int) -> None:
        if self.attached.has(request):
            self.tell(self.attached.fail(request, Outcome.MODEL_ERROR, "no token can come"), now)

    def tell(self, events: list[Event], now: int, values: dict[int, list[Result]] | None = None) -> None:
        if not events:
            return
        report, *rest = events
        assert isinstance(report, EngineReported)
        emitted, finished, failed, returned = (
            tuple(event for event in rest if isinstance(event, kind))
            for kind in (TokensEmitted, SequenceFinished, SequenceFailed, SequenceReturned)
        )
        results = tuple(tuple((values or {})[event.request]) for event in emitted)
        counts = self.report.due(now)
        self.outbox.append(Stepped(report.worker, report, emitted, results, finished, failed, returned, counts))


class World:
    """got: of each request, what the gateway got.  void: results told of requests that were over by then."""

    def __init__(self, seed: int) -> None:
        self.rng = Random(seed)
        self.now = seconds(1)
        self.core = Scheduler()
        self.counters = Counters(["a", "b"])
        self.metrics = Metrics(self.counters, self.core.views, clock=lambda: self.now)
        self.held: dict[int, Held] = {}
        self.posted: deque[Event] = deque()
        self.engines: dict[int, Engine] = {}
        self.workers = self.requests = 0
        self.asked: dict[int, Submit] = {}
        self.got: dict[int, list[Result]] = {}
        self.outcomes: dict[int, Outcome] = {}
        self.void = 0
        self.sums = dict.fromkeys(SINCE, 0)
        self.runner = EffectRunner(
            self.held,
            lambda worker: self.engines.get(worker),  # type: ignore[arg-type, return-value]
            self.deliver,
            self.counters,
            MemoryGauge(10**9, self.posted.append),
            self.posted.append,
            self,  # type: ignore[arg-type]
            Quarantine(self.posted.append, lambda version: seconds(600)),
        )
        self.tell(ServerConfigured(ServerPolicy()))
        self.tell(VersionConfigured(LM, BatchPolicy(style=Style.SEQUENCE, max_queued_requests=12, hang_floor=0)))
        self.worker()
        self.worker()

    # -- what the runtime does

    def tell(self, *events: Event) -> None:
        """In one call of the core, and in more what comes of it."""
        told = list(events)
        for event in told:
            if type(event) is TokensEmitted and event.request not in self.held:
                self.void += event.count
        effects = self.core.handle(told, self.now)
        self.counters.handled(self.now, told, effects)
        self.runner.carry_out(self.now, effects)
        self.core.check()
        if self.posted:
            events = tuple(self.posted)
            self.posted.clear()
            self.tell(*events)

    def deliver(self, message: Any) -> None:
        if isinstance(message, StreamChunk):
            self.got.setdefault(message.request, []).append(message.value)
        elif isinstance(message, Reply):
            self.outcomes[message.request] = message.outcome

    def read(self, engine: Engine) -> None:
        message = engine.outbox.popleft()
        self.tell(*self.runner.stepped(message))
        if message.counts is not None:
            assert message.counts.kv_used + message.counts.kv_cached + message.counts.kv_free == BLOCKS
            self.counters.engine(message.worker, message.counts)

    # -- what happens

    def worker(self) -> None:
        self.workers += 1
        engine = self.engines[self.workers] = Engine(self.workers)
        self.tell(WorkerStarting(self.workers, LM))
        self.tell(WorkerReady(self.workers, engine.attached.capacity, COST))

    def lose(self) -> None:
        worker = self.rng.choice(list(self.engines))
        self.runner.worker_gone(worker)
        self.tell(WorkerLost(worker, "signal SIGKILL"))
        del self.engines[worker]
        self.worker()

    def submit(self) -> None:
        rng = self.rng
        self.requests += 1
        shared = [5] * rng.choice((0, 8, 16))
        prompt = shared + [self.requests * 1000 + n for n in range(rng.randrange(1, 30))]
        choices = rng.choice((1, 1, 1, 2))
        scores = rng.choice((None, None, 0)) if choices == 1 else None
        generation = Generation(
            prompt, rng.randrange(1, 40), SamplingParams(stops=(STOP,)), choices, prompt_logprobs=scores
        )
        deadline = self.now + rng.choice((ms(60), seconds(100), seconds(100)))
        submit = Submit(
            self.requests,
            rng.choice(TENANTS),
            KEY,
            [Part(1, len(prompt))],
            [PartPayload([])],
            100,
            deadline,
            rng.choice((0, 1, 1, 2)),
            {},
            self.now - us(300),
            generation=generation,
        )
        self.asked[submit.request] = submit
        self.held[submit.request] = Held(submit, self.now)
        self.counters.asked(submit)
        self.tell(
            RequestArrived(
                submit.request,
                submit.tenant,
                KEY,
                tuple(submit.parts),
                100,
                deadline,
                submit.priority,
                0,
                prefix_of(submit),
            )
        )

    def one_of_those_open(self) -> int:
        return self.rng.choice(list(self.held)) if self.held else 0

    def go_on(self) -> None:
        self.now += ms(self.rng.choice((1, 3, 3, 20)))
        self.tell()
        rng = self.rng
        what = rng.random()
        engine = rng.choice(list(self.engines.values()))
        if what < 0.25:
            self.submit()
        elif what < 0.30:
            self.tell(RequestCancelled(self.one_of_those_open()))
        elif what < 0.33:
            self.tell(RequestSatisfied(self.one_of_those_open()))
        elif what < 0.35:
            engine.fail(self.one_of_those_open(), self.now)
        elif what < 0.36:
            self.lose()
        elif what < 0.7:
            engine.step(self.now, rng)
        elif engine.outbox:
            self.read(engine)

    def settle(self) -> None:
        for _ in range(10_000):
            self.now += ms(3)
            self.tell()
            for engine in list(self.engines.values()):
                engine.step(self.now, self.rng)
                while engine.outbox:
                    self.read(engine)
            if self.core.is_idle() and all(engine.is_empty for engine in self.engines.values()):
                return
        raise AssertionError("stuck")

    # -- what is told of it

    def page(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        text = self.metrics.render()[0].decode()
        return {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    def check(self) -> None:
        counters = self.counters
        counts, tenants = counters.generations.versions[LM], counters.versions[LM].tenants
        ended = Counter(outcome.kind.value for outcome in self.outcomes.values())
        kinds: Counter[str] = Counter()
        for requests in tenants.values():
            for name, count in requests.outcomes.items():
                kinds[Outcome(name).kind.value] += count
        received = sum(requests.received for requests in tenants.values())
        assert received == self.requests == kinds.total() + len(self.held)
        assert kinds == ended
        assert len(counters.open) == len(counters.generations.open) == len(self.held)
        delivered = sum(requests.tokens for requests in tenants.values())
        assert delivered == sum(map(len, self.got.values()))
        assert counts.told == delivered + self.void
        assert counts.finished["stop"] + counts.finished["length"] == ended["completed"] == counts.whole.count
        assert counts.finished["abort"] == ended["cancelled"] + ended["expired"]
        assert counts.finished["error"] == ended["failed"]
        tokens = {request: [v for v in values if type(v) is Token] for request, values in self.got.items()}
        assert sum(r.output_tokens for r in tenants.values()) == sum(map(len, tokens.values()))
        assert counts.first.count == sum(len({token.choice for token in each}) for each in tokens.values())
        assert counts.first.count + counts.gaps.count == sum(map(len, tokens.values()))
        for tenant in ("a", "b"):
            begun = [r for r, each in tokens.items() if each and self.asked[r].tenant == tenant]
            assert tenants[tenant].prompt_tokens == sum(self.asked[r].parts[0].length for r in begun)
        for field in SINCE:
            assert counts.since(field) >= self.sums[field], f"{field} has fallen"
            self.sums[field] = counts.since(field)


@pytest.mark.parametrize("seed", range(8))
def test_tokens_requests_and_reasons_are_conserved_at_every_step_and_gauges_are_zero_when_idle(seed: int) -> None:
    world = World(seed)
    for _ in range(500):
        world.go_on()
        world.check()
    in_flight = len(world.held)
    page = world.page()
    model = {("model_name", "lm"), ("engine", "0")}

    def vllm(name: str, **labels: str) -> float:
        return page[f"vllm:{name}", frozenset({*model, *labels.items()})]

    assert vllm("num_requests_running") + vllm("num_requests_waiting") >= in_flight
    world.settle()
    world.check()
    page = world.page()
    assert not world.held and world.requests > 80 and world.void > 0
    assert [vllm(n) for n in ("num_requests_running", "num_requests_waiting", "kv_cache_usage_perc")] == [0, 0, 0]
    for (name, labels), value in page.items():
        gauge = name in ("headway_engine_sequences", "headway_engine_unfilled_tokens", "headway_requests_in_flight")
        if gauge or (name == "headway_engine_kv_blocks" and ("state", "used") in labels):
            assert value == 0, (name, labels)
    counts = world.counters.generations.versions[LM]
    assert list(counts.engines) == list(world.engines), "those that are gone are not shown"
    for worker, engine in world.engines.items():
        assert counts.engines[worker] == counts_of(engine.attached.planner.state), "idle, it has told all"
    assert vllm("generation_tokens_total") == counts.first.count + counts.gaps.count
    assert vllm("time_to_first_token_seconds_count") == counts.first.count
    assert vllm("inter_token_latency_seconds_count") == counts.gaps.count
    assert vllm("e2e_request_latency_seconds_count") == sum(
        vllm("request_success_total", finished_reason=reason) for reason in ("stop", "length")
    )
    assert vllm("num_preemptions_total") == sum(
        counts.since(f"preempted_{why}") for why in ("growth", "class", "reclaim")
    )
    assert vllm("prefix_cache_queries_total") >= vllm("prefix_cache_hits_total") > 0
