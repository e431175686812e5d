"""python -m headway.worker --connect ADDRESS --worker N [--threads N] [--stacks FD], with the secret in
HEADWAY_WORKER_TOKEN."""

from __future__ import annotations

import argparse
import os
import sys

from headway.worker.log import rather_lose_than_fail
from headway.worker.parent import die_with_parent
from headway.worker.stacks import tell_stacks

TOKEN = "HEADWAY_WORKER_TOKEN"

THREAD_SETTINGS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
"""Read once, when numpy and its like are first imported."""


def parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="headway.worker", description="A worker process; started by headway serve.")
    parser.add_argument("--connect", required=True, help="unix:/path/of/socket or tcp:host:port")
    parser.add_argument("--worker", required=True, type=int, help="this worker's id")
    parser.add_argument("--stacks", type=int, default=-1, help="open file that stacks are written to, -1 = the log")
    parser.add_argument("--threads", type=int, default=0, help="compute threads of numerical libraries, 0 = theirs")
    options = parser.parse_args(arguments)
    if TOKEN not in os.environ:
        parser.error(f"the environment has no {TOKEN}")
    return options


def run(arguments: list[str]) -> int:
    options = parse(arguments)
    rather_lose_than_fail()
    tell_stacks(options.stacks)
    die_with_parent()
    if options.threads:
        os.environ.update(dict.fromkeys(THREAD_SETTINGS, str(options.threads)))
    from headway.worker.main import main  # not earlier: this imports numpy, which reads the settings above

    return main(options.connect, options.worker, os.environ.pop(TOKEN))


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
