"""How many compute threads each worker gets, so that all together use the cores once, and what they share."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from headway.registry.spec import VersionSpec

CPU = "cpu"
"""The device that all workers without a GPU share."""

CGROUP_V2 = Path("/sys/fs/cgroup/cpu.max")
CGROUP_V1_QUOTA = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
CGROUP_V1_PERIOD = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


class Place(msgspec.Struct, frozen=True):
    """Where one version's workers run.

    threads: compute threads of each.
    device: what they share with the workers of other versions.  cores: of it, what each takes while it runs a batch.
    """

    threads: int
    device: str
    cores: int


class Layout(msgspec.Struct, frozen=True):
    """Where all versions run.

    places: one per spec, in order.
    devices: name -> cores of it that may be in use at once.
    """

    places: tuple[Place, ...]
    devices: dict[str, int]


def lay_out(specs: Sequence[VersionSpec], cores: int) -> Layout:
    """cores: that all workers together may use.

    A batch on a GPU takes one core of it, and it has as many as the version with the most workers there: who asked
    for two workers gets two at once, and versions with one worker each take turns.
    """
    devices = {CPU: cores}
    places = []
    for spec, threads in zip(specs, share_threads(specs, cores), strict=True):
        settings = spec.settings
        takes = threads if settings.device == CPU else 1
        takes = takes if settings.cores is None else settings.cores
        if settings.device != CPU and takes:
            devices[settings.device] = max(settings.instances, devices.get(settings.device, 1))
        places.append(Place(threads, settings.device, takes))
    return Layout(tuple(places), devices)


def share_threads(specs: Sequence[VersionSpec], cores: int) -> list[int]:
    """Threads per worker, one number per spec, in order; every instance of it gets that many.

    A version that names its threads gets them, and they are taken off first. What is left is dealt
    out evenly, earlier workers first; each gets at least one even where there are fewer cores than
    workers, since a worker without a thread cannot run at all. Workers on a GPU need one to drive it.
    Workers that keep no core busy get one, and it is taken from nobody.
    """
    left = cores
    shared: list[int] = []
    threads = [0] * len(specs)
    for number, spec in enumerate(specs):
        settings = spec.settings
        if settings.device == CPU and settings.cores == 0:
            threads[number] = settings.threads or 1
        elif settings.threads or settings.device != CPU:
            threads[number] = settings.threads or 1
            left -= threads[number] * settings.instances
        else:
            shared.append(number)
    workers = sum(specs[number].settings.instances for number in shared)
    for number in shared:
        instances = specs[number].settings.instances
        threads[number] = max(1, left // workers if workers else 1)
        left -= threads[number] * instances
        workers -= instances
    return threads


def crowded(specs: Sequence[VersionSpec], cores: int) -> Iterator[str]:
    """A sentence for each way in which workers want more cores than there are.

    One for each version is what serving them side by side takes, and nothing to warn of.
    """
    on_cpu = [
        (spec, place)
        for spec, place in zip(specs, lay_out(specs, cores).places, strict=True)
        if spec.settings.device == CPU and place.cores
    ]
    for spec, place in on_cpu:
        if place.threads > cores:
            yield (
                f"{spec.name}: the {place.threads} threads of a worker share {_many(cores, 'core')} and hold each "
                f"other up; set threads = {cores} or fewer"
            )
    wanted = sum(min(place.cores, cores) * spec.settings.instances for spec, place in on_cpu)
    if wanted <= max(cores, len(on_cpu)):
        return
    workers = sum(spec.settings.instances for spec, _ in on_cpu)
    most, of_most = max(on_cpu, key=lambda one: one[0].settings.instances * one[1].cores)
    yield (
        f"{_many(workers, 'worker')} that would keep {_many(wanted, 'core')} busy share {_many(cores, 'core')} and "
        f"take turns; most of them are {most.name}'s (instances = {most.settings.instances}, "
        f"{_many(of_most.cores, 'core')} each): fewer instances would do as much, unless it waits for something else "
        "than the processor, then set cores = 0"
    )


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def available_cores(limit: int = 0) -> int:
    """Cores this process may use: its affinity, the container's quota, and the operator's limit (0 = none)."""
    cores = len(os.sched_getaffinity(0))
    quota = cgroup_cores()
    if quota:
        cores = min(cores, max(1, int(quota)))
    return min(cores, limit) if limit else cores


def cgroup_cores(
    v2: Path = CGROUP_V2, v1_quota: Path = CGROUP_V1_QUOTA, v1_period: Path = CGROUP_V1_PERIOD
) -> float | None:
    """The container's CPU quota in cores, or None where there is none."""
    words = first_words(v2, 2) or [*first_words(v1_quota, 1), *first_words(v1_period, 1)]
    if len(words) != 2:
        return None
    quota, period = words
    if quota in ("max", "-1"):
        return None
    return int(quota) / int(period)


def first_words(file: Path, count: int) -> list[str]:
    """The file's first words; empty where there is no such file (another kernel, another cgroup version)."""
    try:
        words = file.read_text().split()[:count]
    except OSError:
        return []
    return words if len(words) == count else []
