"""A worker that does not answer, and the one that is started beside it: real processes, and a clock that a test moves.

Nobody is suspected and nobody given up before the test says so: an hour passes when it wants one to.
"""

from __future__ import annotations

import asyncio
import os
import select
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from headway.config.settings import Settings, Workers
from headway.core.effects import ClearWorker, DispatchBatch, KillWorker, SuspectWorker, WithdrawBatch
from headway.core.events import Relief, ReliefReported
from headway.core.ids import VersionId
from headway.core.losses import Loss
from headway.core.outcomes import Outcome
from headway.core.units import SECOND, Duration, Instant
from headway.runtime.clock import monotonic
from headway.runtime.headroom import Headroom
from tests.e2e.test_workers import WAIT_S, Gateway, World, hangs_after, meet, remaining, small

pytestmark = pytest.mark.e2e

HOUR: Duration = 3600 * SECOND
DAY_S = 24 * 3600

MODEL = """
import os

class Model:
    inputs = {"x": ("FP32", [-1, 1])}
    outputs = {"y": ("FP32", [-1, 1])}

    def load(self, context):
        self.path = context.path
        if os.path.exists(os.path.join(self.path, "broken")):
            raise ValueError("it is broken")

    def execute(self, requests):
        results = []
        for request in requests:
            value = int(request["x"][0, 0])
            if value < 0:
                with open(os.path.join(self.path, f"gate{-value}")) as gate:
                    gate.read()
            results.append({"y": request["x"] * 2})
        return results
"""
"""A negative number waits at the gate of that number."""


