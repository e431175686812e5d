"""The models that chaos is made with, and what may be asked of them: for each request what is right, and what it may
end with otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any, TypeAlias

from tests.e2e.client import infer_body

Outputs: TypeAlias = dict[str, list[Any]]
Check: TypeAlias = Callable[[Outputs], str]
"""What is wrong with an answer; "" = it is right."""

INSTANCES = 2
"""Workers of each model."""
WEIGHTS = (3, 31, 314, 3141)

TINY = f"""
import numpy as np


class Model:
    inputs = {{"x": ("INT64", [-1, {len(WEIGHTS)}])}}
    outputs = {{"y": ("INT64", [-1])}}
    warm_up = True

    def execute(self, requests):
        return [{{"y": request["x"] @ np.array({WEIGHTS})}} for request in requests]
"""

RAISES, ROWS, EXITS, GARBAGE, HOGS, SLOW = range(1001, 1007)
OBEYING = """
import os
import resource
import time

SPARE = 256 << 20
RAISES, ROWS, EXITS, GARBAGE, HOGS, SLOW = range(1001, 1007)


def into_the_channel(data):
    for name in os.listdir("/proc/self/fd"):
        try:
            if os.readlink(f"/proc/self/fd/{name}").startswith("socket:"):
                os.write(int(name), data)
        except OSError:
            pass


class Model:
    inputs = {"x": ("INT64", [-1, 2])}
    outputs = {"y": ("INT64", [-1])}
    warm_up = True

    def load(self, context):
        with open("/proc/self/statm") as file:
            taken = int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
        resource.setrlimit(resource.RLIMIT_AS, (taken + SPARE, taken + SPARE))

    def execute(self, requests):
        asked = [int(request["x"][0, 0]) for request in requests]
        if RAISES in asked:
            raise RuntimeError("as it was told to")
        if EXITS in asked:
            os._exit(9)
        if GARBAGE in asked:
            into_the_channel(os.urandom(64))
        if HOGS in asked:
            bytearray(2 * SPARE)
        if SLOW in asked:
            time.sleep(sum(int(request["x"][0, 1]) for request in requests) % 100 / 1000)
        answers = [{"y": request["x"][:, 1] * 7 + 1} for request in requests]
        return answers[1:] if ROWS in asked else answers
"""

SETTINGS = f"""\
instances = {INSTANCES}
threads = 1
hang_s = 1.5
batching.max_batch_size = 8
warm_up.rows = [1, 2, 4, 8]
"""


@dataclass(frozen=True)
class Ask:
    """One request. may_end: codes that it may end with beside completed.  must_fail: completed is wrong.
    timeout_ms: 0 = it names none.  leaves_after_s: the client goes away then."""

    kind: str
    model: str
    inputs: list[tuple[str, str, list[int], list[Any]]]
    check: Check
    may_end: tuple[str, ...] = ()
    must_fail: bool = False
    timeout_ms: int = 0
    leaves_after_s: float | None = None

    @property
    def path(self) -> str:
        return f"/v2/models/{self.model}/infer"

    @property
    def body(self) -> dict[str, Any]:
        return infer_body(self.inputs)


OFFENCES: dict[str, tuple[int, tuple[str, ...]]] = {
    "raise": (RAISES, ("model_error", "poison_request")),
    "wrong rows": (ROWS, ("model_error", "poison_request")),
    "exit": (EXITS, ("poison_request",)),
    "garbage": (GARBAGE, ("poison_request",)),
    "hog": (HOGS, ("out_of_memory",)),
}
"""What a request makes the obeying model do, and what it may be told for it."""


def numbers(expected: list[int]) -> Check:
    return lambda outputs: "" if outputs["y"] == expected else f"expected {expected}, came {outputs['y']}"


def ask_tiny(rng: Random) -> Ask:
    rows = [[rng.randrange(1000) for _ in WEIGHTS] for _ in range(rng.randint(1, 3))]
    expected = [sum(a * b for a, b in zip(row, WEIGHTS, strict=True)) for row in rows]
    flat = [value for row in rows for value in row]
    return Ask("tiny", "tiny", [("x", "INT64", [len(rows), len(WEIGHTS)], flat)], numbers(expected))


def ask_obeying(rng: Random, command: int = 0, kind: str = "obeying", **more: Any) -> Ask:
    value = rng.randrange(1 << 40)
    return Ask(kind, "obeying", [("x", "INT64", [1, 2], [command, value])], numbers([value * 7 + 1]), **more)


def ask_slow(rng: Random) -> Ask:
    return ask_obeying(rng, SLOW, "slow")


def offend(rng: Random, kind: str) -> Ask:
    command, may_end = OFFENCES[kind]
    return ask_obeying(rng, command, kind, may_end=may_end, must_fail=True)


def put_model(root: Path, name: str, code: str) -> None:
    """Below root/models."""
    (root / "models" / name / "1").mkdir(parents=True)
    (root / "models" / name / "1" / "model.py").write_text(code)
    (root / "models" / name / "model.toml").write_text(SETTINGS)
