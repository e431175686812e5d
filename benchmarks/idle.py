"""How long a device waits between two batches while requests queue for it: the worker's round trip, as it sees it.

    python benchmarks/idle.py [--quick] [--seconds 20] [--concurrency 64] [--batch-ms 10] [--json FILE]

A real server under saturation. Its model's `execute` takes 10 ms, as a device would, without using the
processor, and notes by the monotonic clock when it began and ended. The time from one end to the next beginning is what
the device idles: slicing and sending the answer, the channel, the scheduler, sending and unpacking the next
batch. Requests are of a small encoder's size: 44 token ids in, 384 floats out, at most 8 together.
"""

from __future__ import annotations

import argparse
import json
import random
import struct
import sys
import tempfile
from itertools import pairwise
from pathlib import Path
from urllib.parse import urlsplit

from lab import servers
from lab.figures import quantiles_ms

from headway.bench.bodies import encode_request, infer_body
from headway.bench.lengths import parse_lengths
from headway.bench.run import Plan, run

GOAL = 0.01
WARM_UP_S = 2.0
RECORD = struct.Struct("<qqq")
"""When a batch began and ended (monotonic ns), and its rows."""

MODEL = """
import os
import struct
import time

import numpy as np

TAKES_NS = round({batch_ms} * 1e6)
SPIN_NS = 300_000
RECORD = struct.Struct("<qqq")


class Model:
    inputs = {{name: ("INT64", [-1, -1]) for name in {names!r}}}
    outputs = {{"embedding": ("FP32", [-1, 384])}}

    def load(self, context):
        self.file = open({notes!r}, "ab", buffering=0)
        self.answer = np.random.default_rng(1).standard_normal((1, 384), dtype=np.float32)
        self.last = None

    def execute(self, requests):
        began = time.monotonic_ns()
        if self.last is not None:
            self.file.write(self.last)  # of the batch before: within this one's time, not in the gap
        results = [{{"embedding": self.answer}} for _ in requests]
        time.sleep(max(0, began + TAKES_NS - SPIN_NS - time.monotonic_ns()) / 1e9)
        while (ended := time.monotonic_ns()) < began + TAKES_NS:
            pass  # a sleep alone ends late by what the kernel likes
        self.last = RECORD.pack(began, ended, len(requests))
        return results
"""

NAMES = ("input_ids", "attention_mask", "token_type_ids")

SETTINGS = """
[batching]
max_batch_size = 8
"""

PADDED = """
[inputs.{name}]
pad_axis = 1
"""


def repository(root: Path, batch_ms: float, notes: Path) -> Path:
    """A folder with the one model in it."""
    version = root / "models" / "device" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL.format(batch_ms=batch_ms, notes=str(notes), names=NAMES))
    (version.parent / "model.toml").write_text(SETTINGS + "".join(PADDED.format(name=name) for name in NAMES))
    return root / "models"


def measure(seconds: float, concurrency: int, batch_ms: float) -> tuple[list[tuple[int, int, int]], float]:
    """What the device noted after the warm-up, and the client's own use of the processor in cores."""
    rng = random.Random(1)
    length = parse_lengths("fixed:44")
    bodies = [infer_body(length, 1, rng) for _ in range(64)]
    with tempfile.TemporaryDirectory() as name:
        root = Path(name)
        notes = root / "notes"
        models = repository(root, batch_ms, notes)
        with servers.headway(f"[server]\nmodels = {json.dumps(str(models))}\n", root) as address:
            target = urlsplit(f"{address}/v2/models/device/infer")
            wires = [encode_request(target, body, ()) for body in bodies]
            plan = Plan(concurrency=concurrency, duration=seconds, warmup=WARM_UP_S)
            measured = run(plan, target.hostname or "", target.port or 80, wires)
        if measured.results.errors:
            raise RuntimeError(f"the server answered with {measured.results.errors}")
        batches = list(RECORD.iter_unpack(notes.read_bytes()))
    from_then_on = batches[0][0] + round(WARM_UP_S * 1e9)
    until = batches[0][0] + round((WARM_UP_S + seconds) * 1e9)
    return [batch for batch in batches if from_then_on <= batch[0] < until], measured.cpu


def gaps(batches: list[tuple[int, int, int]]) -> list[int]:
    """Nanoseconds from each end to the next beginning."""
    return [after[0] - before[1] for before, after in pairwise(batches)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("--concurrency", type=int, default=64)
    parser.add_argument("--batch-ms", type=float, default=10.0, help="what a batch takes (default 10)")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--quick", action="store_true", help="4 seconds: does it run?")
    wanted = parser.parse_args()
    batches, cpu = measure(4.0 if wanted.quick else wanted.seconds, wanted.concurrency, wanted.batch_ms)
    took = sum(end - begin for begin, end, _ in batches) / len(batches) / 1e6
    rows = sum(batch[2] for batch in batches) / len(batches)
    idle = quantiles_ms(gaps(batches))
    share = sum(gaps(batches)) / (batches[-1][1] - batches[0][0])
    print(f"`python benchmarks/idle.py {' '.join(sys.argv[1:])}`")
    print(f"{len(batches)} batches of {rows:.1f} rows and {took:.2f} ms, {wanted.concurrency} clients")
    print("idle between two batches, ms:  " + "  ".join(f"{name} {value:.3f}" for name, value in idle.items()))
    of_batch = "  ".join(f"{name} {value / wanted.batch_ms:.1%}" for name, value in idle.items())
    print(f"of a batch's {wanted.batch_ms:g} ms:  {of_batch}  (goal: at most {GOAL:.0%})")
    print(f"idle share of all time: {share:.2%}; client CPU {cpu:.2f} cores")
    if wanted.json is not None:
        record = {"batches": len(batches), "rows": rows, "batch_ms": took, "idle_ms": idle, "idle_share": share}
        wanted.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
