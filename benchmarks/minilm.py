"""MiniLM behind three batchers, measured in the same run: headway's, none, and first-come batches of 32.

Three real servers run beside each other, one compute thread each, and only one has load at a time:
in every round each of them in turn, so that a slow minute of the machine hits all. Closed loop,
texts with a lognormal length of median 44 and at most 256 tokens, the same texts for all.

    python benchmarks/minilm.py [--rounds 3] [--seconds 10] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import queue
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from headway.bench.bodies import embeddings_body, encode_request
from headway.bench.lengths import parse_lengths
from headway.bench.report import summarise
from headway.bench.run import Plan, run

MODEL = "all-MiniLM-L6-v2"
LENGTHS = "lognormal:44:256"
CONCURRENCIES = (1, 32)
TEXTS = 512
START_TIMEOUT_S = 60
PEERS = Path(__file__).parent / "peers"

HEADWAY = ["-c", "from headway.cli.main import main; main()"]
SERVERS: dict[str, tuple[list[str], int]] = {
    "headway": (HEADWAY, 32),
    "no batching": (HEADWAY, 1),
    "first-come 32": ([str(PEERS / "first_come.py")], 32),
}
"""Name -> how python starts it, and its cap in rows."""

CONFIG = """
[server]
threads = 1
models = {models}

[models."{model}".batching]
max_batch_size = {rows}

[models."{model}".warm_up]
rows = {warm_rows}
lengths = [8, 32, 128, 256]
"""


@contextmanager
def serving(name: str, models: Path, directory: Path) -> Iterator[str]:
    """A server of our own on a free port until the block ends: its address. RuntimeError if it does not come up."""
    start, rows = SERVERS[name]
    config = directory / f"{name.replace(' ', '-')}.toml"
    warm_rows = [size for size in (1, 2, 8) if size <= rows]
    config.write_text(
        CONFIG.format(models=json.dumps(str(models.resolve())), model=MODEL, rows=rows, warm_rows=warm_rows)
    )
    command = [sys.executable, *start, "serve", str(config), "--port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        yield address_of(name, process)
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def address_of(name: str, process: subprocess.Popen[str]) -> str:
    """The address that the server prints, once it answers; its output is read on, so that it never blocks."""
    said: list[str] = []
    found: queue.Queue[str] = queue.Queue()

    def read() -> None:
        assert process.stdout is not None
        for line in process.stdout:
            said.append(line)
            if address := re.search(r"http://127\.0\.0\.1:\d+", line):
                found.put(address[0])
        found.put("")

    threading.Thread(target=read, daemon=True).start()
    address = found.get(timeout=START_TIMEOUT_S)
    if not address or not is_ready(address):
        raise RuntimeError(f"{name} was not ready within {START_TIMEOUT_S} s; it said:\n{''.join(said)}")
    return address


def is_ready(address: str) -> bool:
    """Asks for an embedding until it gets one."""
    body = json.dumps({"model": MODEL, "input": "ready"}).encode()
    give_up_at = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < give_up_at:
        request = urllib.request.Request(f"{address}/v1/embeddings", body, {"content-type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=30):
                return True
        except OSError:
            time.sleep(0.2)
    return False


def texts(seed: int) -> list[bytes]:
    rng = random.Random(seed)
    length = parse_lengths(LENGTHS)
    return [embeddings_body(MODEL, length, 1, rng) for _ in range(TEXTS)]


def measure(address: str, concurrency: int, seconds: float, bodies: list[bytes]) -> dict[str, Any]:
    target = urlsplit(f"{address}/v1/embeddings")
    wires = [encode_request(target, body, ()) for body in bodies]
    plan = Plan(concurrency=concurrency, duration=seconds, warmup=min(2.0, seconds / 4))
    return summarise(run(plan, target.hostname or "", target.port or 80, wires))


def batching_so_far(address: str) -> tuple[float, float, float]:
    """(batches, real tokens, padded tokens) since the start."""
    with urllib.request.urlopen(f"{address}/metrics", timeout=10) as answer:
        page = answer.read().decode()
    return (
        _sum_of(page, "headway_batch_rows_count"),
        _sum_of(page, "headway_real_tokens_total"),
        _sum_of(page, "headway_padded_tokens_total"),
    )


def _sum_of(page: str, name: str) -> float:
    return sum(float(value) for value in re.findall(rf"^{name}(?:{{.*}})? (\S+)$", page, re.MULTILINE))


def one_load(address: str, concurrency: int, seconds: float, bodies: list[bytes]) -> dict[str, Any]:
    """The client's figures, with what the server says of its batches meanwhile."""
    before = batching_so_far(address)
    figures = measure(address, concurrency, seconds, bodies)
    batches, real, padded = (now - then for now, then in zip(batching_so_far(address), before, strict=True))
    figures["padding_share"] = round(1 - real / padded, 3) if padded else None
    figures["batches"] = batches
    return figures


