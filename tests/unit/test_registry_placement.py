"""All workers together use the cores once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.config.settings import ModelSettings
from headway.registry.placement import available_cores, cgroup_cores, share_threads, too_many_threads
from headway.registry.spec import VersionSpec


def version(**settings: object) -> VersionSpec:
    return VersionSpec("m", 1, "/m/1", "onnx", msgspec.convert(settings, ModelSettings))


@pytest.mark.parametrize(
    ("specs", "cores", "threads"),
    [
        ([version()], 8, [8]),
        ([version(), version()], 8, [4, 4]),
        ([version(), version(), version()], 8, [2, 3, 3]),
        ([version(), version(), version()], 2, [1, 1, 1]),
        ([version(instances=2), version()], 9, [3, 3]),
        ([version(threads=6), version()], 8, [6, 2]),
        ([version(threads=2, instances=2), version()], 8, [2, 4]),
        ([version(threads=16), version()], 8, [16, 1]),
        ([version(device="cuda:0"), version()], 8, [1, 7]),
        ([], 8, []),
    ],
)
def test_the_cores_are_dealt_out(specs: list[VersionSpec], cores: int, threads: list[int]) -> None:
    assert share_threads(specs, cores) == threads


def test_more_threads_than_cores_are_told_with_the_version_that_has_most() -> None:
    assert too_many_threads([version(instances=64), version()], 2) == (
        "65 workers with 65 threads share 2 cores, and will hold each other up; "
        "most of them are m/1's (instances = 64, 1 thread each)"
    )
    assert "1 worker with 8 threads share 2 cores" in too_many_threads([version(threads=8)], 2)


def test_workers_that_fit_the_cores_are_not_worth_a_word() -> None:
    assert too_many_threads([version(), version()], 2) == too_many_threads([version(instances=2)], 2) == ""
    assert too_many_threads([version(), version(), version()], 2) == ""
    assert too_many_threads([], 1) == ""


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(1, 64))
def test_every_worker_gets_a_thread_and_the_cores_are_never_used_twice(instances: list[int], cores: int) -> None:
    threads = share_threads([version(instances=count) for count in instances], cores)
    used = sum(each * count for each, count in zip(threads, instances, strict=True))
    assert min(threads) >= 1
    assert used <= max(cores, sum(instances))


@pytest.mark.parametrize(
    ("text", "cores"), [("max 100000\n", None), ("150000 100000\n", 1.5), ("400000 100000\n", 4), ("", None)]
)
def test_the_containers_quota_is_read(tmp_path: Path, text: str, cores: float | None) -> None:
    (tmp_path / "cpu.max").write_text(text)
    assert cgroup_cores(tmp_path / "cpu.max", tmp_path / "absent", tmp_path / "absent") == cores


def test_the_older_kind_of_quota_is_read_too(tmp_path: Path) -> None:
    (tmp_path / "quota").write_text("200000\n")
    (tmp_path / "period").write_text("100000\n")
    assert cgroup_cores(tmp_path / "absent", tmp_path / "quota", tmp_path / "period") == 2
    (tmp_path / "quota").write_text("-1\n")
    assert cgroup_cores(tmp_path / "absent", tmp_path / "quota", tmp_path / "period") is None


def test_the_operators_limit_counts_where_it_is_lower() -> None:
    assert available_cores(1) == 1
    assert available_cores(10_000) == available_cores()
