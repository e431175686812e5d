"""A disk that is full takes the log, or the recording, and nothing else."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.chaos.disk import LogDisk
from tests.chaos.models import INSTANCES, TINY, put_model
from tests.chaos.patience import eventually
from tests.chaos.server import CONFIG, ChaosServer
from tests.e2e.server import Server, put

pytestmark = pytest.mark.e2e

FULL = Path("/dev/full")
PATIENCE_S = 60
BODY = {"inputs": [{"name": "x", "datatype": "INT64", "shape": [1, 4], "data": [1, 0, 0, 0]}]}


def asked(path: Path) -> int:
    """The status of an answer through a unix socket, 0 = there is none."""
    body = json.dumps(BODY)
    head = f"POST /v2/models/tiny/infer HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    with socket.socket(socket.AF_UNIX) as line:
        try:
            line.connect(str(path))
        except OSError:
            return 0
        line.sendall((head + body).encode())
        said = line.makefile("rb").read()
    return int(said.split()[1])


class Mute(Server):
    """Of what it prints nothing is heard."""

    def _lines(self) -> Iterator[str]:
        return iter(())


@pytest.mark.skipif(not FULL.exists(), reason="this system has no /dev/full, a disk that is always full")
def test_a_server_whose_log_cannot_be_written_starts_serves_and_ends_as_it_should(tmp_path: Path) -> None:
    put_model(tmp_path, "tiny", TINY)
    with FULL.open("w") as full:
        server = Mute("--models", "models", "--unix-socket", "s", cwd=tmp_path, output=full.fileno())
    try:
        asyncio.run(loses_a_worker_and_serves(server, tmp_path / "s"))
        server.stop()
    finally:
        server.process.kill()


async def loses_a_worker_and_serves(server: Server, path: Path) -> None:
    async def served() -> bool:
        return asked(path) == 200

    async def both() -> bool:
        return len(set(server.workers()) - {killed}) == INSTANCES

    assert await eventually(served, PATIENCE_S)
    killed = server.workers()[0]
    os.kill(killed, signal.SIGKILL)
    assert await eventually(both, PATIENCE_S)
    assert await eventually(served, PATIENCE_S)


def test_a_recording_that_finds_no_room_ends_and_the_server_does_not(tmp_path: Path) -> None:
    put_model(tmp_path, "tiny", TINY)
    put(tmp_path, "headway.toml", CONFIG)
    server = ChaosServer(tmp_path)
    try:
        server.until_serving()
        answer = server.request("POST", "/v2/models/tiny/infer", BODY)
        for pid in (server.process.pid, *server.workers()):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (1, 1))
        assert [server.request("POST", "/v2/models/tiny/infer", BODY) for _ in range(20)] == [answer] * 20

        async def off() -> bool:
            return "headway_recorder_failures_total 1.0" in server.request("GET", "/metrics")[1]

        assert asyncio.run(eventually(off, PATIENCE_S))
        assert server.request("POST", "/v2/models/tiny/infer", BODY) == answer
        server.stop()
    finally:
        server.clean_up()
    assert server.recording.stat().st_size > 1


def test_a_log_disk_that_is_full_takes_nothing_until_it_is_free(tmp_path: Path) -> None:
    disk = LogDisk(tmp_path / "log")
    lines = disk.lines(lambda: False)
    os.write(disk.fd, b"before\n")
    assert next(lines) == "before"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    disk.fill()
    child = os.fork()
    if not child:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        disk.limit(os.getpid())
        try:
            os.write(disk.fd, b"lost\n")
        except OSError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    disk.free()
    os.write(disk.fd, b"after\n")
    assert next(lines) == "after"
    assert resource.getrlimit(resource.RLIMIT_FSIZE) == before
    disk.close()
