"""A device that is lost: told once, tried ever more seldom, and working again when a probe says so."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from headway.config.settings import Workers
from headway.core.units import SECOND, Duration, Instant
from headway.runtime import devices
from headway.runtime.devices import STABLE, Devices, ask

GPU = "cuda:0"
SETTINGS = Workers(backoff_s=0.001, max_backoff_s=0.004)
FIRST = SECOND // 1000


class Desk:
    """answers: of the probes, one after the other; each waits until there is one."""

    def __init__(self) -> None:
        self.now: Instant = 7 * SECOND
        self.answers: asyncio.Queue[str] = asyncio.Queue()
        self.probed: list[str] = []
        self.told: list[tuple[str, str, Duration]] = []
        self.devices = Devices(SETTINGS, self, lambda: self.now, self._spawn, self._probe)

    async def _probe(self, device: str) -> str:
        self.probed.append(device)
        return await self.answers.get()

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        self.task = asyncio.get_running_loop().create_task(coroutine)
        return self.task

    def device_lost(self, device: str, cause: str, tried_in: Duration) -> None:
        self.told.append((device, cause, tried_in))

    def device_recovered(self, device: str) -> None:
        self.told.append((device, "", 0))

    async def recovers(self, *answers: str) -> None:
        for answer in (*answers, ""):
            self.answers.put_nowait(answer)
        await self.devices.until_it_works(GPU)


def test_a_device_is_tried_ever_more_seldom_until_it_works() -> None:
    async def case() -> None:
        desk = Desk()
        assert desk.devices.works(GPU)
        assert desk.devices.tried_at(GPU) == 0
        assert desk.devices.lost(GPU, "exit code 87")
        assert not desk.devices.lost(GPU, "another says so too")
        assert not desk.devices.works(GPU)
        assert desk.devices.works("cuda:1")
        assert desk.devices.tried_at(GPU) == desk.now + FIRST
        await desk.recovers("no", "not yet", "no")
        assert desk.devices.works(GPU)
        assert desk.told == [
            (GPU, "exit code 87", FIRST),
            (GPU, "no", 2 * FIRST),
            (GPU, "not yet", 4 * FIRST),
            (GPU, "no", 4 * FIRST),
            (GPU, "", 0),
        ]
        assert desk.probed == [GPU] * 4

    asyncio.run(case())


@pytest.mark.parametrize(("worked", "waits"), [(STABLE - 1, 4 * FIRST), (STABLE, FIRST)])
def test_one_that_is_lost_again_soon_is_waited_for_longer_and_longer(worked: Duration, waits: Duration) -> None:
    async def case() -> None:
        desk = Desk()
        desk.devices.lost(GPU, "x")
        await desk.recovers("no")
        desk.now += worked
        desk.devices.lost(GPU, "again")
        assert desk.told[-1] == (GPU, "again", waits)
        await desk.recovers()

    asyncio.run(case())


def test_who_waits_for_a_device_that_works_does_not_wait() -> None:
    async def case() -> None:
        await Desk().devices.until_it_works(GPU)

    asyncio.run(case())


def test_nothing_is_tried_any_more_once_it_was_stopped() -> None:
    async def case() -> None:
        desk = Desk()
        desk.devices.lost(GPU, "x")
        desk.devices.stop()
        await asyncio.wait([desk.task])
        assert desk.task.cancelled()

    asyncio.run(case())


def probing(monkeypatch: pytest.MonkeyPatch, root: Path, code: str) -> str:
    script = root / "probe.py"
    script.write_text(f"import os, sys, time\nassert sys.argv[1:] == ['cuda:0']\n{code}\n")
    monkeypatch.setattr(devices, "PROBE", (sys.executable, str(script)))
    return asyncio.run(ask(GPU))


@pytest.mark.parametrize(
    ("code", "said"),
    [
        ("", ""),
        ("print('about it'); print('ECC error'); sys.exit(1)", "ECC error"),
        ("sys.exit('on stderr')", "on stderr"),
        ("os._exit(3)", "the process that tried it ended with 3"),
    ],
)
def test_a_probe_is_a_process_whose_last_line_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, code: str, said: str
) -> None:
    assert probing(monkeypatch, tmp_path, code) == said


def test_a_probe_that_hangs_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(devices, "ANSWERS_S", 0.05)
    assert probing(monkeypatch, tmp_path, "time.sleep(600)") == "nothing came of it within 0.05 s"


def test_a_probe_that_cannot_be_started_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "PROBE", ("/no/such/program",))
    assert asyncio.run(ask(GPU)).startswith("it could not be tried: ")


def test_the_probe_of_this_machine_can_be_run() -> None:
    """With a GPU or without."""
    said = asyncio.run(ask(GPU))
    assert "Traceback" not in said and "Error:" not in said
