"""A planner under a core: orders in, events out."""

from __future__ import annotations

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
from headway.core.ids import BatchKey, Capacity, RequestId
from headway.core.outcomes import Outcome
from headway.llm.plan.attached import AttachedPlanner
from headway.llm.plan.planner import Planner
from headway.llm.plan.policy import UNIT, PlanPolicy, Prices
from headway.llm.plan.request import SequenceRequest
from tests.unit.plan_world import QUICK, TOKEN, prompt

KEY = BatchKey("m", 1, "tokens")
PRICES = Prices(prompt=1_000, output=5_000)


class Engine:
    """Worker 7. step() plans and runs one step and returns what the core is told."""

    def __init__(self, blocks: int = 64, **policy: int) -> None:
        settings = {"max_sequences": 4, "max_step_tokens": 64, "tile": 4, "max_context": 1_000, **policy}
        planner = Planner(PlanPolicy(**settings, prices=PRICES), blocks, 4, prior=QUICK)  # type: ignore[arg-type]
        self.attached = AttachedPlanner(7, planner)

    def admit(
        self,
        id: RequestId,
        tokens: int,
        max_tokens: int = 4,
        *,
        tenant: str = "a",
        attempt: int = 1,
        counter: int = 0,
        paid: int = 0,
        output: tuple[int, ...] = (),
        prefix: tuple[tuple[int, int], ...] = (),
        choices: int = 1,
    ) -> list[Event]:
        request = SequenceRequest(id, tenant, prompt(tokens, id), max_tokens, output=output, choices=choices)
        return self.attached.admit(AdmitSequence(7, id, attempt, KEY, counter, paid), request, prefix, 0)

    def step(self) -> list[Event]:
        plan = self.attached.planner.plan(0)
        told = self.attached.stepped((), plan.finished) if plan.finished else []
        if plan.rows:
            results = [TOKEN if row.samples else None for row in plan.rows]
            told += self.attached.stepped(self.attached.planner.commit(results, 0))
        self.attached.planner.check()
        return told


def report(told: list[Event]) -> EngineReported:
    assert isinstance(told[0], EngineReported), "what it tells of the accounts comes before who leaves them"
    return told[0]


def test_it_says_what_it_can_hold():
    assert Engine().attached.capacity == Capacity(0, 4, 64, 4, 64, 1_000)


def test_a_step_is_reported_first_and_then_what_came_of_each():
    engine = Engine()
    assert engine.admit(1, 10, max_tokens=2) == []
    told = engine.step()
    assert told == [
        EngineReported(7, 1, heard=1, sequences=3, kv_blocks=60, served=(Served("a", 15_000),)),
        TokensEmitted(7, 1, 1, first=0, count=1, service=0),
    ]
    told = engine.step()
    assert told == [
        EngineReported(7, 2, heard=1, sequences=4, kv_blocks=64, served=(Served("a", 5_000),)),
        TokensEmitted(7, 1, 1, first=1, count=1, service=0),
        SequenceFinished(7, 1, 1),
    ]


def test_a_prompt_under_way_is_owed_and_what_waits_is_named():
    engine = Engine(max_sequences=1)
    engine.admit(1, 100)
    engine.admit(2, 5, attempt=3)
    told = report(engine.step())
    assert told.served == (Served("a", 64_000, owed=36_000),) and told.prefilling == 36
    assert told.waiting == ((2, 3),) and told.sequences == 0 and told.heard == 2


def test_what_is_refused_fails_and_is_heard_of():
    engine = Engine()
    told = engine.admit(1, 999, max_tokens=10)
    assert report(told).heard == 1
    assert isinstance(told[1], SequenceFailed) and told[1].outcome is Outcome.TOO_LARGE and "1009" in told[1].detail


