"""The configuration is read again while requests come all the time, and while some wait."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.gateway.keys import NewKey, new_key
from tests.e2e.books import books
from tests.e2e.client import Reply, ask, in_a_loop, until
from tests.e2e.server import Server, put, running
from tests.e2e.witness import Witness, pauses

pytestmark = pytest.mark.e2e

KEYS = {name: new_key(name) for name in ("holder", "steady", "light", "heavy", "leaves")}
CLIENTS = 4
RELOADS = 6
OF_EACH = 6
RUNS = "[models.witness.batching]\nmax_batch_size = 1\n"


def tenant(name: str, more: str = "", key: NewKey | None = None) -> str:
    settings = (key or KEYS[name]).settings
    return f'[tenants.{name}]\n{more}\n[[tenants.{name}.keys]]\nid = "{settings.id}"\nsha256 = "{settings.sha256}"\n'


def config(**more: str) -> str:
    """All tenants, some of them with settings of their own."""
    return RUNS + "".join(tenant(name, more.get(name, "")) for name in KEYS)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("reload")


@pytest.fixture(scope="module")
def witness(root: Path) -> Witness:
    return Witness(root, settings="batch_safety = 'off'", options="delay_ms = 5")


@pytest.fixture(scope="module")
def quick(root: Path) -> Witness:
    return Witness(root, "quick")


@pytest.fixture(scope="module")
def server(root: Path, witness: Witness, quick: Witness) -> Iterator[Server]:
    with running(root, config()) as server:
        yield server


async def ask_by_key(server: Server, name: str, model: Witness, *row: float, **parameters: object) -> Reply:
    headers = {"x-api-key": KEYS[name].text}
    return await ask(server.address, model.path, model.body(*row, **parameters), headers)


async def reload(server: Server, root: Path, text: str) -> Reply:
    put(root, "headway.toml", text)
    return await ask(server.address, "/reload", method="POST")


def told(server: Server, words: str) -> int:
    return sum(words in line for line in server.printed)


@in_a_loop
async def test_under_steady_load_no_reload_costs_anybody_a_request_and_a_bad_one_changes_nothing(
    server: Server, root: Path, quick: Witness
) -> None:
    """By hangup and by route in turn, good files and bad ones."""
    going, answers = True, Counter[int]()

    async def steady() -> None:
        while going:
            answers[(await ask_by_key(server, "steady", quick, 1)).status] += 1

    async def hangup(text: str, words: str) -> None:
        before = told(server, words)
        put(root, "headway.toml", text)
        server.process.send_signal(signal.SIGHUP)

        async def said() -> bool:
            return told(server, words) > before

        await until(said, f"the log says {words!r} once more")

    clients = [asyncio.create_task(steady()) for _ in range(CLIENTS)]
    for number in range(1, RELOADS + 1):
        good, bad = config(steady=f"weight = {number}"), config(steady="weight = -1")
        before = answers.total()
        if number % 2:
            await hangup(good, "configuration reloaded; changed: ")
            await hangup(bad, "the configuration stays as it was")
        else:
            assert (await reload(server, root, good)).json["changed"] == ["tenants.steady.weight"]
            refused = await reload(server, root, bad)
            assert (refused.status, refused.json["code"]) == (500, "config_error")
            assert [problem["place"] for problem in refused.json["problems"]] == ["tenants.steady.weight"]

        async def went_on(than: int = before) -> bool:
            return answers.total() > than

        await until(went_on, "somebody was answered since")
    going = False
    await asyncio.gather(*clients)
    assert set(answers) == {200}
    assert (await reload(server, root, config(steady=f"weight = {RELOADS}"))).json["changed"] == [], "the last good one"
    (await books(server.address)).assert_just_what_clients_saw()


@in_a_loop
async def test_whose_key_is_taken_away_gets_no_further_and_what_he_has_waiting_is_answered(
    server: Server, root: Path, witness: Witness
) -> None:
    assert (await reload(server, root, config())).status == 200
    async with pauses() as held:
        runs = asyncio.create_task(ask_by_key(server, "leaves", witness, 0, hold=held.port))
        pause = await held.begun()
        waits = [asyncio.create_task(ask_by_key(server, "leaves", witness, 1)) for _ in range(3)]
        await until_in_flight(server, 4)
        without = config().replace(tenant("leaves"), "")
        assert (await reload(server, root, without)).json["changed"] == ["tenants.leaves"]
        refused = await ask_by_key(server, "leaves", witness, 2)
        assert (refused.status, refused.json["code"]) == (401, "unauthenticated")
        assert (await books(server.address)).in_flight(model="witness") == 4
        await pause.end()
        assert [(await task).status for task in (runs, *waits)] == [200] * 4


@in_a_loop
async def test_a_new_weight_holds_for_what_waits_already(server: Server, root: Path, witness: Witness) -> None:
    """Of two tenants with as much waiting one is given a thousand times the weight: it is served first, but for the one
    request of the other that may have been handed over, and one that it is owed."""
    assert (await reload(server, root, config())).status == 200
    light, heavy = range(101, 101 + OF_EACH), range(201, 201 + OF_EACH)
    async with pauses() as held:
        runs = asyncio.create_task(ask_by_key(server, "holder", witness, 0, hold=held.port))
        pause = await held.begun()
        waits = [
            asyncio.create_task(ask_by_key(server, name, witness, number))
            for pair in zip(light, heavy, strict=True)
            for name, number in zip(("light", "heavy"), pair, strict=True)
        ]
        await until_in_flight(server, 1 + 2 * OF_EACH)
        assert (await reload(server, root, config(heavy="weight = 1000"))).json["changed"] == ["tenants.heavy.weight"]
        await pause.end()
        assert [(await task).status for task in (runs, *waits)] == [200] * (1 + 2 * OF_EACH)
    order = witness.executed()[-2 * OF_EACH :]
    assert sorted(order) == sorted([*light, *heavy])
    assert sum(number in heavy for number in order[: OF_EACH + 2]) == OF_EACH


@in_a_loop
async def test_new_limits_hold_from_the_next_request_on_and_take_nothing_back(
    server: Server, root: Path, witness: Witness
) -> None:
    """What is open counts; who may have but one open more is not asked to give up the three that he has."""
    assert (await reload(server, root, config(steady="limits = [{ concurrent = 10 }]"))).status == 200
    async with pauses() as held:
        runs = asyncio.create_task(ask_by_key(server, "holder", witness, 0, hold=held.port))
        pause = await held.begun()
        waits = [asyncio.create_task(ask_by_key(server, "steady", witness, 1)) for _ in range(3)]
        await until_in_flight(server, 4)
        changed = await reload(server, root, config(steady="limits = [{ concurrent = 3 }]\nmax_queued_requests = 1"))
        assert changed.json["changed"] == ["tenants.steady.limits", "tenants.steady.max_queued_requests"]
        refused = await ask_by_key(server, "steady", witness, 2)
        assert (refused.status, refused.json["code"]) == (429, "rate_limited")
        assert "3 requests of tenant steady are open; 3 may be" in refused.json["error"]
        unlimited = await reload(server, root, config(steady="max_queued_requests = 1"))
        assert unlimited.json["changed"] == ["tenants.steady.limits"]
        refused = await ask_by_key(server, "steady", witness, 2)
        assert (refused.status, refused.json["code"]) == (429, "tenant_queue_full")
        assert not any(task.done() for task in waits)
        await pause.end()
        assert [(await task).status for task in (runs, *waits)] == [200] * 4


async def until_in_flight(server: Server, requests: int) -> None:
    async def so_many() -> bool:
        return (await books(server.address)).in_flight(model="witness") == requests

    await until(so_many, f"{requests} requests are in flight")
