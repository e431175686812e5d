"""What shares a batch, counted in executions of a real worker."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.books import books
from tests.e2e.client import Reply, in_a_loop, until
from tests.e2e.server import Server, running
from tests.e2e.witness import Witness, pauses

pytestmark = pytest.mark.e2e

CAP = 16
OF_EACH = 64


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("batches")


@pytest.fixture(scope="module")
def witness(root: Path) -> Witness:
    return Witness(root, settings=f"batching.max_batch_size = {CAP}", options="delay_ms = 5")


@pytest.fixture(scope="module")
def server(root: Path, witness: Witness) -> Iterator[Server]:
    with running(root) as server:
        yield server


@in_a_loop
async def test_two_interleaved_signatures_batch_well(server: Server, witness: Witness) -> None:
    rows = [[float(number)] * (4 if number % 2 else 8) for number in range(1, 2 * OF_EACH + 1)]
    async with pauses() as held, asyncio.TaskGroup() as clients:
        clients.create_task(witness.ask(server.address, 0, hold=held.port))
        pause = await held.begun()
        asked = []
        for row in rows:
            asked.append(clients.create_task(witness.ask(server.address, *row)))

        async def all_wait() -> bool:
            return (await books(server.address)).waiting("witness") == len(rows)

        await until(all_wait, "all requests wait for the busy worker")
        before = await books(server.address)
        await pause.end()
    for row, task in zip(rows, asked, strict=True):
        reply: Reply = task.result()
        assert reply.outputs["sum"] == [sum(row)]
    batches = witness.batches()[
        -((await books(server.address)).total("headway_batches_total") - before.total("headway_batches_total")) :
    ]
    assert sorted(value for batch in batches for value in batch) == [row[0] for row in rows]
    assert all(len({value % 2 for value in batch}) == 1 for batch in batches), "two signatures in one batch"
    assert len(rows) / len(batches) >= CAP / 2
