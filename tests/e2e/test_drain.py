"""SIGTERM loses nothing that can still be answered, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.books import books
from tests.e2e.client import Exchange, Reply, ask, in_a_loop, send, until
from tests.e2e.server import Server, running
from tests.e2e.stepper import Stepper
from tests.e2e.witness import Pauses, Witness, pauses

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


async def stream_at_step_2(server: Server, held: Pauses) -> Exchange:
    body = {"name": "running", "steps": 4, "hold_at": 2, "hold": held.port}
    exchange = await send(server.address, "/v2/models/stepper/generate_stream", body)
    await exchange.head()
    return exchange


@in_a_loop
async def test_a_stream_that_runs_at_sigterm_is_finished(tmp_path: Path) -> None:
    Stepper(tmp_path, "stepper", capacity=1)
    with running(tmp_path) as server:
        async with pauses() as held:
            exchange = await stream_at_step_2(server, held)
            pause = await held.begun()
            server.terminate()
            await asyncio.to_thread(server.wait_for, "stopping")
            await pause.end()
            assert [event["step"] async for event in exchange.events()] == [0, 1, 2, 3]
        server.assert_ends_well()


@in_a_loop
async def test_a_stream_that_outlasts_the_grace_is_told_so_and_the_exit_code_is_0(tmp_path: Path) -> None:
    Stepper(tmp_path, "stepper", capacity=1)
    with running(tmp_path, "[server]\nshutdown_grace_s = 0.2\n") as server:
        async with pauses() as held:
            exchange = await stream_at_step_2(server, held)
            await held.begun()
            server.terminate()
            events = [event async for event in exchange.events()]
            assert [event.get("step") for event in events] == [0, 1, None]
            assert events[-1]["retryable"] is True
            await asyncio.to_thread(server.assert_ends_well)


@in_a_loop
async def test_what_runs_and_what_waits_when_the_grace_is_over_is_told_to_come_again(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    with running(tmp_path, "[server]\nshutdown_grace_s = 0.2\n") as server:
        async with pauses() as held:
            runs = asyncio.create_task(witness.ask(server.address, 0, hold=held.port))
            await held.begun()
            waits = asyncio.create_task(witness.ask(server.address, 1))

            async def one_waits() -> bool:
                return (await books(server.address)).waiting("witness") == 1

            await until(one_waits, "the second request waits")
            server.terminate()
            replies = [await runs, await waits]
            assert [(reply.status, reply.json["code"]) for reply in replies] == [
                (503, "no_worker"),  # its worker was stopped, and there is none to try it again
                (503, "no_worker"),
            ]
            assert all(reply.json["retryable"] for reply in replies)
            await asyncio.to_thread(server.assert_ends_well)


@in_a_loop
async def test_requests_that_wait_for_a_worker_to_come_back_are_answered_before_the_end(tmp_path: Path) -> None:
    async with pauses() as held, pauses() as restarts:
        witness = Witness(tmp_path, options=f"restart = {restarts.port}")
        with running(tmp_path) as server:
            lost = asyncio.create_task(witness.ask(server.address, 0, hold=held.port))
            await held.begun()
            waiting = [asyncio.create_task(witness.ask(server.address, number)) for number in range(1, 20)]

            async def all_wait() -> bool:
                return (await books(server.address)).waiting("witness") == len(waiting)

            await until(all_wait, "all wait for the busy worker")
            os.kill(server.workers()[0], signal.SIGKILL)
            loading = await restarts.begun()
            server.terminate()
            await asyncio.to_thread(server.wait_for, "stopping")
            await loading.end()
            await (await held.begun()).end()
            assert (await lost).outputs["sum"] == [0], "it was run again"
            for number, task in enumerate(waiting, start=1):
                assert (await task).outputs["sum"] == [number]
            server.assert_ends_well()
