"""Language models: the runner, its blocks, how long its steps take, and the planner that goes with them."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from pathlib import Path
from time import monotonic_ns, perf_counter_ns

from headway.config.settings import MEBIBYTE, Language
from headway.core.ids import Measurement, WorkerId
from headway.core.units import ms
from headway.llm.engine import Engine
from headway.llm.grammar.state import GrammarVocabulary
from headway.llm.plan.attached import AttachedPlanner
from headway.llm.plan.planner import Planner
from headway.llm.plan.policy import Admit, PlanPolicy, Prices
from headway.llm.plan.request import SequenceId
from headway.llm.plan.step import Row, StepPlan
from headway.llm.plan.step_time import DEFAULT, Coefficients
from headway.llm.run.errors import ModelError
from headway.llm.run.runner import Runner
from headway.llm.text import tokenizer
from headway.wire.generation import LanguageMeta
from headway.wire.messages import InputMeta, ModelMeta
from headway.worker.errors import LoadError
from headway.worker.executor import LoadContext
from headway.worker.memory import available_bytes

log = logging.getLogger("headway.worker")

PART_OF_MEMORY, MOST_MEMORY = 4, 2 << 30
"""Of what is free when it has loaded, one in so many bytes is for keys and values; and so many at most."""
GGUF = "model.gguf"
PROMPT, CONTEXT = 256, 512
"""Tokens of the chunk, and positions behind each row, that steps are timed at."""


class LanguageExecutor:
    """After `load`: policy, blocks, and what was measured, `steps` and `measurements`."""

    runner: Runner
    policy: PlanPolicy
    blocks: int
    block_size: int
    steps: Coefficients = DEFAULT
    measurements: Sequence[Measurement] = ()

    def load(self, context: LoadContext) -> ModelMeta:
        """Raises LoadError."""
        settings = context.settings.language
        path = Path(context.path)
        self._source = path / GGUF if (path / GGUF).is_file() else path
        if context.device != "cpu":
            raise LoadError(f"device {context.device!r}: language models run on the CPU only so far")
        try:
            self.runner = Runner.load(self._source, settings.dtype, context.threads, quantised=settings.quantised)
        except (ModelError, OSError, ValueError) as error:
            raise LoadError(f"{self._source}: {error}") from error
        self._allocate(settings)
        pool = self.blocks * self.block_size
        longest = min(settings.max_context or self.runner.config.context, self.runner.config.context, pool)
        self._time()
        self.policy = self._policy(settings, context.settings.sequences("llm"), longest)
        self._name = f"{context.model}/{context.version}"
        meta = LanguageMeta(self.runner.config.vocabulary, longest, pool, str(self._source))
        text = InputMeta("text_input", "BYTES", (1,))
        output = InputMeta("text_output", "BYTES", (-1,))
        return ModelMeta("headway_llm", (text,), (output,), streaming=True, language=meta)

    def attach(self, worker: WorkerId) -> tuple[AttachedPlanner, Engine]:
        """What the loop drives."""
        planner = Planner(self.policy, self.blocks, self.block_size, (self._name,), prior=self.steps)
        return AttachedPlanner(worker, planner), Engine(planner, self.runner, monotonic_ns)

    @property
    def vocabulary(self) -> Callable[[], GrammarVocabulary]:
        """Of its tokenizer, made when it is first wanted, and once. Raises TokenizerError."""
        return cache(lambda: _vocabulary(self._source))

    def unload(self) -> None: ...

    def _allocate(self, settings: Language) -> None:
        self.block_size = settings.block_size
        memory = settings.memory_mb * MEBIBYTE or min(available_bytes() // PART_OF_MEMORY, MOST_MEMORY)
        self.blocks = self.runner.blocks_for(memory, self.block_size)
        if self.blocks * self.block_size < 2 * PROMPT:
            raise LoadError(
                f"language.memory_mb: {memory // MEBIBYTE} MiB hold {self.blocks} blocks of {self.block_size} tokens, "
                f"at least {2 * PROMPT // self.block_size} are needed"
            )
        self.runner.allocate(self.blocks, self.block_size)

    def _policy(self, settings: Language, sequences: int, longest: int) -> PlanPolicy:
        prompt, output = self.steps.prefill, self.steps.decode + self.steps.step / min(8, sequences)
        return PlanPolicy(
            max_sequences=sequences,
            max_step_tokens=max(settings.max_step_tokens, sequences + settings.tile),
            max_context=longest,
            tile=settings.tile,
            target_itl=ms(settings.target_itl_ms),
            admit=Admit(settings.admit),
            prices=Prices(max(1, int(prompt)), max(1, int(output))),
            prefix_cache=settings.prefix_cache,
        )

    # -- how long steps take -------------------------------------------------------------------

    def _time(self) -> None:
        """Whatever the blocks hold; the best of two, as others may use the machine."""
        one, eight = self._best(self._decodes(1, 1)), self._best(self._decodes(8, 1))
        far = self._best(self._decodes(8, CONTEXT))
        prompt = self._best(self._prompt(PROMPT))
        decode = max(1.0, (eight - one) / 7)
        step = max(1.0, one - decode)
        prefill = max(1.0, (prompt - step) / PROMPT)
        context = max(0.0, (far - eight) / (8 * (CONTEXT - 1)))
        self.steps = Coefficients(step, prefill, decode, context, DEFAULT.pairs)
        shorter = [(length, self._best(self._prompt(length))) for length in (16, 64)]
        self.measurements = tuple(Measurement(1, length, took) for length, took in (*shorter, (PROMPT, prompt)))
        log.info(
            "a step takes %.1f ms for 1 row, %.1f for 8, %.1f for %d tokens of a prompt",
            *_ms(one, eight, prompt),
            PROMPT,
        )

    def _best(self, rows: list[Row], runs: int = 2) -> int:
        """Nanoseconds of a step, once it has been made."""
        plan = StepPlan(0, rows)
        taken = []
        for _ in range(runs + 1):
            began = perf_counter_ns()
            output = self.runner.step(plan)
            self.runner.sampled([0] * len(output.rows))
            taken.append(perf_counter_ns() - began)
        return min(taken[1:])

    def _decodes(self, rows: int, context: int) -> list[Row]:
        table = list(range(-(-context // self.block_size)))
        return [Row(SequenceId(n), 0, context - 1, 1, [0], table, True) for n in range(rows)]

    def _prompt(self, length: int) -> list[Row]:
        table = list(range(-(-length // self.block_size)))
        return [Row(SequenceId(0), 0, 0, length, [0] * length, table, True)]


def _vocabulary(source: Path) -> GrammarVocabulary:
    told = tokenizer.load(source)
    tokens = [told.vocabulary.raw(token) for token in range(told.size)]
    return GrammarVocabulary(tokens, told.stops, told.special, lambda text: told.encode(text, add_special=False))


def _ms(*durations: int) -> Iterator[float]:
    return (duration / 1e6 for duration in durations)
