"""A server's own recording, read back for a benchmark: what the core was told, what it said, and when."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from headway.runtime.codec import Call, decode_call, decode_header, decode_snapshot

RECORDER = """
[recorder]
directory = {directory}
max_file_mb = 1024
"""


def calls(directory: Path) -> Iterator[Call]:
    """Every call of the core, from the server's first on. Read it after the server has stopped.

    Raises NotARecording; RuntimeError where there is not exactly one file.
    """
    files = sorted(directory.glob("trace-*.jsonl"))
    if len(files) != 1:
        raise RuntimeError(f"expected one recording in {directory}, found {len(files)}")
    with files[0].open("rb") as lines:
        decode_header(next(lines))
        decode_snapshot(next(lines))
        for line in lines:
            yield decode_call(line)
