"""The one place where the live server reads time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeAlias

from headway.core.units import Instant

Clock: TypeAlias = Callable[[], Instant]

monotonic: Clock = time.monotonic_ns
"""Nanoseconds since boot: never goes back, and is the same for every process of this host."""
