"""The default model by PyTorch, from the folder in its package, beside its ONNX export; however they are batched."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

from headway.config.load import load_model_settings
from headway.config.settings import ModelSettings, Torch
from headway.registry.encoders import filled_in
from headway.registry.minilm import find_source, prepare
from headway.worker.executor import LoadContext, PartArrays
from headway.worker.executors import create
from tests.conformance.executors import run

pytestmark = pytest.mark.slow

REPOSITORY = Path(__file__).parents[2] / ".headway" / "models"
LENGTHS = (3, 4, 9, 9, 17, 30, 44, 44, 90)


def text(length: int, seed: int) -> PartArrays:
    ids = np.random.default_rng((seed, length)).integers(1000, 30000, (1, length))
    inputs = {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)}
    return PartArrays(1, length, inputs, {})


PARTS = [text(length, seed) for seed, length in enumerate(LENGTHS)]


@pytest.fixture(scope="module")
def exported() -> Any:
    """The vectors of PARTS, each alone, by ONNX."""
    folder = prepare(REPOSITORY)
    settings, problems = load_model_settings(folder / "model.toml", {})
    assert settings is not None and not problems
    executor: Any = create("onnx")
    executor.load(LoadContext("minilm", 1, str(folder / "1"), "cpu", 1, settings))
    return np.concatenate([run(executor, [part])[0]["embedding"] for part in PARTS])


@pytest.mark.parametrize("packing", ["on", "off"])
@pytest.mark.parametrize(
    ("dtype", "batchings", "difference", "cosine"),
    [("float32", 8, 1e-5, 0.99999), ("bfloat16", 2, 2e-2, 0.999), ("int8", 4, 0.1, 0.97)],
)
def test_torch_and_onnx_give_the_same_vectors(
    exported: Any, dtype: Any, batchings: int, difference: float, cosine: float, packing: Any
):
    source = find_source()
    executor: Any = create("torch")
    settings = filled_in(source, ModelSettings(torch=Torch(dtype=dtype, packing=packing)))
    assert executor.load(LoadContext("minilm", 1, str(source), "cpu", 1, settings)).unpadded is (packing == "on")
    drawn = np.random.default_rng(7)
    for _ in range(batchings):
        cuts = np.sort(drawn.choice(np.arange(1, len(PARTS)), 3, replace=False))
        for batch in np.split(drawn.permutation(len(PARTS)), cuts):
            found = np.concatenate([one["embedding"] for one in run(executor, [PARTS[number] for number in batch])])
            assert np.abs(found - exported[batch]).max() <= difference
            assert (found * exported[batch]).sum(1).min() >= cosine
