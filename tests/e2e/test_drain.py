"""SIGTERM under load loses nothing and leaves nothing behind."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.e2e.books import books
from tests.e2e.client import Reply, ask, in_a_loop, until
from tests.e2e.server import running
from tests.e2e.witness import Witness, pauses

pytestmark = pytest.mark.e2e

WAITING = 200


@in_a_loop
async def test_at_sigterm_all_in_flight_is_answered_and_nothing_new_is_taken(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    with running(tmp_path) as server:
        async with pauses() as held, asyncio.TaskGroup() as clients:
            first = clients.create_task(witness.ask(server.address, 0, hold=held.port))
            pause = await held.begun()
            rows = [[float(number)] * (1 + number % 5) for number in range(1, WAITING + 1)]
            asked = [clients.create_task(witness.ask(server.address, *row)) for row in rows]

            async def all_wait() -> bool:
                return (await books(server.address)).waiting("witness") == WAITING

            await until(all_wait, "all requests wait for the busy worker")
            server.terminate()
            await asyncio.to_thread(server.wait_for, "stopping")
            assert await is_turned_away(server.address, witness)
            await pause.end()
        assert first.result().outputs["sum"] == [0]
        for row, task in zip(rows, asked, strict=True):
            assert task.result().outputs["sum"] == [sum(row)]
        server.assert_ends_well()


async def is_turned_away(address: str, witness: Witness) -> bool:
    """Refused at the door, or told to come back later."""
    try:
        reply: Reply = await witness.ask(address, 1)
    except (ConnectionError, asyncio.IncompleteReadError):
        return True
    return reply.status == 503 and reply.json["code"] == "draining"


@in_a_loop
async def test_a_server_with_nothing_to_do_ends_at_once_when_told(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    with running(tmp_path) as server:
        assert (await ask(server.address, "/ready")).status == 200
        assert (await witness.ask(server.address, 1)).status == 200
        server.stop()
