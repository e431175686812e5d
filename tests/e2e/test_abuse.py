"""The table of malformed and abusive requests against a real server: no worker dies, memory is flat, none suffers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from tests.conformance.http_world import GOOD, Answer, Client, message, within
from tests.conformance.test_http_abuse import EVERYTHING
from tests.e2e.client import in_a_loop
from tests.e2e.server import Server, put, running
from tests.fuzz.sockets import resident

pytestmark = pytest.mark.e2e

MAY_GROW = 8 << 20
"""Bytes over two rounds of the whole table, once it was gone through before."""
CONFIG = """\
[limits]
max_body_mb = 0.05
max_header_kb = 8
header_timeout_s = 1
body_timeout_s = 1
"""
ADD = """\
import numpy as np


class Model:
    inputs = {"x": ("FP32", [-1, 2])}
    optional_inputs = {"bias": ("FP32", [-1, 2])}
    outputs = {"y": ("FP32", [-1, 2]), "z": ("INT64", [-1])}

    def execute(self, requests):
        return [{"y": request["x"], "z": np.arange(request.rows)} for request in requests]
"""
TEXT = """\
class Model:
    inputs = {"ids": ("INT64", [-1, -1]), "mask": ("INT64", [-1, -1])}
    outputs = {"ids": ("INT64", [-1, -1])}

    def execute(self, requests):
        return [{"ids": request["ids"]} for request in requests]
"""
KINDS = """\
NAMES = "BOOL UINT8 UINT16 UINT32 UINT64 INT8 INT16 INT32 INT64 FP16 FP32 FP64 BYTES".split()
ALL = {name.lower(): (name, [-1, -1]) for name in NAMES}


class Model:
    optional_inputs = ALL
    outputs = {"fp32": ("FP32", [-1, -1])}

    def execute(self, requests):
        return [{"fp32": request["fp32"]} for request in requests]
"""
TALK = """\
class Model:
    def stream(self, request):
        yield {"text_output": "a"}
"""
PADDED = "[inputs.ids]\npad_axis = 1\n[inputs.mask]\npad_axis = 1\n[outputs.ids]\npad_axis = 1\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("abuse")
    for name, code in {"add": ADD, "text": TEXT, "kinds": KINDS, "talk": TALK}.items():
        put(root, f"models/{name}/1/model.py", code)
    put(root, "models/text/model.toml", PADDED)
    with running(root, CONFIG) as running_server:
        yield running_server


async def connect(server: Server) -> Client:
    at = urlsplit(server.address)
    return Client(*await asyncio.open_connection(at.hostname, at.port, limit=1 << 24))


async def ask(server: Server, data: bytes) -> Answer:
    client = await connect(server)
    client.send(data)
    answer = await client.answer()
    client.close()
    return answer


async def go_through(server: Server) -> list[str]:
    """What was answered otherwise than the table says."""
    wrong = []
    for case, (data, status, _) in EVERYTHING.items():
        answer = await ask(server, data)
        if answer.status != status:
            wrong.append(f"{case}: {answer}")
        good = await ask(server, message("POST", "/v2/models/add/infer", GOOD))
        assert good.status == 200 and good.json["outputs"][0]["data"] == [0.0, 1.0], (case, good)
    return wrong


def test_there_are_enough_of_them() -> None:
    assert len(EVERYTHING) >= 200


@in_a_loop
async def test_all_of_them_get_their_status_no_worker_dies_and_memory_is_flat(server: Server) -> None:
    workers = server.workers()
    assert await go_through(server) == []
    before = resident(server.process.pid)
    assert await go_through(server) == await go_through(server) == []
    assert resident(server.process.pid) - before < MAY_GROW
    assert server.workers() == workers and len(workers) == 4
    assert not any("Traceback" in line for line in server.printed)


@in_a_loop
async def test_slow_clients_by_the_hundred_are_told_so_while_others_are_served(server: Server) -> None:
    clients = [await connect(server) for _ in range(200)]
    for number, client in enumerate(clients):
        whole = message("POST", "/v2/models/add/infer", GOOD)
        client.send(whole[: 10 if number % 2 else len(whole) - 5])
    good = [await ask(server, message("POST", "/v2/models/add/infer", GOOD)) for _ in range(20)]
    assert [answer.status for answer in good] == [200] * 20
    assert [(await client.answer()).status for client in clients] == [408] * 200
    for client in clients:
        assert await client.closed()


@in_a_loop
async def test_connections_that_say_nothing_or_are_reset_leave_nothing_behind(server: Server) -> None:
    await ask(server, message("GET", "/health"))
    before = len(os.listdir(f"/proc/{server.process.pid}/fd"))
    for _ in range(300):
        client = await connect(server)
        client.send(message("POST", "/v2/models/add/infer", GOOD)[:100])
        client.writer.transport.abort()
    for _ in range(300):
        (await connect(server)).close()
    for _ in range(100):
        answer = await ask(server, message("GET", "/metrics", Connection="close"))
        if b"headway_http_connections 1.0" in answer.body:
            break
        await asyncio.sleep(0.05)
    assert b"headway_http_connections 1.0" in answer.body
    assert len(os.listdir(f"/proc/{server.process.pid}/fd")) <= before + 2


@in_a_loop
async def test_a_client_that_is_killed_in_a_pipeline_costs_no_more_than_what_it_had_in_work(server: Server) -> None:
    client = await connect(server)
    client.send(message("POST", "/v2/models/add/infer", GOOD) * 500)
    assert (await client.answer()).status == 200
    client.writer.transport.abort()
    assert (await within(ask(server, message("POST", "/v2/models/add/infer", GOOD)))).status == 200
