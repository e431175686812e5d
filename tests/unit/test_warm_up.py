from __future__ import annotations

import pytest

from headway.config.settings import Batching, Embeddings, ModelSettings, WarmUp
from headway.wire.messages import InputMeta, ModelMeta
from headway.worker import warm_up
from headway.worker.warm_up import NothingRan, grid, made_up, measure, unknown_sizes

PLAIN = InputMeta("x", "FP32", (-1, 4))
PADDED = InputMeta("ids", "INT64", (-1, -1), pad_axis=1)


def meta(*inputs: InputMeta, max_batch_size: int = 0) -> ModelMeta:
    return ModelMeta("test", inputs, (), max_batch_size)


@pytest.mark.parametrize(
    ("settings", "model", "rows", "lengths"),
    [
        (ModelSettings(), meta(PLAIN), (1, 2, 4, 8, 16, 32), (1,)),
        (ModelSettings(batching=Batching(max_batch_size=6)), meta(PLAIN), (1, 2, 4, 6), (1,)),
        (ModelSettings(batching=Batching(max_batch_size=1)), meta(PLAIN), (1,), (1,)),
        (ModelSettings(), meta(PLAIN, max_batch_size=3), (1, 2, 3), (1,)),
        (ModelSettings(), meta(PLAIN, PADDED, max_batch_size=1), (1,), (8, 32, 128, 512)),
        (ModelSettings(embeddings=Embeddings(max_length=64)), meta(PADDED, max_batch_size=1), (1,), (8, 32, 64)),
        (ModelSettings(embeddings=Embeddings(max_length=4)), meta(PADDED, max_batch_size=1), (1,), (4,)),
        (ModelSettings(warm_up=WarmUp(rows=(3, 5), lengths=(7,))), meta(PADDED), (3, 5), (7,)),
        (ModelSettings(max_length=20), meta(PADDED, max_batch_size=1), (1,), (8, 20)),
        (ModelSettings(warm_up=WarmUp(rows=(3, 5), lengths=(7,))), meta(PLAIN, max_batch_size=4), (3,), (1,)),
    ],
)
def test_sizes_are_those_that_were_set_or_powers_of_two_up_to_the_caps(
    settings: ModelSettings, model: ModelMeta, rows: tuple[int, ...], lengths: tuple[int, ...]
):
    assert grid(settings, model) == (rows, lengths)


def test_each_size_runs_once_untimed_and_then_timed_cheapest_first():
    ran: list[tuple[int, int]] = []
    found = measure((1, 4), (8, 16), 2, 0, lambda rows, length: ran.append((rows, length)))
    assert ran == [(1, 8)] * 3 + [(1, 16)] * 3 + [(4, 8)] * 3 + [(4, 16)] * 3
    assert [(one.rows, one.length) for one in found] == [(1, 8)] * 2 + [(1, 16)] * 2 + [(4, 8)] * 2 + [(4, 16)] * 2


@pytest.mark.parametrize(("cap", "largest"), [(0, warm_up.MAX_TOKENS), (100, 100)])
def test_sizes_above_the_cap_in_tokens_are_left_out(cap: int, largest: int):
    found = measure((1, 10, 100), (1, 10, 100), 1, cap, lambda rows, length: None)
    assert max(one.rows * one.length for one in found) <= largest
    assert (1, 100) in {(one.rows, one.length) for one in found}


def test_a_size_that_the_model_cannot_take_is_left_out():
    def run(rows: int, length: int) -> None:
        if length > 8:
            raise ValueError("positions end at 8")

    assert {(one.rows, one.length) for one in measure((1, 2), (8, 16), 1, 0, run)} == {(1, 8), (2, 8)}


def test_sizes_that_are_left_out_are_told_in_one_line_with_the_first_error(caplog: pytest.LogCaptureFixture):
    def run(rows: int, length: int) -> None:
        if length > 8:
            raise ValueError(f"positions end at 8, got {length}")

    measure((1, 2), (8, 16), 1, 0, run)
    (told,) = caplog.records
    assert told.levelname == "WARNING" and "1 x 16, 2 x 16" in told.getMessage()
    assert told.exc_info is not None and str(told.exc_info[1]) == "positions end at 8, got 16"


