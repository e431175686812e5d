"""Whether one more worker fits, by what /proc, the cgroups and nvidia-smi say."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from headway.runtime import headroom
from headway.runtime.headroom import Headroom

MIB = 1024
"""In kB, as /proc counts."""

V1 = "sys/fs/cgroup/memory"
V2 = "sys/fs/cgroup"


def machine(root: Path, available: int = 4096, peaks: dict[int, int] | None = None) -> Headroom:
    """available, peaks: in MiB; by process."""
    write(root, "proc/meminfo", f"MemTotal: 9 kB\nMemAvailable:  {available * MIB} kB\n")
    for pid, peak in ({7: 1000} if peaks is None else peaks).items():
        write(root, f"proc/{pid}/status", f"VmHWM:\t {peak * MIB} kB\nVmRSS:\t 1 kB\nVmSwap:\t 0 kB\n")
    return Headroom(root, str(root / "nvidia-smi"))


def write(root: Path, path: str, text: str) -> None:
    file = root / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


def lacks(there: Headroom, *pids: int, device: str = "cpu") -> str:
    return asyncio.run(there.lacks(pids or (7,), device))


def test_what_the_largest_of_them_took_at_most_must_be_there_and_some_more(tmp_path: Path) -> None:
    assert lacks(machine(tmp_path, 1250)) == ""
    assert lacks(machine(tmp_path, 1249)) == "it would take 1000 MiB of memory, and 1249 MiB are to be had"
    assert lacks(machine(tmp_path, 1300, {7: 100, 8: 1100}), 7, 8) != ""


def test_what_was_swapped_out_counts(tmp_path: Path) -> None:
    there = machine(tmp_path, 1300)
    write(tmp_path, "proc/7/status", f"VmHWM: {900 * MIB} kB\nVmSwap: {200 * MIB} kB\n")
    assert "1100 MiB" in lacks(there)


def test_those_that_are_being_started_count_until_they_show_by_themselves(tmp_path: Path) -> None:
    there = machine(tmp_path, 2300)
    there.promise(3, [7])
    assert lacks(there) == "", "1300 MiB are left"
    there.promise(4, [7])
    assert "300 MiB are to be had" in lacks(there)
    there.keep(3)
    there.keep(4)
    there.keep(5)
    assert lacks(there) == ""


@pytest.mark.parametrize("path", ["/a/b", "/a", "/elsewhere/that/is/not/mounted/here"])
def test_a_cgroup_or_one_around_it_may_have_less(tmp_path: Path, path: str) -> None:
    """Version 2; in a container the path is another's."""
    there = machine(tmp_path)
    write(tmp_path, "proc/self/cgroup", f"0::{path}\n")
    inner = "" if "elsewhere" in path else "/a"
    write(tmp_path, f"{V2}{inner}/memory.max", str(2000 << 20) + "\n")
    write(tmp_path, f"{V2}{inner}/memory.current", str(1500 << 20) + "\n")
    write(tmp_path, f"{V2}{inner}/memory.stat", "anon 5\n")
    assert "500 MiB are to be had" in lacks(there)
    write(tmp_path, f"{V2}{inner}/memory.stat", f"anon 5\ninactive_file {800 << 20}\n")
    assert lacks(there) == ""


def test_a_cgroup_without_a_limit_has_all(tmp_path: Path) -> None:
    there = machine(tmp_path)
    write(tmp_path, "proc/self/cgroup", "0::/a\n")
    write(tmp_path, f"{V2}/a/memory.max", "max\n")
    write(tmp_path, f"{V2}/a/memory.current", str(1500 << 20))
    assert lacks(there) == ""


def test_a_cgroup_of_version_1(tmp_path: Path) -> None:
    there = machine(tmp_path)
    write(tmp_path, "proc/self/cgroup", "9:name=systemd:/\n4:cpu,memory:/a\n")
    write(tmp_path, f"{V1}/memory.limit_in_bytes", "9223372036854771712\n")
    write(tmp_path, f"{V1}/memory.usage_in_bytes", "1\n")
    write(tmp_path, f"{V1}/a/memory.limit_in_bytes", str(2000 << 20))
    write(tmp_path, f"{V1}/a/memory.usage_in_bytes", str(1900 << 20))
    write(tmp_path, f"{V1}/a/memory.stat", f"inactive_file 1\ntotal_inactive_file {10 << 20}\n")
    assert "110 MiB are to be had" in lacks(there)


def test_where_nothing_can_be_read_nothing_fits(tmp_path: Path) -> None:
    unknown = "what memory it would take, or what there is, cannot be read"
    assert lacks(Headroom(tmp_path)) == unknown
    assert lacks(machine(tmp_path, peaks={})) == unknown
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9 kB\n")
    assert lacks(Headroom(tmp_path)) == unknown


def smi(root: Path, apps: str, gpus: str, and_then: str = "") -> None:
    script = f"#!/bin/sh\ncase $1 in *compute-apps*) echo '{apps}';; *) echo '{gpus}';; esac\n{and_then}\n"
    write(root, "nvidia-smi", script)
    (root / "nvidia-smi").chmod(0o755)


@pytest.mark.parametrize(
    ("apps", "gpus", "said"),
    [
        ("7, GPU-b, 1000", "GPU-a, 1\nGPU-b, 1250", ""),
        ("6, GPU-a, 9\n7, GPU-b, 1000", "GPU-a, 9000\nGPU-b, 1249", "it would take 1000 MiB of GPU memory"),
        ("6, GPU-a, 9", "GPU-a, 9000", "cannot be asked"),
        ("7, GPU-a, [N/A]", "GPU-a, 9000", "cannot be asked"),
        ("7, GPU-a, 10", "GPU-a, [Unknown Error]", "cannot be asked"),
        ("No devices were found", "", "cannot be asked"),
    ],
)
def test_of_a_gpu_the_driver_says_what_such_a_worker_takes_and_what_is_left(
    tmp_path: Path, apps: str, gpus: str, said: str
) -> None:
    there = machine(tmp_path)
    smi(tmp_path, apps, gpus)
    found = lacks(there, device="cuda:0")
    assert said in found
    assert bool(said) == bool(found)


def test_where_there_is_no_nvidia_smi_it_cannot_be_asked(tmp_path: Path) -> None:
    assert "cannot be asked" in lacks(machine(tmp_path), device="cuda:0")


def test_an_nvidia_smi_that_does_not_answer_is_not_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(headroom, "ANSWERS_S", 0.05)
    there = machine(tmp_path)
    smi(tmp_path, "7, GPU-a, 10", "GPU-a, 9000", and_then="exec sleep 600")
    assert "cannot be asked" in lacks(there, device="cuda:0")


def test_this_very_machine_can_be_read() -> None:
    assert "cannot be read" not in lacks(Headroom(), os.getpid())
