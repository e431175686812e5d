"""kill -9 of a worker: under load, in the middle of a stream, beside another of the same version."""

from __future__ import annotations

import asyncio
import os
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.e2e.books import books
from tests.e2e.client import Reply, ask, in_a_loop, send, until
from tests.e2e.server import running
from tests.e2e.stepper import Stepper
from tests.e2e.witness import Witness, pauses

pytestmark = pytest.mark.e2e

CLIENTS = 24
GENEROUS_MS = 2_000
"""Less than any timer that would notice it otherwise. It is to be 100 ms, and this machine may be busy."""


class Load:
    """Clients that ask one request after the other until told to end. answers: what was asked, and the reply."""

    def __init__(self, address: str, witness: Witness) -> None:
        self.answers: list[tuple[list[float], Reply]] = []
        self._address = address
        self._witness = witness
        self._ending = False
        self._clients = [asyncio.create_task(self._client(number)) for number in range(CLIENTS)]

    async def _client(self, number: int) -> None:
        asked = 0
        while not self._ending:
            asked += 1
            row = [float(number + 1)] * (1 + asked % 3)
            reply = await self._witness.ask(self._address, *row)
            self.answers.append((row, reply))

    async def end(self) -> None:
        self._ending = True
        await asyncio.gather(*self._clients)

    async def until_more_are_right(self, count: int) -> None:
        wanted = self.right() + count

        async def enough() -> bool:
            return self.right() >= wanted

        await until(enough, f"{count} more right answers")

    def right(self) -> int:
        return sum(reply.status == 200 for _, reply in self.answers)


@in_a_loop
async def test_after_kill_9_under_load_everybody_is_answered_and_ready_tells_the_truth(
    tmp_path: Path,
) -> None:
    async with pauses() as restarts, pauses() as held:
        witness = Witness(tmp_path, options=f"restart = {restarts.port}\ndelay_ms = 1")
        with running(tmp_path) as server:
            load = Load(server.address, witness)
            await load.until_more_are_right(50)
            victim = asyncio.create_task(witness.ask(server.address, 99, hold=held.port))
            await held.begun()
            assert (await ask(server.address, "/ready")).status == 200
            (killed,) = server.workers()
            os.kill(killed, signal.SIGKILL)

            async def not_ready() -> bool:
                return (await ask(server.address, "/ready")).status == 503

            await until(not_ready, "/ready says that the worker is gone")
            loading = await restarts.begun()
            for _ in range(5):  # the new one loads for as long as we like
                assert await not_ready()
            assert (await ask(server.address, "/health")).status == 200
            assert (await ask(server.address, "/v2/models/witness/ready")).status == 503
            await loading.end()
            await (await held.begun()).end()
            assert (await victim).outputs["sum"] == [99], "it was run again"

            async def ready() -> bool:
                return (await ask(server.address, "/ready")).status == 200

            await until(ready, "/ready says that the worker is back")
            await load.until_more_are_right(50)
            await load.end()
            assert_all_right(load)
            reply = await witness.ask(server.address, 1, 2)
            assert reply.outputs["sum"] == [3]
            assert reply.outputs["process"] == server.workers() != [killed]
            (await books(server.address)).assert_just_what_clients_saw()


def assert_all_right(load: Load) -> None:
    for row, reply in load.answers:
        assert reply.status == 200, reply
        assert reply.outputs["sum"] == [sum(row)]


@in_a_loop
async def test_a_stream_whose_worker_dies_ends_with_an_event_that_says_so_and_the_next_one_works(
    tmp_path: Path,
) -> None:
    stepper = Stepper(tmp_path, "stepper", capacity=2)
    async with pauses() as held:
        with running(tmp_path) as server:
            body = {"name": "cut short", "steps": 10, "hold_at": 2, "hold": held.port}
            exchange = await send(server.address, "/v2/models/stepper/generate_stream", body)
            await exchange.head()
            await held.begun()
            (killed,) = server.workers()
            os.kill(killed, signal.SIGKILL)
            events = [event async for event in exchange.events()]
            assert [event.get("step") for event in events] == [0, 1, None]
            assert (events[-1]["code"], events[-1]["retryable"]) == ("worker_lost", True)

            async def served_again() -> bool:
                reply = await ask(server.address, "/v2/models/stepper/generate", {"name": "next", "steps": 1})
                return reply.status == 200

            await until(served_again, "a stream of the new worker")
            assert len(await stepper.events(server.address, "after", 3)) == 3


@in_a_loop
async def test_a_death_is_noticed_at_once(tmp_path: Path) -> None:
    """Said by the log of the server itself, to the millisecond."""
    witness = Witness(tmp_path)
    with running(tmp_path) as server:
        assert (await witness.ask(server.address, 1)).status == 200
        (killed,) = server.workers()
        at = datetime.now(UTC)
        os.kill(killed, signal.SIGKILL)
        line = await asyncio.to_thread(server.wait_for, "lost (killed), signal SIGKILL")
        noticed = datetime.fromisoformat(line.split()[0])
        took_ms = (noticed - at).total_seconds() * 1000
        print(f"noticed after {took_ms:.0f} ms")
        assert took_ms < GENEROUS_MS


@in_a_loop
async def test_while_one_of_two_workers_is_dead_the_other_answers(tmp_path: Path) -> None:
    witness = Witness(tmp_path, settings="instances = 2")
    async with pauses() as held:
        with running(tmp_path) as server:
            occupied = asyncio.create_task(witness.ask(server.address, 0, hold=held.port))
            await held.begun()
            reply = await witness.ask(server.address, 1)
            (other,) = reply.outputs["process"]
            (busy,) = [worker for worker in server.workers() if worker != other]
            os.kill(busy, signal.SIGKILL)
            await (await held.begun()).end()
            assert (await occupied).outputs["process"] == [other], "the other one runs it"
            for number in range(1, 20):
                assert (await witness.ask(server.address, number)).outputs["sum"] == [number]
                assert (await ask(server.address, "/ready")).status == 200

            async def both() -> bool:
                return len(server.workers()) == 2

            await until(both, "two workers again")