def test_what_waits_is_given_back_and_goes_on_elsewhere_paid_for():
    engine, other = Engine(max_sequences=1), Engine()
    engine.admit(1, 100)
    engine.admit(2, 8)
    engine.step()
    told = engine.attached.take_back(TakeBack(7, 2, 1))
    assert report(told).heard == 3 and report(told).waiting == () and told[1:] == [SequenceReturned(7, 2, 1, paid=0)]
    other.admit(2, 8, attempt=2, paid=6, output=(9, 9))
    assert report(other.step()).served == (Served("a", 5_000),), "whose answer had begun has paid for its prompt"
    other.admit(3, 8, attempt=2, paid=6)
    assert report(other.step()).served == (Served("a", 2_000 + 2 * 5_000),)


def test_tokens_are_counted_on_from_those_that_its_client_has():
    engine = Engine()
    engine.admit(1, 10, max_tokens=9, output=(5, 5, 5))
    assert engine.step()[1:] == [TokensEmitted(7, 1, 1, first=3, count=1, service=0)]


def test_what_runs_stays_and_so_does_what_is_another_attempt_or_has_several_answers():
    engine = Engine(max_sequences=2)
    engine.admit(1, 10)
    engine.step()
    engine.admit(2, 10, choices=2)
    for number, (request, attempt) in enumerate([(1, 1), (1, 9), (2, 1), (3, 1)], 3):
        told = engine.attached.take_back(TakeBack(7, request, attempt))
        assert len(told) == 1 and report(told).heard == number


def test_an_abort_is_answered_and_another_attempt_s_is_not():
    engine = Engine()
    engine.admit(1, 10, attempt=2)
    assert engine.attached.abort(1, 1) == []
    assert engine.attached.abort(1, 2)[1:] == [SequenceFinished(7, 1, 2)]
    assert engine.attached.abort(1, 2) == []


def test_several_answers_are_one_request():
    engine = Engine()
    engine.admit(1, 10, max_tokens=1, choices=2)
    told = [event for _ in range(3) for event in engine.step() if not isinstance(event, EngineReported)]
    emitted = [(event.first, event.count) for event in told if isinstance(event, TokensEmitted)]
    assert sum(count for _, count in emitted) == 2 and emitted[0][0] == 0
    assert [event for event in told if isinstance(event, SequenceFinished)] == [SequenceFinished(7, 1, 1)]


def test_it_orders_by_the_core_s_counters_and_by_what_it_has_not_reported():
    engine = Engine()
    engine.admit(1, 10, tenant="a", counter=70_000)
    engine.admit(2, 10, tenant="b", counter=30_000)
    accounts = engine.attached.planner.state.tenants.accounts
    assert (accounts["a"].counter, accounts["b"].counter) == (70_000 * UNIT, 30_000 * UNIT)
    number = report(engine.step()).number
    assert accounts["b"].counter == 45_000 * UNIT
    engine.step()
    engine.attached.update(UpdateCounters(7, number, (("a", 85_000), ("b", 90_000))))
    assert accounts["a"].counter == 90_000 * UNIT, "another token since that report"
    assert accounts["b"].counter == 95_000 * UNIT, "another engine has served it"


def test_a_prefix_is_forgotten_once_its_blocks_are_gone():
    engine = Engine(blocks=8)
    engine.admit(1, 16, max_tokens=1, prefix=((8, 111), (2, 222)))
    engine.step()
    assert report([engine.attached.report()]).forgot == ()
    engine.admit(2, 30, max_tokens=1)
    assert report(engine.step()).forgot == (111,), "and one that is shorter than a block is never held"


def test_what_no_longer_fits_fails():
    engine = Engine(max_sequences=1)
    engine.admit(1, 10)
    engine.step()
    engine.admit(2, 40)
    engine.attached.planner.resize(8)
    told = engine.step()
    failed = [event for event in told if isinstance(event, SequenceFailed)]
    assert [(event.request, event.outcome) for event in failed] == [(2, Outcome.TOO_LARGE)]
