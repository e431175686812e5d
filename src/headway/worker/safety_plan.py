"""Which batches the check of batch safety runs, the most telling first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, cycle, islice, zip_longest
from typing import NamedTuple

import msgspec

from headway.wire.messages import InputMeta
from headway.worker.executor import PartArrays

SIZES = (3, 5, 7)
"""Rows of batches beside pairs and the largest: odd, so that no kernel's block is filled."""

LARGEST = 64
"""Rows of the largest batch; what changes beyond that is rounding."""

MAX_TOKENS = 1024
"""Rows x longest length of any batch, so that a model of tens of millions of weights takes a second or two."""


class Batch(NamedTuple):
    """members: numbers of probes, in this order.  joined: as one part of several rows."""

    members: tuple[int, ...]
    joined: bool = False


def groups(probes: Sequence[PartArrays], inputs: Mapping[str, InputMeta], per_row: Sequence[str]) -> list[list[int]]:
    """Numbers of the probes that may share a batch: equal shapes but for padded axes, equal parameters but for
    those by row."""
    found: dict[bytes, list[int]] = {}
    for number, probe in enumerate(probes):
        shapes = [
            (name, array.dtype.str, [size for axis, size in enumerate(array.shape) if axis != inputs[name].pad_axis])
            for name, array in probe.inputs.items()
        ]
        kept = {name: value for name, value in sorted(probe.parameters.items()) if name not in per_row}
        found.setdefault(msgspec.json.encode((shapes, kept)), []).append(number)
    return list(found.values())


def plan(numbers: Sequence[int], lengths: Mapping[int, int], max_rows: int, max_tokens: int) -> list[Batch]:
    """For one group. lengths: of each probe.  max_tokens: rows x longest length that are allowed, 0 = any."""
    tokens = min(max_tokens or MAX_TOKENS, MAX_TOKENS)
    by_length: dict[int, list[int]] = {}
    for number in numbers:
        by_length.setdefault(lengths[number], []).append(number)
    ordered = list(by_length.values())
    mixed = _mixed(ordered, max_rows, tokens, lengths) if len(ordered) > 1 else []
    equal = [list(_equal(members, _cap(members[:1], max_rows, tokens, lengths))) for members in ordered]
    equal[1:] = [batches[:3] for batches in equal[1:]]  # sizes and orders are tried at the first length
    turns = zip_longest(mixed, *equal)  # pairs of every kind first: sizes and orders tell less
    planned = [batch for batch in chain.from_iterable(turns) if batch is not None]
    return [
        batch
        for batch in dict.fromkeys(planned)
        if 1 < len(batch.members) <= max_rows
        and (not max_tokens or len(batch.members) * max(lengths[n] for n in batch.members) <= max_tokens)
    ]


def _cap(members: Sequence[int], max_rows: int, max_tokens: int, lengths: Mapping[int, int]) -> int:
    longest = max(lengths[number] for number in members)
    return min(max_rows, LARGEST, max(2, max_tokens // max(1, longest)))


def _equal(members: list[int], cap: int) -> Iterator[Batch]:
    first, second = members[0], members[1 % len(members)]
    yield Batch((first, second))
    yield Batch(_cycled(members, min(cap, 3)), joined=True)
    yield Batch(_cycled(members[1:] + members[:1], cap))
    yield Batch((second, first))
    for rows in SIZES:
        if rows <= cap:
            yield Batch(_cycled(members[1:] + members[:1], rows))


def _mixed(by_length: Sequence[list[int]], max_rows: int, max_tokens: int, lengths: Mapping[int, int]) -> list[Batch]:
    flat = [number for turn in zip_longest(*by_length) for number in turn if number is not None]
    cap = _cap(flat, max_rows, max_tokens, lengths)
    ends = sorted(by_length, key=lambda members: lengths[members[0]])
    short, long = ends[0][0], ends[-1][0]
    each = tuple(members[0] for members in by_length)[:cap]
    batches = [Batch((short, long)), Batch((long, short)), Batch(each), Batch(each[::-1])]
    batches += [Batch(_cycled(flat[1:] + flat[:1], rows)) for rows in (cap, *SIZES) if rows <= cap]
    return [batch for batch in batches if len(batch.members) <= cap]


def _cycled(members: Sequence[int], rows: int) -> tuple[int, ...]:
    return tuple(islice(cycle(members), rows))


def in_words(batch: Batch, at: int, lengths: Mapping[int, int], padded: bool) -> str:
    """The company of the row at a position, for people."""
    sizes = [str(lengths[number]) for number in batch.members]
    shown = ", ".join(sizes[:8]) + (", ..." if len(sizes) > 8 else "")
    of_lengths = f" of lengths {shown}" if padded else ""
    together = " in one part" if batch.joined else ""
    return f"{len(sizes)} rows{together}{of_lengths}, of which it was number {at + 1}"
