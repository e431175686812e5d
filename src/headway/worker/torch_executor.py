"""Runs PyTorch: a Hugging Face encoder's folder (`torch_encoder`) or a program (`torch_program`).

Batches are padded and stacked as for ONNX; an encoder whose architecture is known runs without padding where that
gives the same and is no slower (`torch.packing`, `torch_packed`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import msgspec
import numpy as np
import torch

from headway.core.ids import Measurement
from headway.wire.messages import InputMeta, ModelMeta
from headway.worker import warm_up
from headway.worker.declaration import with_padding
from headway.worker.errors import LoadError, ResultError
from headway.worker.executor import Array, Durations, LoadContext, PartArrays, PartError, PartOutput
from headway.worker.growth import Shapes, check_growth
from headway.worker.memory import MemoryWatch
from headway.worker.stacking import check_rows, slice_back, stack
from headway.worker.torch_cuda import device_of
from headway.worker.torch_encoder import HuggingFaceEncoder
from headway.worker.torch_model import TorchModel
from headway.worker.torch_packed import LENGTHS, differs, faster
from headway.worker.torch_program import FILES, Program

log = logging.getLogger("headway.worker")

COMPUTES_IN = {"bfloat16": "BF16", "float16": "FP16", "int8": "INT8"}
"""What the check of batch safety allows for; float32 is what the outputs are in."""


class TorchExecutor:
    def load(self, context: LoadContext) -> ModelMeta:
        self._name = f"{context.model}/{context.version}"
        self._context = context
        torch.set_num_threads(context.threads)
        torch.set_grad_enabled(False)
        self._device = device_of(self._name, context.device)
        self._model = model = _model(self._name, context)
        if isinstance(model, HuggingFaceEncoder):
            self.computes_in = COMPUTES_IN.get(context.settings.torch.dtype, "")
        settings = msgspec.structs.replace(
            context.settings,
            inputs={**model.padding, **context.settings.inputs},
            outputs={**model.output_padding, **context.settings.outputs},
        )
        self._inputs, self._outputs = with_padding(self._name, settings, model.inputs, model.outputs)
        self._packed = False
        if isinstance(model, HuggingFaceEncoder):
            self._packed = self._decide(model)
        else:
            check_growth(self._name, self._inputs, self._outputs, self._shapes)
        limit = context.settings.memory_mb << 20  # after a first run: it is what brings the weights into memory
        self.memory = MemoryWatch(limit or self._device.free(), self._device.peak())
        return ModelMeta(
            platform=model.platform,
            inputs=self._inputs,
            outputs=self._outputs,
            max_batch_size=model.fixed_rows,
            per_row_parameters=context.settings.per_row_parameters,
            unpadded=self._packed,
        )

    def warm_up(self, rows: Sequence[int], lengths: Sequence[int], repeats: int) -> list[Measurement]:
        unknown = warm_up.unknown_sizes(self._inputs)
        if unknown:
            log.info("not warmed up: input %s has sizes that are not padded and not fixed", unknown)
            return []
        fill = self._fill(lengths[0])

        def run(rows: int, length: int) -> None:
            warm_up.run_made_up(self, self._inputs, rows, length, fill)

        self._device.recording = not self._packed
        try:
            return warm_up.measure(
                rows, lengths, repeats, self._context.settings.batching.max_batch_tokens, run, self.memory
            )
        finally:
            self._device.recording = False

    def execute(self, parts: Sequence[PartArrays], durations: Durations) -> list[PartOutput]:
        begun = perf_counter_ns()
        problems = [self._model.problem(part) for part in parts]
        sound = [part for part, problem in zip(parts, problems, strict=True) if not problem]
        durations.hand_over = perf_counter_ns() - begun
        durations.execute = durations.finish = 0
        results = iter(self._run(sound, durations) if sound else [])
        return [
            PartError(f"model {self._name}: {problem}", "invalid_input") if problem else next(results)
            for problem in problems
        ]

    def unload(self) -> None:
        del self._model

    # -- running -------------------------------------------------------------------------------

    def _run(self, parts: Sequence[PartArrays], durations: Durations) -> list[PartOutput]:
        try:
            with torch.inference_mode():
                if self._packed and self._model.packs(parts):
                    return self._run_packed(parts, durations)
                return self._run_padded(parts, durations)
        except (MemoryError, RuntimeError):
            self._device.recover()
            raise

    def _run_packed(self, parts: Sequence[PartArrays], durations: Durations) -> list[PartOutput]:
        begun = perf_counter_ns()
        results = self._model.run_packed(parts)
        durations.execute = perf_counter_ns() - begun
        durations.finish = 1  # cutting is part of it
        return [*results]

    def _run_padded(self, parts: Sequence[PartArrays], durations: Durations) -> list[PartOutput]:
        begun = perf_counter_ns()
        model = self._model
        rows = sum(part.rows for part in parts)
        if model.fixed_rows and rows > model.fixed_rows:
            raise ResultError(f"model {self._name} takes {model.fixed_rows} rows at once, got {rows}")
        size = model.fixed_rows or max(rows, model.least_rows), max(part.length for part in parts)
        size = self._device.padded(*size)
        present = [model.present(part) for part in parts]
        fed = [
            (_extended(stack([one[meta.name] for one in present], meta, size[0]), meta, size[1]), meta.datatype)
            for meta in self._inputs
        ]
        stacked = perf_counter_ns()
        outputs = self._device.run(size, fed, model.run)
        executed = perf_counter_ns()
        check_rows(self._name, self._outputs, outputs, size[0])
        results = slice_back(self._outputs, outputs, parts)
        durations.hand_over += stacked - begun
        durations.execute = executed - stacked
        durations.finish = perf_counter_ns() - executed
        return results

    # -- at load -------------------------------------------------------------------------------

    def _decide(self, model: HuggingFaceEncoder) -> bool:
        """Whether batches run without padding: only what gives the same does, and in "auto" only what is no slower."""
        wanted = self._context.settings.torch.packing
        if wanted == "off":
            return False
        if not model.can_pack:
            if wanted == "on":
                raise LoadError(
                    f'model {self._name}: torch.packing = "on": this architecture cannot run without padding'
                )
            return False
        probes = _probes(model, self._inputs)
        with torch.inference_mode():
            packed = model.run_packed(probes)
            padded = [one for one in self._run_padded(probes, Durations()) if not isinstance(one, PartError)]
            names = [meta.name for meta in self._outputs]
            problem = differs(
                [one[name] for one in padded for name in names],
                [one[name] for one in packed for name in names],
                self._context.settings.torch.dtype,
            )
            if problem:
                log.warning("model %s runs padded: without padding %s", self._name, problem)
                return False
            if wanted == "auto" and not faster(
                lambda: model.run_packed(probes), lambda: self._run_padded(probes, Durations())
            ):
                log.info("model %s runs padded: that took no longer", self._name)
                return False
        log.info("model %s runs without padding", self._name)
        return True

    def _shapes(self, length: int) -> Shapes:
        """Of the outputs for made-up inputs; empty where the model takes neither ones nor zeros of this length."""
        if warm_up.unknown_sizes(self._inputs):
            return ()
        for fill in (1, 0):
            try:
                return self._made_up(length, fill)
            except Exception:
                log.debug("no answer to inputs of length %d", length, exc_info=True)
        return ()

    def _made_up(self, length: int, fill: int) -> Shapes:
        rows = self._model.fixed_rows or self._model.least_rows
        (part, *_) = warm_up.made_up(self._inputs, 1, length, fill)
        fed = [(stack([part.inputs[meta.name]], meta, rows), meta.datatype) for meta in self._inputs]
        with torch.inference_mode():
            return [output.shape for output in self._device.run((rows, length), fed, self._model.run)]

    def _fill(self, length: int) -> int:
        """What to warm up with: ones, for a mask of zeros may divide by zero; zeros where one is no legal index."""
        try:
            warm_up.run_made_up(self, self._inputs, 1, length, 1)
        except Exception:
            log.info("warming up with zeros: the model does not take ones", exc_info=True)
            return 0
        return 1


def _model(name: str, context: LoadContext) -> TorchModel:
    folder, settings = Path(context.path), context.settings.torch
    for file in FILES:
        if (folder / file).is_file():
            return Program(name, folder / file, settings, context.device)
    return HuggingFaceEncoder(name, folder, settings, context.device)


def _probes(model: HuggingFaceEncoder, inputs: Sequence[InputMeta]) -> list[PartArrays]:
    """Texts of mixed lengths, of tokens drawn at random but always the same, none of them the padding."""
    drawn = np.random.default_rng(0)
    known = np.delete(np.arange(model.vocabulary), model.padding_id)
    lengths = [length for length in LENGTHS if not model.longest or length <= model.longest]
    ids = [drawn.choice(known, (1, length)) for length in lengths]
    return [PartArrays(1, one.shape[1], {inputs[0].name: one}, {}) for one in ids]


def _extended(array: Array, meta: InputMeta, length: int) -> Array:
    """Padded on to a recorded size, where it is padded at all."""
    axis = meta.pad_axis
    if axis is None or array.shape[axis] >= length:
        return array
    widths: list[Any] = [(0, 0)] * array.ndim
    widths[axis] = (0, length - array.shape[axis])
    return np.pad(array, widths, constant_values=meta.pad_value)
