"""Streams of real workers: in order, within the worker's capacity, and given up within a step."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.books import books
from tests.e2e.client import ask, in_a_loop, send, until
from tests.e2e.server import Server, running
from tests.e2e.stepper import Stepper
from tests.e2e.witness import pauses

pytestmark = pytest.mark.e2e

EXAMPLE = Path(__file__).parents[2] / "examples" / "toy-stream"


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("streams")


@pytest.fixture(scope="module")
def one(root: Path) -> Stepper:
    return Stepper(root, "one", capacity=1)


@pytest.fixture(scope="module")
def two(root: Path) -> Stepper:
    return Stepper(root, "two", capacity=2)


@pytest.fixture(scope="module")
def server(root: Path, one: Stepper, two: Stepper) -> Iterator[Server]:
    shutil.copytree(EXAMPLE, root / "models" / "toy-stream")
    with running(root) as server:
        yield server


@in_a_loop
async def test_the_example_streams_one_word_per_event_in_order(server: Server) -> None:
    exchange = await send(
        server.address, "/v2/models/toy-stream/generate_stream", {"text_input": "a vehicle leaves when full"}
    )
    await exchange.head()
    assert exchange.headers["content-type"] == "text/event-stream"
    events = [event async for event in exchange.events()]
    assert [event["index"] for event in events] == [0, 1, 2, 3, 4]
    assert [event["text_output"].strip() for event in events] == ["a", "vehicle", "leaves", "when", "full"]


@in_a_loop
async def test_generate_collects_what_generate_stream_would_have_sent(server: Server) -> None:
    body = {"text_input": "one two three", "parameters": {"max_tokens": 2}}
    exchange = await send(server.address, "/v2/models/toy-stream/generate_stream", body)
    await exchange.head()
    pieces = [event["text_output"] async for event in exchange.events()]
    reply = await ask(server.address, "/v2/models/toy-stream/generate", body)
    assert reply.status == 200
    assert reply.json["text_output"] == "".join(pieces)
    assert len(pieces) == 2


@in_a_loop
async def test_a_stream_that_the_model_refuses_is_a_400_with_its_reason(server: Server) -> None:
    reply = await ask(server.address, "/v2/models/toy-stream/generate_stream", {"text_input": 7})
    assert reply.status == 400
    assert "text_input must be a string, got int" in reply.json["error"]


@in_a_loop
async def test_a_client_that_goes_away_ends_its_stream_within_a_step_and_makes_room_for_the_next(
    server: Server, one: Stepper
) -> None:
    async with pauses() as held, asyncio.TaskGroup() as clients:
        body = {"name": "left", "steps": 1000, "hold_at": 2, "hold": held.port}
        leaving = await send(server.address, "/v2/models/one/generate_stream", body)
        await leaving.head()
        arrived = leaving.events()
        assert [(await anext(arrived))["step"], (await anext(arrived))["step"]] == [0, 1]
        pause = await held.begun()
        next_one = clients.create_task(one.events(server.address, "next", 3))

        async def waits() -> bool:
            return (await books(server.address)).waiting("one") == 1

        await until(waits, "the second stream waits for the first")
        leaving.cut()

        async def cancelled() -> bool:
            return (await books(server.address)).outcomes(model="one")["cancelled"] == 1

        await until(cancelled, "the server has seen that the client is gone")
        await pause.end()
        assert [event["step"] for event in await next_one] == [0, 1, 2]
    assert one.order() == [("begins", "left"), ("ends", "left"), ("begins", "next"), ("ends", "next")]
    assert [step for name, step in one.told("step") if name == "left"] == [0, 1, 2]


@in_a_loop
async def test_never_more_streams_run_at_once_than_the_worker_has_room_for(server: Server, two: Stepper) -> None:
    async with pauses() as held, asyncio.TaskGroup() as clients:
        first = clients.create_task(two.events(server.address, "0", 6, hold_at=1, hold=held.port))
        pause = await held.begun()
        others = [clients.create_task(two.events(server.address, str(number), 6)) for number in range(1, 8)]

        async def queued() -> bool:
            return (await books(server.address)).waiting("two") == 6

        await until(queued, "one runs, one is admitted, six wait")
        assert (await books(server.address)).total("headway_sequences_running", model="two") == 2
        await pause.end()
    for number, task in enumerate([first, *others]):
        assert task.result() == [{"name": str(number), "step": step} for step in range(6)]
    assert max(active for _, active in two.told("begins")) == 2
