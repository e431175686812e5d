"""One request among many that makes every batch fail, or kills whatever runs it; and who is told what of that."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import pytest

from tests.e2e.books import books
from tests.e2e.client import Reply, ask, in_a_loop, until
from tests.e2e.server import Server, running
from tests.e2e.witness import EXITS, FAULTS, NO_MEMORY, RAISES, SEGFAULTS, WITNESS, Witness, pauses

pytestmark = pytest.mark.e2e

TOGETHER = 64
ONE_BATCH = f"batching.max_batch_size = {TOGETHER}"
CONFIG = "[workers]\nbackoff_s = 0.01\n"


def lossy(root: Path, settings: str = ONE_BATCH) -> Witness:
    return Witness(root, code=WITNESS + FAULTS, settings=settings)


async def in_one_batch(server: Server, witness: Witness, offender: float) -> dict[float, Reply]:
    """The offender and 63 others, all of which wait for the one worker."""
    values = [float(number) for number in range(1, TOGETHER)] + [offender]
    async with pauses() as held, asyncio.TaskGroup() as clients:
        clients.create_task(witness.ask(server.address, 0, hold=held.port))
        pause = await held.begun()
        asked = {value: clients.create_task(witness.ask(server.address, value)) for value in values}

        async def all_wait() -> bool:
            return (await books(server.address)).waiting(witness.name) == TOGETHER

        await until(all_wait, "all wait for the busy worker")
        await pause.end()
    return {value: task.result() for value, task in asked.items()}


def assert_all_but(replies: dict[float, Reply], offender: float) -> None:
    for value, reply in replies.items():
        if value != offender:
            assert reply.outputs["sum"] == [value]


def deaths(server: Server) -> list[str]:
    return [line for line in server.printed if ": lost (" in line]


@in_a_loop
async def test_of_64_of_which_one_raises_63_are_answered_for_at_most_12_executions_more(tmp_path: Path) -> None:
    witness = lossy(tmp_path)
    with running(tmp_path, CONFIG) as server:
        replies = await in_one_batch(server, witness, RAISES)
        assert_all_but(replies, RAISES)
        assert (replies[RAISES].status, replies[RAISES].json["code"]) == (500, "poison_request")
        assert "the model fell over" in replies[RAISES].json["error"]
        spoiled = next(batch for batch in witness.batches() if RAISES in batch)
        assert len(spoiled) > TOGETHER // 2, "one or two may have left before it"
        executions = [batch for batch in witness.batches() if set(batch) <= set(spoiled)]
        assert len(executions) - 1 <= 12
        assert deaths(server) == []


@pytest.mark.parametrize(("offender", "how"), [(EXITS, "exit code 9"), (SEGFAULTS, "signal SIGSEGV")])
@in_a_loop
async def test_of_64_of_which_one_kills_its_worker_63_are_answered_for_at_most_2_deaths_more(
    tmp_path: Path, offender: float, how: str
) -> None:
    witness = lossy(tmp_path)
    with running(tmp_path, CONFIG) as server:
        replies = await in_one_batch(server, witness, offender)
        assert_all_but(replies, offender)
        assert (replies[offender].status, replies[offender].json["code"]) == (500, "poison_request")
        assert how in replies[offender].json["error"]
        assert replies[offender].json["retryable"] is False
        died = (await books(server.address)).total("headway_worker_losses_total", kind="crashed")
        assert died <= 3

        async def told() -> bool:
            return len(deaths(server)) == died

        await until(told, "each death is in the log")
        assert all(f"lost (crashed), {how}" in line for line in deaths(server))

        async def served() -> bool:
            return (await witness.ask(server.address, 1)).status == 200

        await until(served, "the next worker serves")
        again = await witness.ask(server.address, offender)
        assert (again.status, again.json["code"]) == (500, "poison_request")
        after = (await books(server.address)).total("headway_worker_losses_total")
        assert after == died, "what kills is not run any more"
        (kept,) = (await ask(server.address, "/quarantine")).json["quarantine"]
        assert how in kept["cause"]
        lifted = await ask(server.address, f"/quarantine/witness/1/{kept['content']}", method="DELETE")
        assert lifted.json == {"lifted": 1}
        assert (await witness.ask(server.address, offender)).json["code"] == "poison_request"
        assert (await books(server.address)).total("headway_worker_losses_total") > died, "it was tried again"


@in_a_loop
async def test_where_a_crash_came_from_is_in_the_log(tmp_path: Path) -> None:
    witness = lossy(tmp_path)
    with running(tmp_path, CONFIG) as server:
        assert (await witness.ask(server.address, SEGFAULTS)).status == 500
        line = server.wait_for("what it was doing")
        assert "Segmentation fault" in line
        assert "model.py" in line
        assert "in answers" in line


@in_a_loop
async def test_a_batch_too_large_for_memory_is_cut_and_the_worker_lives_on(tmp_path: Path) -> None:
    witness = lossy(tmp_path)
    with running(tmp_path, CONFIG) as server:
        replies = await in_one_batch(server, witness, NO_MEMORY)
        assert_all_but(replies, NO_MEMORY)
        assert replies[NO_MEMORY].outputs["sum"] == [NO_MEMORY]
        assert deaths(server) == []
        server.wait_for("witness/1 ran out of memory with a batch of")


@in_a_loop
async def test_a_request_that_was_there_at_three_kills_from_outside_is_answered(tmp_path: Path) -> None:
    witness = lossy(tmp_path)
    async with pauses() as held:
        with running(tmp_path, CONFIG) as server:
            innocent = asyncio.create_task(witness.ask(server.address, 7, hold=held.port))
            for _ in range(3):
                await held.begun()
                (worker,) = server.workers()
                os.kill(worker, signal.SIGKILL)
            await (await held.begun()).end()
            assert (await innocent).outputs["sum"] == [7]
            assert witness.executed() == [7] * 4
            assert all("lost (killed)" in line for line in deaths(server))


@in_a_loop
async def test_a_request_whose_workers_were_stopped_three_times_is_answered(tmp_path: Path) -> None:
    """Alone each time, and each time its worker was given up: not for what it ran."""
    witness = lossy(tmp_path, "hang_s = 0.3\nquarantine_s = 60")
    async with pauses() as held:
        with running(tmp_path, CONFIG) as server:
            assert (await witness.ask(server.address, 1)).status == 200  # this size was run: it gets no more time
            innocent = asyncio.create_task(witness.ask(server.address, 7, hold=held.port))
            for times in range(1, 4):
                pause = await held.begun()
                os.kill(pause.worker, signal.SIGSTOP)

                async def given_up(times: int = times) -> bool:
                    return len(deaths(server)) == times

                await until(given_up, "it is given up")
            await (await held.begun()).end()
            assert (await innocent).outputs["sum"] == [7]
            assert all("lost (killed), no progress, and stopped by a signal" in line for line in deaths(server))
            assert (await ask(server.address, "/quarantine")).json == {"quarantine": []}
