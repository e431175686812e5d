"""Whom the kernel kills for want of memory, as it counts them itself."""

from __future__ import annotations

import re
from pathlib import Path


class OutOfMemoryKills:
    """The count of this process's memory cgroup, which its workers share; of the whole machine where there is none.

    It is read where a worker starts and where one was killed. What it grew by in between is taken for the worker's: a
    stranger's kill in the same cgroup may be mistaken for it.
    """

    def __init__(self, root: Path = Path("/")) -> None:
        self._file = _find(root)
        self._seen = self._count()

    def looks(self) -> None:
        """What was counted so far is none of a worker that starts now."""
        self._seen = self._count()

    def one_more(self) -> bool:
        """Whether one was counted that nobody has been told of yet."""
        if self._count() <= self._seen:
            return False
        self._seen += 1
        return True

    def _count(self) -> int:
        """0 where nothing can be read: then nothing ever grows."""
        if self._file is None:
            return 0
        try:
            found = re.search(r"^oom_kill (\d+)$", self._file.read_text(), re.MULTILINE)
        except OSError:
            return 0
        return int(found[1]) if found else 0


def _find(root: Path) -> Path | None:
    """Its cgroup, of version 2 or 1. In a container the path that it is told may not be the one that is mounted."""
    candidates: list[Path] = []
    for controllers, path in cgroups(root):
        inner = path.lstrip("/")
        if controllers == "":
            for mount in (root / "sys/fs/cgroup", root / "sys/fs/cgroup/unified"):
                candidates += [mount / inner / "memory.events", mount / "memory.events"]
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            candidates += [mount / inner / "memory.oom_control", mount / "memory.oom_control"]
    candidates.append(root / "proc/vmstat")
    return next((file for file in candidates if _counts(file)), None)


def cgroups(root: Path) -> list[tuple[str, str]]:
    """(controllers, path) of each hierarchy; controllers is "" for version 2."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    return [(controllers, path) for _, controllers, path in (line.split(":", 2) for line in lines)]


def _counts(file: Path) -> bool:
    try:
        return re.search(r"^oom_kill \d+$", file.read_text(), re.MULTILINE) is not None
    except OSError:
        return False
