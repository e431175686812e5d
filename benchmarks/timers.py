"""How late a deadline fires while every worker is busy: the moment of a 504 beside the moment it was due.

    python benchmarks/timers.py [--quick] [--seconds 30] [--rate 100] [--workers 2] [--json FILE]

A real server whose workers run one long batch after the other, and requests that wait behind them with
deadlines of 20 to 400 ms, which all expire. Two kinds of long batch: one that sleeps, as a device lets the
processor do, and one that computes, with a worker for each core, so that the server has to share its core.

What is measured, by one clock (client and server are on the same host):

    decided   from the deadline (received + timeout) to the call of the scheduler that expires the request, as the
              server's own recording has it: the timer, the event loop, and whatever else the loop had to do
    answered  from the due moment (the client's sending + timeout) to the 504 read by the client: that, and
              reading and parsing the request, writing the reply, and the client's own event loop
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import tempfile
import time
from pathlib import Path
from random import Random
from typing import Any
from urllib.parse import urlsplit

import uvloop
from lab import servers
from lab.figures import markdown, quantiles_ms
from lab.recording import RECORDER, calls

from headway.bench import arrivals
from headway.bench.bodies import encode_request
from headway.bench.client import Client
from headway.bench.load import Load, OpenPacer, Shot, Window
from headway.core.effects import ResolveRequest
from headway.core.events import RequestArrived
from headway.core.outcomes import Outcome
from headway.core.units import MILLISECOND, SECOND, Instant

GOAL_MS = 5.0
PATH = "/v2/models/busy/infer"
SHORTEST_MS, LONGEST_MS = 20, 400
TIMEOUTS = 256
EXPIRED = "504 deadline_exceeded"

MODEL = """
import time

import numpy as np


class Model:
    inputs = {"x": ("FP32", [-1, 1])}
    outputs = {"y": ("FP32", [-1, 1])}

    def execute(self, requests):
        ends = time.monotonic() + 1.0
        computes = requests[0]["x"][0, 0] > 0
        while computes and time.monotonic() < ends:
            np.sqrt(np.arange(1000.0))
        time.sleep(max(0.0, ends - time.monotonic()))
        return [{"y": request["x"]} for request in requests]
"""

SETTINGS = """
instances = {workers}
threads = 1
cores = 0

[batching]
max_batch_size = 1

[warm_up]
enabled = false
"""


def body(computes: bool) -> bytes:
    x = {"name": "x", "shape": [1, 1], "datatype": "FP32", "data": [1.0 if computes else 0.0]}
    return json.dumps({"inputs": [x]}).encode()


def repository(root: Path, workers: int) -> Path:
    version = root / "models" / "busy" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL)
    (version.parent / "model.toml").write_text(SETTINGS.format(workers=workers))
    return root / "models"


class Timed(Load):
    """Notes when each 504 came beside when it was due. timeouts: of the requests in turn, in nanoseconds."""

    def __init__(self, rate: float, start: Instant, seconds: float, timeouts: list[int]) -> None:
        due = OpenPacer(arrivals.poisson(rate, start, Random(2)))
        super().__init__(due, Window(start, start, start + round(seconds * SECOND)))
        self.late: list[int] = []
        self._timeouts = timeouts

    def answered(self, shot: Shot, now: int, error: str | None, *rest: Any) -> None:
        super().answered(shot, now, error, *rest)
        if error == EXPIRED:
            self.late.append(now - (shot.sent + self._timeouts[shot.number % len(self._timeouts)]))


async def expire(address: str, computes: bool, rate: float, seconds: float, workers: int) -> Timed:
    """Occupies every worker for the whole time, with more waiting, and sends requests that will expire."""
    target = urlsplit(address + PATH)
    host, port = target.hostname or "", target.port or 80
    rng = Random(1)
    timeouts_ms = [rng.randint(SHORTEST_MS, LONGEST_MS) for _ in range(TIMEOUTS)]
    wires = [encode_request(target, body(computes), (f"x-request-timeout-ms: {ms}",)) for ms in timeouts_ms]
    loop = asyncio.get_running_loop()
    long = encode_request(target, body(computes), ())
    occupying = [loop.create_task(occupy(host, port, long)) for _ in range(3 * workers)]
    await asyncio.sleep(1.0)  # every worker has its first long batch by now, and the next ones wait
    client = Client(host, port, wires, timeout=60 * SECOND, connections=1024)
    await client.connect(64)
    load = Timed(rate, time.monotonic_ns(), seconds, [ms * MILLISECOND for ms in timeouts_ms])
    await client.run(load)
    for task in occupying:
        task.cancel()
    return load


async def occupy(host: str, port: int, wire: bytes) -> None:
    """One client that asks again as soon as it is answered."""
    reader, writer = await asyncio.open_connection(host, port)
    while True:
        writer.write(wire)
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(re.search(rb"content-length: (\d+)", head)[1])  # type: ignore[index]
        await reader.readexactly(length)


def decided_late(directory: Path) -> list[int]:
    """Nanoseconds between each deadline and the call that expired it, from the recording."""
    deadlines: dict[int, Instant] = {}
    late: list[int] = []
    for call in calls(directory):
        for event in call.events:
            if isinstance(event, RequestArrived):
                deadlines[event.request] = event.deadline
        for effect in call.effects:
            if isinstance(effect, ResolveRequest) and effect.outcome is Outcome.DEADLINE_EXCEEDED:
                late.append(call.now - deadlines[effect.request])
    return late


def measure(computes: bool, rate: float, seconds: float, workers: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        recordings = root / "recordings"
        config = f"[server]\nmodels = {json.dumps(str(repository(root, workers)))}\nshutdown_grace_s = 1\n"
        config += RECORDER.format(directory=json.dumps(str(recordings)))
        with servers.headway(config, root) as address:
            load = uvloop.run(expire(address, computes, rate, seconds, workers))
        decided = decided_late(recordings)
    return {
        "batches": "compute" if computes else "sleep",
        "expired": len(load.late),
        "others": {name: count for name, count in load.results.errors.items() if name != EXPIRED},
        "decided_ms": quantiles_ms(decided),
        "answered_ms": quantiles_ms(load.late),
    }


def table(rows: list[dict[str, Any]]) -> str:
    header = ["workers", "moment", "requests", "p50 ms", "p90 ms", "p99 ms", "max ms", f"p99 within {GOAL_MS:g} ms"]
    lines = []
    for row in rows:
        for moment in ("decided", "answered"):
            late = row[f"{moment}_ms"]
            figures = [f"{late[name]:.2f}" for name in ("p50", "p90", "p99", "max")]
            good = "yes" if late["p99"] <= GOAL_MS else "no"
            lines.append([row["batches"], moment, str(row["expired"]), *figures, good])
    return markdown(header, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=30.0, help="for each kind of batch (default 30)")
    parser.add_argument("--rate", type=float, default=100.0, help="requests per second that expire (default 100)")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1, help="default: one for each core")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="4 seconds each: does it run?")
    wanted = parser.parse_args()
    seconds = 4.0 if wanted.quick else wanted.seconds
    rows = [measure(computes, wanted.rate, seconds, wanted.workers) for computes in (False, True)]
    print(f"`python benchmarks/timers.py {' '.join(sys.argv[1:])}`: {wanted.rate:g} requests/s that expire,")
    print(f"{wanted.workers} workers, each busy all the time with batches of one second\n")
    print(table(rows))
    for row in rows:
        for error, count in row["others"].items():
            print(f"{row['batches']}: {count} x {error}, not counted above")
    if wanted.json is not None:
        wanted.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
