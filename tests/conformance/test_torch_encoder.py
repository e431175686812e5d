"""Encoders by PyTorch: a folder of Hugging Face as it lies on disk."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

torch = pytest.importorskip("torch")

from headway.config.settings import ModelSettings, Torch  # noqa: E402
from headway.registry.encoders import filled_in  # noqa: E402
from headway.worker import torch_packed  # noqa: E402
from headway.worker.errors import LoadError  # noqa: E402
from headway.worker.executor import Durations, PartArrays, PartError  # noqa: E402
from headway.worker.executors import create  # noqa: E402
from headway.worker.torch_executor import TorchExecutor  # noqa: E402
from tests import torch_models  # noqa: E402
from tests.conformance.executors import context, run  # noqa: E402

LENGTHS = [5, 1, 17, 5, 2, 40, 17, 1]


def load(folder: Path, **settings: Any) -> Any:
    executor: Any = create("torch")
    executor.load(context(folder, filled_in(folder, ModelSettings(torch=Torch(**settings)))))
    return executor


def text(length: int, seed: int = 0, rows: int = 1) -> PartArrays:
    """Ids alone: mask and token types are made up."""
    ids = np.random.default_rng((seed, length)).integers(2, torch_models.VOCABULARY, (rows, length))
    return PartArrays(rows, length, {"input_ids": ids}, {})


def reference(folder: Path, part: PartArrays) -> Any:
    """transformers' own states of it, [rows, length, width]."""
    from transformers import AutoModel

    module = AutoModel.from_pretrained(str(folder), local_files_only=True).eval()
    with torch.no_grad():
        return module(torch.from_numpy(part.inputs["input_ids"].copy())).last_hidden_state.numpy()


def unit(vectors: Any) -> Any:
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return torch_models.encoder(tmp_path_factory.mktemp("encoder") / "e" / "1")


@pytest.mark.parametrize("packing", ["on", "off"])
@pytest.mark.parametrize("kind", ["bert", "roberta"])
def test_texts_of_mixed_lengths_have_the_vectors_that_transformers_gives_them_alone(
    tmp_path: Path, kind: str, packing: str
):
    folder = torch_models.encoder(tmp_path / "e" / "1", kind)
    executor = load(folder, packing=packing)
    assert executor._packed is (packing == "on")
    parts = [text(length, seed) for seed, length in enumerate(LENGTHS)]
    for part, output in zip(parts, run(executor, parts), strict=True):
        expected = unit(reference(folder, part).mean(1))
        np.testing.assert_allclose(output["embedding"], expected, atol=1e-5)


def test_a_text_with_padding_inside_is_as_transformers_has_it_where_positions_depend_on_it(tmp_path: Path):
    folder = torch_models.encoder(tmp_path / "e" / "1", "roberta")
    executor = load(folder, packing="on")
    padded = PartArrays(1, 5, {"input_ids": np.array([[3, 0, 4, 5, 6]])}, {})
    outputs = run(executor, [padded, text(3)])
    np.testing.assert_allclose(outputs[0]["embedding"], unit(reference(folder, padded).mean(1)), atol=1e-5)


@pytest.mark.parametrize("packing", ["on", "off"])
def test_rows_of_one_part_stay_together(folder: Path, packing: str):
    executor = load(folder, packing=packing)
    parts = [text(9), text(4, rows=3), text(4, 1), text(2)]
    outputs = run(executor, parts)
    assert [len(output["embedding"]) for output in outputs] == [1, 3, 1, 1]
    np.testing.assert_allclose(outputs[1]["embedding"], unit(reference(folder, parts[1]).mean(1)), atol=1e-5)


@pytest.mark.parametrize("packing", ["on", "off"])
@pytest.mark.parametrize(
    ("pooling", "normalize", "expected"),
    [
        ("mean", True, lambda states: unit(states.mean(1))),
        ("mean", False, lambda states: states.mean(1)),
        ("cls", False, lambda states: states[:, 0]),
        ("none", None, lambda states: states),
    ],
)
def test_settings_of_pooling_come_before_what_the_folder_says(
    folder: Path, pooling: str, normalize: bool | None, expected: Any, packing: str
):
    executor = load(folder, pooling=pooling, normalize=normalize, packing=packing)
    parts = [text(7), text(3, rows=2), text(7, 1)]
    for part, output in zip(parts, run(executor, parts), strict=True):
        (found,) = output.values()
        np.testing.assert_allclose(found, expected(reference(folder, part)), rtol=1e-4, atol=1e-4)


def test_a_folder_that_says_cls_without_normalize_is_believed(tmp_path: Path):
    folder = torch_models.encoder(tmp_path / "e" / "1", pooling="cls", normalize=False)
    (output,) = run(load(folder), [text(6)])
    np.testing.assert_allclose(output["embedding"], reference(folder, text(6))[:, 0], rtol=1e-4, atol=1e-4)