def rounds(addresses: dict[str, str], count: int, seconds: float) -> list[dict[str, Any]]:
    """One row per round, concurrency and server, in the order in which they were measured."""
    rows = []
    for number in range(count):
        bodies = texts(number)
        for concurrency in CONCURRENCIES:
            for name in rotated(list(addresses), number):
                figures = one_load(addresses[name], concurrency, seconds, bodies)
                rows.append({"round": number, "server": name, "concurrency": concurrency, **figures})
                say(rows[-1])
    return rows


def rotated(names: list[str], by: int) -> list[str]:
    """Each round begins with another server."""
    by %= len(names)
    return names[by:] + names[:by]


def say(row: dict[str, Any]) -> None:
    latency = row["latency_ms"]
    print(
        f"round {row['round'] + 1}  {row['server']:<13}  concurrency {row['concurrency']:>2}  "
        f"{row['ok_per_s']:>7.1f}/s  p50 {latency.get('p50', 0):>7.1f}  p99 {latency.get('p99', 0):>7.1f} ms  "
        f"failed {row['failed']}  client CPU {row['client_cpu_cores']:.2f}",
        file=sys.stderr,
    )


def table(rows: list[dict[str, Any]]) -> str:
    """Medians over the rounds, as Markdown."""
    lines = [
        "| server | concurrency | answers/s | p50 ms | p95 ms | p99 ms | padding | failed |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for concurrency in CONCURRENCIES:
        for name in SERVERS:
            mine = [row for row in rows if row["server"] == name and row["concurrency"] == concurrency]
            per_s = statistics.median(row["ok_per_s"] for row in mine)
            quantiles = [statistics.median(row["latency_ms"].get(q, 0) for row in mine) for q in ("p50", "p95", "p99")]
            padding = statistics.median(row["padding_share"] or 0 for row in mine)
            cells = [name, f"{concurrency}", f"{per_s:.1f}", *(f"{q:.1f}" for q in quantiles), f"{padding:.0%}"]
            lines.append(f"| {' | '.join(cells)} | {sum(row['failed'] for row in mine)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", type=Path, default=Path(".headway/models"), help="repository with the model")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=10.0, help="measured, per server, concurrency and round")
    parser.add_argument("--json", type=Path, help="write every round here")
    wanted = parser.parse_args()
    if not (wanted.models / MODEL).is_dir():
        parser.error(f"{wanted.models} has no {MODEL}: run `make serve` once, it makes the model ready")
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        addresses = {name: stack.enter_context(serving(name, wanted.models, directory)) for name in SERVERS}
        rows = rounds(addresses, wanted.rounds, wanted.seconds)
    print(
        f"`python benchmarks/minilm.py --rounds {wanted.rounds} --seconds {wanted.seconds:g}`: medians of the rounds,"
    )
    print(f"closed loop, one compute thread, texts {LENGTHS} tokens\n")
    print(table(rows))
    if wanted.json is not None:
        wanted.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
