"""Room to wait in: lent, reclaimed, and nobody's twice."""

from __future__ import annotations

from headway.core.effects import ResolveRequest
from headway.core.events import RequestCancelled, ServerConfigured
from headway.core.ids import Part
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy, ServerPolicy
from headway.core.tenancy import RateLimit, TenantPolicy
from headway.core.units import ms, seconds
from tests.unit.core_world import V, World, arrive, dispatches, outcomes


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


def test_within_a_tenants_part_its_short_requests_get_what_its_long_ones_have_too_much_of():
    world = World(BatchPolicy(max_batch_size=1, max_queued_requests=4))
    world.tell(arrive(0, length=200))
    world.tell(*(arrive(i, length=200) for i in range(1, 5)))
    assert outcomes(world.tell(arrive(5, length=10))) == {4: Outcome.RECLAIMED}
    assert outcomes(world.tell(arrive(6, length=10))) == {3: Outcome.RECLAIMED}
    assert outcomes(world.tell(arrive(7, length=10))) == {7: Outcome.QUEUE_FULL}, "it has its half"
    assert outcomes(world.tell(arrive(8, length=200))) == {8: Outcome.QUEUE_FULL}


def beside_one_that_runs_in_part(rows: int, more: int = 0) -> World:
    """Of request 1 of `greedy` a row runs and two wait, in room for so many. more: of its requests
    that wait as a whole behind it. `polite` has three times the weight."""
    heavy = ServerPolicy(tenants=(("polite", TenantPolicy(weight=3)),))
    world = World(BatchPolicy(max_batch_size=1, max_queued_rows=rows), server=heavy)
    (running,) = dispatches(world.tell(arrive(0, tenant="greedy")))
    world.tell(arrive(1, tenant="greedy", parts=(Part(1, 8),) * 3))
    world.complete(running, at=ms(10))
    world.tell(*(arrive(i, tenant="greedy") for i in range(2, 2 + more)))
    return world


def test_a_request_of_which_something_runs_gives_up_no_room():
    world = beside_one_that_runs_in_part(3)
    assert outcomes(world.tell(arrive(9, tenant="polite", parts=(Part(1, 8),) * 2))) == {9: Outcome.QUEUE_FULL}


def test_who_is_refused_in_spite_of_all_has_taken_nobodys_place():
    """Two would have to go for its rows, and only one of them can: that one stays where it is."""
    world = beside_one_that_runs_in_part(4, more=1)
    assert outcomes(world.tell(arrive(9, tenant="polite", parts=(Part(1, 8),) * 3))) == {9: Outcome.QUEUE_FULL}
    room = world.scheduler._state.pools[V].room
    assert {tenant: holding.used for tenant, holding in room.holdings.items()} == {"greedy": [2, 3]}
    assert outcomes(world.tell(arrive(10, tenant="polite", parts=(Part(1, 8),) * 2))) == {2: Outcome.RECLAIMED}


def test_the_furthest_beyond_its_part_by_weight_gives_up_first():
    weights = ServerPolicy(tenants=(("heavy", TenantPolicy(weight=4)),))
    world = World(BatchPolicy(max_batch_size=1, max_queued_requests=9), server=weights)
    world.tell(arrive(0, tenant="heavy"))
    world.tell(*(arrive(i, tenant="heavy") for i in range(1, 6)), *(arrive(i, tenant="light") for i in range(10, 14)))
    assert outcomes(world.tell(arrive(20, tenant="polite"))) == {13: Outcome.RECLAIMED}


def test_weights_that_change_are_those_of_the_room_from_then_on():
    world = full_of_one_tenant()
    world.tell(ServerConfigured(ServerPolicy(tenants=(("greedy", TenantPolicy(weight=3)),))))
    assert outcomes(world.tell(arrive(10, tenant="polite"))) == {4: Outcome.RECLAIMED}
    assert outcomes(world.tell(arrive(11, tenant="polite"))) == {11: Outcome.TENANT_QUEUE_FULL}, "a quarter is its own"


def test_who_came_and_went_leaves_nothing_in_the_room_beside_one_that_stays():
    world = World(BatchPolicy(max_batch_size=1))
    world.tell(arrive(0), arrive(1))
    for i in range(2, 2000):
        world.tell(arrive(i))
        world.tell(RequestCancelled(i))
    (holding,) = world.scheduler._state.pools[V].room.holdings.values()
    assert sum(map(len, holding.newest.values())) < 100
