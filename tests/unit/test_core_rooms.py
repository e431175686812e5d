"""Room to wait in: lent, reclaimed, and nobody's twice."""

from __future__ import annotations

from headway.core.effects import ResolveRequest
from headway.core.ids import Part
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.tenancy import RateLimit, TenantPolicy
from headway.core.units import ms, seconds
from tests.unit.core_world import World, arrive, dispatches, outcomes


def full_of_one_tenant(requests: int = 4, **options: ServerPolicy) -> World:
    """One of `greedy` runs, and so many wait, which is all the room there is."""
    world = World(BatchPolicy(max_batch_size=1, max_queued_requests=requests), **options)
    world.tell(arrive(0, tenant="greedy", size=10))
    world.tell(*(arrive(i, tenant="greedy", size=10) for i in range(1, requests + 1)))
    return world


def test_while_there_is_room_one_tenant_may_have_all_of_it_and_alone_it_is_the_server_that_is_full():
    world = full_of_one_tenant()
    assert outcomes(world.tell(arrive(9, tenant="greedy"))) == {9: Outcome.QUEUE_FULL}


def test_who_has_less_than_its_part_gets_what_was_lent_last():
    world = full_of_one_tenant()
    assert outcomes(world.tell(arrive(10, tenant="polite"))) == {4: Outcome.RECLAIMED}
    assert outcomes(world.tell(arrive(11, tenant="polite"))) == {3: Outcome.RECLAIMED}
    refused = world.tell(arrive(12, tenant="polite"))
    assert outcomes(refused) == {12: Outcome.TENANT_QUEUE_FULL}, "it has its half"
    assert isinstance(refused[0], ResolveRequest) and refused[0].retry_after > 0


def test_parts_of_a_room_follow_the_weights():
    heavy = ServerPolicy(tenants=(("polite", TenantPolicy(weight=3)),))
    world = full_of_one_tenant(server=heavy)
    told = [outcomes(world.tell(arrive(10 + i, tenant="polite"))) for i in range(4)]
    assert told == [
        {4: Outcome.RECLAIMED},
        {3: Outcome.RECLAIMED},
        {2: Outcome.RECLAIMED},
        {13: Outcome.TENANT_QUEUE_FULL},
    ]


def test_nobody_goes_in_vain_and_nobody_goes_twice_where_two_rooms_are_full():
    """The bytes of the first victim are not enough: another has to go, and not the first one again."""
    world = full_of_one_tenant(server=ServerPolicy(max_queued_bytes=50))
    effects = world.tell(arrive(10, tenant="polite", size=20))
    assert outcomes(effects) == {4: Outcome.RECLAIMED, 3: Outcome.RECLAIMED}
    world = full_of_one_tenant(server=ServerPolicy(max_queued_bytes=50))
    effects = world.tell(arrive(10, tenant="polite", size=26))
    assert outcomes(effects) == {10: Outcome.OVERLOADED}, (
        "more than its half of the bytes: the slot is not taken either"
    )


def test_a_tenants_own_bound_holds_though_there_is_room():
    bounded = ServerPolicy(others=TenantPolicy(max_queued_requests=1))
    world = World(BatchPolicy(max_batch_size=1), server=bounded)
    world.tell(arrive(0))
    assert outcomes(world.tell(arrive(1), arrive(2))) == {2: Outcome.TENANT_QUEUE_FULL}


def test_a_rate_lets_its_burst_through_and_says_when_the_next_may_come():
    limit = RateLimit(requests_per_second=10, burst=0.2)
    world = World(server=ServerPolicy(others=TenantPolicy(limits=(limit,))))
    effects = world.tell(arrive(1), arrive(2), arrive(3))
    assert outcomes(effects) == {3: Outcome.RATE_LIMITED}
    (refusal,) = [effect for effect in effects if isinstance(effect, ResolveRequest)]
    assert 0 < refusal.retry_after <= ms(100) + 1
    assert refusal.detail == "tenant t may send 10 requests per second, 2 at once; 0 are left, and this is 1"
    assert outcomes(world.tell(arrive(4), at=refusal.retry_after - 2)) == {4: Outcome.RATE_LIMITED}
    assert outcomes(world.tell(arrive(5), at=refusal.retry_after)) == {}


def test_more_tokens_than_a_bucket_holds_pass_when_it_is_full_and_leave_it_in_debt():
    limit = RateLimit(tokens_per_second=100)
    world = World(BatchPolicy(max_batch_size=1), server=ServerPolicy(others=TenantPolicy(limits=(limit,))))
    assert outcomes(world.tell(arrive(1, length=256))) == {}
    assert outcomes(world.tell(arrive(2, length=1), at=seconds(1.5))) == {2: Outcome.RATE_LIMITED}
    assert outcomes(world.tell(arrive(3, length=1), at=seconds(1.6))) == {}


def test_as_many_requests_are_open_as_may_be_however_they_end():
    limit = RateLimit(concurrent=1)
    world = World(server=ServerPolicy(others=TenantPolicy(limits=(limit,))))
    (running,) = dispatches(world.tell(arrive(1)))
    assert outcomes(world.tell(arrive(2))) == {2: Outcome.RATE_LIMITED}
    assert outcomes(world.tell(arrive(3, tenant="another"))) == {}
    world.complete(running)
    assert outcomes(world.tell(arrive(4))) == {}


def test_a_limit_is_for_lengths_of_its_range_only():
    limit = RateLimit(concurrent=1, beyond=64)
    world = World(server=ServerPolicy(others=TenantPolicy(limits=(limit,))))
    effects = world.tell(arrive(1, length=65), arrive(2, length=65), arrive(3, length=64), arrive(4, length=64))
    assert outcomes(effects) == {2: Outcome.RATE_LIMITED}


def test_meters_of_tenants_that_came_once_are_forgotten():
    limit = RateLimit(requests_per_second=10)
    world = World(server=ServerPolicy(others=TenantPolicy(limits=(limit,))))
    for i in range(500):
        (running,) = dispatches(world.tell(arrive(i, tenant=f"tenant-{i}")))
        world.complete(running, at=world.now + ms(10))
    assert len(world.scheduler._state.limits.meters) < 150


def test_where_all_of_who_is_furthest_beyond_its_part_has_begun_the_next_gives_what_it_borrowed():
    world = World(BatchPolicy(max_batch_size=1, max_queued_rows=6))
    world.tell(arrive(1, tenant="greedy", parts=(Part(1, 8),) * 4))
    world.tell(*(arrive(number, tenant="hoarder") for number in (2, 3, 4)))
    assert outcomes(world.tell(arrive(5, tenant="polite"))) == {4: Outcome.RECLAIMED}
    assert outcomes(world.tell(arrive(6, tenant="greedy"))) == {6: Outcome.TENANT_QUEUE_FULL}
