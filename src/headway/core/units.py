"""Time and size. All time in the core is an integer count of nanoseconds."""

from __future__ import annotations

from typing import TypeAlias

Instant: TypeAlias = int
"""Nanoseconds since an arbitrary origin that the driver chooses (monotonic clock, or 0 in a simulation)."""

Duration: TypeAlias = int
"""A span of time in nanoseconds."""

NEVER: Instant = 2**63 - 1
"""Later than every instant: 'no deadline', 'no timer'."""

MICROSECOND: Duration = 1_000
MILLISECOND: Duration = 1_000_000
SECOND: Duration = 1_000_000_000


def us(count: float) -> Duration:
    return round(count * MICROSECOND)


def ms(count: float) -> Duration:
    return round(count * MILLISECOND)


def seconds(count: float) -> Duration:
    return round(count * SECOND)
