"""The pieces of the core by themselves: cost model, length index, lazy heaps, lifecycles, snapshot."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.cost import CostModel, fit
from headway.core.errors import InvariantViolation
from headway.core.ids import Measurement
from headway.core.lazy import Agenda
from headway.core.lengths import LengthIndex, bucket_of
from headway.core.requests import GONE, PART_LIFECYCLE, PartState, QueuedPart
from headway.core.scheduler import Scheduler
from headway.core.units import NEVER, ms, seconds
from headway.core.workers import WORKER_LIFECYCLE, Worker, WorkerState
from tests.unit.core_world import World, arrive, dispatches

GRID = [(rows, length) for rows in (1, 2, 4, 8, 16, 32) for length in (8, 32, 128, 256)]


SHAPES = {
    "a processor: every padded token costs": lambda r, n: 0.4e6 + 0.175e6 * r * n,
    "a processor: tokens in company cost less": lambda r, n: (0.4e6 + 0.175e6 * r * n) * (1 if r == 1 else 0.86),
    "a device that is never full": lambda r, n: 2e6 + 600 * r * n,
    "a device that is full from some size on": lambda r, n: max(2e6, 900 * r * n),
    "kernels of fixed sizes": lambda r, n: 2e6 if r == 1 else 6e6 if r <= 8 else 12e6 if r <= 16 else 24e6,
    "launches alone": lambda r, n: 5e6 + 1e4 * r,
    "attention": lambda r, n: 0.5e6 + 1e4 * r * n + 100 * r * n * n,
}


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_the_fit_finds_what_devices_of_every_kind_cost(shape):
    weights = fit([(r, n, shape(r, n), 3) for r, n in GRID])
    model = CostModel()
    model.weights = weights
    errors = sorted(
        abs(model.median(r, n) / shape(r, n) - 1) for r in range(1, 33) for n in (8, 20, 44, 70, 100, 150, 200, 256)
    )
    assert errors[len(errors) // 2] < 0.03
    assert errors[len(errors) * 9 // 10] < 0.08


@given(st.lists(st.tuples(st.integers(1, 64), st.integers(1, 512), st.integers(1, 10**10)), min_size=1, max_size=40))
def test_the_fit_never_says_that_more_costs_less(measurements):
    model = CostModel()
    model.weights = fit([(*measured, 1) for measured in measurements])
    assert min(model.weights) >= 0
    for rows, length in GRID:
        assert model.median(rows, length) <= model.median(rows + 1, length)
        assert model.median(rows, length) <= model.median(rows, length + 1)


def test_a_size_that_is_compiled_for_at_first_sight_teaches_nothing():
    model = CostModel()
    model.seed([Measurement(r, n, ms(1) + ms(0.01) * r * n) for r, n in GRID])
    before = model.median(64, 100)
    model.observe(64, 100, 10 * before)
    assert model.median(64, 100) == before


def test_an_unmeasured_model_learns_from_its_batches():
    model = CostModel()
    for i in range(200):
        rows, length = GRID[i % len(GRID)]
        model.observe(rows, length, ms(2) + ms(0.01) * rows * length)
    assert model.median(16, 64) == pytest.approx(ms(2) + ms(0.01) * 16 * 64, rel=0.05)


def test_a_device_that_is_another_one_now_is_believed_after_a_few_batches():
    model = CostModel()
    model.seed([Measurement(r, n, seconds(2)) for r, n in GRID])
    for _ in range(15):
        model.observe(1, 8, ms(10))
    assert model.median(1, 8) < ms(20)


def test_a_device_that_slows_down_is_followed_and_one_outlier_is_not():
    model = CostModel()
    model.seed([Measurement(r, n, ms(1) + ms(0.01) * r * n) for r, n in GRID])
    before = model.median(8, 32)
    model.observe(8, 32, before * 100)
    assert model.median(8, 32) < 1.5 * before
    for _ in range(40):
        model.observe(8, 32, 2 * before)
    assert model.median(8, 32) == pytest.approx(2 * before, rel=0.05)
    for _ in range(40):
        model.observe(8, 32, before)
    assert model.median(8, 32) == pytest.approx(before, rel=0.05)


def test_lower_and_upper_enclose_nine_batches_of_ten():
    model = CostModel()
    model.seed([Measurement(r, n, ms(1) + ms(0.01) * r * n) for r, n in GRID])
    inside = 0
    for i in range(3000):
        took = int(ms(3.56) * (0.7 + 0.6 * ((i * 7919) % 1000) / 1000))
        inside += model.lower(8, 32) <= took <= model.upper(8, 32)
        model.observe(8, 32, took)
    assert 0.85 <= inside / 3000 <= 0.95


@given(st.integers(1, 10**9), st.integers(1, 10**9))
def test_buckets_grow_with_length_and_are_narrow(a, b):
    low, high = min(a, b), max(a, b)
    assert bucket_of(low) <= bucket_of(high)
    if bucket_of(low) == bucket_of(high):
        assert high - low <= low / 16


def part(length: int, seq: int) -> QueuedPart:
    return QueuedPart(None, 0, 1, length, 0, seq, NEVER, seq, 0, 1)  # type: ignore[arg-type]


@given(st.lists(st.tuples(st.integers(1, 2000), st.booleans()), max_size=80), st.integers(1, 2000))
def test_the_length_index_finds_the_nearest_waiting_neighbours(entries, length):
    index = LengthIndex()
    parts = [part(n, i) for i, (n, _) in enumerate(entries)]
    for i, p in enumerate(parts):
        index.push(p, i + 1)
    for p, (_, gone) in zip(parts, entries, strict=True):
        if gone:
            p.state = GONE
    waiting = [p for p in parts if p.state is PartState.WAITING]
    here = bucket_of(length)
    below = [bucket_of(p.length) for p in waiting if bucket_of(p.length) <= here]
    above = [bucket_of(p.length) for p in waiting if bucket_of(p.length) > here]
    shorter, longer = index.shorter(length), index.longer(length)
    assert (bucket_of(shorter.length) if shorter else None) == max(below, default=None)
    assert (bucket_of(longer.length) if longer else None) == min(above, default=None)


class Item:
    def __init__(self, name: int) -> None:
        self.name = name
        self.value: int | None = None
        self.entry: tuple | None = None


@given(st.lists(st.tuples(st.integers(0, 5), st.one_of(st.none(), st.integers(0, 20)), st.booleans()), max_size=60))
def test_an_agenda_is_in_order_though_priorities_drift(steps):
    agenda: Agenda[Item] = Agenda(lambda item: None if item.value is None else (item.value, item.name))
    items = [Item(i) for i in range(6)]
    for number, value, tell in steps:
        item = items[number]
        grows = value is None or (item.value is not None and value >= item.value)
        item.value = value
        if tell or not grows:
            agenda.update(item)
        present = [i for i in items if i.value is not None]
        expected = min(present, key=lambda i: (i.value, i.name), default=None)
        assert agenda.first() is expected


@pytest.mark.parametrize("start", list(WorkerState))
def test_a_worker_changes_state_only_as_its_table_says(start):
    world = World()
    for end in WorkerState:
        worker = Worker(99, next(iter(world.scheduler._state.pools.values())))
        worker.state = start
        if end in WORKER_LIFECYCLE[start]:
            worker.become(end)
            assert worker.state is end
        else:
            with pytest.raises(InvariantViolation, match="worker 99"):
                worker.become(end)


def test_every_state_has_its_row_in_the_lifecycle_tables():
    assert list(WORKER_LIFECYCLE) == list(WorkerState)
    assert list(PART_LIFECYCLE) == list(PartState)


def test_a_restored_scheduler_goes_on_as_the_one_it_was_taken_of():
    world = World()
    running = dispatches(world.tell(arrive(0, tenant="a")))[0]
    world.tell(*(arrive(i, tenant="ab"[i % 2], length=i, deadline=seconds(5)) for i in range(1, 70)))
    text = json.dumps(world.scheduler.snapshot())
    twin = Scheduler.restore(json.loads(text))
    twin.check()
    assert json.dumps(twin.snapshot()) == text
    original = world.complete(running, at=ms(12))
    from headway.core.events import BatchCompleted

    assert twin.handle([BatchCompleted(0, running.batch, ms(10))], ms(12)) == original
    assert twin.next_wakeup() == world.scheduler.next_wakeup()


def test_times_are_whole_nanoseconds():
    assert [ms(0.5), seconds(2)] == [500_000, 2_000_000_000]
    assert all(b > a for a, b in pairwise((ms(1), seconds(1), NEVER)))
