"""python -m headway.worker.safety_main [--threads N]: what `headway verify` runs, in a process of its own.

A Load message comes as JSON on stdin, with the seconds that the check may take; a SafetyReport goes as JSON to
stdout. A model may print what it likes: that goes to stderr. Exit code 0, or 3 where the model does not load, with the
reason as the last line of stderr.
"""

from __future__ import annotations

import argparse
import os
import sys

import msgspec

from headway.worker.__main__ import THREAD_SETTINGS
from headway.worker.parent import die_with_parent

EXIT_LOAD_FAILED = 3


def run(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="headway.worker.safety_main", description="Started by headway verify.")
    parser.add_argument("--threads", type=int, default=0, help="compute threads of numerical libraries, 0 = theirs")
    options = parser.parse_args(arguments)
    die_with_parent()
    if options.threads:
        os.environ.update(dict.fromkeys(THREAD_SETTINGS, str(options.threads)))
    told = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    from headway.worker.safety_verify import verify  # not earlier: this imports numpy, which reads the settings above

    report = verify(sys.stdin.buffer.read())
    if report is None:
        return EXIT_LOAD_FAILED
    with told:
        told.write(msgspec.json.encode(report))
    return 0


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:]))
