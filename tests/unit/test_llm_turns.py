"""Who is passed over while a step is filled, and how far."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headway.core.units import MILLISECOND
from headway.llm.plan.planner import Planner
from headway.llm.plan.policy import PlanPolicy
from headway.llm.plan.prefix import PrefixCache
from headway.llm.plan.request import SequenceId, SequenceRequest
from headway.llm.plan.step_time import Coefficients

POLICY = PlanPolicy(
    max_sequences=16, max_step_tokens=128, tile=16, max_context=8_192, max_partial_prefills=1, prefix_cache=False
)


def planner(**policy: int) -> Planner:
    return Planner(replace(POLICY, **policy), blocks=2_000, prior=Coefficients(step=1e6, prefill=1e4, decode=1e4))


def add(planner: Planner, id: int, tenant: str, prompt: int, priority: int = 0) -> None:
    assert planner.add(SequenceRequest(id, tenant, [id] * prompt, 400, priority), 0) is None


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


def test_what_was_reserved_for_a_prompt_that_lost_its_blocks_is_not_received() -> None:
    planner_ = planner()
    add(planner_, 1, "one", 1_000)
    assert step(planner_) == [1]
    one = planner_.state.tenants.account("one")
    counter = one.counter
    planner_.state.preempt(planner_.state.sequences[SequenceId(1)], "class")
    assert (one.counter, one.turn, one.reserved) == (counter, counter, 0)


def test_nor_is_anybody_let_off_what_others_received_meanwhile() -> None:
    planner_ = planner()
    add(planner_, 1, "one", 1_000)
    step(planner_)
    one, other = planner_.state.tenants.account("one"), planner_.state.tenants.account("other")
    reserved = one.reserved
    add(planner_, 2, "other", 1_000)
    other.base += other.units(5_000)
    planner_.state.preempt(planner_.state.sequences[SequenceId(1)], "class")
    assert one.turn == other.turn - reserved


@pytest.mark.parametrize("further", [100, 960])
def test_nobody_displaces_one_whose_turn_it_would_be_once_it_has_lost_its_blocks(further: int) -> None:
    """Of 1,000 tokens 80 are computed. Who is 100 ahead stays, or would take the blocks back at once; who is 960
    ahead gives way."""
    state = (planner_ := planner(max_sequences=2)).state
    add(planner_, 1, "old", 40)
    add(planner_, 2, "low", 1_000, priority=1)
    while SequenceId(2) not in state.running:
        step(planner_)
    low, high = state.tenants.account("low"), state.tenants.account("high")
    high.base = low.turn - high.units(further)
    state.tenants._last = 0
    add(planner_, 3, "high", 40)
    begun = state.sequences[SequenceId(2)].reserved
    step(planner_)
    assert (SequenceId(3) in state.running) is (low.units(further) >= begun)
    assert state.counts.preemptions["class"] == (SequenceId(3) in state.running)
