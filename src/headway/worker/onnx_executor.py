"""Runs an ONNX file with ONNX Runtime.

Names, datatypes and variable dimensions come from the file; padding comes from model.toml. The first
dimension of every input and output is the rows of the batch. Where the file fixes it, a smaller batch
is filled up with copies of its last row, and their answers are dropped.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from time import perf_counter_ns
from typing import Any

import numpy as np
import onnxruntime

from headway.core.ids import Measurement
from headway.wire.messages import ModelMeta
from headway.worker import devices, onnx_bfloat16, onnx_graph, warm_up
from headway.worker.declaration import with_padding
from headway.worker.errors import LoadError, ResultError, in_words
from headway.worker.executor import Array, Durations, LoadContext, PartArrays, PartError, PartOutput
from headway.worker.growth import Shapes, check_growth
from headway.worker.memory import HostPeak, MemoryWatch
from headway.worker.stacking import check_rows, slice_back, stack

OF_THE_DEVICE = ("Fail", "RuntimeException", "EPFail")
"""Errors of ONNX Runtime that a GPU may pass over; on the CPU they speak of the file."""


class OnnxExecutor:
    def load(self, context: LoadContext) -> ModelMeta:
        self._name = f"{context.model}/{context.version}"
        self._context = context
        self._session = _session(self._name, context)
        self.memory = MemoryWatch(context.settings.memory_mb << 20, HostPeak())
        inputs, self._fixed_rows = onnx_graph.declared_inputs(self._name, self._session)
        outputs = onnx_graph.declared_outputs(self._name, self._session)
        self._inputs, self._outputs = with_padding(self._name, context.settings, inputs, outputs)
        self._output_names = [output.name for output in self._outputs]
        self._bf16 = frozenset(tensor.name for tensor in self._inputs if tensor.datatype == "BF16")
        self._plain = not any(tensor.datatype == "BF16" for tensor in (*self._inputs, *self._outputs))
        self.computes_in = onnx_graph.computes_in(Path(context.path) / "model.onnx")
        self._decodes = any(tensor.datatype == "BYTES" for tensor in self._inputs)
        check_growth(self._name, self._inputs, self._outputs, self._shapes)
        return ModelMeta(
            platform="onnxruntime_onnx",
            inputs=self._inputs,
            outputs=self._outputs,
            max_batch_size=self._fixed_rows,
            per_row_parameters=context.settings.per_row_parameters,
        )

    def warm_up(self, rows: Sequence[int], lengths: Sequence[int], repeats: int) -> list[Measurement]:
        unknown = warm_up.unknown_sizes(self._inputs)
        if unknown:
            warm_up.log.info("not warmed up: input %s has sizes that are not padded and not fixed", unknown)
            return []
        fill = self._fill(lengths[0])

        def run(rows: int, length: int) -> None:
            warm_up.run_made_up(self, self._inputs, rows, length, fill)

        return warm_up.measure(
            rows, lengths, repeats, self._context.settings.batching.max_batch_tokens, run, self.memory
        )

    def execute(self, parts: Sequence[PartArrays], durations: Durations) -> list[PartOutput]:
        begun = perf_counter_ns()
        answered: list[PartOutput | None] = [None] * len(parts)
        if self._decodes:
            parts = self._decode(parts, answered)
        rows = sum(part.rows for part in parts)
        if self._fixed_rows and rows > self._fixed_rows:
            raise ResultError(f"model {self._name} takes {self._fixed_rows} rows at once, got {rows}")
        outputs: list[Array] = []
        stacked = executed = begun
        if parts:
            feeds = self._stack(parts, self._fixed_rows or rows)
            stacked = perf_counter_ns()
            outputs = self._run(feeds)
            executed = perf_counter_ns()
            check_rows(self._name, self._outputs, outputs, self._fixed_rows or rows)
        results = slice_back(self._outputs, outputs, parts)
        durations.hand_over = stacked - begun
        durations.execute = executed - stacked
        durations.finish = perf_counter_ns() - executed
        if len(results) == len(answered):
            return results
        ran = iter(results)
        return [next(ran) if answer is None else answer for answer in answered]

    def unload(self) -> None:
        del self._session

    def _run(self, feeds: dict[str, Array]) -> list[Array]:
        if not self._plain:
            return onnx_bfloat16.run(self._session, self._output_names, feeds, self._bf16)
        outputs: list[Array] = self._session.run(self._output_names, feeds)
        return outputs

    def _stack(self, parts: Sequence[PartArrays], rows: int) -> dict[str, Array]:
        present = parts[0].inputs  # the same in all of a batch: which inputs there are is part of the batch key
        return {
            meta.name: stack([part.inputs[meta.name] for part in parts], meta, rows)
            for meta in self._inputs
            if meta.name in present
        }

    def _decode(self, parts: Sequence[PartArrays], answered: list[PartOutput | None]) -> list[PartArrays]:
        """ONNX strings are text: a part that is not UTF-8 fails alone, its answer in `answered`."""
        decoded: list[PartArrays] = []
        for number, part in enumerate(parts):
            try:
                decoded.append(PartArrays(part.rows, part.length, _as_text(part.inputs), part.parameters))
            except UnicodeDecodeError as error:
                answered[number] = PartError(
                    f"model {self._name} takes text, got bytes that are not UTF-8: {error}", "invalid_input"
                )
        return decoded

    def _shapes(self, length: int) -> Shapes:
        """Of the outputs for made-up inputs; empty where the model takes neither ones nor zeros of this length."""
        if warm_up.unknown_sizes(self._inputs):
            return ()
        for fill in (1, 0):
            try:
                feeds = self._stack(warm_up.made_up(self._inputs, 1, length, fill), self._fixed_rows or 1)
                return [output.shape for output in self._run(feeds)]
            except Exception:
                warm_up.log.debug("no answer to inputs of length %d", length, exc_info=True)
        return ()

    def _fill(self, length: int) -> int:
        """What to warm up with: ones, for a mask of zeros may divide by zero; zeros where one is no legal index."""
        try:
            warm_up.run_made_up(self, self._inputs, 1, length, 1)
        except Exception:
            warm_up.log.info("warming up with zeros: the model does not take ones", exc_info=True)
            return 0
        return 1


def _as_text(inputs: dict[str, Array]) -> dict[str, Array]:
    return {name: _decoded(array) if array.dtype == object else array for name, array in inputs.items()}


def _decoded(array: Array) -> Array:
    text = np.empty(array.size, dtype=object)
    text[:] = [element.decode() for element in array.ravel().tolist()]
    return text.reshape(array.shape)


def _session(name: str, context: LoadContext) -> Any:
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = context.threads
    options.inter_op_num_threads = 1
    # workers share the cores: a thread that spins while it waits takes them from its neighbours
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    options.log_severity_level = 3
    wanted = devices.providers(name, context.device, onnxruntime.get_available_providers())
    file = Path(context.path) / "model.onnx"
    try:
        session = onnxruntime.InferenceSession(str(file), options, providers=wanted)
    except Exception as error:  # ONNX Runtime has a type of its own for each of its codes
        if context.device != "cpu" and type(error).__name__ in OF_THE_DEVICE:
            raise
        raise LoadError(f"model {name}: ONNX Runtime cannot load {file.name}: {in_words(error)}") from error
    devices.check_used(name, context.device, session.get_providers())
    return session
