"""Deadlines are kept while the worker is busy; what expired, or was abandoned, is never executed."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.books import books
from tests.e2e.client import Reply, ask, in_a_loop, send, until
from tests.e2e.server import Server, running
from tests.e2e.witness import Pause, Witness, pauses

pytestmark = pytest.mark.e2e


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("deadlines")


@pytest.fixture(scope="module")
def witness(root: Path) -> Witness:
    return Witness(root)


@pytest.fixture(scope="module")
def server(root: Path, witness: Witness) -> Iterator[Server]:
    with running(root) as server:
        yield server


@asynccontextmanager
async def busy_worker(server: Server, witness: Witness) -> AsyncIterator[None]:
    """The worker executes something from beginning to end of the block; afterwards all is as it was."""
    async with pauses() as held:
        occupier = asyncio.create_task(witness.ask(server.address, 0, hold=held.port))
        pause: Pause = await held.begun()
        yield
        assert not occupier.done()
        await pause.end()
        assert (await occupier).outputs["sum"] == [0]
        assert (await witness.ask(server.address, 5)).outputs["sum"] == [5]


def assert_expired(reply: Reply) -> None:
    assert reply.status == 504, reply
    assert reply.json["code"] == "deadline_exceeded"
    assert reply.json["retryable"] is False
    assert reply.headers["x-should-retry"] == "false"


@in_a_loop
async def test_the_header_gives_a_deadline_in_milliseconds(server: Server, witness: Witness) -> None:
    async with busy_worker(server, witness):
        headers = {"x-request-timeout-ms": "100"}
        assert_expired(await ask(server.address, witness.path, witness.body(11), headers))
    assert 11 not in witness.executed()


@in_a_loop
async def test_the_parameter_gives_a_deadline_in_microseconds(server: Server, witness: Witness) -> None:
    async with busy_worker(server, witness):
        assert_expired(await witness.ask(server.address, 12, timeout=100_000))
    assert 12 not in witness.executed()


@in_a_loop
async def test_a_request_expires_even_while_it_runs(server: Server, witness: Witness) -> None:
    async with pauses() as held:
        expired = asyncio.create_task(witness.ask(server.address, 13, hold=held.port, timeout=2_000_000))
        pause = await held.begun()
        assert_expired(await expired)
        await pause.end()
        assert (await witness.ask(server.address, 5)).outputs["sum"] == [5]


@in_a_loop
async def test_a_waiting_request_whose_client_goes_away_is_never_executed(server: Server, witness: Witness) -> None:
    """It waits in the queue, or staged behind what runs: in flight either way."""
    before = await books(server.address)

    async def waiting() -> Any:
        return (await books(server.address)).in_flight(model=witness.name) == 2

    async def cancelled() -> Any:
        return (await books(server.address)).outcomes()["cancelled"] == before.outcomes()["cancelled"] + 1

    async with busy_worker(server, witness):
        leaving = await send(server.address, witness.path, witness.body(14))
        await until(waiting, "it waits for the busy worker")
        leaving.cut()
        await until(cancelled, "it waits no longer")
        assert (await books(server.address)).in_flight(model=witness.name) == 1
    assert 14 not in witness.executed()
