"""Buckets and open requests: who is let through, when the next may come, and what is kept of it."""

from __future__ import annotations

import pytest

from headway.core.events import RequestCancelled, ServerConfigured
from headway.core.limits import Limits, Meter, short, take
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.tenancy import RateLimit, Tenancy, TenantPolicy
from headway.core.units import ms, seconds
from tests.unit.core_world import V, World, arrive, outcomes


def limits_of(*limits: RateLimit) -> Limits:
    tenancy = Tenancy()
    tenancy.others = TenantPolicy(limits=limits)
    return Limits(tenancy)


def let_through(limits: Limits, at: int, tokens: int = 1, length: int = 8) -> bool:
    meters = limits.covering("t", length, at)
    if short(meters, tokens, at) is not None:
        return False
    take(meters, tokens)
    return True


def test_a_bucket_never_holds_more_than_its_burst_however_long_nobody_came():
    limits = limits_of(RateLimit(requests_per_second=10, burst=0.3))
    assert [let_through(limits, seconds(1000)) for _ in range(4)] == [True, True, True, False]
    assert [let_through(limits, seconds(2000)) for _ in range(4)] == [True, True, True, False]


def test_over_a_long_time_so_many_pass_as_the_rate_says():
    limits = limits_of(RateLimit(requests_per_second=50, burst=0.1))
    passed = sum(let_through(limits, at) for at in range(0, seconds(10), ms(1)))
    assert passed == pytest.approx(500, abs=6)


def test_requests_and_tokens_are_counted_apart_and_both_hold():
    limits = limits_of(RateLimit(requests_per_second=2, tokens_per_second=100))
    assert let_through(limits, 0, tokens=90)
    assert not let_through(limits, 0, tokens=20)
    assert let_through(limits, 0, tokens=10)
    assert not let_through(limits, ms(400), tokens=1), "a third request"


def test_of_several_reasons_the_one_that_lasts_longest_is_told():
    limits = limits_of(RateLimit(requests_per_second=10, burst=0.1), RateLimit(tokens_per_second=10, burst=1))
    assert let_through(limits, 0, tokens=10)
    shortage = short(limits.covering("t", 8, 0), 5, 0)
    assert shortage is not None
    assert shortage.retry_after == pytest.approx(ms(500), rel=0.001)
    assert "10 tokens per second, 10 at once; 0 are left, and this is 5" in shortage.detail


def test_a_limit_says_for_which_lengths_it_is():
    limits = limits_of(RateLimit(concurrent=1, beyond=8, up_to=64))
    meters = limits.covering("t", 9, 0)
    take(meters, 1)
    shortage = short(meters, 1, 0)
    assert shortage is not None
    assert shortage.detail == "1 requests longer than 8 tokens and of up to 64 tokens of tenant t are open; 1 may be"
    assert (limits.covering("t", 8, 0), limits.covering("t", 65, 0)) == ((), ())
    assert len(limits.covering("t", 64, 0)) == 1


def test_a_meter_in_use_or_in_debt_is_not_forgotten():
    limits = limits_of(RateLimit(requests_per_second=10), RateLimit(concurrent=3))
    take(limits.covering("t", 8, 0), 1)
    limits.covering("debtor", 8, 0)[0].requests = -2000
    limits.covering("another", 8, seconds(100))
    assert [limit.concurrent for tenant, limit in limits.meters if tenant == "t"] == [0, 3]
    assert [limit.concurrent for tenant, limit in limits.meters if tenant == "debtor"] == [0]
    for meter in limits.meters.values():
        meter.open = 0
    limits.covering("another", 8, seconds(400))
    assert [tenant for tenant, _ in limits.meters] == ["another", "another"]


def test_what_is_left_in_the_buckets_survives_a_restart_of_the_scheduler():
    limits = limits_of(RateLimit(requests_per_second=1, burst=2))
    assert let_through(limits, 0)
    again = limits_of(RateLimit(requests_per_second=1, burst=2))
    again.restore(limits.snapshot())
    assert [let_through(again, 0), let_through(again, 0)] == [True, False]


def test_a_full_bucket_says_so_at_once_and_one_in_debt_when_it_will_be():
    meter = Meter("t", RateLimit(tokens_per_second=100, burst=1), 0)
    assert meter.full_in() == 0
    take((meter,), 250)
    assert meter.full_in() == pytest.approx(seconds(2.5), rel=0.001)


# -- in the scheduler ---------------------------------------------------------------------------


def test_who_is_refused_for_want_of_room_has_used_nothing_of_its_rate():
    limit = RateLimit(requests_per_second=1, burst=3, concurrent=3)
    limited = ServerPolicy(tenants=(("t", TenantPolicy(limits=(limit,))),))
    world = World(BatchPolicy(max_batch_size=1, max_queued_requests=1), server=limited)
    world.tell(arrive(1), arrive(2))
    assert set(outcomes(world.tell(*(arrive(i) for i in range(3, 9)))).values()) == {Outcome.QUEUE_FULL}
    (meter,) = world.scheduler._state.limits.meters.values()
    assert (meter.requests, meter.open) == (1, 2)


def test_limits_that_change_count_what_is_open_already():
    world = World(BatchPolicy(max_batch_size=1))
    world.tell(arrive(1), arrive(2))
    two = TenantPolicy(limits=(RateLimit(concurrent=3),))
    world.tell(ServerConfigured(ServerPolicy(others=two)))
    assert outcomes(world.tell(arrive(3), arrive(4))) == {4: Outcome.RATE_LIMITED}
    assert world.scheduler._state.pools[V].queued == 2


def test_a_request_that_is_cancelled_or_late_is_open_no_more():
    one_each = ServerPolicy(others=TenantPolicy(limits=(RateLimit(concurrent=2),)))
    world = World(BatchPolicy(max_batch_size=1), server=one_each)
    world.tell(arrive(1), arrive(2))
    assert outcomes(world.tell(RequestCancelled(2))) == {2: Outcome.CANCELLED}
    assert outcomes(world.tell(arrive(3, deadline=ms(100)))) == {}
    assert outcomes(world.tell(at=ms(100))) == {3: Outcome.DEADLINE_EXCEEDED}
    assert outcomes(world.tell(arrive(4), arrive(5))) == {5: Outcome.RATE_LIMITED}
