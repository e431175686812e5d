"""What a Python model's mistakes mean for the requests beside them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.books import books
from tests.e2e.client import Reply, in_a_loop, until
from tests.e2e.server import Server, running
from tests.e2e.witness import FAULTS, LOSES_A_ROW, RAISES, REFUSES, RETURNS_AN_ERROR, WITNESS, Witness, pauses

pytestmark = pytest.mark.e2e

BESIDE = [1.0, 2.0, 3.0]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("python")


@pytest.fixture(scope="module")
def witness(root: Path) -> Witness:
    return Witness(root, code=WITNESS + FAULTS)


@pytest.fixture(scope="module")
def server(root: Path, witness: Witness) -> Iterator[Server]:
    with running(root) as server:
        yield server


async def in_company(server: Server, witness: Witness, value: float) -> tuple[dict[float, Reply], list[float]]:
    """The replies to `value` and to others that wait beside it for a busy worker; and the batch that had it."""
    async with pauses() as held, asyncio.TaskGroup() as clients:
        clients.create_task(witness.ask(server.address, 0, hold=held.port))
        pause = await held.begun()
        asked = {one: clients.create_task(witness.ask(server.address, one)) for one in [*BESIDE, value]}

        async def all_wait() -> bool:
            return (await books(server.address)).waiting(witness.name) == len(asked)

        await until(all_wait, "all wait for the busy worker")
        await pause.end()
    batch = next(batch for batch in witness.batches() if value in batch)
    return {one: task.result() for one, task in asked.items()}, batch


def assert_right(replies: dict[float, Reply], values: list[float]) -> None:
    for value in values:
        assert replies[value].outputs["sum"] == [value]


@in_a_loop
async def test_an_exception_as_one_result_fails_that_request_alone(server: Server, witness: Witness) -> None:
    replies, batch = await in_company(server, witness, RETURNS_AN_ERROR)
    failed = replies[RETURNS_AN_ERROR]
    assert (failed.status, failed.json["code"], failed.json["retryable"]) == (500, "model_error", False)
    assert "witness" in failed.json["error"]
    assert "this one alone" in failed.json["error"]
    assert len(batch) > 1
    assert_right(replies, BESIDE)


@in_a_loop
async def test_an_input_error_as_one_result_is_its_senders_fault(server: Server, witness: Witness) -> None:
    replies, _ = await in_company(server, witness, REFUSES)
    assert (replies[REFUSES].status, replies[REFUSES].json["code"]) == (400, "invalid_input")
    assert replies[REFUSES].json["error"] == "x must be a nicer number"
    assert_right(replies, BESIDE)


@in_a_loop
async def test_an_exception_that_is_raised_fails_who_makes_it_and_names_the_model(
    server: Server, witness: Witness
) -> None:
    replies, batch = await in_company(server, witness, RAISES)
    failed = replies[RAISES]
    assert (failed.status, failed.json["code"]) == (500, "poison_request")
    assert "witness" in failed.json["error"]
    assert "the model fell over" in failed.json["error"]
    assert failed.headers["x-should-retry"] == "false"
    assert len(batch) > 1
    assert_right(replies, BESIDE)


@in_a_loop
async def test_a_wrong_number_of_rows_fails_who_makes_it_and_names_the_model_and_both_numbers(
    server: Server, witness: Witness
) -> None:
    replies, batch = await in_company(server, witness, LOSES_A_ROW)
    failed = replies[LOSES_A_ROW]
    assert (failed.status, failed.json["code"]) == (500, "poison_request")
    assert "model witness/1 returned 0 rows in output 'sum' for a request of 1" in failed.json["error"]
    assert len(batch) > 1
    assert_right(replies, BESIDE)


@in_a_loop
async def test_a_model_that_made_mistakes_goes_on_serving_in_the_same_process(server: Server, witness: Witness) -> None:
    workers = server.workers()
    for value in (RAISES, LOSES_A_ROW, RETURNS_AN_ERROR, REFUSES):
        assert (await witness.ask(server.address, value)).status in (400, 500)
        reply = await witness.ask(server.address, 4)
        assert reply.outputs["process"] == workers
