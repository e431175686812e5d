"""What a request costs beside its model: a 16 x 16 matrix product behind headway and behind mosec, in turns.

    python benchmarks/overhead.py [--rounds 3] [--seconds 5] [--servers NAME;NAME] [--json FILE]

Small JSON bodies over kept-alive connections; everything that headway has is on (checks, limits, deadlines,
fairness, metrics). Load comes from `wrk` (Debian has it) on the same cores: a client in Python would be the
bottleneck. All servers run beside each other and one at a time has load; the table has medians over the rounds.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from lab import servers
from lab.environments import PEERS, python_of
from lab.figures import markdown

WIDTH = 16
ROUTE = "/v2/models/matmul/infer"
BODY = json.dumps(
    {"inputs": [{"name": "x", "datatype": "FP32", "shape": [1, WIDTH], "data": [i / 4 for i in range(WIDTH)]}]}
)
CONNECTIONS = (1, 8, 64)
SERVERS = "headway;mosec, batch 1;mosec, batch 64"

MODEL = f"""
import numpy as np


class Model:
    inputs = {{"x": ("FP32", [-1, {WIDTH}])}}
    outputs = {{"y": ("FP32", [-1, {WIDTH}])}}

    def load(self, context):
        self.weights = np.eye({WIDTH}, dtype=np.float32)

    def execute(self, requests):
        product = np.concatenate([request["x"] for request in requests]) @ self.weights
        return [{{"y": product[row : row + 1]}} for row in range(len(requests))]
"""

CONFIG = """
[server]
models = "models"

[models.matmul.batching]
max_batch_size = 64
"""


@dataclass(frozen=True)
class Run:
    """p50_ms: of the client's latencies.  failed: replies that were not 2xx, and socket errors."""

    server: str
    connections: int
    per_s: float
    p50_ms: float
    failed: int


@contextmanager
def headway(directory: Path) -> Iterator[str]:
    version = directory / "models" / "matmul" / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "model.py").write_text(MODEL)
    with servers.headway(CONFIG, directory) as url:
        yield url


@contextmanager
def mosec(rows: int) -> Iterator[str]:
    port = servers.free_port()
    command = [python_of("mosec"), str(PEERS / "mosec_matmul.py"), "--port", str(port), "--rows", str(rows)]
    with servers.process(f"mosec {rows}", command) as server:
        url = f"http://127.0.0.1:{port}"
        server.wait_until_answers(url + ROUTE, BODY.encode())
        yield url


def choices(directory: Path) -> dict[str, AbstractContextManager[str]]:
    return {
        "headway": headway(directory),
        "mosec, batch 1": mosec(1),
        "mosec, batch 64": mosec(64),
    }


def load(script: Path, server: str, url: str, connections: int, seconds: float) -> Run:
    """One thread of wrk: more would take cores from the server."""
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds:g}s", "--latency", "-s", str(script), url + ROUTE]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return Run(server, connections, *parse(said))


def parse(said: str) -> tuple[float, float, int]:
    """Requests per second, median latency in ms, replies that failed: of what wrk prints."""
    rate = re.search(r"Requests/sec:\s*([\d.]+)", said)
    half = re.search(r"50%\s+([\d.]+)(us|ms|s)", said)
    if rate is None or half is None:
        raise RuntimeError(f"wrk said:\n{said}")
    bad = re.search(r"Non-2xx or 3xx responses: (\d+)", said)
    errors = re.search(r"Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)", said)
    failed = (int(bad[1]) if bad else 0) + (sum(map(int, errors.groups())) if errors else 0)
    return float(rate[1]), float(half[1]) * {"us": 1e-3, "ms": 1, "s": 1e3}[half[2]], failed


def measure(wanted: list[str], rounds: int, seconds: float) -> list[Run]:
    runs: list[Run] = []
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        script = directory / "post.lua"
        script.write_text(
            f'wrk.method = "POST"\nwrk.body = \'{BODY}\'\nwrk.headers["Content-Type"] = "application/json"\n'
        )
        there = choices(directory)
        urls = {name: stack.enter_context(there[name]) for name in wanted}
        for name, url in urls.items():
            load(script, name, url, 8, 1)
        for turn in range(rounds):
            for connections in CONNECTIONS:
                for name in wanted if turn % 2 == 0 else wanted[::-1]:
                    runs.append(load(script, name, urls[name], connections, seconds))
    return runs


def table(runs: list[Run]) -> str:
    rows = []
    for name in dict.fromkeys(run.server for run in runs):
        row = [name]
        for connections in CONNECTIONS:
            of = [run for run in runs if run.server == name and run.connections == connections]
            row += [f"{median(run.p50_ms for run in of):.2f}", f"{median(run.per_s for run in of):,.0f}"]
        rows.append([*row, str(sum(run.failed for run in runs if run.server == name))])
    head = [""] + [f"{what} at {count}" for count in CONNECTIONS for what in ("p50 ms", "per s")] + ["failed"]
    return markdown(head, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument(
        "--servers", default="headway;mosec, batch 1;mosec, batch 64", help="names with ';' between them"
    )
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    if shutil.which("wrk") is None:
        print("overhead: there is no wrk; on Debian: apt install wrk", file=sys.stderr)
        return
    runs = measure(options.servers.split(";"), options.rounds, options.seconds)
    print(table(runs))
    if options.json:
        options.json.write_text(json.dumps([asdict(run) for run in runs], indent=2) + "\n")


if __name__ == "__main__":
    main()
