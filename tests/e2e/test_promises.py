"""What is refused because it could not be answered in time, and who is told of a tenant that gets too little."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.client import Reply, in_a_loop
from tests.e2e.server import Server, running
from tests.e2e.tenants import BY_HEADER, ask_as
from tests.e2e.witness import Witness, pauses

pytestmark = pytest.mark.e2e

TAKES_MS = 10
CROWD = 80
ROUNDS = 20
ONE_BY_ONE = "batch_safety = 'off'\n[batching]\nmax_batch_size = 1\n"
ESTIMATE = re.compile(
    r"it would be answered in about (\S+) s, or as late as (\S+) s, (?:and has )?(\S+) s (?:left|are aimed for)$"
)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("promises")


@pytest.fixture(scope="module")
def slow(root: Path) -> Witness:
    return Witness(root, "slow", settings=f"hang_s = 0\n{ONE_BY_ONE}", options=f"delay_ms = {TAKES_MS}")


@pytest.fixture(scope="module")
def aimed(root: Path) -> Witness:
    """All that its operator has said is how fast its answers should be."""
    return Witness(root, "aimed", settings="slo_ms = 200\n" + ONE_BY_ONE, options=f"delay_ms = {TAKES_MS}")


@pytest.fixture(scope="module")
def quick(root: Path) -> Witness:
    return Witness(root, "quick", settings=ONE_BY_ONE)


@pytest.fixture(scope="module")
def server(root: Path, slow: Witness, aimed: Witness, quick: Witness) -> Iterator[Server]:
    with running(root, BY_HEADER) as server:
        yield server


def estimate(reply: Reply) -> tuple[float, float]:
    """Seconds that it would usually have taken, and those that there were, which are less than it might have taken."""
    found = ESTIMATE.match(reply.json["error"])
    assert found, reply
    usual, latest, left = map(float, found.groups())
    assert usual <= latest and left <= latest
    return usual, left


async def crowd(server: Server, witness: Witness, first: int, timeout_ms: int) -> dict[int, Reply]:
    """Many at once, of one tenant, by their number."""
    asked = {
        number: asyncio.create_task(ask_as(server, "usual", witness, number, timeout_ms=timeout_ms))
        for number in range(first, first + CROWD)
    }
    return {number: await task for number, task in asked.items()}


@in_a_loop
async def test_a_deadline_that_cannot_be_met_is_refused_at_once_with_the_estimate(
    server: Server, slow: Witness
) -> None:
    """Once enough answers have told what forecasts are worth; all of them together take twice as long as they have."""
    for number in range(ROUNDS):
        patient = asyncio.create_task(ask_as(server, "usual", slow, 0, timeout_ms=60_000))
        replies = await crowd(server, slow, 1 + number * CROWD, timeout_ms=TAKES_MS * CROWD // 2)
        assert (await patient).status == 200, "that one could be met"
        refused = {number: reply for number, reply in replies.items() if b"would be answered" in reply.body}
        if refused:
            break
    assert any(reply.status == 200 for reply in replies.values())
    for reply in refused.values():
        assert (reply.status, reply.json["code"], reply.json["retryable"]) == (503, "deadline_unmeetable", False)
        assert reply.headers["x-should-retry"] == "false" and "retry-after" not in reply.headers
        assert estimate(reply)[1] <= TAKES_MS * CROWD / 2000
    assert refused and not set(refused) & set(slow.executed())


@in_a_loop
async def test_where_only_an_slo_is_given_what_would_come_too_late_is_refused_and_may_come_again(
    server: Server, aimed: Witness
) -> None:
    for _ in range(ROUNDS):
        replies = await crowd(server, aimed, 1, timeout_ms=60_000)
        refused = [reply for reply in replies.values() if reply.status != 200]
        if refused:
            break
    assert {(reply.status, reply.json["code"], reply.json["retryable"]) for reply in refused} == {
        (503, "overloaded", True)
    }
    for reply in refused:
        takes, aim = estimate(reply)
        assert aim == 0.2
        rounded = 0.005 * takes  # it is told with three digits
        assert reply.json["retry_after_ms"] >= max(100, int(1000 * (takes - rounded - aim)) - 1)
        assert int(reply.headers["retry-after"]) >= 1
    assert len(refused) < CROWD
    assert (await ask_as(server, "usual", aimed, 1)).status == 200, "with nobody ahead there is time enough"


@in_a_loop
async def test_a_tenant_that_gets_too_little_is_named_in_the_log_with_who_is_ahead_of_it(
    server: Server, slow: Witness, quick: Witness
) -> None:
    """`hungry` waits for a model that is stuck, while `full` is served by another on the same device."""
    going, served = True, 0

    async def always_asks() -> None:
        nonlocal served
        while going:
            reply = await ask_as(server, "full", quick, 1)
            assert reply.status in (200, 429), reply
            served += reply.status == 200

    async with pauses() as held:
        stuck = asyncio.create_task(ask_as(server, "holder", slow, 0, hold=held.port))
        pause = await held.begun()
        waiting = [asyncio.create_task(ask_as(server, "hungry", slow, 4)) for _ in range(2)]
        busy = [asyncio.create_task(always_asks()) for _ in range(4)]
        line = await asyncio.to_thread(server.wait_for, "tenant hungry starves on cpu")
        assert "full is furthest ahead of it and may borrow no more room" in line
        assert " of the device in the last 10 s and was owed " in line
        going = False
        await asyncio.gather(*busy)
        await pause.end()
        assert [(await task).status for task in (stuck, *waiting)] == [200] * 3
    await asyncio.to_thread(server.wait_for, "tenant hungry on cpu has its share again")
    assert served > 0
