"""Probes: which sizes are doubted, what trying them may cost, and who is left in peace."""

from __future__ import annotations

import json

from headway.core.effects import DispatchBatch
from headway.core.events import BatchCompleted, BatchFailed, WorkerLost
from headway.core.ids import Measurement
from headway.core.outcomes import Outcome
from headway.core.policy import BatchPolicy
from headway.core.probing import BANK, LASTING, PAUSE, SHARE, SLACK, STALE, Probes
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, Instant, ms, seconds
from tests.unit.core_world import V, World, arrive, dispatches, members

TEN_A_ROW = tuple(Measurement(rows, length, ms(10) * rows) for rows in (1, 2, 4, 8, 16, 32) for length in (8, 256))
"""A device on which company saves nothing."""


# -- what is known ---------------------------------------------------------------------------------


def test_a_size_is_known_once_it_has_been_run_twice() -> None:
    probes = Probes()
    assert [probes.observed(8, 32) for _ in range(3)] == [True, True, False]
    assert probes.is_stale(9, 32)
    assert probes.is_stale(4, 32)
    assert not probes.is_stale(5, 127), "sizes between those of a warm-up grid are known with them"


def test_what_warm_up_measured_is_known_and_doubted_after_some_thousand_batches() -> None:
    probes = Probes()
    probes.measured(8, 32)
    for _ in range(STALE):
        probes.observed(1, 32)
    assert not probes.is_stale(8, 32)
    probes.observed(1, 32)
    assert probes.is_stale(8, 32)
    assert not probes.is_stale(1, 32)
    assert [probes.observed(8, 32) for _ in range(3)] == [True, True, False]


def test_a_device_that_has_become_half_as_slow_again_is_another_one() -> None:
    probes = Probes()
    probes.measured(8, 32)
    for _ in range(LASTING):
        probes.follow(1.4)
    assert not probes.is_stale(8, 32)
    for _ in range(LASTING - 1):
        probes.follow(1.5)
    assert not probes.is_stale(8, 32)
    probes.follow(1.5)
    assert probes.is_stale(8, 32)


def test_a_few_slow_batches_in_a_row_do_not_make_it_another_one() -> None:
    probes = Probes()
    probes.measured(8, 32)
    for _ in range(10):
        for speed in (2.0,) * 7 + (1.0,) * 7:
            probes.follow(speed)
    assert not probes.is_stale(8, 32)


def test_the_smallest_of_the_larger_sizes_comes_first() -> None:
    probes = Probes()
    assert probes.wanted(1, 8, 32) == 2
    probes.measured(2, 8)
    assert probes.wanted(1, 8, 32) == 4
    assert probes.wanted(3, 8, 32) == 8, "3 and 4 are one size"
    assert probes.wanted(16, 8, 24) == 24
    assert probes.wanted(24, 8, 24) == 0
    assert probes.wanted(1, 8, 1) == 0


def test_most_batches_are_not_even_considered() -> None:
    probes = Probes()
    due = []
    for _ in range(2 * PAUSE):
        due.append(probes.is_due())
        probes.observed(1, 8)
    assert [i for i, is_due in enumerate(due) if is_due] == [0, PAUSE]


def test_the_credit_is_a_hundredth_of_the_time_in_the_system_and_is_not_saved_for_ever() -> None:
    probes = Probes()
    probes.earn(seconds(1))
    assert probes.credit == seconds(1) // SHARE
    for _ in range(100 * BANK * SHARE):
        probes.earn(ms(1))
    assert probes.credit <= (BANK + 1) * ms(1)


def test_probes_are_kept_in_a_snapshot() -> None:
    probes = Probes()
    probes.measured(4, 8)
    probes.observed(1, 8)
    probes.is_due()
    probes.earn(seconds(3))
    for _ in range(LASTING + 1):
        probes.follow(2.0)
    probes.failed(16, 64)
    saved = json.loads(json.dumps(probes.snapshot()))
    again = Probes.restore(saved)
    assert again.snapshot() == saved == probes.snapshot()
    assert (again.credit, again.seen, again.is_due()) == (probes.credit, probes.seen, False)
    assert again.is_stale(4, 8)
    assert not again.is_stale(16, 64)


# -- in the scheduler ------------------------------------------------------------------------------


def curious(policy: BatchPolicy | None = None, *, workers: int = 1) -> World:
    """All sizes are doubted, and there is credit for any of them."""
    world = World(policy, cost=TEN_A_ROW, workers=workers)
    of(world).credit = seconds(100)
    of(world)._since = of(world).seen
    return world


def of(world: World) -> Probes:
    return world.scheduler._state.pools[V].cost.probes


def behind(world: World, *deadlines: Instant) -> DispatchBatch:
    """What leaves when the worker gets free of one request, while others with such deadlines wait."""
    running = dispatches(world.tell(arrive(0)))[0]
    world.tell(*(arrive(i, deadline=deadline) for i, deadline in enumerate(deadlines, 1)))
    (batch,) = dispatches(world.complete(running, at=world.now + ms(10)))
    return batch


def test_a_doubted_size_is_tried_with_those_that_wait() -> None:
    world = curious()
    assert len(behind(world, *[NEVER] * 9).parts) == 2
    assert of(world).count == 1
    (view,) = world.scheduler.views()
    assert view.probes == 1


