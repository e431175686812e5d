"""Whether there is memory for one more worker of a version: as much as one of those that run it took at most."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from headway.core.ids import WorkerId
from headway.registry.placement import CPU
from headway.runtime.oom import cgroups

RESERVE = 1.25
"""So many times the memory that a worker is expected to take must be there: it grows, and so does everybody else."""

NVIDIA_SMI = "nvidia-smi"
ANSWERS_S = 10.0
"""How long nvidia-smi may take: a driver in trouble answers nothing."""

MIB = 1 << 20


class Headroom:
    """Of this machine, its memory cgroups and its NVIDIA GPUs. root: where /proc and /sys are.

    What is promised to workers that are being started counts as taken until they are ready, or gone.
    """

    def __init__(self, root: Path = Path("/"), smi: str = NVIDIA_SMI) -> None:
        self._root = root
        self._smi = smi
        self._promised: dict[WorkerId, int] = {}

    async def lacks(self, pids: Iterable[int], device: str) -> str:
        """Why one more worker like these would not fit, or that nobody knows; "" = it does.

        pids: processes that run the version.  device: that they run on.
        """
        pids = list(pids)
        problem = self._lacks_memory(pids)
        return problem if problem or device == CPU else await self._lacks_gpu_memory(pids)

    def promise(self, worker: WorkerId, pids: Iterable[int]) -> None:
        """It is started, and is going to take about what these have taken."""
        self._promised[worker] = self._need(pids)

    def keep(self, worker: WorkerId) -> None:
        """What it takes shows by itself, from now on."""
        self._promised.pop(worker, None)

    # -- of the host ---------------------------------------------------------------------------

    def _lacks_memory(self, pids: list[int]) -> str:
        need, available = self._need(pids), self._available()
        if not need or available is None:
            return "what memory it would take, or what there is, cannot be read"
        return _too_little("memory", need, available - sum(self._promised.values()))

    def _need(self, pids: Iterable[int]) -> int:
        """Bytes; the most that any of them had at once. 0: not known."""
        return max((_peak(self._root / f"proc/{pid}/status") for pid in pids), default=0)

    def _available(self) -> int | None:
        """Bytes: what the kernel can give without swapping, within what this process's cgroups may have."""
        free = _number(self._root / "proc/meminfo", r"^MemAvailable:\s+(\d+) kB")
        if free is None:
            return None
        return min([free * 1024, *self._left_in_cgroups()])

    def _left_in_cgroups(self) -> Iterator[int]:
        """Of each that has a limit, from the innermost out. File pages that nobody used of late count as free."""
        for limit, used, stat, inactive in self._limited():
            most, now = _number(limit, r"^(\d+)$"), _number(used, r"^(\d+)$")
            if most is not None and now is not None:  # "max": it has none
                yield most - now + (_number(stat, rf"^{inactive} (\d+)$") or 0)

    def _limited(self) -> Iterator[tuple[Path, Path, Path, str]]:
        for controllers, path in cgroups(self._root):
            if controllers == "":
                for mount in (self._root / "sys/fs/cgroup", self._root / "sys/fs/cgroup/unified"):
                    for folder in _outward(mount, path):
                        files = (folder / "memory.max", folder / "memory.current", folder / "memory.stat")
                        yield (*files, "inactive_file")
            elif "memory" in controllers.split(","):
                for folder in _outward(self._root / "sys/fs/cgroup/memory", path):
                    names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")
                    limit, used, stat = (folder / name for name in names)
                    yield limit, used, stat, "total_inactive_file"

    # -- of a GPU ------------------------------------------------------------------------------

    async def _lacks_gpu_memory(self, pids: list[int]) -> str:
        """By what the driver says of these processes: it knows which GPU they are on, whatever its number is here."""
        unknown = "what memory it would take of the GPU, or what there is, cannot be asked"
        taken = await self._ask("--query-compute-apps=pid,gpu_uuid,used_gpu_memory", 3)
        mine = [(gpu, used) for pid, gpu, used in taken if pid in map(str, pids) and used.isdigit()]
        free = {gpu: left for gpu, left in await self._ask("--query-gpu=uuid,memory.free", 2) if left.isdigit()}
        if not mine or not all(gpu in free for gpu, _ in mine):
            return unknown
        need = max(int(used) for _, used in mine)
        return _too_little("GPU memory", need * MIB, min(int(free[gpu]) for gpu, _ in mine) * MIB)

    async def _ask(self, query: str, count: int) -> list[list[str]]:
        """The fields of each line that has so many; none where there is no nvidia-smi, or it does not answer."""
        try:
            process = await asyncio.create_subprocess_exec(
                self._smi,
                query,
                "--format=csv,noheader,nounits",
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.PIPE,
                stderr=asyncio.subprocess.DEVNULL,
            )
        except OSError:
            return []
        try:
            said, _ = await asyncio.wait_for(process.communicate(), ANSWERS_S)
        except TimeoutError:
            return []
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        lines = said.decode("utf-8", "replace").splitlines()
        fields = [[field.strip() for field in line.split(",")] for line in lines]
        return [each for each in fields if len(each) == count]


def _too_little(what: str, need: int, available: int) -> str:
    if need * RESERVE <= available:
        return ""
    return f"it would take {need // MIB} MiB of {what}, and {max(0, available) // MIB} MiB are to be had"


def _outward(mount: Path, path: str) -> Iterator[Path]:
    """The cgroup and those around it. In a container the path that it is told may not be the one that is mounted."""
    folder = mount / path.lstrip("/")
    yield from (inner for inner in (folder, *folder.parents) if inner == mount or mount in inner.parents)


def _peak(status: Path) -> int:
    """Resident at most, and what of it was swapped out; 0 where it cannot be read."""
    resident, swapped = _number(status, r"^VmHWM:\s+(\d+) kB"), _number(status, r"^VmSwap:\s+(\d+) kB")
    return ((resident or 0) + (swapped or 0)) * 1024


def _number(file: Path, pattern: str) -> int | None:
    """None where there is no such file, or it does not say."""
    try:
        found = re.search(pattern, file.read_text(), re.MULTILINE)
    except OSError:
        return None
    return int(found[1]) if found else None
