"""Runs a user's Python: the class `Model` of a `model.py`.

    import numpy as np
    from headway.worker.errors import InputError

    class Model:
        inputs = {"x": ("FP32", [-1, 4])}        # name: (datatype, shape); the first dimension is the rows
        outputs = {"y": ("FP32", [-1, 4])}
        optional_inputs = {}                     # as inputs; a request may leave them out

        def load(self, context): ...             # optional: context.path, .device, .threads, .settings.options

        def execute(self, requests):             # a list of requests in, a list of results out, same order
            return [{"y": request["x"] * 2} for request in requests]

        def unload(self): ...                    # optional

A request is a dict of name -> numpy array (read-only; BYTES: an object array of `bytes`; BF16: uint16, which
`headway.wire.bfloat16.to_float32` makes numbers of), with the attributes
`rows`, `length` (size along the padded axis) and `parameters` (the request's own, JSON values). A request with
several rows of different lengths comes as several of these. Nothing is padded: the model sees each as it was sent.
Inputs of different sizes come together only along an axis that model.toml declares as padded; pad there yourself.

A result is a dict of name -> array or list, one row per row of the request (BF16: uint16 as it is, other numbers are
rounded); or an exception, *returned*, which
fails that request alone: an `InputError` is the sender's fault, anything else the model's. An exception that is
*raised* fails the whole batch. With `warm_up = True` the model is run on ones before it is ready.

Instead of `execute`, a model that answers over time has

        def stream(self, request):               # request: the body, as JSON values
            for word in request["text_input"].split():
                yield {"text_output": word}      # JSON values; each is sent at once

Up to `max_sequences` (model.toml) run at a time, one `next()` each in turn, so a step should be short. When the
client goes away the generator is closed: `finally` blocks run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import perf_counter_ns
from typing import Any

from headway.core.ids import Measurement
from headway.wire.messages import ModelMeta
from headway.worker import devices, warm_up
from headway.worker.declaration import with_padding
from headway.worker.errors import LoadError, ResultError
from headway.worker.executor import Array, Durations, LoadContext, PartArrays, PartOutput
from headway.worker.memory import HostPeak, MemoryWatch
from headway.worker.python_model import declared, model_class
from headway.worker.python_results import check_result


class Request(dict[str, Array]):
    """What a model's `execute` sees of a request."""

    __slots__ = ("length", "parameters", "rows")

    def __init__(self, part: PartArrays) -> None:
        super().__init__(part.inputs)
        self.rows = part.rows
        self.length = part.length
        self.parameters = part.parameters


class PythonExecutor:
    """Both kinds: `execute` works for a Model that has execute, `start` for one that has stream (meta.streaming)."""

    def load(self, context: LoadContext) -> ModelMeta:
        self._name = f"{context.model}/{context.version}"
        self._context = context
        devices.check_there(self._name, context.device)
        found = model_class(self._name, context.path)
        streaming = hasattr(found, "stream")
        required = declared(self._name, found, "inputs")
        optional = declared(self._name, found, "optional_inputs", optional=True)
        outputs = declared(self._name, found, "outputs")
        if not streaming and not (required + optional and outputs):
            raise LoadError(f"model {self._name}: class Model must declare its inputs and outputs")
        self._inputs, self._outputs = with_padding(self._name, context.settings, required + optional, outputs)
        self._model = found()
        if hasattr(self._model, "load"):
            self._model.load(context)
        self.memory = MemoryWatch(context.settings.memory_mb << 20, HostPeak())
        return ModelMeta(
            platform="python",
            inputs=self._inputs,
            outputs=self._outputs,
            streaming=streaming,
            per_row_parameters=context.settings.per_row_parameters,
        )

    @property
    def takes_made_up(self) -> bool:
        """Made-up inputs may mean anything to a model; it has to say that it takes them."""
        return bool(getattr(self._model, "warm_up", False))

    def warm_up(self, rows: Sequence[int], lengths: Sequence[int], repeats: int) -> list[Measurement]:
        if not self.takes_made_up or warm_up.unknown_sizes(self._inputs):
            return []

        def run(rows: int, length: int) -> None:
            warm_up.run_made_up(self, self._inputs, rows, length, 1)

        return warm_up.measure(
            rows, lengths, repeats, self._context.settings.batching.max_batch_tokens, run, self.memory
        )

    def execute(self, parts: Sequence[PartArrays], durations: Durations) -> list[PartOutput]:
        begun = perf_counter_ns()
        requests = [Request(part) for part in parts]
        made = perf_counter_ns()
        results = self._model.execute(requests)
        executed = perf_counter_ns()
        checked = self._check(results, parts)
        durations.hand_over = made - begun
        durations.execute = executed - made
        durations.finish = perf_counter_ns() - executed
        return checked

    def _check(self, results: Any, parts: Sequence[PartArrays]) -> list[PartOutput]:
        if not isinstance(results, (list, tuple)):
            raise ResultError(f"model {self._name} returned a {type(results).__name__}; expected a list of results")
        if len(results) != len(parts):
            raise ResultError(f"model {self._name} returned {len(results)} results for {len(parts)} requests")
        return [
            check_result(self._name, self._outputs, result, part.rows)
            for result, part in zip(results, parts, strict=True)
        ]

    def start(self, body: dict[str, Any]) -> Iterator[Any]:
        return iter(self._model.stream(body))

    def unload(self) -> None:
        if hasattr(self._model, "unload"):
            self._model.unload()
