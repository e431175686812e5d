"""Workers never outlive their server, however it ends and whatever they are doing."""

from __future__ import annotations

import asyncio
import signal
from pathlib import Path

import pytest

from tests.e2e.client import in_a_loop, until
from tests.e2e.server import is_running, running
from tests.e2e.stepper import Stepper
from tests.e2e.witness import Witness, pauses

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("signals", [(signal.SIGKILL,), (signal.SIGTERM, signal.SIGINT)], ids=["kill", "twice"])
def test_when_the_server_is_gone_so_are_its_workers(tmp_path: Path, signals: tuple[signal.Signals, ...]) -> None:
    """One executes, one has nothing to do; neither reads its channel's end in time to go by itself."""

    @in_a_loop
    async def scenario() -> None:
        witness = Witness(tmp_path)
        Stepper(tmp_path, "idle", capacity=1)
        with running(tmp_path) as server:
            async with pauses() as held:
                asked = asyncio.create_task(witness.ask(server.address, 1, hold=held.port))
                await held.begun()
                workers = server.workers()
                assert len(workers) == 2
                for number in signals:
                    server.process.send_signal(number)
                    if number is signal.SIGTERM:
                        await asyncio.to_thread(server.wait_for, "stopping")
                code = await asyncio.to_thread(server.process.wait)
                assert code == (-signal.SIGKILL if len(signals) == 1 else 128 + signal.SIGINT)

                async def all_gone() -> bool:
                    return not any(is_running(worker) for worker in workers)

                await until(all_gone, "no worker runs")
                if signal.SIGINT in signals:
                    assert list(server.temporary.iterdir()) == []
                with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):
                    await asked

    scenario()
