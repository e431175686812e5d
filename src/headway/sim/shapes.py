"""The kinds of device that the table of regimes is made for."""

from __future__ import annotations

from headway.core.units import Duration, ms, us
from headway.sim.costs import Cost, cpu, gpu


def knee(rows: int, length: int) -> Duration:
    """A GPU that 2,000 tokens fill: free until then, linear from there."""
    return max(ms(2), us(1) * rows * length)


def sizes(rows: int, length: int) -> Duration:
    """Kernels of fixed size, whatever the length: two rows cost as much as eight."""
    for size, took in ((1, 2), (8, 6), (16, 12), (32, 24)):
        if rows <= size:
            return ms(took)
    return ms(24) * -(-rows // 32)


def launch(rows: int, length: int) -> Duration:
    """Launch-bound: what is in the batch hardly matters."""
    return ms(5) + us(10) * rows


SHAPES: dict[str, Cost] = {"cpu": cpu, "gpu": gpu, "knee": knee, "sizes": sizes, "launch": launch}
