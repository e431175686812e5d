"""Who is passed over while a step is filled, and how far."""

from __future__ import annotations

from dataclasses import replace

from headway.core.units import MILLISECOND
from headway.llm.plan.planner import Planner
from headway.llm.plan.policy import PlanPolicy
from headway.llm.plan.prefix import PrefixCache
from headway.llm.plan.request import SequenceRequest
from headway.llm.plan.step_time import Coefficients

POLICY = PlanPolicy(
    max_sequences=16, max_step_tokens=128, tile=16, max_context=8_192, max_partial_prefills=1, prefix_cache=False
)


def planner() -> Planner:
    return Planner(POLICY, blocks=2_000, prior=Coefficients(step=1e6, prefill=1e4, decode=1e4))


def add(planner: Planner, id: int, tenant: str, prompt: int) -> None:
    assert planner.add(SequenceRequest(id, tenant, [id] * prompt, 4), 0) is None


def step(planner: Planner) -> list[int]:
    """Requests in it."""
    plan = planner.plan(0)
    planner.commit([1 if row.samples else None for row in plan.rows], 0, MILLISECOND)
    return [row.id.request for row in plan.rows]


def test_a_short_prompt_does_not_wait_for_anothers_second_long_one() -> None:
    planner_ = planner()
    add(planner_, 1, "long", 1_000)
    add(planner_, 2, "long", 1_000)
    assert step(planner_) == [1]
    planner_.state.tenants.account("short").base = planner_.state.tenants.account("long").turn + 1
    add(planner_, 3, "short", 40)
    assert planner_.state.tenants.first() is planner_.state.tenants.account("long"), "it is its turn"
    assert step(planner_) == [1, 3]


def test_but_not_further_ahead_than_the_long_one_will_be_with_its_own() -> None:
    planner_ = planner()
    add(planner_, 1, "long", 1_000)
    add(planner_, 2, "long", 1_000)
    assert step(planner_) == [1]
    long, short = planner_.state.tenants.account("long"), planner_.state.tenants.account("short")
    short.base = long.turn + long.units(980)
    add(planner_, 3, "short", 40)
    assert step(planner_) == [1], "980 + 40 are more than 1,000"
    long.unreported += long.units(20)
    assert step(planner_) == [1, 3]


def test_within_a_tenant_nobody_passes() -> None:
    planner_ = planner()
    for id, prompt in ((1, 1_000), (2, 1_000), (3, 40)):
        add(planner_, id, "one", prompt)
    begun: dict[int, None] = {}
    while planner_.state.sequences:
        begun.update(dict.fromkeys(sorted(step(planner_))))
    assert list(begun) == [1, 2, 3]


def test_whether_one_waits_for_a_prefix_takes_few_looks_however_long_it_is() -> None:
    class Watched(PrefixCache):
        looks = 0

        def knows(self, hash: bytes) -> bool:
            self.looks += 1
            return super().knows(hash)

        def find(self, root: bytes, hashes: list[bytes], tokens: list[int], limit: int) -> list[int]:
            self.looks += limit
            return super().find(root, hashes, tokens, limit)

    planner_ = Planner(replace(POLICY, prefix_cache=True), 2_000, prior=Coefficients(step=1e6, prefill=1e4, decode=1e4))
    watched = planner_.state.cache = Watched(16)
    add(planner_, 1, "one", 6_000)
    assert step(planner_) == [1]
    for id in range(2, 12):
        assert planner_.add(SequenceRequest(id, "one", [1] * 6_000 + [id], 4), 0) is None
    watched.looks = 0
    assert step(planner_) == [1] and planner_.state.counts.deferred == 1
    assert watched.looks <= 11 * 10, "of 375 blocks each"
