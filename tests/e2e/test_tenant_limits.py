"""What a tenant may at most, at a server that runs: who has had it is told so, and nobody else notices."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.books import books
from tests.e2e.client import PATIENCE_S, Reply, in_a_loop, until
from tests.e2e.server import Server, running
from tests.e2e.stepper import Stepper
from tests.e2e.tenants import BY_HEADER, Line, ask_as, until_waiting
from tests.e2e.witness import Witness, pauses

pytestmark = pytest.mark.e2e

ROOM = 8
CONFIG = f"""
{BY_HEADER}
[tenants.counted]
limits = [{{ requests_per_second = 0.001, burst_s = 2000 }}]
[tenants.weighed]
limits = [{{ tokens_per_second = 0.01, burst_s = 1000 }}]
[tenants.single]
limits = [{{ concurrent = 1 }}]
[tenants.long]
limits = [{{ requests_per_second = 0.001, burst_s = 1000, longer_than = 4 }}, {{ concurrent = 2, up_to = 4 }}]
[tenants.bounded]
max_queued_requests = 1
[tenants.heavy]
weight = 2
[models.stepper.batching]
max_queued_requests = {ROOM}
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("limits")


@pytest.fixture(scope="module")
def witness(root: Path) -> Witness:
    """Runs one at a time; its length is how many numbers a row has."""
    return Witness(root, settings="[batching]\nmax_batch_size = 1\n[inputs.x]\npad_axis = 1")


@pytest.fixture(scope="module")
def stepper(root: Path) -> Stepper:
    return Stepper(root, "stepper", capacity=1)


@pytest.fixture(scope="module")
def quick(root: Path) -> Witness:
    return Witness(root, "quick", settings="[inputs.x]\npad_axis = 1")


@pytest.fixture(scope="module")
def server(root: Path, witness: Witness, quick: Witness, stepper: Stepper) -> Iterator[Server]:
    with running(root, CONFIG) as server:
        yield server


