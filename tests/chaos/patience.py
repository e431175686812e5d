"""Waiting for what must come. How long one waits is a guard against waiting for ever, and decides nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

LOOK_S = 0.02

T = TypeVar("T")


async def eventually(found: Callable[[], Awaitable[T]], patience_s: float) -> T | None:
    """The first thing that is found (or is true); None = nothing was."""
    ends = asyncio.get_running_loop().time() + patience_s
    while not (it := await found()):
        if asyncio.get_running_loop().time() > ends:
            return None
        await asyncio.sleep(LOOK_S)
    return it