def test_what_is_known_is_left_alone() -> None:
    world = World(cost=TEN_A_ROW)
    of(world).credit = seconds(100)
    assert len(behind(world, *[NEVER] * 9).parts) == 1


def test_without_credit_nothing_is_tried() -> None:
    world = curious()
    of(world).credit = ms(5)
    assert len(behind(world, *[NEVER] * 9).parts) == 1
    assert of(world).count == 0


def test_a_probe_is_paid_for_in_advance_and_what_it_takes_beyond_its_prediction_afterwards() -> None:
    world = curious()
    batch = behind(world, *[NEVER] * 9)
    left = of(world).credit
    assert left < seconds(100) - ms(5), "one member waits for the other"
    world.complete(batch, at=world.now + ms(500), took=ms(500))
    assert of(world).credit < left - 7 * ms(450)


def test_only_those_that_have_time_enough_are_probed_with() -> None:
    for deadline, rows in ((ms(10 + 20 * SLACK + 20), 2), (ms(10 + 20 * SLACK - 20), 1)):
        world = curious()
        assert len(behind(world, *[deadline] * 2).parts) == rows
        assert of(world).count == rows - 1


def test_nor_is_one_made_late_who_would_be_next() -> None:
    for deadline, rows in ((NEVER, 8), (ms(200), 1)):
        world = curious()
        for rows_known in (2, 2, 4, 4):
            of(world).observed(rows_known, 8)
        running = dispatches(world.tell(arrive(0)))[0]
        world.tell(*(arrive(i, priority=0) for i in range(1, 9)), arrive(9, length=200, deadline=deadline))
        (batch,) = dispatches(world.complete(running, at=ms(10)))
        assert len(batch.parts) == rows
        assert 9 not in [ref.request for ref in batch.parts]


def test_a_size_that_failed_when_it_was_tried_is_not_tried_again() -> None:
    for end in (BatchFailed(0, 2, ms(5), Outcome.MODEL_ERROR, "out of memory"), WorkerLost(0, "SIGKILL")):
        world = curious()
        behind(world, *[NEVER] * 9)
        world.tell(end, at=world.now + ms(5))
        assert not of(world).is_stale(2, 8)
        world.scheduler._state.pools[V].cost.seed(TEN_A_ROW)
        for _ in range(LASTING):
            of(world).follow(8.0)
        assert not of(world).is_stale(2, 8), "a warm-up does not prove it harmless"
        assert of(world).is_stale(4, 8)


def test_neighbours_too_far_in_length_are_not_worth_it() -> None:
    per_token = tuple(
        Measurement(rows, length, ms(0.1) * rows * length) for rows in (1, 4, 16) for length in (8, 64, 256)
    )
    for length, count in ((9, 2), (256, 1)):
        world = World(cost=per_token)
        of(world).credit = ms(5)
        of(world)._since = of(world).seen
        running = dispatches(world.tell(arrive(0)))[0]
        world.tell(arrive(1), *(arrive(i, length=length) for i in range(2, 4)))
        assert len(members(world.complete(running, at=ms(10)))[0]) == count


def test_tenants_are_probed_with_in_their_fair_order() -> None:
    """Two rows cost what one does: the join rule makes it two, the probe four."""
    two_free = tuple(Measurement(r, n, ms(10) * max(1, r // 2) ** 2) for r in (1, 2, 4, 8, 16) for n in (8, 256))
    world = World(cost=two_free)
    of(world).credit = seconds(100)
    running = dispatches(world.tell(arrive(0, tenant="a")))[0]
    world.tell(*(arrive(i, tenant="a") for i in (1, 2, 3)), *(arrive(i, tenant="b") for i in (8, 9, 10)))
    of(world)._since = of(world).seen
    assert members(world.complete(running, at=ms(10), took=ms(5))) == [[8, 1, 9, 2]]
    assert of(world).count == 1


def test_who_was_considered_for_a_probe_in_vain_waits_as_before() -> None:
    world = curious()
    running = dispatches(world.tell(arrive(0, tenant="a")))[0]
    world.tell(
        *(arrive(i, tenant="ab"[i % 2], length=8) for i in range(1, 5)),
        arrive(5, tenant="b", length=60, deadline=ms(95), priority=0),
    )
    served = []
    while running is not None:
        effects = world.complete(running, at=world.now + ms(10))
        served += [id for batch in members(effects) for id in batch]
        running = next(iter(dispatches(effects)), None)
    assert sorted(served) == [1, 2, 3, 4, 5]
    assert world.scheduler.is_idle()


def test_a_restored_scheduler_probes_and_pays_the_same() -> None:
    world = curious()
    batch = behind(world, *[NEVER] * 9)
    twin = Scheduler.restore(json.loads(json.dumps(world.scheduler.snapshot())))
    for took in (ms(70), ms(10)):
        event = BatchCompleted(batch.worker, batch.batch, took)
        effects = world.tell(event, at=world.now + took)
        assert twin.handle([event], world.now) == effects
        assert twin.snapshot() == world.scheduler.snapshot()
        (batch,) = dispatches(effects)
