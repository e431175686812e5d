"""Print what a core with a planted bug of order does: `python -m tests.canary.digests NAME FIRST LAST`."""

from __future__ import annotations

import sys

from headway.core.scheduler import Scheduler
from headway.sim.worlds import run_world
from tests.canary.planted import UNORDERED, plant


def main(name: str, first: int, last: int) -> None:
    planted = {canary.name: canary for canary in UNORDERED}
    scheduler = plant(planted[name]) if name else Scheduler
    for seed in range(first, last + 1):
        print(seed, run_world(seed, scheduler).digest)


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))
