"""The simulator of language models beside a real engine: the same arrivals through both, and how far apart they are.

    python benchmarks/sim_vs_real_tokens.py [--seconds 40] [--loads 0.4 0.7]

SmolLM2-135M, four-bit weights, in a worker process behind the scheduler, without HTTP. Prompts of 64 to 190 tokens that
differ from the first on, answers of 32 to 96, Poisson arrivals. What the simulator is told is how long steps take, as
the planner itself has learned it from other requests in this process just before; the rest is the same planner.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import tempfile
import time
from pathlib import Path
from statistics import median
from typing import NamedTuple

from headway.config.settings import ModelSettings, Settings
from headway.core.ids import BatchKey, Part
from headway.core.units import SECOND
from headway.llm.plan.request import SequenceRequest
from headway.llm.sample.params import SamplingParams
from headway.registry import smollm2
from headway.registry.scan import scan
from headway.runtime.runtime import Runtime
from headway.sim.llm.arrivals import Arrival, Piece
from headway.sim.llm.presets import Preset
from headway.sim.llm.simulation import LlmScenario, simulate
from headway.wire.generation import Generation
from headway.wire.messages import PartPayload, Reply, StreamChunk, Submit, ToGateway, VersionStatus
from headway.worker.executor import LoadContext
from headway.worker.torch_language import LanguageExecutor

KEY = BatchKey(smollm2.NAME, 1, "stream")
MEAN_PROMPT, MEAN_OUTPUT = 127, 64
GREEDY = SamplingParams(temperature=0)


class Figures(NamedTuple):
    """first, end: p50, ms.  rate: output tokens/s, from the first arrival to the last token."""

    first: float
    end: float
    rate: float


def arrivals(rate: float, seconds: float, rng: random.Random) -> list[Arrival]:
    found, at = [], 0.0
    while (at := at + rng.expovariate(rate)) < seconds:
        piece = Piece(len(found) + 1, rng.randrange(64, 191))
        output = rng.randrange(32, 97)
        found.append(Arrival(int(at * SECOND), (piece,), output, output))
    return found


def learned(folder: Path) -> Preset:
    """From sixty requests in this process, up to eight at a time."""
    executor = LanguageExecutor()
    threads = len(os.sched_getaffinity(0))
    executor.load(LoadContext(smollm2.NAME, 1, str(folder), "cpu", threads, ModelSettings(executor="llm")))
    _, engine = executor.attach(1)
    rng = random.Random(7)
    for number in range(1, 61):
        prompt = [rng.randrange(20, 20_000) for _ in range(rng.randrange(64, 191))]
        assert engine.add(SequenceRequest(number, "t", prompt, rng.randrange(32, 97)), GREEDY) is None
        while len(engine.planner.state.sequences) >= rng.choice((1, 4, 8)):
            engine.step()
    while not engine.is_idle:
        engine.step()
    return Preset("measured", engine.planner.state.steps.now, executor.blocks, executor.policy)


class Real:
    """What came of each request, in seconds of one clock."""

    def __init__(self, count: int) -> None:
        self.ready = asyncio.Event()
        self.done = asyncio.Event()
        self.count = count
        self.sent: dict[int, float] = {}
        self.first: dict[int, float] = {}
        self.over: dict[int, float] = {}
        self.tokens = 0

    def deliver(self, message: ToGateway) -> None:
        now = time.monotonic()
        if isinstance(message, VersionStatus):
            if message.state == "ready":
                self.ready.set()
        elif isinstance(message, StreamChunk):
            self.first.setdefault(message.request, now)
            self.tokens += 1
        elif isinstance(message, Reply):
            self.over[message.request] = now
            if len(self.over) == self.count:
                self.done.set()


async def play(repository: Path, told: list[Arrival]) -> Figures:
    real, rng = Real(len(told)), random.Random(11)
    runtime = Runtime(Settings(), scan(repository), real.deliver)
    await runtime.start()
    await real.ready.wait()
    begun = time.monotonic()
    for number, arrival in enumerate(told, 1):
        prompt = [rng.randrange(20, 20_000) for _ in range(arrival.prompt_tokens)]
        await asyncio.sleep(max(0.0, begun + arrival.at / SECOND - time.monotonic()))
        now = time.monotonic_ns()
        real.sent[number] = now / SECOND
        asked = Generation(prompt, arrival.max_tokens, GREEDY)
        part, payload = [Part(1, len(prompt))], [PartPayload([])]
        runtime.send(Submit(number, "t", KEY, part, payload, 0, now + 600 * SECOND, 1, {}, now, generation=asked))
    await real.done.wait()
    await runtime.close()
    firsts = [1e3 * (real.first[n] - sent) for n, sent in real.sent.items()]
    ends = [1e3 * (real.over[n] - sent) for n, sent in real.sent.items()]
    return Figures(median(firsts), median(ends), real.tokens / (max(real.over.values()) - min(real.sent.values())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=40)
    parser.add_argument("--loads", type=float, nargs="+", default=[0.4, 0.7])
    arguments = parser.parse_args()
    source = smollm2.find_source()
    if source is None:
        raise SystemExit("the default language model is not installed; `make serve` installs it")
    with tempfile.TemporaryDirectory() as temporary:
        repository = Path(temporary)
        folder = smollm2.prepare(repository, source) / "1"
        print(f"{'load':>5}{'':8}{'requests':>9}{'first p50 ms':>14}{'whole p50 ms':>14}{'tokens/s':>10}")
        for load in arguments.loads:
            preset = learned(folder)
            rate = load * preset.capacity(MEAN_PROMPT, MEAN_OUTPUT)
            told = arrivals(rate, arguments.seconds, random.Random(f"{load}"))
            real = asyncio.run(play(repository, told))
            report = simulate(LlmScenario(preset=preset, prior=preset.steps), told)
            simulated = Figures(report.first_token.p50_ms, report.end_to_end.p50_ms, report.output_tokens_per_s)
            for name, figures in (("real", real), ("sim", simulated)):
                values = f"{figures.first:14.0f}{figures.end:14.0f}{figures.rate:10.0f}"
                print(f"{load:5.2f} {name:7}{len(told):9}{values}")
            apart = [100 * (ours / theirs - 1) for ours, theirs in zip(simulated, real, strict=True)]
            print(f"{load:5.2f} {'apart':7}{'':9}{apart[0]:13.0f}%{apart[1]:13.0f}%{apart[2]:9.0f}%")


if __name__ == "__main__":
    main()