def test_a_text_that_hides_tokens_by_its_mask_is_as_without_them(folder: Path):
    executor = load(folder, packing="on")
    short, mask = text(5), np.array([[1] * 5 + [0] * 4])
    ids = np.concatenate([short.inputs["input_ids"], np.full((1, 4), 3)], axis=1)
    hidden = PartArrays(1, 9, {"input_ids": ids, "attention_mask": mask}, {})
    outputs = run(executor, [hidden, text(3)])
    np.testing.assert_allclose(outputs[0]["embedding"], run(executor, [short])[0]["embedding"], atol=1e-5)


@pytest.mark.parametrize("packing", ["on", "off"])
def test_token_types_are_used(folder: Path, packing: str):
    executor = load(folder, packing=packing)
    plain = text(6)
    types = PartArrays(1, 6, {**plain.inputs, "token_type_ids": np.ones((1, 6), np.int64)}, {})
    one, other = run(executor, [plain, types])
    assert np.abs(one["embedding"] - other["embedding"]).max() > 1e-3


@pytest.mark.parametrize(
    ("inputs", "told"),
    [
        ({"input_ids": np.array([[2, 50]])}, "input_ids holds 2 to 50, the model takes 0 to 49"),
        ({"input_ids": np.array([[-1, 2]])}, "input_ids holds -1 to 2, the model takes 0 to 49"),
        ({"input_ids": np.full((1, 65), 2)}, "input_ids has 65 tokens, the model takes 64"),
        (
            {"input_ids": np.array([[2]]), "token_type_ids": np.array([[2]])},
            "token_type_ids holds 2 to 2, the model takes 0 to 1",
        ),
    ],
)
def test_what_the_model_cannot_take_fails_alone_and_never_reaches_it(folder: Path, inputs: Any, told: str):
    executor = load(folder)
    bad = PartArrays(1, inputs["input_ids"].shape[1], inputs, {})
    good, failed, also_good = run(executor, [text(3), bad, text(4)])
    assert isinstance(failed, PartError) and failed.code == "invalid_input"
    assert failed.detail == f"model e/1: {told}"
    assert good["embedding"].shape == also_good["embedding"].shape == (1, torch_models.WIDTH)


DTYPES = [("float32", 1e-5, 0.99999), ("bfloat16", 2e-2, 0.999), ("float16", 2e-2, 0.999), ("int8", 0.2, 0.97)]


@pytest.mark.parametrize("packing", ["on", "off"])
@pytest.mark.parametrize(("dtype", "difference", "cosine"), DTYPES)
def test_every_dtype_is_near_float32_however_batched(
    folder: Path, dtype: str, difference: float, cosine: float, packing: str
):
    executor, exact = load(folder, dtype=dtype, packing=packing), load(folder, packing="off")
    assert executor.computes_in == {"bfloat16": "BF16", "float16": "FP16", "int8": "INT8"}.get(dtype, "")
    drawn = np.random.default_rng(5)
    parts = [text(int(length), seed) for seed, length in enumerate(drawn.integers(1, 40, 24))]
    expected = np.concatenate([run(exact, [part])[0]["embedding"] for part in parts])
    for _ in range(6):
        order = drawn.permutation(len(parts))
        cuts = np.sort(drawn.choice(np.arange(1, len(parts)), 5, replace=False))
        for batch in np.split(order, cuts):
            outputs = run(executor, [parts[number] for number in batch])
            found = np.concatenate([output["embedding"] for output in outputs])
            assert np.abs(found - expected[batch]).max() <= difference
            assert (found * expected[batch]).sum(1).min() >= cosine


def test_an_answer_in_int8_does_not_depend_on_the_neighbours_of_a_text(folder: Path):
    executor = load(folder, dtype="int8", packing="on")
    assert executor._packed
    parts = [text(length, seed) for seed, length in enumerate(LENGTHS)]
    together = np.concatenate([output["embedding"] for output in run(executor, parts)])
    alone = np.concatenate([run(executor, [part])[0]["embedding"] for part in parts])
    np.testing.assert_allclose(together, alone, atol=1e-6)


