"""A language model over HTTP: tokens/s, time to the first token and between tokens, at 1, 8 and 32 clients.

Streamed completions of 64 tokens after prompts of about 126 that differ from the first token on. headway runs
SmolLM2-135M in bfloat16 and with its four-bit weights; with `--llama PYTHON`, an interpreter that has
`llama-cpp-python[server]`, its server runs the same file. They take turns, one at a time and round by round, so that
what else the machine does hits all alike; what is told is the median of the rounds.

    python benchmarks/served_tokens.py --rounds 3 --llama /path/to/venv/bin/python
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from headway.registry import smollm2

TOKENS = 64
WORDS = ("time", "year", "people", "way", "day", "man", "thing", "woman", "life", "child", "world", "school", "state")
END = {"2": -100}
"""Tokens that end an answer are never drawn: each has as many as it may."""


class Round(NamedTuple):
    """Of one load. rate: tokens/s.  first, p50, p99: ms."""

    rate: float
    first: float
    p50: float
    p99: float


def prompt(rng: random.Random) -> str:
    return " ".join([str(rng.randrange(10_000)), *(rng.choice(WORDS) for _ in range(118))])


async def ask(port: int, text: str) -> tuple[float, list[float]]:
    """When it was sent, and when each token came."""
    body = {"model": "smollm2", "prompt": text, "max_tokens": TOKENS, "temperature": 0, "stream": True}
    data = json.dumps({**body, "logit_bias": END}).encode()
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    head = (
        f"POST /v1/completions HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: {len(data)}\r\n"
    )
    sent = time.perf_counter()
    writer.write(head.encode() + b"connection: close\r\n\r\n" + data)
    came: list[float] = []
    while line := await reader.readline():
        if line.startswith(b"data: {"):
            chunk = json.loads(line[6:])
            if "error" in chunk:
                raise SystemExit(f"the server says {chunk}")
            if chunk["choices"] and chunk["choices"][0].get("finish_reason") is None:
                came.append(time.perf_counter())
    writer.close()
    if not came:
        raise SystemExit("a reply without tokens")
    return sent, came


async def load(port: int, clients: int, rng: random.Random) -> Round:
    """Each client asks twice, one after the other."""
    begun = time.perf_counter()

    async def client(texts: list[str]) -> list[tuple[float, list[float]]]:
        return [await ask(port, text) for text in texts]

    prompts = [[prompt(rng) for _ in range(2)] for _ in range(clients)]
    replies = [reply for told in await asyncio.gather(*map(client, prompts)) for reply in told]
    elapsed = time.perf_counter() - begun
    firsts = [1e3 * (came[0] - sent) for sent, came in replies]
    gaps = sorted(1e3 * (after - before) for _, came in replies for before, after in pairwise(came))
    return Round(
        TOKENS * len(replies) / elapsed,  # a chunk may have several: all were asked for
        statistics.median(firsts),
        gaps[len(gaps) // 2],
        gaps[int(len(gaps) * 0.99)],
    )


@contextmanager
def server(command: list[str], port: int) -> Iterator[None]:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        for _ in range(1200):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/v1/models", timeout=5):
                    break
            except OSError:
                time.sleep(0.1)
                if process.poll() is not None:
                    raise SystemExit(f"{' '.join(command)} has ended") from None
        asyncio.run(wait_ready(port))
        yield
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


async def wait_ready(port: int) -> None:
    for _ in range(600):
        try:
            await ask(port, "warm up")
            return
        except (SystemExit, OSError, ValueError):
            await asyncio.sleep(0.2)
    raise SystemExit("the server does not answer")


def headway(folder: Path, source: Path, quantised: bool, port: int) -> list[str]:
    repository = folder / ("q4" if quantised else "bf16")
    smollm2.prepare(repository, source)
    manifest = repository / "smollm2" / "model.toml"
    if "[language]" not in manifest.read_text():
        manifest.write_text(f"{manifest.read_text()}[language]\nquantised = {str(quantised).lower()}\n")
    config = folder / f"{repository.name}.toml"
    config.write_text(f'[server]\nport = {port}\nmodels = "{repository}"\n')
    return [str(Path(sys.executable).parent / "headway"), "serve", str(config)]


def llama(python: str, source: Path, port: int) -> list[str]:
    threads = str(len(os.sched_getaffinity(0)))
    options = ["--n_ctx", "4096", "--n_threads", threads, "--n_threads_batch", threads, "--port", str(port)]
    return [python, "-m", "llama_cpp.server", "--model", str(source), "--model_alias", "smollm2", *options]


def free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 32])
    parser.add_argument("--llama", default="", help="an interpreter that has llama-cpp-python[server]")
    arguments = parser.parse_args()
    source = smollm2.find_source()
    if source is None:
        raise SystemExit("the default language model is not installed; `make serve` installs it")
    rng = random.Random(1)
    rounds: dict[tuple[str, int], list[Round]] = {}
    with tempfile.TemporaryDirectory() as temporary:
        for _ in range(arguments.rounds):
            port = free_port()
            servers = {
                "headway, Q4_1": headway(Path(temporary), source, True, port),
                "headway, bfloat16": headway(Path(temporary), source, False, port),
            }
            if arguments.llama:
                servers["llama-cpp-python, Q4_1"] = llama(arguments.llama, source, port)
            for name, command in servers.items():
                with server(command, port):
                    for clients in arguments.clients:
                        rounds.setdefault((name, clients), []).append(asyncio.run(load(port, clients, rng)))
    print(f"{'':24}{'clients':>8}{'tokens/s':>10}{'first ms':>10}{'p50 ms':>8}{'p99 ms':>8}")
    for (name, clients), told in rounds.items():
        rate, first, p50, p99 = (statistics.median(values) for values in zip(*told, strict=True))
        print(f"{name:24}{clients:8}{rate:10.0f}{first:10.0f}{p50:8.1f}{p99:8.1f}")


if __name__ == "__main__":
    main()
