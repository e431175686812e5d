"""How many compute threads each worker gets, so that all together use the cores once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from headway.registry.spec import VersionSpec

CGROUP_V2 = Path("/sys/fs/cgroup/cpu.max")
CGROUP_V1_QUOTA = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us")
CGROUP_V1_PERIOD = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us")


def share_threads(specs: Sequence[VersionSpec], cores: int) -> list[int]:
    """Threads per worker, one number per spec, in order; every instance of it gets that many.

    A version that names its threads gets them, and they are taken off first. What is left is dealt
    out evenly, earlier workers first; each gets at least one even where there are fewer cores than
    workers, since a worker without a thread cannot run at all. Workers on a GPU need one to drive it.
    """
    left = cores
    shared: list[int] = []
    threads = [0] * len(specs)
    for number, spec in enumerate(specs):
        if spec.settings.threads or spec.settings.device != "cpu":
            threads[number] = spec.settings.threads or 1
            left -= threads[number] * spec.settings.instances
        else:
            shared.append(number)
    workers = sum(specs[number].settings.instances for number in shared)
    for number in shared:
        instances = specs[number].settings.instances
        threads[number] = max(1, left // workers if workers else 1)
        left -= threads[number] * instances
        workers -= instances
    return threads


def too_many_threads(specs: Sequence[VersionSpec], cores: int) -> str:
    """A sentence where the workers' threads exceed the cores, "" where they do not.

    One thread for each version is what serving them side by side takes, and nothing to warn of.
    """
    given = list(zip(specs, share_threads(specs, cores), strict=True))
    threads = sum(count * spec.settings.instances for spec, count in given)
    if threads <= max(cores, len(specs)):
        return ""
    workers = sum(spec.settings.instances for spec in specs)
    most, of_most = max(given, key=lambda one: one[0].settings.instances * one[1])
    return (
        f"{_many(workers, 'worker')} with {_many(threads, 'thread')} share {_many(cores, 'core')}, "
        f"and will hold each other up; most of them are {most.name}'s "
        f"(instances = {most.settings.instances}, {_many(of_most, 'thread')} each)"
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
