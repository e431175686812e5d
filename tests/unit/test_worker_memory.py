"""What a batch takes of a worker's memory, and the cap that follows."""

from __future__ import annotations

import mmap
from pathlib import Path

import numpy as np
import pytest

from headway.wire.messages import MemoryPoint
from headway.worker import warm_up
from headway.worker.memory import HostPeak, MemoryWatch, is_out_of_memory, tokens_within, upper_line

MIB = 1 << 20


class Bytes:
    """A peak that is what the test says."""

    def __init__(self, works: bool = True) -> None:
        self.peak, self.works = 0, works

    def begin(self) -> bool:
        return self.works

    def taken(self) -> int:
        return self.peak


def measured(limit: int, fixed: int, per_token: int, sizes: list[tuple[int, int]]) -> MemoryWatch:
    peak = Bytes()
    watch = MemoryWatch(limit, peak)
    for rows, length in sizes:
        watch.begin()
        peak.peak = fixed + per_token * rows * length
        watch.end(rows, length)
    return watch


SIZES = [(1, 8), (1, 128), (4, 32), (8, 128)]


def test_points_on_a_line_give_that_line():
    points = [MemoryPoint(rows, length, 500 + 7 * rows * length) for rows, length in SIZES]
    fixed, slope = upper_line(points)
    assert slope == pytest.approx(7)
    assert fixed == pytest.approx(500, abs=2)


def test_no_point_lies_above_the_line():
    drawn = np.random.default_rng(1)
    points = [
        MemoryPoint(int(rows), int(length), int(100 + 3 * rows * length * drawn.uniform(0.5, 2)))
        for rows, length in drawn.integers(1, 100, (40, 2))
    ]
    fixed, slope = upper_line(points)
    assert all(point.peak <= fixed + slope * point.rows * point.length for point in points)


def test_the_cap_is_the_most_tokens_that_keep_within_nine_tenths_of_the_memory():
    found = measured(10_000, 1000, 8, SIZES).found()
    assert found is not None
    assert found.max_batch_tokens == pytest.approx((9000 - 1000) / 8, abs=1)
    assert [tuple(point.__struct_fields__) for point in found.points[:1]] == [("rows", "length", "peak")]


def test_without_a_limit_there_is_no_cap_but_the_measurement():
    found = measured(0, 1000, 8, SIZES).found()
    assert found is not None and found.max_batch_tokens == 0 and len(found.points) == len(SIZES)


@pytest.mark.parametrize(
    ("limit", "fixed", "per_token", "tokens"), [(100, 200, 1, 1), (100, 50, 0, 0), (100, 200, 0, 1), (100, 0, 10, 10)]
)
def test_a_row_always_runs_and_what_costs_nothing_has_no_cap(limit: int, fixed: int, per_token: int, tokens: int):
    assert tokens_within(limit, fixed, per_token) == tokens


def test_where_it_cannot_be_measured_nothing_is_told():
    watch = MemoryWatch(1000, Bytes(works=False))
    watch.begin()
    watch.end(1, 1)
    assert watch.found() is None


def test_a_size_that_runs_out_of_memory_while_warming_up_is_the_last_and_caps_batches_below_it():
    ran = []

    def run(rows: int, length: int) -> None:
        ran.append((rows, length))
        if rows * length > 64:
            raise RuntimeError("[enforce fail] DefaultCPUAllocator: not enough memory: you tried to allocate 1 bytes")

    watch = MemoryWatch(0, Bytes())
    found = warm_up.measure((1, 2, 4), (32, 64), 1, 0, run, watch)
    assert {(one.rows, one.length) for one in found} == {(1, 32), (1, 64), (2, 32)}
    assert ran[-1] == (2, 64), "larger ones are not tried"
    told = watch.found()
    assert told is not None and told.max_batch_tokens == 64


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (MemoryError(), True),
        (RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000 bytes"), True),
        (
            RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Failed to allocate memory for requested buffer"),
            True,
        ),
        (RuntimeError("mat1 and mat2 shapes cannot be multiplied"), False),
        (ValueError("out of memory is not what this is about"), False),
    ],
)
def test_failures_for_want_of_memory_are_told_from_others(error: Exception, is_one: bool):
    assert is_out_of_memory(error) is is_one


def test_the_peak_of_this_process_is_seen_though_it_was_given_back():
    peak = HostPeak()
    if not peak.begin():
        pytest.skip("the peak cannot be reset here")
    with mmap.mmap(-1, 64 * MIB) as held:  # of the system itself: an allocator might keep it
        for _ in range(64):
            held.write(b"1" * MIB)
    assert peak.taken() > 48 * MIB
    assert peak.begin()
    assert peak.taken() < 48 * MIB


def test_without_the_kernels_files_there_is_no_peak(tmp_path: Path):
    assert not HostPeak(tmp_path / "nowhere").begin()