def test_packing_that_gives_something_else_is_not_used(
    folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    right = torch_packed.PackedEncoder.states

    def shifted(self: Any, ids: Any, types: Any, blocks: Any) -> Any:
        return right(self, ids.roll(1), types, blocks)

    monkeypatch.setattr(torch_packed.PackedEncoder, "states", shifted)
    executor = load(folder, packing="on")
    assert not executor._packed
    assert "model e/1 runs padded: without padding it is off by" in caplog.text
    np.testing.assert_allclose(
        run(executor, [text(5)])[0]["embedding"], unit(reference(folder, text(5)).mean(1)), atol=1e-5
    )


def test_packing_that_is_slower_is_used_only_where_it_is_demanded(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headway.worker.torch_executor.faster", lambda one, other: False)
    assert not load(folder, packing="auto")._packed
    assert load(folder, packing="on")._packed


def test_another_architecture_runs_padded_and_says_so_where_packing_is_demanded(tmp_path: Path):
    folder = torch_models.encoder(tmp_path / "e" / "1", "distilbert")
    executor = load(folder)
    parts = [text(7), text(3)]
    for part, output in zip(parts, run(executor, parts), strict=True):
        np.testing.assert_allclose(output["embedding"], unit(reference(folder, part).mean(1)), atol=1e-5)
    with pytest.raises(LoadError, match=r'model e/1: torch.packing = "on": this architecture cannot run without'):
        load(folder, packing="on")


def test_its_threads_are_those_of_the_worker(folder: Path):
    load(folder)
    assert torch.get_num_threads() == 1


def test_warming_up_runs_the_grid(folder: Path):
    found = load(folder).warm_up((1, 3), (2, 8), 2)
    assert {(one.rows, one.length) for one in found} == {(1, 2), (1, 8), (3, 2), (3, 8)}


def test_the_phases_of_a_padded_and_of_a_packed_batch_are_timed(folder: Path):
    for packing in ("on", "off"):
        durations = Durations()
        load(folder, packing=packing).execute([text(3), text(4)], durations)
        assert min(durations.hand_over, durations.execute, durations.finish) > 0


# -- folders that cannot be served -----------------------------------------------------------------


def broken(folder: Path, problem: str) -> None:
    config = json.loads((folder / "config.json").read_text())
    weights = folder / "model.safetensors"
    if problem == "corrupt":
        weights.write_bytes(b"\x10" + weights.read_bytes()[1:])
    elif problem == "cut":
        weights.write_bytes(weights.read_bytes()[:2000])
    elif problem == "unknown":
        config["model_type"] = "no-such-model"
    elif problem == "sizes":
        config["hidden_size"] = 64
    elif problem == "layers":
        config["num_hidden_layers"] = 3
    elif problem == "pickle":
        weights.rename(folder / "pytorch_model.bin")
    elif problem == "code":
        config["auto_map"] = {"AutoModel": "own.Own", "AutoConfig": "own.OwnConfig"}
        config["model_type"] = "own"
        (folder / "own.py").write_text("raise SystemExit('code of the folder has run')\n")
    (folder / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        ("corrupt", "transformers cannot load this folder: "),
        ("cut", "transformers cannot load this folder: "),
        ("unknown", "transformers cannot load this folder: .*no-such-model"),
        ("sizes", "transformers cannot load this folder: .*size"),
        ("layers", "the weights lack 16 tensors, among them encoder.layer.2."),
        ("pickle", "transformers cannot load this folder: .*safetensors"),
        ("code", "transformers cannot load this folder: .*trust_remote_code"),
    ],
)
def test_a_folder_that_is_not_whole_is_refused_with_a_reason(tmp_path: Path, problem: str, told: str):
    folder = torch_models.encoder(tmp_path / "e" / "1")
    settings = filled_in(folder, ModelSettings())
    broken(folder, problem)
    with pytest.raises(LoadError, match=rf"(?s)model e/1: {told}"):
        TorchExecutor().load(context(folder, settings))


def test_int8_is_for_processors_only(folder: Path, monkeypatch: pytest.MonkeyPatch):
    from headway.worker.torch_device import Cpu

    monkeypatch.setattr("headway.worker.torch_executor.device_of", lambda name, device: Cpu())
    with pytest.raises(LoadError, match=r'torch.dtype = "int8" is for device = "cpu", this is \'cuda:0\''):
        TorchExecutor().load(context(folder, ModelSettings(torch=Torch(dtype="int8")), device="cuda:0"))


def test_a_gpu_that_torch_does_not_find_is_told(folder: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("headway.worker.devices.check_there", lambda name, device: None)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(LoadError, match=r"device 'cuda:0': the installed torch .* finds no CUDA"):
        TorchExecutor().load(context(folder, ModelSettings(), device="cuda:0"))


def test_what_a_folder_says_fills_in_what_is_not_set(folder: Path):
    settings = filled_in(folder, ModelSettings())
    assert settings.embeddings is not None
    assert (settings.embeddings.max_length, settings.embeddings.output) == (40, "embedding")
    assert settings.max_length == 64
    assert {name: (one.minimum, one.maximum) for name, one in settings.bounds.items()} == {
        "input_ids": (0, 49),
        "attention_mask": (0, 1),
        "token_type_ids": (0, 1),
    }
    own = msgspec.structs.replace(ModelSettings(), max_length=20)
    assert filled_in(folder, own).max_length == 20
    assert filled_in(folder, ModelSettings(torch=Torch(pooling="none"))).embeddings is None
