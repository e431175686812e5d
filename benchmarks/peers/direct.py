"""ONNX Runtime called directly, without a server: what is left when everything around the model costs nothing.

    python benchmarks/peers/direct.py --model DIR --threads N

Reads one JSON object a line and answers each with one, so that it is a process of its own as servers are:

    {"do": "calibrate"}                                      how fast the machine is at this moment
    {"do": "search", "lengths": [...], "seconds": S}         the best token budget for windows of these lengths
    {"do": "measure", "lengths": [...], "budget": B, "seconds": S}
    {"do": "grid", "rows": [...], "lengths": [...]}          nanoseconds of each size: [[rows, length, took], ...]

The requests of a window of 32 are sorted by length and cut into batches of at most `budget` padded
tokens (a longer one runs alone; budget 0: each runs alone). Token ids are there beforehand; what is timed is padding
and the model.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime

INPUTS = ("input_ids", "attention_mask", "token_type_ids")
WINDOW = 32
BUDGETS = (0, 32, 64, 96, 128, 192, 256, 384, 512, 1024, 2048, 8192)
ROUNDS = 3
LOOP = 1_000_000
CALIBRATION_LENGTH = 64
TOKEN = 2003

Ids = npt.NDArray[np.int64]


def cut(lengths: Sequence[int], budget: int) -> list[list[int]]:
    """Ascending lengths -> batches of them, each at most `budget` padded tokens or one alone."""
    batches: list[list[int]] = []
    for length in sorted(lengths):
        if batches and (len(batches[-1]) + 1) * length <= budget:
            batches[-1].append(length)
        else:
            batches.append([length])
    return batches


def windows(lengths: Sequence[int]) -> Iterator[Sequence[int]]:
    """For ever."""
    at = 0
    while True:
        window = [lengths[(at + i) % len(lengths)] for i in range(WINDOW)]
        at += WINDOW
        yield window


class Direct:
    def __init__(self, model: Path, threads: int) -> None:
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = threads
        options.inter_op_num_threads = 1
        # as in headway's worker, so that nothing but the batches differs
        options.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
        self._texts: dict[int, Ids] = {}

    def execute(self, batch: Sequence[int]) -> None:
        """One row per length, padded to the longest."""
        shape = (len(batch), max(batch))
        feeds = {name: np.zeros(shape, np.int64) for name in INPUTS}
        for row, length in enumerate(batch):
            feeds["input_ids"][row, :length] = self._ids(length)
            feeds["attention_mask"][row, :length] = 1
        self._session.run(["embedding"], feeds)

    def _ids(self, length: int) -> Ids:
        if length not in self._texts:
            self._texts[length] = np.full(length, TOKEN, np.int64)
        return self._texts[length]

    def run(self, given: Iterable[Sequence[int]], budget: int, seconds: float) -> dict[str, Any]:
        """Whole windows until the time is over."""
        began = time.perf_counter()
        requests = batches = 0
        for window in given:
            for batch in cut(window, budget):
                self.execute(batch)
                batches += 1
            requests += len(window)
            if time.perf_counter() - began >= seconds:
                break
        per_s = requests / (time.perf_counter() - began)
        return {"budget": budget, "ok_per_s": per_s, "requests": requests, "batches": batches}

    def search(self, lengths: Sequence[int], seconds: float) -> dict[str, Any]:
        """Each budget in turn, several times over the same windows, so that no slow moment hits one of them alone."""
        each = seconds / (ROUNDS * len(BUDGETS))
        best = dict.fromkeys(BUDGETS, 0.0)
        for _ in range(ROUNDS):
            for budget in BUDGETS:
                best[budget] = max(best[budget], self.run(windows(lengths), budget, each)["ok_per_s"])
        return {"budget": max(BUDGETS, key=lambda budget: best[budget]), "ok_per_s": best}

    def calibrate(self) -> dict[str, float]:
        """Medians: what it is like at this moment, not what it is like at its best."""
        return {
            "python_ns": median(python_ns() for _ in range(5)),
            "onnx_ms": median(self.onnx_ms() for _ in range(25)),
        }

    def grid(self, rows: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, int, int]]:
        """Three rounds over all sizes, so that no slow moment hits one of them alone; medians."""
        sizes = [(count, length) for count in rows for length in lengths]
        took: dict[tuple[int, int], list[int]] = {size: [] for size in sizes}
        for _ in range(ROUNDS):
            for count, length in sizes:
                began = time.perf_counter_ns()
                self.execute([length] * count)
                took[count, length].append(time.perf_counter_ns() - began)
        return [(*size, int(median(took[size]))) for size in sizes]

    def onnx_ms(self) -> float:
        began = time.perf_counter()
        self.execute([CALIBRATION_LENGTH])
        return (time.perf_counter() - began) * 1e3


def python_ns() -> float:
    """Nanoseconds of one iteration of a fixed loop."""
    began = time.perf_counter_ns()
    total = 0
    for i in range(LOOP):
        total += i
    return (time.perf_counter_ns() - began) / LOOP


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--threads", type=int, required=True)
    wanted = parser.parse_args()
    direct = Direct(wanted.model / "model.onnx", wanted.threads)
    for line in sys.stdin:
        order = json.loads(line)
        if order["do"] == "calibrate":
            answer: Any = direct.calibrate()
        elif order["do"] == "grid":
            answer = direct.grid(order["rows"], order["lengths"])
        elif order["do"] == "search":
            answer = direct.search(order["lengths"], order["seconds"])
        else:
            answer = direct.run(windows(order["lengths"]), order["budget"], order["seconds"])
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
