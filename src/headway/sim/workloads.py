"""What clients send and when: arrival processes, lengths, tenants, and files of real traffic."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from math import log
from pathlib import Path
from random import Random
from typing import NamedTuple

from headway.core.ids import BatchKey, Part, Tenant
from headway.core.units import MILLISECOND, NEVER, SECOND, Duration, Instant

MEDIAN_LENGTH = 44
MAX_LENGTH = 256
TRACE_TOKENS_PER_TOKEN = 8
"""Traces of chat services have prompts of thousands of tokens; an encoder's requests are an eighth of that."""


@dataclass(slots=True)
class Arrival:
    """One request as its client sees it.

    at: when it is sent. patience: from then to its deadline (NEVER: none).
    outputs: results of a sequence. content: what its inputs hash to (0: not known).
    cancel_after: when the client goes away (NEVER: it stays).
    prefix: what beginnings of its prompt hash to, as (tokens, hash), the longest last.
    """

    at: Instant
    key: BatchKey
    parts: tuple[Part, ...]
    tenant: Tenant = "default"
    priority: int = 1
    patience: Duration = NEVER
    bytes: int = 0
    outputs: int = 1
    content: int = 0
    cancel_after: Duration = NEVER
    prefix: tuple[tuple[int, int], ...] = ()

    @property
    def deadline(self) -> Instant:
        return NEVER if self.patience == NEVER else self.at + self.patience


# -- gaps between arrivals: endless, in nanoseconds -----------------------------------------------


def poisson(rng: Random, rate: float) -> Iterator[Duration]:
    """Independent arrivals, `rate` per second."""
    while True:
        yield round(rng.expovariate(rate) * SECOND)


def bursty(rng: Random, rate: float, cv: float) -> Iterator[Duration]:
    """Gamma-distributed gaps with this coefficient of variation; 1 is Poisson, 4 comes in clumps."""
    shape = 1 / cv**2
    while True:
        yield round(rng.gammavariate(shape, 1 / (rate * shape)) * SECOND)


def on_off(rng: Random, rate: float, on: Duration, off: Duration) -> Iterator[Duration]:
    """Poisson bursts of mean duration `on` between silences of mean duration `off`; `rate` is the mean."""
    busy_rate = rate * (on + off) / on
    left = rng.expovariate(1 / on)
    while True:
        gap = rng.expovariate(busy_rate) * SECOND
        pause = 0.0
        while gap > left:
            gap -= left
            pause += left + rng.expovariate(1 / off)
            left = rng.expovariate(1 / on)
        left -= gap
        yield round(pause + gap)


# -- what is in a request -----------------------------------------------------------------------------


def lognormal_length(rng: Random, median: int = MEDIAN_LENGTH, sigma: float = 0.8, longest: int = MAX_LENGTH) -> int:
    return min(longest, max(1, round(rng.lognormvariate(log(median), sigma))))


@dataclass(frozen=True, slots=True)
class Mix:
    """What requests are made of: keys and tenants by weight, parts, time allowed."""

    keys: tuple[BatchKey, ...]
    tenants: tuple[tuple[Tenant, float], ...] = (("default", 1.0),)
    patience: Duration = NEVER
    max_parts: int = 1

    def arrival(self, rng: Random, at: Instant, length: int | None = None, outputs: int = 1) -> Arrival:
        """length: of its rows; None draws one for each part."""
        names = [name for name, _ in self.tenants]
        tenant = rng.choices(names, [share for _, share in self.tenants])[0] if len(names) > 1 else names[0]
        key = self.keys[0] if len(self.keys) == 1 else rng.choice(self.keys)
        count = 1 if self.max_parts == 1 else rng.randint(1, self.max_parts)
        parts = tuple(Part(1, length or lognormal_length(rng)) for _ in range(count))
        return Arrival(at, key, parts, tenant, patience=self.patience, outputs=outputs)


def open_loop(rng: Random, gaps: Iterable[Duration], mix: Mix, count: int) -> Iterator[Arrival]:
    """`count` arrivals that do not care how the server fares."""
    at = 0
    for _, gap in zip(range(count), gaps, strict=False):
        at += gap
        yield mix.arrival(rng, at)


# -- files of real traffic ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TracedRequest:
    at: Instant
    length: int
    outputs: int


class TraceRow(NamedTuple):
    """prompt, outputs: tokens.  hashes: of the blocks of HASHED tokens of the prompt, equal
    where all tokens up to there are."""

    at: Instant
    prompt: int
    outputs: int
    hashes: tuple[int, ...] = ()


HASHED = 512


def read_rows(path: Path) -> Iterator[TraceRow]:
    """Rows of an Azure LLM trace (.csv) or a Mooncake trace (.jsonl), times counted from the first.

    Raises ValueError for a file of another kind, and for a row that does not parse.
    """
    readers = {".csv": _azure_row, ".jsonl": _mooncake_row}
    if path.suffix not in readers:
        raise ValueError(f"{path}: expected a trace that ends in .csv (Azure) or .jsonl (Mooncake)")
    read = readers[path.suffix]
    first: Instant | None = None
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip() or line.startswith("TIMESTAMP"):
                continue
            try:
                row = read(line)
            except (ValueError, KeyError) as error:
                raise ValueError(f"{path}:{number}: not a row of a trace: {error}") from error
            first = row.at if first is None else first
            yield row._replace(at=row.at - first)


def read_trace(path: Path) -> Iterator[TracedRequest]:
    """Rows of a trace as requests to an encoder. Raises as `read_rows` does."""
    for row in read_rows(path):
        yield TracedRequest(row.at, min(MAX_LENGTH, max(1, row.prompt // TRACE_TOKENS_PER_TOKEN)), row.outputs)


def traced(rng: Random, requests: Iterable[TracedRequest], mix: Mix, speed: float = 1.0) -> Iterator[Arrival]:
    """The trace's times and lengths, with the mix's keys and tenants. speed 10 plays an hour in six minutes."""
    for request in requests:
        yield mix.arrival(rng, round(request.at / speed), request.length, request.outputs)


def _azure_row(line: str) -> TraceRow:
    stamp, prompt, outputs = line.strip().split(",")
    whole, _, fraction = stamp.partition(".")
    since_midnight = datetime.fromisoformat(whole) - datetime(2000, 1, 1)
    at = round(since_midnight.total_seconds()) * SECOND + int(fraction.ljust(9, "0")[:9])
    return TraceRow(at, int(prompt), int(outputs))


def _mooncake_row(line: str) -> TraceRow:
    row = json.loads(line)
    at = int(row["timestamp"]) * MILLISECOND
    return TraceRow(at, int(row["input_length"]), int(row["output_length"]), tuple(row["hash_ids"]))
