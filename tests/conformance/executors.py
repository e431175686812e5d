"""The same masked mean by four executors, and how a test loads and feeds them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from headway.config.settings import ModelSettings, Padding, Torch
from headway.core.ids import Measurement
from headway.wire.messages import InputMeta, ModelMeta
from headway.worker.executor import Durations, LoadContext, PartArrays, PartError, PartOutput
from headway.worker.executors import create
from headway.worker.onnx_executor import OnnxExecutor
from headway.worker.python_executor import PythonExecutor
from tests import models

SETTINGS = ModelSettings(
    inputs={"values": Padding(), "mask": Padding()},
    outputs={"centred": Padding()},
    per_row_parameters=("scale",),
)

PYTHON_MASKED_MEAN = """
import numpy as np
from headway.worker.errors import InputError

class Model:
    inputs = {"values": ("FP32", [-1, -1]), "mask": ("INT64", [-1, -1])}
    outputs = {"mean": ("FP32", [-1]), "centred": ("FP32", [-1, -1])}
    warm_up = True

    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        values, mask = request["values"], request["mask"]
        if not mask.any(axis=1).all():
            return InputError("a mask of zeros has no mean")
        mean = (values * mask).sum(axis=1) / mask.sum(axis=1) * request.parameters.get("scale", 1)
        return {"mean": mean, "centred": values - mean[:, None]}
"""


class FakeExecutor:
    """Plain numpy, no padding: what the others are held against."""

    def load(self, context: LoadContext) -> ModelMeta:
        return ModelMeta(
            platform="fake",
            inputs=(
                InputMeta("values", "FP32", (-1, -1), pad_axis=1),
                InputMeta("mask", "INT64", (-1, -1), pad_axis=1),
            ),
            outputs=(InputMeta("mean", "FP32", (-1,)), InputMeta("centred", "FP32", (-1, -1), pad_axis=1)),
            per_row_parameters=context.settings.per_row_parameters,
        )

    def warm_up(self, rows: Sequence[int], lengths: Sequence[int], repeats: int) -> list[Measurement]:
        return [Measurement(count, length, 1) for count in rows for length in lengths for _ in range(repeats)]

    def execute(self, parts: Sequence[PartArrays], durations: Durations) -> list[PartOutput]:
        durations.hand_over = durations.execute = durations.finish = 1
        return [self._one(part) for part in parts]

    def _one(self, part: PartArrays) -> PartOutput:
        values, mask = part.inputs["values"], part.inputs["mask"]
        if not mask.any(axis=1).all():
            return PartError("a mask of zeros has no mean", "invalid_input")
        mean = ((values * mask).sum(axis=1) / mask.sum(axis=1) * part.parameters.get("scale", 1)).astype(np.float32)
        return {"mean": mean, "centred": values - mean[:, None]}

    def unload(self) -> None: ...


def context(folder: Path, settings: ModelSettings = SETTINGS, device: str = "cpu") -> LoadContext:
    """folder: NAME/VERSION."""
    return LoadContext(folder.parent.name, int(folder.name), str(folder), device, 1, settings)


def python_model(folder: Path, code: str) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "model.py").write_text(code)
    return folder


def masked_mean(kind: str, folder: Path) -> tuple[Any, ModelMeta]:
    """A loaded executor and what it says of itself."""
    if kind == "onnx":
        models.masked_mean(folder)
    elif kind.startswith("torch"):
        return torch_masked_mean(kind, folder)
    else:
        python_model(folder, PYTHON_MASKED_MEAN)
    executor: Any = {"onnx": OnnxExecutor, "python": PythonExecutor, "fake": FakeExecutor}[kind]()
    return executor, executor.load(context(folder))


SIGNATURE = Torch(
    inputs={"values": ("FP32", (-1, -1)), "mask": ("INT64", (-1, -1))},
    outputs={"mean": ("FP32", (-1,)), "centred": ("FP32", (-1, -1))},
)


def torch_masked_mean(kind: str, folder: Path) -> tuple[Any, ModelMeta]:
    """kind: "torch.export" or "torchscript". Skips the test where torch is not installed."""
    pytest.importorskip("torch")
    from tests import torch_models

    make = torch_models.exported_masked_mean if kind == "torch.export" else torch_models.scripted_masked_mean
    executor: Any = create("torch")
    settings = msgspec.structs.replace(SETTINGS, torch=SIGNATURE)
    return executor, executor.load(context(make(folder), settings))


def part(rows: int, length: int, seed: int, **parameters: Any) -> PartArrays:
    """Random values; in the mask at least one of each row is set."""
    random = np.random.default_rng(seed)
    mask = random.integers(0, 2, (rows, length))
    mask[:, 0] = 1
    inputs = {"values": random.normal(size=(rows, length)).astype(np.float32), "mask": mask}
    return PartArrays(rows, length, inputs, parameters)


def run(executor: Any, parts: Sequence[PartArrays]) -> list[Any]:
    outputs: list[Any] = executor.execute(parts, Durations())
    assert len(outputs) == len(parts)
    return outputs


def assert_same(one: dict[str, Any], other: dict[str, Any]) -> None:
    assert one.keys() == other.keys()
    for name in one:
        assert one[name].shape == other[name].shape
        np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-6)
