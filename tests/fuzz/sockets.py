"""Spoiled requests over raw sockets to a real server with real workers: `make fuzz`.

Each connection must get right replies, each a 2xx or a 4xx (or one of few 5xx that are no fault of the server's), and
then a clean end, in bounded time. The next good request must be answered right, no worker may die, and the server's
memory must not grow with the connections.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import socket
import struct
import sys
import tempfile
from collections import Counter
from pathlib import Path
from urllib.parse import urlsplit

from tests.e2e.server import Server, served
from tests.fuzz.mutations import BODY, PATH, pieces, post, spoiled
from tests.fuzz.replies import Malformed, replies
from tests.models import affine

PATIENCE_S = 15
AT_ONCE = 16
GOOD_EVERY = 50
WARM_UP = 0.3
"""Share of the connections after which memory is measured for the first time."""
MAY_GROW = 16 << 20
"""Bytes, from there to the end."""
ALLOWED = {501, 503, 505}
CONFIG = """\
[server]
trusted_proxies = ["10.0.0.0/8"]
cors_origins = ["https://a.example"]
compress_replies_kb = 1

[limits]
max_body_mb = 0.05
max_header_kb = 8
header_timeout_s = 1
body_timeout_s = 1
idle_timeout_s = 1
"""
COUNTER = """\
class Model:
    def stream(self, request):
        count = request.get("count")
        for number in range(min(count, 10) if type(count) is int else 0):
            yield {"text_output": str(number)}
"""


class Failure(Exception):
    """What went wrong, and how to see it again."""


async def one(host: str, port: int, number: int, seed: int, statuses: Counter[str]) -> None:
    rng = random.Random(f"{seed}/{number}")
    data = spoiled(rng)
    try:
        received = await asyncio.wait_for(exchange(host, port, data, rng), PATIENCE_S)
        seen = [reply.status for reply in replies(received)] if received is not None else []
    except TimeoutError:
        raise Failure(f"connection {number} of seed {seed} did not end: {data!r}") from None
    except Malformed as error:
        raise Failure(f"connection {number} of seed {seed}: {error}; sent {data!r}") from None
    for status in seen:
        if not (200 <= status < 300 or 400 <= status < 500 or status in ALLOWED):
            raise Failure(f"connection {number} of seed {seed}: status {status} to {data!r}")
    statuses.update(map(str, seen or ["nothing"]))


async def exchange(host: str, port: int, data: bytes, rng: random.Random) -> bytes | None:
    """All that came until the end; None where the client left first."""
    reader, writer = await asyncio.open_connection(host, port)
    ending = rng.choice(["half", "half", "half", "wait", "close", "reset"])
    try:
        for piece in pieces(data, rng):
            writer.write(piece)
            await asyncio.sleep(0)
        if ending == "half":
            writer.write_eof()
        elif ending == "reset":
            connection: socket.socket = writer.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        if ending in ("close", "reset"):
            return None
        return await reader.read()
    except OSError:
        return None  # the server closed what still sent; what it said before was seen by other connections
    finally:
        writer.close()


async def good(host: str, port: int) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    writer.write(post(PATH, BODY, "Connection: close"))
    (reply,) = replies(await asyncio.wait_for(reader.read(), PATIENCE_S))
    writer.close()
    if reply.status != 200 or b"[3.0,5.0,7.0,9.0]" not in reply.body:
        raise Failure(f"a good request was answered by {reply}")


async def some(host: str, port: int, numbers: range, seed: int, statuses: Counter[str]) -> None:
    left = iter(numbers)

    async def work() -> None:
        for number in left:
            await one(host, port, number, seed, statuses)
            if number % GOOD_EVERY == 0:
                await good(host, port)

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(work())


def resident(pid: int) -> int:
    """Bytes of memory that a process has."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def fuzz(root: Path, connections: int, seed: int) -> str:
    """What came of it, in a line. Raises Failure (in an ExceptionGroup)."""
    affine(root / "models" / "affine" / "1")
    (root / "models" / "counter" / "1").mkdir(parents=True)
    (root / "models" / "counter" / "1" / "model.py").write_text(COUNTER)
    (root / "headway.toml").write_text(CONFIG)
    with served(root / "headway.toml", "--port", "0", cwd=root) as server:
        server.until_serving()
        return against(server, connections, seed)


def against(server: Server, connections: int, seed: int) -> str:
    host, port = urlsplit(server.address).hostname or "", urlsplit(server.address).port or 0
    workers, statuses, first = server.workers(), Counter[str](), int(connections * WARM_UP)
    asyncio.run(some(host, port, range(first), seed, statuses))
    before = resident(server.process.pid)
    asyncio.run(some(host, port, range(first, connections), seed, statuses))
    asyncio.run(good(host, port))
    grown = resident(server.process.pid) - before
    if server.workers() != workers:
        raise Failure(f"workers {workers} became {server.workers()}")
    if grown > MAY_GROW:
        raise Failure(f"memory grew by {grown} bytes over {connections - first} connections")
    complaints = [line for line in server.printed if "Traceback" in line or " error " in line]
    if complaints:
        raise Failure("the log complains:\n" + "\n".join(server.printed[-60:]))
    server.stop()
    return f"{connections} connections, seed {seed}: {dict(sorted(statuses.items()))}, memory {grown / 2**20:+.1f} MiB"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--connections", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        try:
            print(fuzz(Path(folder), given.connections, given.seed))
        except* Failure as group:
            print(*group.exceptions, sep="\n", file=sys.stderr)
            sys.exit(1)


if __name__ == "__main__":
    main()
