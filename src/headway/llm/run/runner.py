"""`Runner`: what runs a language model's steps in a worker process.

    runner = Runner.load(path, dtype="bfloat16", threads=2)
    runner.allocate(runner.blocks_for(memory), block_size=16)
    while ...:
        output = runner.step(plan)            # plan: of headway.llm.plan
        tokens = choose(output.logits)        # a sampler, row by row
        runner.sampled(tokens)                # the next plan may count on them
        planner.commit(...)                   # by output.rows: which rows of the plan these are

One step after the other, from one thread. A plan may be handed out before the results of the one before are in: then
it lacks the tokens which that one samples, and the runner fills them in from what it was told by `sampled`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from headway.llm.plan.step import StepPlan
from headway.llm.run import gguf_file, kernels, linear, weights
from headway.llm.run.batch import Attempt, batch_of
from headway.llm.run.config import ModelConfig
from headway.llm.run.errors import ModelError
from headway.llm.run.fast_ops import FastOps
from headway.llm.run.kv import KeysAndValues, block_bytes
from headway.llm.run.model import Model, ranges
from headway.llm.run.ops import Ops
from headway.llm.run.quantised import few_rows

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


class StepOutput(NamedTuple):
    """logits: [n, vocabulary] float32, of the last token of each row that samples.  rows: numbers of those in the plan.
    states: by row number, [size, width]: all states of rows that were asked for; `Runner.logits` makes logits of them.
    """

    logits: Tensor
    rows: list[int]
    states: dict[int, Tensor]


class Runner:
    """config: of the model.  A new one has no blocks: `allocate` before the first step."""

    def __init__(self, model: Model, ops: Ops, dtype: torch.dtype) -> None:
        self.config: ModelConfig = model.config
        self._model = model
        self._ops = ops
        self._dtype = dtype
        self._kv: KeysAndValues | None = None
        self._sampling: list[Attempt] = []
        self._sampled: dict[Attempt, int] = {}

    @classmethod
    def load(
        cls,
        path: str | Path,
        dtype: str = "bfloat16",
        threads: int = 0,
        compiled: bool = True,
        packed: bool = True,
        quantised: bool = True,
    ) -> Runner:
        """path: a folder with config.json and safetensors, or a GGUF file.  dtype: float32 or bfloat16, of weights,
        states, keys and values.  threads: of the process from now on; 0 = as they are.
        compiled, packed, quantised: kernels, weights in the form that is fastest here, and for few rows as they lie in
        a GGUF file, each where it can be had.
        ModelError for what is not supported; ValueError for another dtype."""
        if dtype not in DTYPES:
            raise ValueError(f"dtype is {dtype!r}; supported are {', '.join(DTYPES)}")
        if threads:
            torch.set_num_threads(threads)
        path, kind = Path(path), DTYPES[dtype]
        with torch.inference_mode(), ExitStack() as stack:
            if path.is_dir():
                config, tensors = weights.from_folder(path, stack)
            elif path.is_file():
                config, tensors = gguf_file.from_file(path)
            else:
                raise ModelError(f"{path}: there is no such folder or file")
            found = kernels.kernels() if compiled else None
            ops = Ops(config) if found is None else FastOps(config, found, kind)
            make = linear.maker(kind) if packed else linear.plain
            few = None
            if quantised and found is not None and kind == torch.bfloat16 and found.hw_has_few():
                few = partial(few_rows, found)
            return cls(Model(config, tensors, ops, make, kind, few), ops, kind)

    def block_bytes(self, block_size: int) -> int:
        """Of a block's keys and values, all layers together."""
        return block_bytes(self.config, block_size, self._dtype)

    def blocks_for(self, memory_bytes: int, block_size: int = 16) -> int:
        """How many blocks of so many tokens fit."""
        return memory_bytes // self.block_bytes(block_size)

    def allocate(self, blocks: int, block_size: int = 16) -> None:
        """Forgets what was in the blocks before. ValueError for none."""
        self._kv = KeysAndValues(self.config, blocks, block_size, self._dtype)
        self._sampling, self._sampled = [], {}

    def step(self, plan: StepPlan, scored: Sequence[int] = ()) -> StepOutput:
        """Runs a plan. Keys and values of its tokens are in their blocks when this returns.

        scored: numbers of rows all states of which are wanted (log probabilities of a prompt).
        ValueError for a plan that contradicts itself, or lacks tokens which the step before did not bring."""
        if self._kv is None:
            raise ValueError("there are no blocks: call allocate before the first step")
        if not plan.rows:
            return StepOutput(torch.zeros(0, self.config.vocabulary), [], {})
        with torch.inference_mode():
            batch = batch_of(plan, self._kv.block_size, self._sampled, self._ops.single)
            parts = [batch.ranges[number] for number in scored]
            states = self._model.states(batch, self._kv, torch.cat((batch.last, ranges(parts))))
            logits = self._model.logits(states[: len(batch.last)])
        self._sampling = [(plan.rows[number].id, plan.rows[number].attempt) for number in batch.sampling]
        self._sampled = {}
        lengths = [len(batch.last), *(end - first for first, end in parts)]
        return StepOutput(logits, batch.sampling, dict(zip(scored, states.split(lengths)[1:], strict=True)))

    def sampled(self, tokens: Sequence[int]) -> None:
        """What was chosen from the logits of the last step, in their order. ValueError for another number of them."""
        if len(tokens) != len(self._sampling):
            raise ValueError(f"{len(tokens)} tokens were chosen for {len(self._sampling)} rows that sample")
        self._sampled = dict(zip(self._sampling, tokens, strict=True))

    def logits(self, states: Tensor) -> Tensor:
        """Of states that a step returned: [n, width] -> [n, vocabulary] float32. By the piece, where there are many."""
        with torch.inference_mode():
            return self._model.logits(states)
