"""Several loads at once, sent by a process of its own: `python benchmarks/lab/streams.py`.

It reads an order (JSON, one line), connects, says "ready", reads the moment at which to start (monotonic nanoseconds),
and prints what came of every request when all is over. Clocks of processes on one machine agree.
"""

from __future__ import annotations

import asyncio
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import repeat
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from urllib.parse import SplitResult, urlsplit

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from headway.bench import arrivals
from headway.bench.bodies import encode_request
from headway.bench.client import Client
from headway.bench.load import NEVER, ClosedPacer, Load, OpenPacer, Pacer, Shot, Window
from lab.loads import ROUTE, texts

SECOND = 1_000_000_000
TEXTS = 1024
AT_FIRST = 32
"""Connections that an open loop begins with."""
GRACE_S = 10.0
"""An open loop waits so long for its last answers."""


@dataclass(frozen=True)
class Stream:
    """One load, by what is not 0: `concurrency` users in a closed loop, `rate` Poisson arrivals a second, `pulse` even
    ones, or `burst` at once every `every_s`.

    key: whose it is; "" = nobody's.  path: asked with GET; "" = texts to embed, by POST.
    goes_on_s: beyond the end of the measured window, lest the others gain by its end.
    """

    name: str
    key: str = ""
    concurrency: int = 0
    rate: float = 0.0
    pulse: float = 0.0
    burst: int = 0
    every_s: float = 0.0
    path: str = ""
    seed: int = 0
    goes_on_s: float = 0.0

    def pacer(self, start: int) -> Pacer:
        if self.concurrency:
            return ClosedPacer(self.concurrency)
        if self.rate:
            return OpenPacer(arrivals.poisson(self.rate, start, Random(self.seed)))
        if self.pulse:
            return OpenPacer(arrivals.constant(self.pulse, start))
        return OpenPacer(bursts(self.burst, self.every_s, start))


class Answer(NamedTuple):
    """Nanoseconds of one clock.  sent: -1 = it never was.  error: "" of a 2xx.  tokens: of its text."""

    due: int
    sent: int
    ended: int
    error: str
    tokens: int


@dataclass(frozen=True)
class Times:
    """start: of the load.  begin, end: of what is measured. All in nanoseconds."""

    start: int
    begin: int
    end: int


def bursts(count: int, every_s: float, start: int) -> Iterator[int]:
    """The first after one period."""
    at = start
    while True:
        at += round(every_s * SECOND)
        yield from repeat(at, count)


# -- in the process that sends -------------------------------------------------------------------------


class Kept(Load):
    """Keeps what came of every request.  A closed loop ends with its window: what it has under way is given up."""

    def __init__(self, stream: Stream, times: Times, lengths: Sequence[int]) -> None:
        end = times.end + round(stream.goes_on_s * SECOND)
        super().__init__(stream.pacer(times.start), Window(times.start, times.begin, end))
        self.answers: list[Answer] = []
        self._lengths = lengths
        self._cut = end + (0 if stream.concurrency else round(GRACE_S * SECOND))
        self._closed = False

    def is_over(self, now: int) -> bool:
        self._closed = now >= self._cut or super().is_over(now)
        return self._closed

    def answered(self, shot: Shot, now: int, error: str | None, body: bytes = b"") -> None:
        super().answered(shot, now, error, body)
        if not self._closed:
            tokens = self._lengths[shot.number % len(self._lengths)]
            self.answers.append(Answer(shot.intended, shot.sent, now, error or "", tokens))

    def wake_at(self, now: int) -> int:
        return NEVER if self._closed else super().wake_at(now)


class Sender:
    """One stream over its own connections."""

    def __init__(self, target: SplitResult, stream: Stream) -> None:
        given = texts(TEXTS, 0)  # the same for all, so that equal shares are equal numbers
        self.stream = stream
        self.lengths = [0] if stream.path else given.lengths
        wires = list(encoded(target, stream, given.bodies))
        host, port = target.hostname or "", target.port or 80
        self._client = Client(host, port, wires, timeout=600 * SECOND, connections=stream.concurrency or 4096)

    async def connect(self) -> None:
        stream = self.stream
        await self._client.connect(stream.concurrency or stream.burst or (1 if stream.path else AT_FIRST))

    async def run(self, times: Times) -> list[Answer]:
        load = Kept(self.stream, times, self.lengths)
        await asyncio.sleep(max(0, times.start - time.monotonic_ns()) / SECOND)
        await self._client.run(load)
        return load.answers


def encoded(target: SplitResult, stream: Stream, bodies: Sequence[bytes]) -> Iterator[bytes]:
    headers = [f"Authorization: Bearer {stream.key}"] if stream.key else []
    if stream.path:
        yield "\r\n".join([f"GET {stream.path} HTTP/1.1", f"Host: {target.netloc}", *headers, "", ""]).encode()
        return
    for body in bodies:
        yield encode_request(target, body, headers)


async def send(order: dict[str, Any]) -> dict[str, list[Answer]]:
    target = urlsplit(order["address"] + ROUTE)
    senders = [Sender(target, Stream(**stream)) for stream in order["streams"]]
    for sender in senders:
        await sender.connect()
    gc.collect()
    gc.freeze()
    print("ready", flush=True)
    times = Times(*json.loads(sys.stdin.readline()))
    answers = await asyncio.gather(*(sender.run(times) for sender in senders))
    return {sender.stream.name: found for sender, found in zip(senders, answers, strict=True)}


# -- in the process that measures ----------------------------------------------------------------------


class Sending:
    """A process that sends these streams. Raises RuntimeError where it has ended."""

    def __init__(self, address: str, streams: Iterable[Stream]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._tell({"address": address, "streams": [asdict(stream) for stream in streams]})

    @property
    def pid(self) -> int:
        return self._process.pid

    def wait_until_ready(self) -> None:
        self._listen()

    def start(self, times: Times) -> None:
        self._tell([times.start, times.begin, times.end])

    def answers(self) -> dict[str, list[Answer]]:
        found = json.loads(self._listen())
        return {name: [Answer(*answer) for answer in answers] for name, answers in found.items()}

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()

    def _tell(self, what: object) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(what) + "\n")
        self._process.stdin.flush()

    def _listen(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"lab/streams.py ended with code {self._process.wait()}; its error is printed above")
        return line


def main() -> None:
    import uvloop

    print(json.dumps(uvloop.run(send(json.loads(sys.stdin.readline())))), flush=True)


if __name__ == "__main__":
    main()