class Suspects:
    """A world with one version whose time to answer is an hour of a clock that the test moves on."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> None:
        hangs_after(monkeypatch, HOUR)
        self.world = World(root)
        self.world.clock = lambda: (monotonic() if self.stands_at is None else self.stands_at) + self.passed
        self.passed: Duration = 0
        self.stands_at: Instant | None = None
        self.stopped = -1
        self.folder = self.world.python("m", MODEL, small(cores=0, **settings))
        for number in (1, 2):
            os.mkfifo(self.folder / f"gate{number}")
        self.gateway: Gateway

    def run(self, case: Callable[[], Any]) -> None:
        async def with_gateway(gateway: Gateway) -> None:
            self.gateway = gateway
            await gateway.until_state("m", "ready")
            assert await self.answer(self.submit(1)) == 2  # a size that was run before
            await case()

        self.world.run(with_gateway)

    def submit(self, value: float) -> int:
        return self.gateway.submit("m", [[value]], timeout_s=DAY_S)

    async def answer(self, request: int) -> float:
        (((value,),),) = await self.gateway.answer(request)
        return float(value)

    async def hangs(self, number: int = 1) -> tuple[int, Any]:
        """One that waits at its gate, and is suspected by the next event. Returns it, and what opens the gate."""
        request = self.submit(-number)
        gate = await meet(self.folder / f"gate{number}")
        self.passed += HOUR
        return request, gate

    async def stops(self) -> int:
        """The same, for good: its process is stopped, and only then its gate opened."""
        request, gate = await self.hangs()
        self.stopped = os.pidfd_open(self.only_process())
        os.kill(self.only_process(), signal.SIGSTOP)
        gate.close()
        return request

    async def passes_the_gate(self, request: int) -> None:
        """What the stopped one had begun runs again: not before its process is gone, which holds the gate too."""
        assert await asyncio.to_thread(select.select, [self.stopped], [], [], WAIT_S) == ([self.stopped], [], [])
        os.close(self.stopped)
        (await meet(self.folder / "gate1")).close()
        assert await self.answer(request) == -2

    def reliefs(self) -> list[Relief]:
        return [event.what for event in self.gateway.watch.events if isinstance(event, ReliefReported)]

    async def until_reliefs(self, *expected: Relief) -> None:
        await self.gateway.until(lambda: self.reliefs() == list(expected))

    def workers(self) -> dict[int, int | None]:
        """Number -> process, of all there are."""
        return {id: worker.pid for id, (worker, _) in self.gateway.runtime._supervisor._workers.items()}

    def only_process(self) -> int:
        (pid,) = self.gateway.pids("m")
        return pid


@pytest.fixture
def suspects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Suspects:
    return Suspects(tmp_path, monkeypatch)


def test_while_one_hangs_another_answers_and_once_the_first_has_answered_one_of_them_is_left(suspects, caplog):
    caplog.set_level("INFO", "headway.runtime")

    async def case() -> None:
        before = suspects.only_process()
        first, gate = await suspects.hangs()
        second = suspects.submit(5)
        assert await suspects.answer(second) == 10
        assert first not in suspects.gateway.replies
        assert len(suspects.gateway.decided(SuspectWorker)) == 1
        assert len(suspects.workers()) == 2
        gate.close()
        assert await suspects.answer(first) == -2
        assert suspects.gateway.decided(ClearWorker) == [ClearWorker(1)]
        await suspects.gateway.until(lambda: "stopped" in suspects.gateway.watch.states)
        assert suspects.workers() == {1: before}
        assert await suspects.answer(suspects.submit(6)) == 12
        assert suspects.reliefs() == [Relief.STARTED, Relief.RETIRED]
        assert suspects.gateway.losses() == []

    suspects.run(case)
    told = [record.message for record in caplog.records]
    assert "worker 1 of m/1: worker 2 of m/1 is started beside it, as it does not answer" in told
    assert "worker 1 of m/1: it is well again, and worker 2 of m/1, which was started beside it, goes" in told


@pytest.mark.parametrize("stopped", [False, True])
def test_what_was_staged_behind_what_hangs_is_answered_by_the_relief_and_once(suspects, stopped):
    """stopped: the first, which wakes up again, and must not run what it was to run next."""

    async def case() -> None:
        suspects.stands_at = monotonic()  # the first is about to end, for as long as the test wants
        first = suspects.submit(-1)
        gate = await meet(suspects.folder / "gate1")
        second = suspects.submit(-2 if stopped else 5)
        await suspects.gateway.until(lambda: len(suspects.gateway.decided(DispatchBatch)) == 3)
        staged = suspects.gateway.decided(DispatchBatch)[-1]
        assert staged.worker == 1
        if stopped:
            os.kill(suspects.only_process(), signal.SIGSTOP)
            gate.close()
        suspects.passed += HOUR
        third = suspects.submit(6)
        if stopped:
            (await meet(suspects.folder / "gate2")).close()
        assert await suspects.answer(third) == 12
        assert await suspects.answer(second) == (-4 if stopped else 10)
        assert [effect.batch for effect in suspects.gateway.decided(WithdrawBatch)] == [staged.batch]
        if stopped:
            os.kill(suspects.only_process(), signal.SIGCONT)
        gate.close()
        assert await suspects.answer(first) == -2
        await suspects.gateway.until(lambda: "stopped" in suspects.gateway.watch.states)
        assert await suspects.answer(suspects.submit(7)) == 14
        assert list(suspects.workers()) == [1]

    suspects.run(case)


def test_a_relief_that_is_no_longer_needed_goes_when_it_has_answered_what_it_was_given(suspects):
    async def case() -> None:
        first, gate = await suspects.hangs()
        held = suspects.submit(-2)
        other = await meet(suspects.folder / "gate2")
        gate.close()
        assert await suspects.answer(first) == -2
        assert await suspects.answer(suspects.submit(3)) == 6
        await suspects.until_reliefs(Relief.STARTED, Relief.RETIRED)
        assert held not in suspects.gateway.replies
        assert len(suspects.workers()) == 2
        other.close()
        assert await suspects.answer(held) == -4
        await suspects.gateway.until(lambda: "stopped" in suspects.gateway.watch.states)
        assert list(suspects.workers()) == [1]

    suspects.run(case)


async def given_up(suspects: Suspects) -> None:
    """The next hour is over."""
    suspects.passed += HOUR
    assert await suspects.answer(suspects.submit(6)) == 12
    await suspects.gateway.until(lambda: suspects.gateway.losses() == [Loss.KILLED])
    assert len(suspects.gateway.decided(KillWorker)) == 1


async def killed(suspects: Suspects) -> None:
    pid = suspects.workers()[1]
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    await suspects.gateway.until(lambda: suspects.gateway.losses() == [Loss.KILLED])


@pytest.mark.parametrize("end", [given_up, killed])
def test_where_the_suspect_dies_the_relief_has_its_place_and_what_it_ran_is_run_again(suspects, end):
    async def case() -> None:
        first = await suspects.stops()
        assert await suspects.answer(suspects.submit(5)) == 10
        await end(suspects)
        await suspects.until_reliefs(Relief.STARTED, Relief.TOOK_OVER)
        await suspects.passes_the_gate(first)
        assert list(suspects.workers()) == [2]
        assert suspects.workers()[2] == suspects.only_process()
        assert suspects.gateway.state("m") == "ready"
        os.kill(suspects.only_process(), signal.SIGKILL)
        assert await suspects.answer(suspects.submit(7)) == 14
        assert list(suspects.workers()) == [3], "it is followed like any other"

    suspects.run(case)


def test_a_suspect_that_dies_before_its_relief_is_ready_is_followed_by_that_alone(suspects):
    async def case() -> None:
        first = await suspects.stops()
        second = suspects.submit(5)
        await suspects.until_reliefs(Relief.STARTED)
        await killed(suspects)
        await suspects.passes_the_gate(first)
        assert await suspects.answer(second) == 10
        assert list(suspects.workers()) == [2]

    suspects.run(case)


def test_what_must_not_run_twice_is_run_by_the_relief_unless_it_stopped(tmp_path, monkeypatch):
    suspects = Suspects(tmp_path, monkeypatch, idempotent=False)

    async def case() -> None:
        first = await suspects.stops()
        assert await suspects.answer(suspects.submit(5)) == 10
        await killed(suspects)
        assert (await suspects.gateway.reply(first)).outcome is Outcome.MAY_HAVE_RUN
        os.close(suspects.stopped)
        assert await suspects.answer(suspects.submit(7)) == 14

    suspects.run(case)


def test_one_that_was_a_relief_is_relieved_like_any_other_once_it_has_its_place(suspects):
    async def case() -> None:
        first = await suspects.stops()
        second, other = await suspects.hangs(2)
        third = suspects.submit(3)  # now the first is given up, and the second suspected
        await suspects.passes_the_gate(first)
        assert await suspects.answer(third) == 6
        assert suspects.reliefs() == [Relief.STARTED, Relief.TOOK_OVER, Relief.STARTED]
        other.close()
        assert await suspects.answer(second) == -4
        await suspects.gateway.until(lambda: list(suspects.workers()) == [2])

    suspects.run(case)


def tiny(root: Path, pid: int, kilobytes: int) -> Headroom:
    """A machine with so much left, and as much taken by that process as there really is."""
    for file in (Path(f"proc/{pid}/status"), Path("proc/meminfo")):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text((Path("/") / file).read_text())
    (root / "proc/meminfo").write_text(f"MemAvailable: {kilobytes} kB\n")
    return Headroom(root)


def test_where_there_is_no_memory_no_other_is_started_and_the_log_says_so(suspects, tmp_path, caplog):
    async def case() -> None:
        suspects.gateway.runtime._supervisor.headroom = tiny(tmp_path / "tiny", suspects.only_process(), 1024)
        first, gate = await suspects.hangs()
        second = suspects.submit(5)
        await suspects.until_reliefs(Relief.REFUSED)
        assert list(suspects.workers()) == [1]
        gate.close()
        assert [await suspects.answer(request) for request in (first, second)] == [-2, 10]
        assert suspects.reliefs() == [Relief.REFUSED]

    suspects.run(case)
    (line,) = [record.message for record in caplog.records if "no other is started beside it" in record.message]
    assert line.startswith("worker 1 of m/1: no other is started beside it: it would take ")
    assert line.endswith(" MiB of memory, and 1 MiB are to be had")


def test_a_relief_that_cannot_load_counts_against_nobody_and_is_not_tried_again(suspects):
    suspects.world.settings = Settings(workers=Workers(backoff_s=0.01, max_failures=1))

    async def case() -> None:
        (suspects.folder / "broken").touch()
        first, gate = await suspects.hangs()
        second = suspects.submit(5)
        await suspects.until_reliefs(Relief.STARTED, Relief.LOST)
        assert suspects.gateway.losses() == [Loss.REFUSED]
        assert list(suspects.workers()) == [1]
        gate.close()
        assert [await suspects.answer(request) for request in (first, second)] == [-2, 10]
        (suspects.folder / "broken").unlink()
        os.kill(suspects.only_process(), signal.SIGKILL)
        assert await suspects.answer(suspects.submit(7)) == 14
        assert suspects.gateway.state("m") == "ready"

    suspects.run(case)


def test_a_server_that_goes_down_starts_nobody(suspects):
    async def case() -> None:
        first, gate = await suspects.hangs()
        drained = asyncio.create_task(suspects.gateway.runtime.drain(60))
        await suspects.gateway.until(lambda: len(suspects.gateway.decided(SuspectWorker)) == 1)
        gate.close()
        assert await drained
        assert await suspects.answer(first) == -2
        assert suspects.reliefs() == []

    suspects.run(case)


@pytest.mark.parametrize("loaded", [True, False])
def test_closing_while_a_relief_is_there_leaves_nothing_behind(suspects, loaded):
    async def case() -> None:
        _, gate = await suspects.hangs()
        second = suspects.submit(5)
        await suspects.until_reliefs(Relief.STARTED)
        if loaded:
            assert await suspects.answer(second) == 10
        workers = suspects.workers()
        await suspects.gateway.runtime.close()
        assert remaining([Path(f"/proc/{pid}") for pid in workers.values() if pid is not None]) == []
        assert not suspects.gateway.runtime._supervisor._tasks
        gate.close()

    suspects.run(case)


def test_a_version_with_a_relief_is_told_as_one_with_two_workers(suspects):
    async def case() -> None:
        _, gate = await suspects.hangs()
        assert await suspects.answer(suspects.submit(5)) == 10
        (view,) = suspects.gateway.runtime.core.views()
        assert view.version == VersionId("m", 1)
        assert (list(view.workers), view.failures.suspected) == ([1, 2], (1,))
        gate.close()

    suspects.run(case)
