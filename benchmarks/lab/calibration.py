"""How fast the machine is at this moment, and ONNX Runtime without a server: peers/direct.py as a child process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lab.environments import PEERS


class Direct:
    """Raises RuntimeError where the process has ended."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def calibrate(self) -> dict[str, float]:
        """python_ns: one iteration of a fixed loop.  onnx_ms: one text of 64 tokens. Medians."""
        answer: dict[str, float] = self._ask(do="calibrate")
        return answer

    def search(self, lengths: Sequence[int], seconds: float) -> dict[str, Any]:
        """budget: the best token budget.  ok_per_s: of each budget that was tried ("0": one text at a time)."""
        answer: dict[str, Any] = self._ask(do="search", lengths=lengths, seconds=seconds)
        return answer

    def measure(self, lengths: Sequence[int], budget: int, seconds: float) -> dict[str, Any]:
        answer: dict[str, Any] = self._ask(do="measure", lengths=lengths, budget=budget, seconds=seconds)
        return answer

    def grid(self, rows: Sequence[int], lengths: Sequence[int]) -> dict[tuple[int, int], int]:
        """(rows, length) -> nanoseconds of a batch of that size."""
        return {(count, length): took for count, length, took in self._ask(do="grid", rows=rows, lengths=lengths)}

    def _ask(self, **order: Any) -> Any:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"peers/direct.py ended with code {self._process.wait()}; its error is printed above")
        return json.loads(line)


@contextmanager
def direct(model: Path, threads: int) -> Iterator[Direct]:
    """model: the folder with model.onnx."""
    command = [sys.executable, str(PEERS / "direct.py"), "--model", str(model), "--threads", str(threads)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        yield Direct(process)
    finally:
        process.terminate()
        process.wait()


def calibrated(now: dict[str, float]) -> str:
    return f"Python {now['python_ns']:.1f} ns per iteration, ONNX {now['onnx_ms']:.2f} ms for 64 tokens"