def assert_refused(reply: Reply, status: int, code: str, *words: str) -> int:
    """As retryable, in these words; milliseconds until when."""
    assert (reply.status, reply.json["code"], reply.json["retryable"]) == (status, code, True), reply
    assert "x-should-retry" not in reply.headers
    for word in words:
        assert word in reply.json["error"], reply
    after: int = reply.json["retry_after_ms"]
    assert int(reply.headers["retry-after-ms"]) == after > 0
    assert int(reply.headers["retry-after"]) == -(-after // 1000)
    return after


async def assert_unmoved(server: Server, quick: Witness) -> None:
    """Somebody else asks and is answered."""
    assert (await ask_as(server, "bystander", quick, 1)).outputs["sum"] == [1]


@in_a_loop
async def test_requests_beyond_the_rate_are_told_when_the_next_may_come(server: Server, quick: Witness) -> None:
    assert [(await ask_as(server, "counted", quick, 1)).status for _ in range(2)] == [200, 200]
    refused = await ask_as(server, "counted", quick, 1)
    after = assert_refused(
        refused, 429, "rate_limited", "tenant counted", "0.001 requests per second, 2 at once", "and this is 1"
    )
    assert 1_000_000 - PATIENCE_S * 1000 < after <= 1_000_000
    await assert_unmoved(server, quick)


@in_a_loop
async def test_tokens_beyond_the_rate_are_told_how_many_they_were(server: Server, quick: Witness) -> None:
    assert (await ask_as(server, "weighed", quick, *[1] * 8)).status == 200
    refused = await ask_as(server, "weighed", quick, *[1] * 5)
    after = assert_refused(
        refused, 429, "rate_limited", "tenant weighed", "0.01 tokens per second, 10 at once; 2", "and this is 5"
    )
    assert 300_000 - PATIENCE_S * 1000 < after <= 300_000, "three tokens are missing"
    assert (await ask_as(server, "weighed", quick, 1, 1)).status == 200, "so many are left"
    await assert_unmoved(server, quick)


@in_a_loop
async def test_as_many_are_open_as_may_be_over_all_models(server: Server, witness: Witness, quick: Witness) -> None:
    async with pauses() as held:
        first = asyncio.create_task(ask_as(server, "single", witness, 1, hold=held.port))
        pause = await held.begun()
        refused = await ask_as(server, "single", quick, 1)
        assert_refused(refused, 429, "rate_limited", "1 requests of tenant single are open; 1 may be")
        await assert_unmoved(server, quick)
        await pause.end()
        assert (await first).status == 200
    assert (await ask_as(server, "single", quick, 1)).status == 200


@in_a_loop
async def test_a_limit_for_a_range_of_lengths_is_for_no_other(server: Server, witness: Witness, quick: Witness) -> None:
    long, short = [1.0] * 5, [1.0] * 4
    assert (await ask_as(server, "long", quick, *long)).status == 200
    refused = await ask_as(server, "long", quick, *long)
    assert_refused(refused, 429, "rate_limited", "0.001 requests per second longer than 4 tokens, 1 at once")
    async with pauses() as held:
        open_ones = [asyncio.create_task(ask_as(server, "long", witness, *short, hold=held.port)) for _ in range(2)]
        first = await held.begun()
        await until_in_flight(server, witness, 2)
        refused = await ask_as(server, "long", quick, *short)
        assert_refused(refused, 429, "rate_limited", "2 requests of up to 4 tokens of tenant long are open; 2 may be")
        await assert_unmoved(server, quick)
        await first.end()
        await (await held.begun()).end()
        assert [(await task).status for task in open_ones] == [200, 200]
    assert (await ask_as(server, "long", quick, *short)).status == 200


async def until_in_flight(server: Server, witness: Witness, requests: int) -> None:
    async def so_many() -> bool:
        return (await books(server.address)).in_flight(model=witness.name) == requests

    await until(so_many, f"{requests} requests are in flight")


@in_a_loop
async def test_a_tenants_own_bound_holds_though_there_is_room(server: Server, stepper: Stepper, quick: Witness) -> None:
    line = Line(server, stepper)
    async with line.held():
        await line.wait("bounded", "a")
        refused = await line.ask("bounded", "b")
        assert_refused(refused, 429, "tenant_queue_full", "1 requests of tenant bounded wait", "; 1 may")
        await line.wait("other", "c")
        assert (await ask_as(server, "bounded", quick, 2)).status == 200, "that is another version"
    assert await line.statuses("a", "c") == [200, 200]


@in_a_loop
async def test_alone_a_tenant_gets_all_room_and_then_it_is_the_server_that_is_full(
    server: Server, stepper: Stepper, quick: Witness
) -> None:
    line, names = Line(server, stepper), [f"g{number}" for number in range(ROOM)]
    async with line.held():
        await line.wait("greedy", *names)
        refused = await line.ask("greedy", "too many")
        assert_refused(refused, 503, "queue_full", f"{ROOM} requests wait for stepper/1; {ROOM} may")
        await assert_unmoved(server, quick)
    assert await line.statuses(*names) == [200] * ROOM


@in_a_loop
async def test_who_comes_back_for_its_part_gets_what_was_borrowed_last_and_nobody_loses_its_own(
    server: Server, stepper: Stepper
) -> None:
    """Of 8 places `greedy` has 6 and `polite` 2 when `heavy` comes, whose weight makes half of them its own."""
    line = Line(server, stepper)
    async with line.held():
        await line.wait("greedy", "g1", "g2", "g3")
        await line.wait("polite", "p1", "p2")
        await line.wait("greedy", "g4", "g5", "g6")
        for newcomer, goes in (("h1", "g6"), ("h2", "g5"), ("h3", "g4"), ("h4", "g3")):
            assert await line.push_in("heavy", newcomer) == goes
            assert_refused(await line.asked[goes], 503, "reclaimed", "lent to its tenant", "came back for it")
        full = await line.ask("heavy", "h5")
        assert_refused(full, 429, "tenant_queue_full", "4 requests of tenant heavy", "others 8", "8 may", "50%")
        mine = await line.ask("polite", "p3")
        assert_refused(mine, 429, "tenant_queue_full", "2 requests of tenant polite", "others 8", "8 may", "25%")
        await until_waiting(server, "stepper", ROOM)
    stay = ["g1", "g2", "p1", "p2", "h1", "h2", "h3", "h4"]
    assert await line.statuses(*stay) == [200] * ROOM
    begun = [name for name, _ in stepper.told("begins")]
    assert sorted(begun[-ROOM:]) == sorted(stay)
    (await books(server.address)).assert_just_what_clients_saw()
