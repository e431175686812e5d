"""Idempotency keys at a server that runs: one execution, whoever leaves, dies or comes again."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import numpy as np
import openai
import pytest
import tritonclient.http as http
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from tritonclient.utils import InferenceServerException

from tests.e2e.books import books
from tests.e2e.client import Exchange, Reply, ask, in_a_loop, send, until
from tests.e2e.server import Server, put, running
from tests.e2e.tenants import BY_HEADER, HEADER, until_waiting
from tests.e2e.witness import Witness, pauses

pytestmark = pytest.mark.e2e

REPLAYED = "idempotency-replayed"
QUICK_RESTART = "[workers]\nbackoff_s = 0.01\n"
ENCODER = """
import numpy as np


class Model:
    inputs = {"input_ids": ("INT64", [-1, -1]), "attention_mask": ("INT64", [-1, -1])}
    outputs = {"embedding": ("FP32", [-1, 2])}

    def load(self, context):
        self.log = context.settings.options["log"]

    def execute(self, requests):
        with open(self.log, "a") as log:
            log.write("x" * len(requests))
        return [{"embedding": np.stack([r["input_ids"].sum(1), r["attention_mask"].sum(1)], 1, dtype=np.float32)}
                for r in requests]
"""


class Keyed:
    """The witness at a server, asked with keys."""

    def __init__(self, server: Server, witness: Witness) -> None:
        self.server = server
        self.witness = witness

    def begin(self, key: str, *row: float, headers: dict[str, str] | None = None, **more: Any) -> asyncio.Task[Reply]:
        return asyncio.create_task(self.ask(key, *row, headers=headers, **more))

    async def ask(self, key: str, *row: float, headers: dict[str, str] | None = None, **more: Any) -> Reply:
        with_key = {"idempotency-key": key, **(headers or {})}
        return await ask(self.server.address, self.witness.path, self.witness.body(*row, **more), with_key)

    async def send(self, key: str, *row: float, **more: Any) -> Exchange:
        body = self.witness.body(*row, **more)
        return await send(self.server.address, self.witness.path, body, {"Idempotency-Key": key})

    async def counted(self, event: str) -> int:
        return (await books(self.server.address)).total("headway_idempotency_keys_total", event=event)

    async def until_counted(self, event: str, count: int) -> None:
        async def so_many() -> bool:
            return await self.counted(event) >= count

        await until(so_many, f"{count} keys {event}")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("keys")


@pytest.fixture(scope="module")
def witness(root: Path) -> Witness:
    return Witness(root)


@pytest.fixture(scope="module")
def server(root: Path, witness: Witness) -> Iterator[Server]:
    tokenizer = Tokenizer(WordLevel({"[UNK]": 0, "one": 3, "two": 4}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    put(root, "models/encoder/1/model.py", ENCODER)
    put(root, "models/encoder/1/tokenizer.json", tokenizer.to_str())
    put(
        root,
        "models/encoder/model.toml",
        f'[warm_up]\nenabled = false\n[embeddings]\n[options]\nlog = "{root / "encoder.log"}"\n'
        "[inputs.input_ids]\npad_axis = 1\n[inputs.attention_mask]\npad_axis = 1\n",
    )
    with running(root, BY_HEADER) as server:
        yield server


@pytest.fixture
def keyed(server: Server, witness: Witness) -> Keyed:
    return Keyed(server, witness)


@in_a_loop
async def test_the_same_at_once_is_run_once_and_everybody_gets_the_answer(keyed: Keyed) -> None:
    before = await books(keyed.server.address)
    async with pauses() as held:
        first = keyed.begin("join", 101, 1, hold=held.port)
        pause = await held.begun()
        joined = await keyed.counted("joined")
        others = [keyed.begin("join", 101, 1, hold=held.port) for _ in range(5)]
        await keyed.until_counted("joined", joined + 5)
        await pause.end()
        replies = [await one for one in (first, *others)]
    assert [reply.outputs["sum"] for reply in replies] == [[102]] * 6
    assert [REPLAYED in reply.headers for reply in replies] == [False] + [True] * 5
    assert len({reply.body for reply in replies}) == 1
    assert len({reply.headers["x-request-id"] for reply in replies}) == 6
    assert keyed.witness.executed().count(101) == 1
    after = await books(keyed.server.address)
    name = "headway_requests_received_total"
    assert after.total(name, model="witness") - before.total(name, model="witness") == 1


@in_a_loop
async def test_the_same_later_is_answered_from_what_was_kept_and_another_is_refused(keyed: Keyed) -> None:
    first = await keyed.ask("later", 102)
    again = await keyed.ask("later", 102)
    assert (again.status, again.body, again.headers[REPLAYED]) == (200, first.body, "true")
    other = await keyed.ask("later", 103)
    assert (other.status, other.json["code"], other.json["retryable"]) == (422, "idempotency_key_reused", False)
    assert (await keyed.ask("later, another", 103)).outputs["sum"] == [103]
    executed = keyed.witness.executed()
    assert (executed.count(102), executed.count(103)) == (1, 1)


@in_a_loop
async def test_each_tenant_has_its_own(keyed: Keyed) -> None:
    for tenant, value in (("acme", 104), ("umbrella", 105)):
        for replayed in (False, True):
            reply = await keyed.ask("own", value, headers={HEADER: tenant})
            assert (reply.outputs["sum"], REPLAYED in reply.headers) == ([value], replayed)


@in_a_loop
async def test_the_first_leaves_and_who_joined_is_answered(keyed: Keyed) -> None:
    async with pauses() as held:
        first = await keyed.send("leaves", 106, hold=held.port)
        pause = await held.begun()
        joined = await keyed.counted("joined")
        second = keyed.begin("leaves", 106, hold=held.port)
        await keyed.until_counted("joined", joined + 1)
        first.cut()
        await until_gone(keyed.server)
        await pause.end()
        assert ((await second).outputs["sum"], (await second).headers[REPLAYED]) == ([106], "true")
    assert keyed.witness.executed().count(106) == 1


@in_a_loop
async def test_the_only_one_leaves_and_finds_its_answer_when_it_comes_back(keyed: Keyed) -> None:
    async with pauses() as held:
        client = await keyed.send("comes back", 107, hold=held.port)
        pause = await held.begun()
        client.cut()
        await until_gone(keyed.server)
        stored = await keyed.counted("stored")
        await pause.end()
        await keyed.until_counted("stored", stored + 1)
        again = await keyed.ask("comes back", 107, hold=held.port)
    assert (again.outputs["sum"], again.headers[REPLAYED]) == ([107], "true")
    assert keyed.witness.executed().count(107) == 1


async def until_gone(server: Server) -> None:
    """Nobody is connected but who asks this, and whoever joined."""

    async def few() -> bool:
        found = await books(server.address)
        return found.total("headway_http_connections") <= 2 and found.in_flight() == 1

    await until(few, "who was cut off is gone, and what it asked goes on")


def test_openais_client_with_a_header_of_its_own(server: Server, root: Path) -> None:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="unused", max_retries=0) as client:

        def embed(*texts: str) -> Any:
            return client.embeddings.with_raw_response.create(
                model="encoder", input=list(texts), extra_headers={"Idempotency-Key": "vectors"}
            )

        told = [embed("one two", "two") for _ in range(3)]
        assert [answer.headers.get(REPLAYED) for answer in told] == [None, "true", "true"]
        vectors = [[entry.embedding for entry in answer.parse().data] for answer in told]
        assert vectors == [[[7.0, 2.0], [4.0, 1.0]]] * 3
        assert (root / "encoder.log").read_text() == "xx"
        with pytest.raises(openai.UnprocessableEntityError) as caught:
            embed("one")
        assert caught.value.code == "idempotency_key_reused"


def test_tritons_client_with_a_header_of_its_own(keyed: Keyed) -> None:
    def entry(value: float) -> list[Any]:
        made = http.InferInput("x", [1, 2], "FP32")
        made.set_data_from_numpy(np.array([[value, 1]], np.float32))
        return [made]

    key = {"Idempotency-Key": "triton"}
    with http.InferenceServerClient(urlsplit(keyed.server.address).netloc) as client:
        told = [client.infer("witness", entry(108), headers=key) for _ in range(3)]
        assert [result.as_numpy("sum").tolist() for result in told] == [[109]] * 3
        assert keyed.witness.executed().count(108) == 1
        with pytest.raises(InferenceServerException) as caught:
            client.infer("witness", entry(109), headers=key)
        assert caught.value.status() == "422"


@in_a_loop
async def test_what_is_refused_for_want_of_room_runs_when_it_comes_again(tmp_path: Path) -> None:
    witness = Witness(tmp_path, settings="batching.max_queued_requests = 1\nbatching.max_batch_size = 1")
    with running(tmp_path) as server:
        keyed = Keyed(server, witness)
        async with pauses() as held:
            runs = keyed.begin("runs", 0, hold=held.port)
            pause = await held.begun()
            waits = keyed.begin("waits", 1)
            await until_waiting(server, witness.name, 1)
            full = await keyed.ask("full", 2)
            assert (full.status, full.json["code"], REPLAYED in full.headers) == (503, "queue_full", False)
            joins = keyed.begin("waits", 1)
            await keyed.until_counted("joined", 1)  # which takes no room
            await pause.end()
            assert [(await one).status for one in (runs, waits, joins)] == [200] * 3
        again = await keyed.ask("full", 2)
        assert (again.outputs["sum"], REPLAYED in again.headers) == ([2], False)
        assert sorted(witness.executed()) == [0, 1, 2]


@in_a_loop
async def test_without_room_the_oldest_of_who_has_most_goes(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    room = "[idempotency]\nmax_mb = 0.02\nmax_reply_kb = 2\n"
    with running(tmp_path, f"{BY_HEADER}{room}") as server:
        keyed = Keyed(server, witness)
        await keyed.ask("one", 1, headers={HEADER: "small"})
        for number in range(30):
            await keyed.ask(f"{number}", 100 + number, headers={HEADER: "large"})
        found = await books(server.address)
        assert found.total("headway_idempotency_keys_total", event="evicted") > 15
        assert 0 < found.total("headway_idempotency_held_bytes") <= 0.02 * 2**20
        assert REPLAYED in (await keyed.ask("one", 1, headers={HEADER: "small"})).headers
        assert REPLAYED in (await keyed.ask("29", 129, headers={HEADER: "large"})).headers
        assert REPLAYED not in (await keyed.ask("0", 100, headers={HEADER: "large"})).headers
        assert witness.executed().count(1) == witness.executed().count(129) == 1
        assert witness.executed().count(100) == 2


@in_a_loop
async def test_the_worker_is_killed_and_everybody_with_the_key_has_one_answer(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    async with pauses() as held:
        with running(tmp_path, QUICK_RESTART) as server:
            keyed = Keyed(server, witness)
            both = [keyed.begin("k", 7, hold=held.port)]
            await held.begun()
            both.append(keyed.begin("k", 7, hold=held.port))
            await keyed.until_counted("joined", 1)
            os.kill(server.workers()[0], signal.SIGKILL)
            await (await held.begun()).end()
            assert [(await one).outputs["sum"] for one in both] == [[7], [7]]
            assert REPLAYED in (await keyed.ask("k", 7, hold=held.port)).headers
            assert witness.executed() == [7, 7], "the retry is headway's own"
            (await books(server.address)).assert_just_what_clients_saw()


@in_a_loop
async def test_a_model_that_must_not_run_twice_does_not_for_a_retry_with_the_key(tmp_path: Path) -> None:
    """Neither after its worker was killed nor after the first's deadline."""
    witness = Witness(tmp_path, settings="idempotent = false\nhang_s = 0")
    async with pauses() as held:
        with running(tmp_path, QUICK_RESTART) as server:
            keyed = Keyed(server, witness)
            both = [keyed.begin("killed", 7, hold=held.port)]
            await held.begun()
            both.append(keyed.begin("killed", 7, hold=held.port))
            await keyed.until_counted("joined", 1)
            os.kill(server.workers()[0], signal.SIGKILL)
            assert [(await one).json["code"] for one in both] == ["may_have_run"] * 2
            again = await keyed.ask("killed", 7, hold=held.port)
            assert (again.status, again.json["code"], REPLAYED in again.headers) == (500, "may_have_run", True)

            async def served() -> bool:
                return (await witness.ask(server.address, 1)).status == 200

            await until(served, "the next worker serves")
            late = keyed.begin("late", 8, hold=held.port, headers={"x-request-timeout-ms": "3000"})
            pause = await held.begun()
            assert (await late).json["code"] == "deadline_exceeded"
            told = await keyed.ask("late", 8, hold=held.port)
            assert (told.status, told.json["code"], told.json["retryable"]) == (500, "may_have_run", False)
            await pause.end()
            assert (await keyed.ask("late", 8, hold=held.port)).json["code"] == "may_have_run"
            assert [witness.executed().count(value) for value in (7, 8)] == [1, 1]


@in_a_loop
async def test_at_sigterm_who_joined_is_answered_too(tmp_path: Path) -> None:
    witness = Witness(tmp_path)
    with running(tmp_path) as server:
        keyed = Keyed(server, witness)
        async with pauses() as held:
            first = await keyed.send("k", 5, hold=held.port)
            pause = await held.begun()
            second = keyed.begin("k", 5, hold=held.port)
            await keyed.until_counted("joined", 1)
            third = await keyed.send("nobody", 6, hold=held.port)
            third.cut()
            server.terminate()
            await asyncio.to_thread(server.wait_for, "stopping")
            await pause.end()
            assert (await first.reply()).outputs["sum"] == [5]
            assert ((await second).outputs["sum"], REPLAYED in (await second).headers) == ([5], True)
        server.assert_ends_well()
        assert witness.executed().count(5) == 1
