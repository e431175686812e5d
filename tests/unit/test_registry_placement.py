"""All workers together use the cores once."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.config.settings import ModelSettings
from headway.registry.placement import (
    Place,
    available_cores,
    cgroup_cores,
    crowded,
    lay_out,
    share_threads,
)
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
        ([version(cores=0, instances=4), version()], 8, [1, 8]),
        ([version(cores=0, threads=3), version()], 8, [3, 8]),
        ([version(cores=1), version()], 8, [4, 4]),
        ([], 8, []),
    ],
)
def test_the_cores_are_dealt_out(specs: list[VersionSpec], cores: int, threads: list[int]) -> None:
    assert share_threads(specs, cores) == threads


def places(*specs: VersionSpec, cores: int = 2) -> list[tuple[str, int]]:
    """Device of each version, and what a batch takes of it."""
    return [(place.device, place.cores) for place in lay_out(specs, cores).places]


def test_a_batch_takes_as_many_cores_as_its_worker_has_threads_unless_told_otherwise() -> None:
    assert places(version(), version(), cores=8) == [("cpu", 4), ("cpu", 4)]
    assert places(version(cores=1), version(cores=0), cores=8) == [("cpu", 1), ("cpu", 0)]
    assert lay_out([version()], 8).places == (Place(8, "cpu", 8),)


def test_all_workers_without_a_gpu_share_the_cores_there_are() -> None:
    assert lay_out([version(), version(threads=16)], 8).devices == {"cpu": 8}


@pytest.mark.parametrize(("instances", "turns"), [([1, 1], 1), ([2, 1], 2), ([1, 3], 3)])
def test_a_gpu_has_as_many_turns_as_the_version_with_most_workers_there(instances: list[int], turns: int) -> None:
    specs = [version(device="cuda:1", instances=count, threads=4) for count in instances]
    layout = lay_out([*specs, version(device="cuda:0")], 8)
    assert layout.devices == {"cpu": 8, "cuda:1": turns, "cuda:0": 1}
    assert [place.cores for place in layout.places] == [1] * 3


def test_a_version_that_takes_no_turn_of_its_gpu_gives_it_none() -> None:
    specs = [version(device="cuda:0", instances=4, cores=0), version(device="cuda:0")]
    assert lay_out(specs, 8).devices["cuda:0"] == 1
    assert places(*specs) == [("cuda:0", 0), ("cuda:0", 1)]


def test_workers_that_have_to_take_turns_are_told_with_the_version_that_has_most_and_the_way_out() -> None:
    assert list(crowded([version(instances=64), version()], 2)) == [
        "65 workers that would keep 65 cores busy share 2 cores and take turns; most of them are m/1's "
        "(instances = 64, 1 core each): fewer instances would do as much, unless it waits for something else than "
        "the processor, then set cores = 0"
    ]


def test_threads_of_one_worker_that_exceed_the_cores_are_told() -> None:
    [warning] = crowded([version(threads=8)], 2)
    assert warning.startswith("m/1: the 8 threads of a worker share 2 cores and hold each other up; set threads = 2")


def test_workers_that_fit_the_cores_or_take_none_are_not_worth_a_word() -> None:
    for specs in (
        [version(), version()],
        [version(instances=2)],
        [version(), version(), version()],
        [version(instances=64, cores=0), version()],
        [version(instances=64, device="cuda:0"), version()],
        [],
    ):
        assert list(crowded(specs, 2)) == []


@given(st.lists(st.integers(1, 4), min_size=1, max_size=8), st.integers(1, 64))
def test_every_worker_gets_a_thread_and_the_cores_are_never_used_twice(instances: list[int], cores: int) -> None:
    threads = share_threads([version(instances=count) for count in instances], cores)
    used = sum(each * count for each, count in zip(threads, instances, strict=True))
    assert min(threads) >= 1
    assert used <= max(cores, sum(instances))


@given(st.lists(st.integers(1, 4), max_size=8), st.integers(1, 64))
def test_nobody_waits_for_a_turn_where_there_is_a_core_for_each_worker(instances: list[int], cores: int) -> None:
    specs = [version(instances=count) for count in instances]
    layout = lay_out(specs, cores)
    wanted = sum(place.cores * count for place, count in zip(layout.places, instances, strict=True))
    assert wanted <= layout.devices["cpu"] or sum(instances) > cores


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
