"""What the planner of steps promises, in virtual time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

import pytest

from headway.core.units import MILLISECOND, SECOND, Duration, Instant
from headway.llm.plan.planner import Planner
from headway.llm.plan.step import Emitted
from headway.sim.llm.arrivals import Arrival, Piece
from headway.sim.llm.presets import BLOCK_SIZE, PRESETS
from headway.sim.llm.recorder import Recorder
from headway.sim.llm.simulation import LlmScenario, simulate
from headway.sim.llm.synthetic import Client, Lengths, arrivals, for_a_while

NAMES = ("a100-8b", "h100-8b", "h100x8-70b")


def prompt(key: int, tokens: int) -> tuple[Piece, ...]:
    return (Piece(1_000_000 + key, tokens),)


class Firsts(Recorder):
    """When whose first token came, and between which tokens of streams how much time passed."""

    def __init__(self, scenario: LlmScenario) -> None:
        super().__init__(scenario.weight)
        self.firsts: dict[int, Instant] = {}
        self.lasts: dict[int, Instant] = {}
        self.between_them: dict[int, list[tuple[Instant, Duration]]] = {}
        self.took: list[tuple[Instant, Duration]] = []

    def ran(self, engine, plan, emitted, now) -> None:  # type: ignore[no-untyped-def]
        super().ran(engine, plan, emitted, now)
        self.took.append((now, now - engine.began))
        for token in emitted:
            request = token.id.request
            self.firsts.setdefault(request, now)
            if request in self.lasts:
                self.between_them.setdefault(request, []).append((now, now - self.lasts[request]))
            self.lasts[request] = now

    def longest_step(self, since: Instant, until: Instant) -> Duration:
        return max(took for ended, took in self.took if ended >= since and ended - took <= until)


@pytest.mark.parametrize("name", NAMES)
def test_short_prompts_come_through_beside_a_long_one_and_streams_go_on(name: str) -> None:
    """A prompt of 16,000 tokens, 16 streams, and short prompts every 40 ms: the first token of each within twice what
    it takes in an idle engine and two steps; of the times between the streams' tokens meanwhile 99 % within
    three times the median; and no stream waits for more than a tenth beyond its target."""
    scenario = LlmScenario(PRESETS[name])
    idle = simulate(scenario, [Arrival(0, prompt(0, 64), 2, 2)]).first_token.p50_ms * MILLISECOND
    begins = SECOND
    streams = [Arrival(0, prompt(number, 100), 1_000, 1_000, "streams") for number in range(16)]
    long = [Arrival(begins, prompt(100, 16_000), 10, 10, "long")]
    shorts = [
        Arrival(begins + (1 + number) * 40 * MILLISECOND, prompt(200 + number, 16 + 2 * number), 2, 2, "short")
        for number in range(24)
    ]
    watched = Firsts(scenario)
    simulate(scenario, [*streams, *long, *shorts], recorder=watched)
    through = watched.firsts[len(streams) + 1]
    beside = [(18 + number, short) for number, short in enumerate(shorts) if short.at < through]
    assert len(beside) >= 5
    for request, short in beside:
        took = watched.firsts[request] - short.at
        assert took <= 2 * idle + 2 * watched.longest_step(short.at, watched.firsts[request])
    gaps = list(chain.from_iterable(watched.between_them[number] for number in range(1, 17)))
    beside_it = sorted(gap for came, gap in gaps if begins < came <= through)
    assert len(beside_it) > 100
    assert beside_it[int(0.99 * len(beside_it))] <= 3 * beside_it[len(beside_it) // 2]
    assert max(gap for _, gap in gaps) <= 1.1 * scenario.plan_policy.target_itl


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("tenants", [("one", "one"), ("busy", "urgent")])
def test_a_strictly_higher_class_begins_within_two_steps_though_every_slot_and_block_is_taken(
    name: str, tenants: tuple[str, str]
) -> None:
    policy = replace(PRESETS[name].policy, max_sequences=16)
    scenario = LlmScenario(PRESETS[name], policy=policy, blocks=16 * 57)
    busy = [Arrival(0, prompt(number, 300), 600, 600, tenants[0], priority=1) for number in range(64)]
    urgent = [
        Arrival(4 * SECOND + number * SECOND // 2, prompt(100 + number, 128), 5, 5, tenants[1]) for number in range(6)
    ]
    watched = Firsts(scenario)
    report = simulate(scenario, [*busy, *urgent], recorder=watched)
    assert report.preemptions["class"] >= 1
    for number, arrival in enumerate(urgent):
        first = watched.firsts[65 + number]
        step = watched.longest_step(arrival.at, first)
        own = PRESETS[name].steps.predict(128, 0, 128, 128 * 64)
        assert first - arrival.at <= 2 * step + own + 2 * MILLISECOND


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("blocks", [0, 100])
def test_so_it_does_where_there_is_one_slot_and_the_oldest_has_it(name: str, blocks: int) -> None:
    """Or all the blocks. Who was displaced twice is so no more: it ends, whatever comes."""
    policy = replace(PRESETS[name].policy, max_sequences=16 if blocks else 1)
    scenario = LlmScenario(PRESETS[name], policy=policy, blocks=blocks)
    low = Arrival(0, prompt(1, 1_480), 100, 100, "one", priority=1)
    every = SECOND // 4
    urgent = [Arrival((1 + number) * every, prompt(100 + number, 128), 5, 5, "one") for number in range(4)]
    watched = Firsts(scenario)
    report = simulate(scenario, [low, *urgent], recorder=watched)
    assert 1 <= report.preemptions["class"] <= 2 and report.ends == {"stop": 5}
    for number, arrival in enumerate(urgent[:2]):
        first = watched.firsts[2 + number]
        own = PRESETS[name].steps.predict(128, 0, 128, 128 * 64)
        assert first - arrival.at <= 2 * watched.longest_step(arrival.at, first) + own + 2 * MILLISECOND


class TwoAtOnce(Planner):
    """Two tenants that always wait: after each step, how far their service has come apart by weight."""

    __slots__ = ("differences",)

    def commit(self, results: Sequence[int | None], now: Instant, elapsed: Duration = 0) -> list[Emitted]:
        emitted = super().commit(results, now, elapsed)
        accounts = self.state.tenants.accounts
        if len(accounts) == 2:
            f, g = accounts["f"], accounts["g"]
            if f.waiting and g.waiting:
                self.differences.append(f.served / f.weight - g.served / g.weight)
        return emitted


CASES = {
    "alike": (Lengths(256), Lengths(256), Lengths(256), Lengths(256)),
    "long and short answers": (Lengths(200, 0.8, 2_000), Lengths(20, 0.5, 200), Lengths(200, 0.8, 2_000), Lengths(400)),
    "long prompts beside long answers": (
        Lengths(3_000, 0.5, 8_000),
        Lengths(30),
        Lengths(60),
        Lengths(500, 0.5, 2_000),
    ),
}


@pytest.mark.parametrize("weights", [(1.0, 1.0), (1.0, 3.0)])
@pytest.mark.parametrize("case", CASES)
def test_two_tenants_that_always_wait_never_come_further_apart_than_the_bound(
    case: str, weights: tuple[float, float]
) -> None:
    """|W_f / w_f - W_g / w_g| <= 2 max(w_p L_in, w_q M) over any interval, at every step."""
    prompt_f, answer_f, prompt_g, answer_g = CASES[case]
    clients = (
        Client("f", 40.0, prompt_f, answer_f, max_tokens=2_000),
        Client("g", 40.0, prompt_g, answer_g, max_tokens=2_000),
    )
    named = dict(zip(("f", "g"), weights, strict=True))
    scenario = LlmScenario(PRESETS["a100-8b"], blocks=600, weights=named, until=60 * SECOND)
    made: list[TwoAtOnce] = []

    def make(scenario: LlmScenario) -> Planner:
        planner = TwoAtOnce(scenario.plan_policy, scenario.pool, BLOCK_SIZE, weight=scenario.weight)
        planner.differences = []
        made.append(planner)
        return planner

    coming: Iterator[Arrival] = for_a_while(arrivals(clients, 1), 60)
    simulate(scenario, coming, make=make)
    differences = made[0].differences
    assert len(differences) > 500
    longest = max(length.most if length.sigma else length.median for length in (prompt_f, prompt_g))
    bound = 2 * max(longest, 2 * 600 * BLOCK_SIZE) / min(weights)
    assert max(differences) - min(differences) <= bound
    served = [account.served / account.weight for account in made[0].state.tenants.accounts.values()]
    assert 2 * min(served) > bound, "it takes some time to come so far apart"
