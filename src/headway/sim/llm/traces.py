"""Traces of real traffic as requests to a language model.

Azure's have times and lengths, and prompts that share nothing. Mooncake's have a hash for each 512 tokens of a prompt:
equal hashes become equal tokens, and so the prefix cache finds what it would have found.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random

from headway.core.ids import Tenant
from headway.core.units import SECOND
from headway.sim.llm.arrivals import Arrival, Piece
from headway.sim.workloads import HASHED, TraceRow, read_rows

MAX_TOKENS = 2048
"""That requests ask for: traces say only how many they got, which nobody knows beforehand."""
_ALONE = 1 << 43
"""Keys of pieces that nobody shares begin here."""


def read(
    path: Path,
    tenants: Sequence[tuple[Tenant, float]] = (("default", 1.0),),
    seed: int = 1,
    max_tokens: int = MAX_TOKENS,
) -> Iterator[Arrival]:
    """In the order of time. tenants: with their parts of the requests, which are dealt out at random; but prompts that
    are alike beyond the first block, which many share, are one conversation, and all of one tenant.
    ValueError as `read_rows`."""
    rng = Random(f"{seed} tenants")
    names = [name for name, _ in tenants]
    parts = [part for _, part in tenants]
    conversations: dict[int, Tenant] = {}
    for number, row in enumerate(read_rows(path)):
        tenant = rng.choices(names, parts)[0] if len(names) > 1 else names[0]
        if len(row.hashes) > 1:
            tenant = conversations.setdefault(row.hashes[1], tenant)
        yield Arrival(row.at, _pieces(row, number), max(1, row.outputs), max_tokens, tenant)


def _pieces(row: TraceRow, number: int) -> tuple[Piece, ...]:
    left = max(1, row.prompt)
    pieces: list[Piece] = []
    for hash in row.hashes:
        count = min(HASHED, left)
        if count:
            pieces.append(Piece(hash, count))
            left -= count
    if left:
        pieces.append(Piece(_ALONE + number, left))
    return tuple(pieces)


def paced(arrivals: Iterable[Arrival], speed: float) -> Iterator[Arrival]:
    """So many times as fast."""
    for arrival in arrivals:
        yield replace(arrival, at=round(arrival.at / speed))


def rate(arrivals: Sequence[Arrival]) -> float:
    """Requests a second, on average; ValueError where there are not two moments."""
    lasted = arrivals[-1].at - arrivals[0].at if arrivals else 0
    if lasted <= 0:
        raise ValueError(f"{len(arrivals)} requests of one moment have no rate")
    return (len(arrivals) - 1) * SECOND / lasted


def lengths(arrivals: Sequence[Arrival]) -> tuple[float, float]:
    """Mean tokens of a prompt and of an answer."""
    count = max(1, len(arrivals))
    prompts = sum(arrival.prompt_tokens for arrival in arrivals)
    return prompts / count, sum(min(arrival.output, arrival.max_tokens) for arrival in arrivals) / count
