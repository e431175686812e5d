"""One-line bugs, planted into the source of the core, or of the planner of a language model's steps. What they break,
the suite must notice.

`old` must occur exactly once in its module: a canary whose line was rewritten fails loudly instead
of planting nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from importlib.machinery import ModuleSpec, SourceFileLoader
from importlib.util import find_spec, spec_from_file_location
from pathlib import Path
from types import CodeType
from typing import Any

from headway.core.scheduler import Scheduler
from headway.llm.plan.planner import Planner

CONTRACTS = {
    "headway.core": ("effects", "errors", "events", "ids", "outcomes", "policy", "record", "units"),
    "headway.llm.plan": ("policy", "request", "sequence", "step"),
}
"""Modules whose classes the simulator shares with a package; they are not loaded a second time."""


@dataclass(frozen=True)
class Canary:
    name: str
    module: str
    old: str
    new: str
    package: str = "headway.core"

    def __str__(self) -> str:
        return self.name.replace(" ", "-")


CANARIES = (
    Canary(
        "a worker never becomes idle again",
        "placement",
        "            self.began(worker, following, cost, now)\n        self.refresh(worker)\n",
        "            self.began(worker, following, cost, now)\n",
    ),
    Canary(
        "a stale completion is accepted",
        "answers",
        "def _take_batch(state: State, worker_id: WorkerId, number: BatchId) "
        "-> tuple[Worker | None, RunningBatch | None]:\n    worker = state.workers.get(worker_id)\n",
        "def _take_batch(state: State, worker_id: WorkerId, number: BatchId) "
        "-> tuple[Worker | None, RunningBatch | None]:\n"
        "    worker = next((w for w in state.workers.values() if number in w.batches), None)\n",
    ),
    Canary(
        "a second answer to the same batch is accepted",
        "answers",
        "worker.batches.pop(number, None)",
        "worker.batches.get(number)",
    ),
    Canary(
        "a cancelled part is still computed",
        "state",
        "        if request.unfinished:\n",
        "        if request.unfinished and outcome is not Outcome.CANCELLED:\n",
    ),
    Canary(
        "the deadline timer is off",
        "scheduler",
        "wake = min(state.deadlines.first(), state.timers.first())",
        "wake = state.timers.first()",
    ),
    Canary(
        "an expired part stays in the queue",
        "state",
        "        if request.unfinished:\n",
        "        if request.unfinished and outcome is not Outcome.DEADLINE_EXCEEDED:\n",
    ),
    Canary(
        "the second part's failure is forgotten",
        "answers",
        "for failure in event.failures:",
        "for failure in event.failures[:1]:",
    ),
    Canary(
        "a batch exceeds the cap by one",
        "forming",
        "policy.exceeds(rows, tokens,",
        "policy.exceeds(rows - 1, tokens,",
    ),
    Canary(
        "padding is left out of the token cap",
        "forming",
        "if self._unpadded else rows * length",
        "if self._unpadded else rows * self.length",
    ),
    Canary(
        "the joiner is left out of the cap in bytes",
        "forming",
        "policy.exceeds(rows, tokens, self.bytes + part.bytes)",
        "policy.exceeds(rows, tokens, self.bytes)",
    ),
    Canary(
        "a held key that fills a batch by its bytes stays",
        "pool",
        "policy.is_filled_by(queue.rows, queue.tokens, queue.bytes)",
        "policy.is_filled_by(queue.rows, queue.tokens, 0)",
    ),
    Canary(
        "those beyond the best prefix are not put back",
        "forming",
        "            part.state = WAITING\n",
        "            pass\n",
    ),
    Canary(
        "the last one that waits is given up on an estimate",
        "dispatch",
        "if pool.waiting > 1 and",
        "if pool.waiting > 0 and",
    ),
    Canary(
        "a worker is staged for without end",
        "placement",
        "len(worker.batches) == worker.capacity.batch_slots",
        "worker.batches",
    ),
    Canary(
        "a batch begins without the cores that it takes",
        "device",
        "        if not self.cores:\n            return True\n",
        "        if self.cores >= 0:\n            return True\n",
    ),
    Canary(
        "cores are passed on though nothing says that the batch is about to end",
        "workers",
        "self.free_at <= now <= self.overdue_at and len",
        "len",
    ),
    Canary(
        "waiting beside an idle worker has no ceiling",
        "patience",
        "return min(at, ceiling)",
        "return at",
    ),
    Canary(
        "a ceiling that falls leaves the timers where they were",
        "answers",
        "        pool.renew_delay()\n        state.reconsider(pool)\n",
        "        pool.renew_delay()\n",
    ),
    Canary(
        "drain does not flush",
        "leaving",
        "    if draining:\n",
        "    if draining and filled:\n",
    ),
    Canary(
        "memory pressure does not flush",
        "leaving",
        "    if pressure:\n",
        "    if pressure and filled:\n",
    ),
    Canary(
        "a held batch waits twice its delay",
        "leaving",
        "now >= oldest + delay",
        "now >= oldest + 2 * delay",
    ),
    Canary(
        "a draining worker still gets work",
        "workers",
        "if self.state is not WorkerState.READY:",
        "if self.state not in (WorkerState.READY, WorkerState.DRAINING):",
    ),
    Canary(
        "equals leave in the wrong order",
        "lazy",
        "heappush(heap, (at, part.seq, part))",
        "heappush(heap, (at, -part.seq, part))",
    ),
    Canary(
        "an abandoned sequence runs on",
        "state",
        "                    self._abort(request)\n",
        "                    pass\n",
    ),
    Canary(
        "results that are told twice are delivered twice",
        "answers",
        "request.id not in state.requests or event.first != request.emitted",
        "request.id not in state.requests",
    ),
    Canary(
        "the queue holds one request too many",
        "room",
        "return any(used + more > limit for used",
        "return any(used + more > limit + 1 for used",
    ),
    Canary(
        "room that was lent is not given back to whose it is",
        "rooms",
        "        if room.has_part_left(self._tenant, amount):\n",
        "        if room.has_part_left(self._tenant, amount) and room.lacks((10**9,) * len(amount)) is None:\n",
    ),
    Canary(
        "lent room is taken from who has the least of it",
        "room",
        "return (-self.dominant(holding) / holding.weight, holding.tenant)",
        "return (self.dominant(holding) / holding.weight, holding.tenant)",
    ),
    Canary(
        "parts of a room are equal whatever the weights",
        "room",
        "return weight / (self.weights + (0 if holding is not None else weight))",
        "return 1 / (len(self.holdings) + (holding is None))",
    ),
    Canary(
        "what is refused uses up its tenant's rate",
        "admission",
        "    if refusal is not None:\n",
        "    if refusal is not None:\n"
        "        take(candidate.meters, candidate.tokens)\n"
        "        for meter in candidate.meters:\n"
        "            meter.open -= 1\n",
    ),
    Canary(
        "a request that fails counts as open for ever",
        "state",
        "            meter.open -= 1\n        self.effects",
        "            meter.open -= outcome is Outcome.COMPLETED\n        self.effects",
    ),
    Canary(
        "a limit that does not cover a length holds for it",
        "limits",
        "for limit in limits if limit.covers(length)",
        "for limit in limits if length <= limit.up_to",
    ),
    Canary(
        "buckets fill twice as fast",
        "limits",
        "self.limit, (now - self.at) / SECOND",
        "self.limit, 2 * (now - self.at) / SECOND",
    ),
    Canary(
        "tokens are not counted",
        "limits",
        "meter.tokens -= tokens if",
        "meter.tokens -= 0 if",
    ),
)

UNORDERED = (
    Canary(
        "queues are iterated through a set",
        "pool",
        "return sorted((part for queue in self.keys.values() for part in queue.waiting()), key=lambda part: part.seq)",
        "return [part for key in set(self.keys) for part in self.keys[key].waiting()]",
    ),
    Canary(
        "versions are iterated through a set",
        "scheduler",
        "in sorted(touched.values(), key=_number) if len(touched) > 1 else list(touched.values()):",
        "in [touched[version] for version in set(touched)]:",
    ),
)
"""Bugs of order: right in every single run, and different from one PYTHONHASHSEED to the next."""


def plant(canary: Canary) -> type[Scheduler]:
    """The class Scheduler of a second copy of the core, with the bug in it."""
    with _fresh(canary):
        scheduler: type[Scheduler] = import_module("headway.core.scheduler").Scheduler
    return scheduler


def plant_planner(canary: Canary) -> type[Planner]:
    """The class Planner of a second copy of the planner, with the bug in it."""
    with _fresh(canary):
        planner: type[Planner] = import_module("headway.llm.plan.planner").Planner
    return planner


class _Patched(SourceFileLoader):
    def __init__(self, name: str, path: str, canary: Canary) -> None:
        super().__init__(name, path)
        self._canary = canary

    def get_code(self, fullname: str) -> CodeType:
        source = Path(self.path).read_text(encoding="utf-8")
        found = source.count(self._canary.old)
        assert found == 1, f"canary {self._canary.name!r}: its line occurs {found} times in {self._canary.module}.py"
        return compile(source.replace(self._canary.old, self._canary.new), self.path, "exec")


class _Finder:
    def __init__(self, canary: Canary) -> None:
        self._canary = canary

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        canary = self._canary
        if name != f"{canary.package}.{canary.module}":
            return None
        package = Path(str(sys.modules[canary.package].__file__))
        file = package.with_name(f"{canary.module}.py")
        return spec_from_file_location(name, file, loader=_Patched(name, str(file), canary))


@contextmanager
def _fresh(canary: Canary) -> Iterator[None]:
    """Modules of the package are loaded anew inside; afterwards everything is as it was."""
    package, prefix, contracts = canary.package, f"{canary.package}.", CONTRACTS[canary.package]
    assert canary.module not in contracts and find_spec(prefix + canary.module)
    kept = {name for name in sys.modules if name.startswith(prefix) and name.removeprefix(prefix) in contracts}
    original = {name: module for name, module in sys.modules.items() if name.startswith(prefix) and name not in kept}
    finder = _Finder(canary)
    _forget(package, original)
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        _forget(package, [name for name in sys.modules if name.startswith(prefix) and name not in kept])
        for name, module in original.items():
            sys.modules[name] = module
            setattr(sys.modules[package], name.removeprefix(prefix), module)


def _forget(package: str, names: Any) -> None:
    for name in names:
        del sys.modules[name]
        delattr(sys.modules[package], name.removeprefix(package + "."))