def test_a_model_that_fails_at_every_size_does_not_pass_for_warmed_up():
    def run(rows: int, length: int) -> None:
        raise ValueError(f"no {rows}")

    with pytest.raises(NothingRan, match="every made-up input failed, first error ValueError: no 1"):
        measure((1, 2), (8,), 1, 0, run)


class Clock:
    """Time that passes only while something runs: `cost` per token."""

    def __init__(self, cost: int) -> None:
        self.now, self.cost = 0, cost
        self.runs: list[tuple[int, int]] = []

    def run(self, rows: int, length: int) -> None:
        self.now += rows * length * self.cost
        self.runs.append((rows, length))


@pytest.fixture
def clock(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(request.param)
    monkeypatch.setattr(warm_up, "perf_counter_ns", lambda: clock.now)
    return clock


@pytest.mark.parametrize("clock", [warm_up.SLOW // 8], indirect=True)
def test_a_slow_size_is_timed_once_and_one_that_is_slow_enough_is_the_last(clock: Clock):
    found = measure((1, 2, 4, 8, 16, 32), (4,), 3, 0, clock.run)
    slow = [size for size in ((2, 4), (4, 4), (8, 4), (16, 4), (32, 4)) for _ in range(2)]
    assert clock.runs == [(1, 4)] * 4 + slow[: len(clock.runs) - 4]
    assert [one.duration for one in found if one.rows == 1] == [warm_up.SLOW // 2] * 3
    assert found[-1].duration >= warm_up.LARGE_ENOUGH > found[-2].duration


@pytest.mark.parametrize("clock", [warm_up.SLOW // 8], indirect=True)
def test_what_the_first_run_of_a_size_has_to_itself_is_not_counted_however_long_it_takes(clock: Clock):
    met: set[tuple[int, int]] = set()

    def run(rows: int, length: int) -> None:
        if (rows, length) not in met:
            clock.now += warm_up.LARGE_ENOUGH
        met.add((rows, length))
        clock.run(rows, length)

    found = measure((1, 2, 4, 8), (1,), 3, 0, run)
    assert {(one.rows, one.duration) for one in found} == {(rows, rows * clock.cost) for rows in (1, 2, 4, 8)}


@pytest.mark.parametrize("clock", [warm_up.BUDGET], indirect=True)
def test_where_there_is_time_for_one_run_only_it_counts(clock: Clock):
    found = measure((1, 2), (1,), 3, 0, clock.run)
    assert [(one.rows, one.duration) for one in found] == [(1, warm_up.BUDGET)]
    assert clock.runs == [(1, 1)]


@pytest.mark.parametrize("clock", [warm_up.SLOW - 1], indirect=True)
def test_no_run_begins_after_the_budget(clock: Clock):
    found = measure([1] * 1000, (1,), 7, 0, clock.run)
    assert clock.now <= warm_up.BUDGET + 2 * warm_up.SLOW
    assert len(found) < 1000


def test_an_input_of_unknown_size_is_named_unless_it_may_be_left_out():
    image = InputMeta("image", "UINT8", (-1, 3, -1, 224))
    assert unknown_sizes([PLAIN, image]) == "image [-1, 3, -1, 224]"
    optional = InputMeta("image", "UINT8", (-1, 3, -1, 224), optional=True)
    assert unknown_sizes([PLAIN, PADDED, optional]) == ""


def test_made_up_parts_have_the_shapes_and_datatypes_that_were_declared():
    inputs = [PLAIN, PADDED, InputMeta("t", "BYTES", (-1, 1)), InputMeta("o", "FP32", (-1,), optional=True)]
    parts = made_up(inputs, 3, 5, 1)
    assert [(part.rows, part.length) for part in parts] == [(1, 5)] * 3
    shapes = {name: (array.shape, array.dtype.name) for name, array in parts[0].inputs.items()}
    assert shapes == {"x": ((1, 4), "float32"), "ids": ((1, 5), "int64"), "t": ((1, 1), "object")}
