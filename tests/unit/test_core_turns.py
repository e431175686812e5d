"""Who goes before whose turn it is, who comes along with it, and whose backlog counts."""

from __future__ import annotations

import pytest

from headway.core.fairness import FairOrder
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.tenancy import Tenancy, TenantPolicy
from headway.core.units import NEVER, Duration, Instant, ms
from tests.unit.core_world import FLAT, LINEAR, V, World, arrive, dispatches, members, outcomes


def who_is_next(deadline: Instant, longest: Duration, **policy: bool) -> int:
    """After a batch of `late`, 10 ms of service ahead of `other`; each has one more waiting. The id of who is served
    at 10 ms: 1 of `late`, with the deadline, or 2 of `other`."""
    world = World(BatchPolicy(max_batch_size=1, max_batch_time=longest, **policy))
    (running,) = dispatches(world.tell(arrive(0, tenant="late")))
    world.tell(arrive(2, tenant="other"), arrive(3, tenant="other"), arrive(1, tenant="late", deadline=deadline))
    effects = world.complete(running, at=ms(10))
    assert outcomes(effects) == {0: Outcome.COMPLETED}, "nobody is given up before his turn"
    return dispatches(effects)[0].parts[0].request


def test_a_deadline_that_one_more_batch_would_miss_goes_before_whose_turn_it_is():
    assert who_is_next(ms(25), longest=ms(20)) == 1


def test_one_that_can_wait_for_a_batch_waits_for_its_turn():
    assert who_is_next(ms(60), longest=ms(20)) == 2
    assert who_is_next(NEVER, longest=ms(20)) == 2


def test_nobody_goes_before_whose_turn_it_is_further_ahead_than_one_longest_batch():
    assert who_is_next(ms(24), longest=ms(10) + 1) == 1
    assert who_is_next(ms(24), longest=ms(9)) == 2


def test_one_that_would_be_late_all_the_same_is_not_promoted():
    assert who_is_next(ms(12), longest=ms(20)) == 2


def test_where_batches_are_held_nobody_is_promoted():
    world = World(BatchPolicy(max_batch_size=1, max_batch_time=ms(20), hold=True))
    (running,) = dispatches(world.tell(arrive(0, tenant="late")))
    world.tell(arrive(2, tenant="other"), arrive(3, tenant="other"), arrive(1, tenant="late", deadline=ms(25)))
    assert members(world.complete(running, at=ms(10))) == [[2]]


def test_who_was_promoted_moves_no_virtual_time_on():
    world = World(BatchPolicy(max_batch_size=1, max_batch_time=ms(20)))
    (running,) = dispatches(world.tell(arrive(0, tenant="late")))
    world.tell(arrive(2, tenant="other"), arrive(1, tenant="late", deadline=ms(25)))
    assert members(world.complete(running, at=ms(10))) == [[1]]
    fair = world.scheduler._state.pools[V].fair
    assert fair.virtual_time == fair.accounts["other"].counter == 0
    assert fair.accounts["late"].counter == pytest.approx(ms(20), rel=1e-4)


# -- who comes along ----------------------------------------------------------------------------


def beside_a_wide_one(cost=FLAT) -> tuple[list[int], dict[str, int], dict[str, int]]:
    """`wide` has parts of 20 rows, two of which fit no batch; `narrow` is far ahead of it. The batch of the former's
    turn, and the counters before and after it."""
    narrow = ServerPolicy(tenants=(("narrow", TenantPolicy(weight=0.01)),))
    world = World(BatchPolicy(max_batch_size=32), cost=cost, server=narrow)
    (running,) = dispatches(world.tell(arrive(0, tenant="narrow")))
    world.tell(
        *(arrive(i, tenant="wide", rows=20) for i in (1, 2)), *(arrive(i, tenant="narrow") for i in range(3, 20))
    )
    before = dict(world.scheduler.views()[0].counters)
    (batch,) = dispatches(world.complete(running, at=ms(10)))
    return [ref.request for ref in batch.parts], before, dict(world.scheduler.views()[0].counters)


def test_where_the_next_in_turn_does_not_fit_others_come_along_and_are_not_charged():
    batch, before, after = beside_a_wide_one()
    assert batch == [1, *range(3, 15)]
    assert after["narrow"] == pytest.approx(before["narrow"], rel=1e-4)
    assert before["narrow"] > ms(900)
    assert after["wide"] - before["wide"] == pytest.approx(ms(10), rel=1e-3)


def test_nobody_comes_along_who_makes_the_batch_any_longer():
    batch, _, _ = beside_a_wide_one(LINEAR)
    assert batch == [1]


# -- whose backlog counts -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("waiting", "weight", "others", "expected"),
    [
        (3, 1.0, 1000, 6),  # as if the other had three as well
        (3, 1.0, 2, 5),  # all there are
        (3, 3.0, 1000, 4),  # a third of the weight, a third of what it has
        (4, 3.0, 1000, 6),  # rounded up
        (3, 0.5, 1000, 9),
        (3, 1.0, 0, 3),
    ],
)
def test_a_batch_is_lengthened_by_no_more_of_anothers_backlog_than_its_share_of_ones_own(
    waiting, weight, others, expected
):
    weights = ServerPolicy(tenants=(("one", TenantPolicy(weight=weight)),))
    world = World(BatchPolicy(max_batch_size=1), server=weights)
    world.tell(arrive(0, tenant="one"))
    world.tell(*(arrive(i, tenant="one") for i in range(1, 1 + waiting)))
    world.tell(*(arrive(i, tenant="other") for i in range(10, 10 + others)))
    fair = world.scheduler._state.pools[V].fair
    assert isinstance(fair, FairOrder)
    assert fair.counted(fair.accounts["one"], waiting + others) == expected


# -- the latency that is aimed for ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("slos", "expected"),
    [
        ((), ms(70)),
        ((("m", ms(30)),), ms(30)),
        ((("", ms(40)),), ms(40)),
        ((("", ms(40)), ("m", ms(30))), ms(30)),
        ((("another", ms(30)),), ms(70)),
        ((("m", 0),), 0),
        ((("", ms(40)), ("m", 0)), 0),
        ((("", 0),), 0),
    ],
)
def test_a_tenants_slo_for_a_model_goes_before_that_for_all_and_that_before_the_models_where_0_is_none(slos, expected):
    assert TenantPolicy(slos=slos).slo("m", ms(70)) == expected


def test_a_tenant_that_is_not_named_has_the_policy_of_the_others_by_itself():
    tenancy = Tenancy()
    tenancy.named, tenancy.others = {"a": TenantPolicy(weight=3)}, TenantPolicy(weight=0.5)
    assert (tenancy.weight("a"), tenancy.weight("b")) == (3, 0.5)
